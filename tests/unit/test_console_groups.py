"""Goal: what a group's page says is what the group's operations say; a preview of a reset is what
the reset then does.
Method: groups on a simulated disk; pages beside operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.groups import lag_history
from kafkalog.broker.groups.consumers import ConsumerConfig
from kafkalog.broker.groups.groups import ResetTarget
from kafkalog.console.views import groups as module
from kafkalog.console.views.groups import (
    GroupOrder,
    GroupView,
    ResetView,
    group_view,
    groups_view,
    members_of,
    reset_view,
)
from kafkalog.errors import UnknownGroup, UnknownTopic
from tests.unit.test_console_views import page_of
from tests.unit.test_group_offsets import T0, T1, U0, commit, world

if TYPE_CHECKING:
    from tests.sim.sim_manager import SimManager


def shown(sim: SimManager, group: str, page: int = 1) -> GroupView:
    members = members_of(sim.operations.groups, group)
    return group_view(sim.operations, group, members, page)


def test_the_list() -> None:
    sim = world()
    commit(sim, "late", {T0: 1, U0: 0})
    commit(sim, "<b>", {T1: 3})
    sim.operations.groups.members.create("readers", "one", ConsumerConfig())
    view = groups_view(sim.operations, sim.operations.groups.summaries(), "", 1)
    rows = [(each.group, each.state, each.members, each.topics, each.lag) for each in view.groups]
    assert rows == [
        ("<b>", "Empty", 0, ["t"], 0),
        ("late", "Empty", 0, ["t", "u"], 5),
        ("readers", "Stable", 1, [], None),
    ]
    html = page_of(view)
    assert "<b>" not in html
    assert "/console/groups/%3Cb%3E/offsets" in html
    found = groups_view(sim.operations, sim.operations.groups.summaries(), "at", 1)
    assert [each.group for each in found.groups] == ["late"]
    page_of(groups_view(sim.operations, [], "", 1))


@pytest.mark.parametrize(
    ("topic", "sort", "names"),
    [
        ("", GroupOrder.NAME, ["behind", "done", "readers"]),
        ("", GroupOrder.LAG, ["behind", "done", "readers"]),
        ("", GroupOrder.MEMBERS, ["readers", "behind", "done"]),
        ("u", GroupOrder.LAG, ["behind"]),
        ("t", GroupOrder.LAG, ["behind", "done"]),
        ("<b>", GroupOrder.NAME, []),
    ],
)
def test_the_order_of_the_list(topic: str, sort: GroupOrder, names: list[str]) -> None:
    sim = world()
    commit(sim, "behind", {T0: 1, U0: 0})
    commit(sim, "done", {T1: 3})
    sim.operations.groups.members.create("readers", "one", ConsumerConfig())
    summaries = sim.operations.groups.summaries()
    view = groups_view(sim.operations, summaries, "", 1, topic=topic, sort=sort)
    assert [each.group for each in view.groups] == names
    assert view.total == len(names)
    assert ("aria-sort" in page_of(view)) == bool(names)


def test_a_group_beside_its_logs() -> None:
    sim = world()
    commit(sim, "g", {T0: 1, U0: 0})
    groups = sim.operations.groups
    consumer = groups.members.create("g", "worker", ConsumerConfig())
    groups.members.subscribe(consumer, ["t"], None)
    view = shown(sim, "g")
    assert (view.state, view.lag, view.largest_lag, view.topics) == ("Stable", 5, 3, ["t", "u"])
    assert [
        (each.topic, each.partition, each.offset, each.log_end_offset, each.lag, each.member)
        for each in view.partitions
    ] == [
        ("t", 0, 1, 3, 2, "worker"),
        ("t", 1, None, None, None, "worker"),
        ("u", 0, 0, 3, 3, None),
    ]
    assert [(each.name, each.topics, each.partitions) for each in view.members] == [
        ("worker", ["t"], 2)
    ]
    assert "Delete permanently" not in page_of(view)
    groups.members.delete(consumer)
    assert "Delete permanently" in page_of(shown(sim, "g"))
    with pytest.raises(UnknownGroup):
        shown(sim, "none")


def test_what_is_deleted_before_it_was_read() -> None:
    """Lag is Kafka's, log end less commit; how much of it is gone stands beside it."""
    sim = world()
    commit(sim, "g", {T0: 1, T1: 1, U0: 0})
    assert shown(sim, "g").deleted == 0
    assert "deleted</span>" not in page_of(shown(sim, "g"))
    assert sim.delete_records("t", 3).error is None
    assert sim.delete_records("u", 1).error is None
    view = shown(sim, "g")
    assert (view.lag, view.deleted) == (7, 3)
    rows = [(each.log_start_offset, each.lag, each.deleted) for each in view.partitions]
    assert rows == [(3, 2, 2), (0, 2, 0), (1, 3, 1)]
    html = page_of(view)
    assert "3 offsets of the lag were deleted before the group read them" in html
    assert html.count(" deleted</span>") == 3
    listed = groups_view(sim.operations, sim.operations.groups.summaries(), "", 1)
    assert [(each.lag, each.deleted) for each in listed.groups] == [(7, 3)]
    assert "3 deleted</span>" in page_of(listed)


def test_a_wrong_confirmation_is_told_by_the_browser() -> None:
    """Its pattern is just the name, so that nothing typed is lost to a page of an error."""
    sim = world()
    commit(sim, "a.b+(c)|[d]", {T0: 1})
    html = page_of(shown(sim, "a.b+(c)|[d]"))
    assert r'pattern="a\.b\+\(c\)\|\[d\]"' in html


def test_a_long_group_has_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARTITIONS_A_PAGE", 2)
    sim = world()
    commit(sim, "g", {T0: 1, T1: 1, U0: 0})
    first, second = shown(sim, "g"), shown(sim, "g", 2)
    assert [len(each.partitions) for each in (first, second)] == [2, 1]
    assert (first.lag, second.lag, second.partition_count) == (7, 7, 3)
    assert "Next" in page_of(first)


def preview(sim: SimManager, target: ResetTarget | None, topic: str = "") -> ResetView:
    members = members_of(sim.operations.groups, "g")
    return reset_view(sim.operations, "g", members, target, topic)


@pytest.mark.parametrize(
    ("target", "news", "again", "skipped"),
    [
        (ResetTarget("earliest"), [0, 0], 3, 0),
        (ResetTarget("latest"), [3, 3], 0, 3),
        (ResetTarget("offset", 2), [2, 2], 0, 1),
        (ResetTarget("offset", 99), [3, 3], 0, 3),
        (ResetTarget("shift", -1), [0, 1], 2, 0),
        (ResetTarget("shift", 1), [2, 3], 0, 2),
        (ResetTarget("timestamp", 1 << 60), [3, 3], 0, 3),
        (ResetTarget("timestamp", 0), [0, 0], 3, 0),
    ],
)
def test_a_preview(target: ResetTarget, news: list[int], again: int, skipped: int) -> None:
    sim = world()
    commit(sim, "g", {T0: 1, U0: 2})
    view = preview(sim, target)
    assert [(each.old_offset, each.new_offset) for each in view.partitions] == [
        (1, news[0]),
        (2, news[1]),
    ]
    assert (view.again, view.skipped) == (again, skipped)
    assert "Reset 2 partitions" in page_of(view)
    assert {at: each.offset for at, each in sim.manager.group_offsets.committed("g").items()} == {
        T0: 1,
        U0: 2,
    }


@pytest.mark.parametrize(
    ("target", "topic", "moves", "words"),
    [
        (ResetTarget("earliest"), "", (2, 0, 2), "<strong>2 offsets again</strong>, in"),
        (ResetTarget("earliest"), "t", (0, 0, 2), "would skip nothing that is there"),
        (ResetTarget("latest"), "", (0, 2, 2), "<strong>skip 2 offsets</strong>"),
        (ResetTarget("shift", 3), "", (0, 2, 2), "2 offsets after its commits are deleted already"),
    ],
)
def test_what_is_deleted_is_not_skipped(
    target: ResetTarget, topic: str, moves: tuple[int, int, int], words: str
) -> None:
    sim = world()
    commit(sim, "g", {T0: 0, U0: 2})
    assert sim.delete_records("t", 2).error is None
    view = preview(sim, target, topic)
    assert (view.again, view.skipped, view.deleted) == moves
    assert words in page_of(view)


def test_a_preview_of_what_has_no_commit() -> None:
    sim = world()
    commit(sim, "g", {T0: 1})
    view = preview(sim, ResetTarget("earliest"), "u")
    assert [(each.topic, each.old_offset, each.new_offset) for each in view.partitions] == [
        ("u", None, 0)
    ]
    view = preview(sim, ResetTarget("shift", 1), "t")
    assert [each.fault for each in view.partitions] == [None, "t-1 has no commit to shift"]
    page_of(view)
    with pytest.raises(UnknownTopic):
        preview(sim, ResetTarget("earliest"), "none")
    assert preview(sim, None).partitions == []
    page_of(preview(sim, None))


def test_members_come_first() -> None:
    sim = world()
    commit(sim, "g", {T0: 1})
    sim.operations.groups.members.create("g", "m", ConsumerConfig())
    html = page_of(preview(sim, ResetTarget("earliest")))
    assert "The group has 1 member" in html
    assert "Reset 1 partition" not in html


def test_lag_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample a minute of what was there then; groups that are gone have none."""
    sim = world()
    commit(sim, "g", {T0: 1, U0: 0})
    history = sim.manager.group_offsets.lag_history
    assert history.of("g") == []
    sim.clock.advance_ms(60_000)
    commit(sim, "g", {T0: 3})
    sim.clock.advance_ms(60_000)
    (first_ms, first), (second_ms, second) = history.of("g")
    assert (first, second) == (5, 3)
    assert second_ms - first_ms == 60_000
    view = shown(sim, "g")
    assert [each.lag for each in view.lags] == [5, 3]
    assert "Lag over time" in page_of(view)
    sim.clock.advance_ms(61 * 60_000)
    assert len(history.of("g")) == 60
    monkeypatch.setattr(lag_history, "GROUPS_MAX", 1)
    commit(sim, "a", {T0: 0})
    sim.clock.advance_ms(60_000)
    assert (len(history.of("a")), history.of("g")) == (1, [])
