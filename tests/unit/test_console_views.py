"""Goal: a page shows what the operations say and nothing else, alike in both renderers.
Method: managers on a simulated disk and clock; pages beside the operations they show.
"""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import category

import pytest

from kafkalog.broker.access_rules import parse_access_rules
from kafkalog.broker.authorized import authorized
from kafkalog.broker.values import ConfigChange
from kafkalog.console.formatting import UNPRINTABLE
from kafkalog.console.rendering import Frame, render_error, render_html, render_json
from kafkalog.console.segment_states import reason_of
from kafkalog.console.views import topics
from kafkalog.console.views.configs import configs_view
from kafkalog.console.views.daemon import about_view, log_dirs_view, tasks_view
from kafkalog.console.views.delete_records import delete_records_view
from kafkalog.console.views.offsets import Question, offsets_view
from kafkalog.console.views.overview import overview_view
from kafkalog.console.views.partition import SEGMENTS_A_PAGE, DueView, ScheduleView, partition_view
from kafkalog.console.views.retention import retention_view, retentions_view
from kafkalog.console.views.topics import TopicOrder, pick_topic_view, topic_view, topics_view
from kafkalog.errors import InvalidTopicConfig, UnknownPartition, UnknownTopic
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.topic_names import is_internal
from kafkalog.log.retention.forecast import Schedule
from kafkalog.log.retention.plan import plan
from tests.cleaning_daemon import NOW_MS, keyed_batch
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import SimManager
from tests.there import there
from tests.unit.test_retention import MINUTE, bases, fill, put, started

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    from kafkalog.broker.retention.maintenance import LogDescription
    from kafkalog.console.view import View


ROOT = Path(__file__).resolve().parents[2]
NEVER = 10**12
STILL = Frame("/console", "", is_refreshing=False)
_VOID = {"meta", "link", "input", "br", "img"}


class _Nesting(HTMLParser):
    """Every tag that is opened is closed, in order; ids stand once."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in _VOID or self.open.pop() == tag


def page_of(view: View, frame: Frame = STILL) -> str:
    """The HTML, which nests and has a heading and a title."""
    html = render_html(view, frame).decode()
    nesting = _Nesting()
    nesting.feed(html)
    assert nesting.open == []
    assert len(nesting.ids) == len(set(nesting.ids))
    assert html.lstrip().startswith("<!DOCTYPE html>")
    assert html.count("<h1>") == 1
    for table in re.findall(r"<table>.*?</table>", html, re.DOTALL):
        assert "<caption>" in table
        assert 'scope="col"' in table
    assert json.loads(render_json(view))["now_ms"] == view.now_ms
    return html


def filled(**configs: str) -> SimManager:
    """A topic with four closed segments, a minute apart, and an empty active one."""
    sim = started()
    named = {name.replace("_", "."): value for name, value in configs.items()}
    sim.operations.topics.create("t", 1, named)
    fill(sim, 4)
    return sim


def calls_of(code: CodeType, call: Callable[[], object]) -> int:
    """How often a function of this code is called by the call, on this thread."""
    count = 0

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is code

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def test_a_partition_is_its_segment_report() -> None:
    sim = filled(retention_ms="600000", retention_bytes="200")
    view = partition_view(sim.operations, "t", 0, 1)
    report, log = sim.operations.retention.describe("t", 0), sim.operations.logs.describe("t", 0)
    assert (view.now_ms, view.size_bytes) == (report.now_ms, report.facts.size_bytes)
    assert (view.log_end_offset, view.recovery_point) == (log.log_end_offset, log.recovery_point)
    assert [each.base_offset for each in view.segments] == [
        each.facts.base_offset for each in report.segments
    ]
    assert [each.rule for each in view.segments] == [
        fate.rule and fate.rule.value for fate in report.fates
    ]
    for shown, fate in zip(view.segments, report.fates, strict=True):
        shown_due = shown.due and tuple(shown.due.model_dump().values())
        assert shown_due == (fate.due and tuple(fate.due))
    assert (view.segments[0].letter, view.segments[-1].letter) == ("X", "A")
    assert sum(each.segments for each in view.states) == view.segment_count == 5
    html = page_of(view)
    assert html.count('class="seg seg-') == 5
    assert 'id="segment-4"' in html
    assert "deletable: the log is larger than its limit of 200 B" in html


@pytest.mark.slow
def test_a_page_of_a_partition_opens_the_indexes_that_it_shows() -> None:
    sim = started().with_topic("t", 1, {"index.interval.bytes": "0", "retention.ms": "-1"})
    for _ in range(SEGMENTS_A_PAGE + 9):
        put(sim)  # the first batch of a segment has no entry by offset
        fill(sim, 1, age_ms=1)
    sim = SimManager(sim.stop(), config=sim.config).start()
    sim.operations.retention.describe("t", 0)  # the last moment of each segment is read once
    reads = sim.disk.faults.add(
        Fault(kinds=frozenset({"read"}), path_contains="index", nth=1_000_000)
    )
    offsets_view(sim.operations, "t", 0, Question())
    delete_records_view(sim.operations, "t", 0, Question(offset=3))
    assert reads.seen == 0
    assert calls_of(reason_of.__code__, lambda: partition_view(sim.operations, "t", 0, 2)) == 10
    reads.seen = 0
    second = partition_view(sim.operations, "t", 0, 2)
    assert 0 < reads.seen <= 2 * len(second.segments) == 20
    reads.seen = 0
    assert len(partition_view(sim.operations, "t", 0, 1).segments) == SEGMENTS_A_PAGE
    assert 0 < reads.seen <= 2 * SEGMENTS_A_PAGE


def test_a_topic_s_page_looks_no_further_than_the_next_departure() -> None:
    sim = started(check_ms=MINUTE).with_topic("t", 1, {"retention.ms": str(24 * 60 * MINUTE)})
    fill(sim, 30)
    simulation = sim.operations.retention.simulate("t", 0, {}, start_ms=None, horizon_ms=NEVER)
    assert len(simulation.departures) == 30
    assert calls_of(plan.__code__, lambda: topic_view(sim.operations, "t", 1)) <= 2
    (row,) = topic_view(sim.operations, "t", 1).partitions
    shown, first = there(row.next_departure), simulation.departures[0]
    assert shown.base_offset == first.facts.base_offset
    assert shown.due == DueView.model_validate(first.due)


def test_a_compacted_log_shows_how_clean_it_is() -> None:
    sim = started().with_topic("t", 1, {"cleanup.policy": "compact"})
    log = sim.operations.partition_log("t", 0)
    view = partition_view(sim.operations, "t", 0, 1)
    assert there(view.compaction).first_dirty_offset == log.log_start_offset
    assert "first dirty" in {marker.name for marker in view.strip.markers}
    assert "Cleaner" in page_of(view)


def test_what_waits_for_its_deletion_is_shown_first() -> None:
    sim = filled(retention_ms="60000", file_delete_delay_ms="10000")
    sim.operations.retention.retain("t", 0, dry_run=False)
    view = partition_view(sim.operations, "t", 0, 1)
    gone = [each for each in view.segments if each.letter == "W"]
    assert gone
    assert view.segments[: len(gone)] == gone
    assert all(each.reason.startswith("deleted for readers; files gone at ") for each in gone)
    assert view.segment_count == len(view.segments) - len(gone)
    assert view.size_bytes == sum(each.size_bytes for each in view.segments if each not in gone)
    page_of(view)
    sim.clock.advance_ms(11_000)
    assert "W" not in {each.letter for each in partition_view(sim.operations, "t", 0, 1).segments}


def test_a_what_if_is_what_the_next_pass_does() -> None:
    sim = filled(retention_ms="-1")
    asked = retention_view(sim.operations, "t", {"retention.ms": "60000"}, 1)
    (entry,) = asked.partitions
    assert asked.bytes_going == sum(each.size_bytes for each in entry.departures) > 0
    due_ms = there(entry.schedule).next_check_ms
    soonest = [each for each in entry.departures if there(each.due).expected_ms == due_ms]
    assert asked.segments_next == len(soonest)
    assert asked.bytes_next == sum(each.size_bytes for each in soonest)
    assert asked.curve[0].size_bytes - asked.curve[-1].size_bytes == asked.bytes_going
    assert asked.curve[-1].size_bytes == asked.bytes_left
    going = [each.base_offset for each in entry.departures]
    before = bases(sim)
    nothing = retention_view(sim.operations, "t", {}, 1)
    assert nothing.segments_going == 0
    assert bases(sim) == before
    for each in (asked, nothing):
        page_of(each)
    sim.operations.topics.alter_configs("t", [ConfigChange("retention.ms", "60000")])
    last_ms = there(there(entry.departures[-1].due).latest_ms)
    sim.clock.advance_ms(last_ms - sim.clock.wall_ms())
    assert going == [each for each in before if each not in bases(sim)]
    with pytest.raises(InvalidTopicConfig):
        retention_view(sim.operations, "t", {"retention.ms": "soon"}, 1)
    with pytest.raises(UnknownTopic):
        retention_view(sim.operations, "none", {}, 1)


def test_topics_and_a_topic() -> None:
    sim = filled(retention_ms="600000")
    sim.operations.topics.create("other", 3)
    view = topics_view(sim.operations, "", TopicOrder.NAME, 99)
    assert [each.name for each in view.topics] == ["other", "t"]
    assert (view.page, view.pages, view.total) == (1, 1, 2)
    row = view.topics[1]
    assert row.size_bytes == sim.operations.logs.describe("t", 0).size_bytes > 0
    assert (row.retention_ms, row.retention_bytes) == (600_000, -1)
    (found,) = topics_view(sim.operations, "oth", TopicOrder.SIZE, 1).topics
    assert found.name == "other"
    none = topics_view(sim.operations, "<b>", TopicOrder.NAME, 1)
    assert "No topic has this name." in page_of(none)
    topic = topic_view(sim.operations, "t", 1)
    departure = there(topic.partitions[0].next_departure)
    assert departure.base_offset == bases(sim)[0]
    assert departure.due is not None
    assert {each.name for each in topic.configs} >= {"retention.ms", "cleanup.policy"}
    assert len(topic_view(sim.operations, "other", 1).partitions) == 3
    for each in (view, topic):
        page_of(each)
    with pytest.raises(UnknownTopic):
        topic_view(sim.operations, "none", 1)
    with pytest.raises(UnknownPartition):
        partition_view(sim.operations, "t", 7, 1)


def test_a_topic_says_how_far_its_archive_is() -> None:
    sim = started(check_ms=NEVER).with_topic("t", 2)
    fill(sim, 3)
    assert topic_view(sim.operations, "t", 1).archive_lag is None
    sim.operations.topics.alter_configs("t", [ConfigChange("archive.hold", "true")])
    sim.clock.advance_ms(20_000)
    view = topic_view(sim.operations, "t", 1)
    lag = there(view.archive_lag)
    assert lag.offsets == 3
    assert 10_000 <= there(lag.wait_ms) <= 20_000
    assert lag.size_bytes > 0
    assert "3 offsets behind" in page_of(view)
    sim.operations.retention.raise_archived_offsets("t", {0: 3})
    assert "Archive: it has all records." in page_of(topic_view(sim.operations, "t", 1))


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        (TopicOrder.NAME, ["none", "old", "t"]),
        (TopicOrder.PARTITIONS, ["none", "old", "t"]),
        (TopicOrder.RECORDS, ["t", "old", "none"]),
        (TopicOrder.SIZE, ["t", "old", "none"]),
        (TopicOrder.OLDEST, ["old", "t", "none"]),
    ],
)
def test_topics_stand_in_the_order_asked_for(
    sort: TopicOrder, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = started()
    for name, partitions in (("t", 1), ("old", 1), ("none", 3)):
        sim.operations.topics.create(name, partitions, {"retention.ms": "-1"})
    for name, timestamp_ms in (("old", NOW_MS), ("t", NOW_MS + 1), ("t", NOW_MS + 2)):
        batch = keyed_batch(("key", "value"), timestamp_ms=timestamp_ms)
        assert sim.produce(name, batch).error is None
    unknown = topics_view(sim.operations, "", sort, 1)
    assert {(each.records, each.oldest_timestamp_ms) for each in unknown.topics} == {(None, None)}
    sim.clock.advance_ms(60_000)
    view = topics_view(sim.operations, "", sort, 1)
    assert [each.name for each in view.topics] == names
    assert {each.name: each.records for each in view.topics} == {"t": 2, "old": 1, "none": 0}
    assert page_of(view).count("aria-sort=") == 1
    described = sim.operations.logs.describe

    def uncounted(topic: str, partition: int) -> LogDescription:
        log = described(topic, partition)
        return log._replace(records=None) if (topic, partition) == ("none", 1) else log

    monkeypatch.setattr(sim.operations.logs, "describe", uncounted)
    rows = topics_view(sim.operations, "", sort, 1).topics
    assert {each.name: each.records for each in rows} == {"t": 2, "old": 1, "none": None}


@pytest.mark.parametrize("sort", TopicOrder)
def test_a_page_of_topics_reads_the_configs_that_it_shows(
    sort: TopicOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are most of the work: 2,000 topics by size took 370 ms, now 40."""
    sim = filled()
    for number in range(5):
        sim.operations.topics.create(f"u{number}", 1)
    monkeypatch.setattr(topics, "TOPICS_A_PAGE", 2)
    describe = type(sim.operations.topics).describe
    calls = calls_of(describe.__code__, lambda: topics_view(sim.operations, "", sort, 2))
    assert calls == 2


def test_what_is_over_a_limit_is_told_by_topic() -> None:
    sim = filled(retention_ms="120000", retention_bytes="-1")
    sim.operations.topics.create("kept", 1, {"cleanup.policy": "compact"})
    for _ in range(60):  # a check and a look of the metrics task come in turn
        sim.clock.advance_ms(10_000)
        view = retentions_view(sim.operations, "", 1)
        if view.deletable_bytes:
            break
    task = there(view.task)
    assert there(task.last_run_ms) <= view.now_ms <= there(task.next_run_ms)
    snapshot = sim.operations.metrics_snapshot()
    over = sum(each.size_bytes for each in snapshot.deletable if each.topic == "t")
    assert view.deletable_bytes == {"t": over}
    assert over > 0
    html = page_of(view)
    assert html.count('href="/console/topics/t/retention"') == 1
    assert html.count("no effect") == 2
    assert "No topic has this name." in page_of(retentions_view(sim.operations, "none", 1))


def test_what_was_deleted_is_not_over_a_limit_any_more() -> None:
    """The metrics task looks every ten seconds: until then a check seemed to have done nothing."""
    sim = filled(retention_ms="-1")
    sim.clock.advance_ms(10 * MINUTE)
    sim.operations.topics.alter_configs("t", [ConfigChange("retention.ms", "60000")])
    sim.manager.log_stats.run_once()
    sim.clock.advance_ms(10_000)
    before = retentions_view(sim.operations, "", 1).deletable_bytes
    assert before["t"] > 0
    taken = sim.operations.retention.retain("t", 0, dry_run=False)
    assert taken.deleted
    assert retentions_view(sim.operations, "", 1).deletable_bytes == {}


def test_a_topic_is_known_before_its_records_are_read() -> None:
    """In the first half minute after a start its offsets and its appends are what can be told."""
    sim = started().with_topic("t", 2, {"retention.ms": "-1"})
    for _ in range(3):
        assert sim.produce("t", keyed_batch(("key", "value"))).error is None
    sim.metrics.traffic.observe_append("t", 1, 5_000, 1)
    (row,) = topics_view(sim.operations, "", TopicOrder.NAME, 1).topics
    assert (row.offsets, row.records, row.oldest_timestamp_ms) == (3, None, None)
    assert sum(row.bytes_in) >= 5_000
    assert len(row.bytes_in) == 1  # not an hour of nothing before the start
    html = page_of(topics_view(sim.operations, "", TopicOrder.NAME, 1))
    assert "≤ 3" in html
    assert "not yet" not in html


def test_internal_topics_are_hidden_alike_on_every_page_of_topics() -> None:
    sim = filled()
    sim.manager.group_offsets.create_topic()

    def shown(*, with_internal: bool) -> list[str]:
        by_name = topics_view(sim.operations, "", TopicOrder.NAME, 1, with_internal=with_internal)
        picked = pick_topic_view(sim.operations, "", 1, with_internal=with_internal)
        retained = retentions_view(sim.operations, "", 1, with_internal=with_internal)
        hidden = {by_name.internal_hidden, picked.internal_hidden, retained.internal_hidden}
        assert hidden == {0 if with_internal else 1}
        word = "hide internal topics" if with_internal else "1 internal topic hidden"
        assert all(word in page_of(each) for each in (by_name, picked, retained))
        rows = (by_name.topics, picked.topics, retained.topics)
        return [" ".join(each.name for each in listed) for listed in rows]

    assert set(shown(with_internal=False)) == {"t"}
    assert all("__consumer_offsets" in each for each in shown(with_internal=True))


def test_pages_of_the_cluster_for_who_sees_no_topic() -> None:
    """The right of the cluster is enough for its pages, and names no topic in a list of topics."""
    sim = filled(retention_ms="120000", retention_bytes="-1")
    for _ in range(60):
        sim.clock.advance_ms(10_000)
        if retentions_view(sim.operations, "", 1).deletable_bytes:
            break
    rules = parse_access_rules("allow ops all cluster\n")
    operations = authorized(sim.operations, rules.rights_of("ops"))
    view, whole = overview_view(operations), overview_view(sim.operations)
    assert [each.name for each in view.largest_topics] == ["t"]
    assert view.largest_topics == whole.largest_topics
    assert (view.topics, whole.topics) == (0, 1)
    assert retentions_view(sim.operations, "", 1).deletable_bytes
    hidden = retentions_view(operations, "", 1)
    assert (hidden.topics, hidden.deletable_bytes) == ([], {})


def test_internal_topics_are_shown_when_asked_for() -> None:
    sim = filled()
    sim.operations.topics.create("__consumer", 1)  # looks like one
    sim.manager.group_offsets.create_topic()
    names = sim.operations.topic_names()
    internal = [name for name in names if is_internal(name)]
    view = topics_view(sim.operations, "", TopicOrder.NAME, 1)
    assert [each.name for each in view.topics] == [name for name in names if name not in internal]
    assert view.internal_hidden == len(internal) == 1
    assert "1 internal topic hidden" in page_of(view)
    every = topics_view(sim.operations, "", TopicOrder.NAME, 1, with_internal=True)
    assert [each.name for each in every.topics] == names
    assert every.internal_hidden == 0


def test_a_topic_s_appends_of_the_last_hour_are_drawn() -> None:
    sim = filled()
    sim.operations.topics.create("idle", 1)
    for minute in range(10):
        sim.metrics.traffic.observe_append("t", 1, 100 * minute, 1)
        sim.clock.advance_ms(MINUTE)
    idle, busy = topics_view(sim.operations, "", TopicOrder.NAME, 1).topics
    assert (idle.bytes_in, idle.spark) == ([], "")
    assert 0 < sum(busy.bytes_in) <= 4500
    assert page_of(topics_view(sim.operations, "", TopicOrder.NAME, 1)).count('class="spark"') == 1


def test_the_daemon_s_pages() -> None:
    sim = filled()
    overview = overview_view(sim.operations)
    assert overview.is_healthy
    assert overview.sentence.startswith(
        "Healthy: 2 of 2 log directories online, 1 partition served, retention ran "
    )
    assert overview.largest_topics[0].name == "t"
    dirs = log_dirs_view(sim.operations)
    described = sim.operations.log_dirs.describe()
    assert [each.path for each in dirs.log_dirs] == [each.path for each in described]
    assert sum(each.log_bytes or 0 for each in dirs.log_dirs) == overview.log_bytes
    tasks = tasks_view(sim.operations)
    assert [each.name for each in tasks.tasks] == [each.name for each in sim.operations.tasks()]
    for view in (overview, dirs, tasks):
        page_of(view)


def test_nothing_is_said_of_what_is_in_an_offline_directory() -> None:
    sim = filled()
    offline = sim.manager.logs.units[0].log_dir
    offline.take_offline("a fault of the disk")
    view = log_dirs_view(sim.operations)
    facts = {each.path: (each.partitions, each.log_bytes) for each in view.log_dirs}
    assert facts.pop(offline.path) == (None, None)
    assert None not in next(iter(facts.values()))
    assert "Unknown: the directory is offline." in page_of(view)
    page_of(overview_view(sim.operations))


def test_rows_of_tasks_and_projects_are_named_facts_on_a_phone() -> None:
    operations = filled().operations
    for view in (tasks_view(operations), about_view(operations)):
        html = page_of(view)
        table = html.partition('<table class="stack">')[2].partition("</table>")[0]
        assert table.count("<td ") == table.count("<td data-label=") > 0
        assert "<td>" not in table


def test_a_check_that_never_comes_has_no_moment() -> None:
    for next_check_ms, shown_ms in ((INT64_MAX + 1, None), (INT64_MAX, INT64_MAX), (None, None)):
        view = ScheduleView.model_validate(Schedule(next_check_ms, 1, 1))
        assert there(view).next_check_ms == shown_ms


def test_names_are_escaped() -> None:
    sim = filled()
    hostile = "\"><script>alert('x')</script>"
    html = page_of(topics_view(sim.operations, hostile, TopicOrder.NAME, 1))
    assert "<script>alert" not in html
    error = render_error(404, 40401, hostile, hostile).decode()
    assert "<script>" not in error.replace("<script src", "")


def test_a_frame_leads_to_its_twin() -> None:
    frame = Frame("/console/topics", "page=2&refresh=true", is_refreshing=True)
    assert frame.json_view == "/console/topics.json?page=2"
    assert frame.still == "/console/topics?page=2"
    assert frame.refreshing == "/console/topics?page=2&refresh=true"
    assert Frame("/console", "", is_refreshing=False).refreshing == "/console?refresh=true"
    html = page_of(tasks_view(filled().operations), frame)
    assert 'hx-trigger="every 10s"' in html
    assert "hx-trigger" not in page_of(tasks_view(filled().operations))


def test_what_nobody_can_see_is_not_printable() -> None:
    drawn = set("\u06dd\u070f\u08e2\U000110bd\U000110cd").union(
        map(chr, [*range(0x600, 0x606), 0x890, 0x891, *range(0x13430, 0x13440)])
    )
    hidden = {chr(each) for each in range(0x110000) if category(chr(each)) in ("Cf", "Zl", "Zp")}
    joiners = {"\u200c", "\u200d"}
    assert {each for each in hidden if not UNPRINTABLE.search(each)} <= drawn | joiners
    assert not any(map(UNPRINTABLE.search, joiners))
    assert not any(map(UNPRINTABLE.search, "az 09\t\n\r\u00e9\u4e2d\u0905\U0001f600\u00a0"))
    page = render_error(400, 40002, "no topic a\u202eb\U000e0041", "r").decode()
    assert "no topic a\\u202eb\\U000e0041" in page


def test_a_topic_beside_its_defaults() -> None:
    sim = started().with_topic("t", 1, {"retention.ms": "600000"})
    view = configs_view(sim.operations, "t", "", is_all=False)
    (row,) = view.configs
    assert (row.name, row.value, row.default) == ("retention.ms", "600000", "604800000")
    assert row.source == "DYNAMIC_TOPIC_CONFIG"
    assert not row.is_default
    assert view.set_count == 1
    assert page_of(view).count("604800000") >= 1
    every = configs_view(sim.operations, "t", "", is_all=True)
    entries = sim.operations.topics.describe("t").configs
    assert [(each.name, each.value) for each in every.configs] == [
        (each.name, each.value) for each in entries
    ]
    assert every.total == len(entries) == view.total
    found = configs_view(sim.operations, "t", "segment.", is_all=True)
    assert {each.name for each in found.configs} >= {"segment.bytes", "segment.ms"}
    assert all("segment." in each.name for each in found.configs)
    none = configs_view(sim.operations, "t", "<b>", is_all=False)
    assert "No config has this in its name." in page_of(none)
    with pytest.raises(UnknownTopic):
        configs_view(sim.operations, "none", "", is_all=False)


def test_configs_are_in_words_and_in_sections() -> None:
    """Raw numbers of milliseconds and bytes are for machines."""
    sim = started().with_topic(
        "t", 1, {"retention.ms": "90000000", "retention.bytes": "1073741824"}
    )
    view = configs_view(sim.operations, "t", "", is_all=True)
    words = {each.name: each.words for each in view.configs}
    assert (words["retention.ms"], words["retention.bytes"]) == ("1 d 1 h", "1 GiB")
    assert (words["flush.ms"], words["quota.bytes"]) == ("never", "no limit")
    assert words["cleanup.policy"] is None
    assert [each.name for each in view.set_ones] == ["retention.bytes", "retention.ms"]
    listed = [each.name for section in view.sections for each in section.configs]
    assert sorted(listed) == [each.name for each in view.configs if each.is_default]
    html = page_of(view)
    assert html.index("1 d 1 h") < html.index('<details class="fold">')
    assert '<code class="raw">90000000</code>' in html
    daemon = configs_view(sim.operations, None, "RETENTION.MS", is_all=False)
    assert "log.retention.ms" in {each.name for each in daemon.configs}
    assert "Other" not in {
        each.title for each in configs_view(sim.operations, "t", "", is_all=True).sections
    }


def test_the_daemon_beside_its_defaults() -> None:
    sim = started()
    before = configs_view(sim.operations, None, "", is_all=False)
    sim.operations.alter_broker_configs([ConfigChange("log.retention.ms", "1000")])
    after = configs_view(sim.operations, None, "", is_all=False)
    (row,) = [each for each in after.configs if each not in before.configs]
    assert (row.name, row.value) == ("log.retention.ms", "1000")
    assert row.chain[0].source in ("DYNAMIC_DEFAULT_BROKER_CONFIG", row.source)
    assert not row.is_read_only
    every = configs_view(sim.operations, None, "", is_all=True)
    assert len(every.configs) == every.total == len(sim.operations.describe_broker_configs())
    for view in (before, after, every):
        page_of(view)
