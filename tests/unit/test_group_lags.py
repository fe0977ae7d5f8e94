"""Goal: the lags of groups are their operations' lags, and what is said of retention comes true.
Method: groups on a simulated disk, whose clock moves; yields are counted.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from structlog.testing import capture_logs

from kafkalog.broker.groups.groups import ResetTarget
from kafkalog.broker.values import ConfigChange
from kafkalog.env.clock import TimeSlice
from kafkalog.log.values import WouldBlock
from kafkalog.observe.group_metrics import GroupSample
from kafkalog.observe.metrics import Metrics
from kafkalog.observe.metrics_options import MetricsOptions, PartitionLevel
from kafkalog.observe.metrics_page import MetricsPage
from kafkalog.observe.partition_metrics import EMPTY_SNAPSHOT
from kafkalog.server.groups import groups
from kafkalog.settings import load_settings
from tests.made_api import api_over
from tests.sim.sim_manager import SimManager, batch_of
from tests.unit.test_group_offsets import CONFIG, T0, T1, U0, commit, world
from tests.unit.test_metrics import page_of

SETTINGS = load_settings(None, {}, {})


def seen(sim: SimManager) -> dict[tuple[str, str], GroupSample]:
    """By group and topic, after a run of the task."""
    sim.clock.advance_ms(10_000)
    samples = sim.operations.metrics_snapshot().groups
    return {(str(each.group), str(each.topic)): each for each in samples}


def left(sim: SimManager, group: str = "g", topic: str = "t") -> float | None:
    return seen(sim)[group, topic].left


def test_lags_are_those_of_the_groups() -> None:
    sim = world()
    assert seen(sim) == {}
    commit(sim, "g", {T0: 1, T1: 2, U0: 3})
    commit(sim, "h", {T0: 9})  # ahead of its log
    found = seen(sim)
    assert {key: (each.lag, each.committed) for key, each in found.items()} == {
        ("g", "t"): (3, 3),
        ("g", "u"): (0, 3),
        ("h", "t"): (0, 9),
    }
    for group in ("g", "h"):
        lags = sim.operations.groups.lags(group)
        assert sum(each.lag or 0 for each in lags) == sum(
            each.lag for (name, _), each in found.items() if name == group
        )
    sim.operations.topics.delete("t")
    sim.manager.group_offsets.delete("h")
    assert list(seen(sim)) == [("g", "u")]


def test_groups_that_are_not_loaded_have_no_lag() -> None:
    sim = world()
    commit(sim, "g", {T0: 1})
    assert len(seen(sim)) == 1
    sim.manager.group_offsets._shards.clear()
    sim.manager.group_lags.run_once()
    assert sim.manager.group_lags.samples == ()
    assert len(seen(sim)) == 1


def alter(sim: SimManager, topic: str, **configs: str) -> None:
    changes = [ConfigChange(key.replace("_", "."), value) for key, value in configs.items()]
    sim.operations.topics.alter_configs(topic, changes)


def test_unread_records_near_their_deletion_by_time() -> None:
    """The share falls with the clock; at 0 the next check deletes them."""
    sim = world()
    alter(sim, "t", retention_ms=str(1_000_000))
    commit(sim, "g", {T0: 1, T1: 3})
    assert left(sim) == pytest.approx(0.99, abs=0.01)
    sim.clock.advance_ms(500_000)
    assert left(sim) == pytest.approx(0.48, abs=0.01)
    sim.clock.advance_ms(470_000)
    assert left(sim) == pytest.approx(0, abs=0.01)
    log = sim.operations.partition_log("t", 0)
    assert log.log_start_offset == 0
    sim.clock.advance_ms(300_000)
    assert log.log_start_offset == 3  # gone, unread
    gone = seen(sim)["g", "t"]
    assert (gone.lag, gone.left, gone.deleted) == (2, 1.0, 2)


def test_unread_records_near_their_deletion_by_size() -> None:
    sim = world()
    log = sim.operations.partition_log("u", 0)
    commit(sim, "g", {U0: 2})
    limit = 2 * log.size_bytes
    alter(sim, "u", retention_bytes=str(limit), retention_ms="-1")
    assert left(sim, topic="u") == 1.0
    sim.operations.partition_log("u", 0).roll()
    sim.produce("u", batch_of("x" * (limit - log.size_bytes)))
    share = left(sim, topic="u")
    assert share is not None
    assert share < 0.5


@pytest.mark.parametrize(
    "configs",
    [
        {"retention_ms": "-1"},
        {"retention_ms": "1000", "cleanup_policy": "compact"},
        {"retention_ms": "1000", "archive_hold": "true"},
    ],
)
def test_records_that_no_limit_deletes_are_in_no_danger(configs: dict[str, str]) -> None:
    sim = world()
    commit(sim, "g", {T0: 0})
    alter(sim, "t", **configs)
    assert left(sim) == 1.0


def test_what_is_not_known_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment whose largest timestamp was not read yet: neither 1 nor 0 would be true."""
    sim = world()
    commit(sim, "g", {T0: 0, T1: 3})
    segment = sim.operations.partition_log("t", 0).segments.first

    def unread(*, may_block: bool = True) -> int:
        assert not may_block
        raise WouldBlock

    monkeypatch.setattr(type(segment), "largest_timestamp_ms", lambda _, **more: unread(**more))
    assert left(sim) is None
    assert seen(sim)["g", "t"].lag == 3


def test_a_walk_over_all_commits_gives_the_interpreter_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sim = world()
    commit(sim, "g", {T0: 1, T1: 2, U0: 3})
    commit(sim, "h", {T0: 1})
    asks = list[int]()
    monkeypatch.setattr(TimeSlice, "maybe_yield", lambda _: asks.append(1))
    sim.manager.group_lags.run_once()
    assert len(asks) == 4


def test_a_reset_by_time_gives_the_loop_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up that needs no disk never waits, so that thousands would hold up every request."""
    sim = SimManager(config=CONFIG).start().with_topic("many", 250)
    turns = 0

    async def ask() -> int:
        nonlocal turns
        with ThreadPoolExecutor(1) as pool:
            api = api_over(sim, SETTINGS, pool)
            monkeypatch.setattr(groups, "api_of", lambda _: api)

            async def count_turns() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            counting = asyncio.create_task(count_turns())
            request = make_mocked_request("POST", "/")
            target = ResetTarget("timestamp", 0)
            report = await groups.reset_offsets(request, "g", target, ["many"], is_dry=True)
            counting.cancel()
        return len(report.offsets)

    assert asyncio.run(ask()) == 250
    assert turns >= 2


# ---- series

SAMPLES = (
    GroupSample("g", "t", 5, 10, 0.5),
    GroupSample("g", "u", 2, 20, 0.25),
    GroupSample("h", "t", 1, 30, None),
)


def lines(options: MetricsOptions | None = None, **question: Any) -> list[str]:
    snapshot = EMPTY_SNAPSHOT._replace(groups=SAMPLES)
    page = page_of(Metrics(), snapshot, options, **question)
    return [each for each in page.splitlines() if "group_" in each and each[0] != "#"]


LAG, LEFT = "kafkalog_group_lag_offsets", "kafkalog_group_retention_left_ratio"
CLAMPED = "kafkalog_group_offsets_clamped_total 0.0"
BY_GROUP = [f'{LAG}{{group="g"}} 7.0', f'{LAG}{{group="h"}} 1.0', f'{LEFT}{{group="g"}} 0.25']


def test_a_series_for_each_group_and_topic() -> None:
    pairs = [
        f'{LAG}{{group="g",topic="t"}} 5.0',
        f'{LAG}{{group="g",topic="u"}} 2.0',
        f'{LAG}{{group="h",topic="t"}} 1.0',
        f'{LEFT}{{group="g",topic="t"}} 0.5',
        f'{LEFT}{{group="g",topic="u"}} 0.25',
    ]
    assert lines() == [CLAMPED, *pairs]
    assert lines(MetricsOptions(partition_level=PartitionLevel.TOPIC)) == [CLAMPED, *pairs]
    assert lines(topics=("u",)) == [pairs[1], pairs[4]]


def test_no_topic_is_named_that_shall_not_be() -> None:
    assert lines(MetricsOptions(partition_level=PartitionLevel.NONE)) == [CLAMPED, *BY_GROUP]


def test_the_names_of_kafka_exporter() -> None:
    options = MetricsOptions(has_kafka_exporter_names=True)
    snapshot = EMPTY_SNAPSHOT._replace(groups=SAMPLES)
    page = page_of(Metrics(), snapshot, options).splitlines()
    assert 'kafka_consumergroup_lag_sum{consumergroup="g",topic="t"} 5.0' in page
    assert 'kafka_consumergroup_current_offset_sum{consumergroup="g",topic="u"} 20.0' in page


def test_too_many_pairs_become_groups_and_too_many_groups_one() -> None:
    """Whoever may commit makes groups: their number has a bound, and a warning tells of it."""
    assert lines(MetricsOptions(partition_limit=2)) == [CLAMPED, *BY_GROUP]
    assert lines(MetricsOptions(partition_limit=1)) == [CLAMPED, f"{LAG} 8.0"]
    assert len(lines(MetricsOptions(partition_limit=3))) == 6
    assert len(lines(MetricsOptions(partition_limit=0))) == 6
    assert lines(MetricsOptions(partition_limit=2), topics=("u",)) == []
    page = MetricsPage(Metrics(), MetricsOptions(partition_limit=2))
    with capture_logs() as logs:
        for _ in range(2):
            snapshot = EMPTY_SNAPSHOT._replace(groups=SAMPLES)
            text = asyncio.run(page.render(snapshot)).decode()
            assert "kafkalog_metrics_degraded 1.0" in text
    assert [each["event"] for each in logs] == ["group_metrics_degraded"]
