"""Goal: the first page says what needs somebody, "Healthy" only where no alert would fire, and the
last hour as it was.
Method: managers on a simulated disk and clock; each trouble beside the sentence for it.
"""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.broker.compaction.cleaning import CleanerHealth
from kafkalog.broker.groups.lags import GroupHealth
from kafkalog.broker.retention.retention import RETENTION_TASK
from kafkalog.broker.values import LogDirFault, Readiness
from kafkalog.console.charts import LEAST_SAMPLES
from kafkalog.console.formatting import timestamp
from kafkalog.console.views.daemon import LogDirView, TaskRow, runbook_view
from kafkalog.console.views.overview import (
    GROUPS_SHOWN,
    POINTS,
    AlertView,
    alerts_of,
    alerts_of_groups,
    overview_view,
)
from kafkalog.observe.group_metrics import GroupSample
from tests.cleaning_daemon import NOW_MS
from tests.integration.daemon import ROOT
from tests.sim.sim_manager import SimManager, batch_of
from tests.there import there
from tests.unit.test_console_views import filled, page_of
from tests.unit.test_group_offsets import T0, commit, world
from tests.unit.test_retention import MINUTE, put, started

DAY = 86_400_000
WELL = Readiness(True, 1, 0, 3, 0, 0, ())
SOUND = CleanerHealth((), 0)


def log_dir(used_ratio: float | None = 0.5) -> LogDirView:
    return LogDirView(
        path="/data/a",
        offline_reason=None,
        full_reason=None,
        is_cordoned=False,
        total_bytes=1000,
        usable_bytes=500,
        used_bytes=500,
        used_ratio=used_ratio,
        partitions=3,
        log_bytes=500,
        largest=[],
    )


def task(**changed: Any) -> TaskRow:
    """The retention check, every five minutes, the last one a minute ago."""
    facts: dict[str, Any] = {
        "name": RETENTION_TASK,
        "state": "waiting",
        "period_ms": 5 * MINUTE,
        "next_run_ms": NOW_MS + 4 * MINUTE,
        "last_run_ms": NOW_MS - MINUTE,
        "last_duration_ms": 10,
        "last_success_ms": NOW_MS - MINUTE,
        "last_failure_ms": None,
        "last_error": None,
        "waiting": 1,
        "running": 0,
        "runs": 7,
        "failures": 0,
    }
    return TaskRow(**(facts | changed))


def failed(ago_ms: int, **changed: Any) -> TaskRow:
    return task(
        last_failure_ms=NOW_MS - ago_ms, last_success_ms=None, last_error="no room", **changed
    )


NO_PASS = task(last_run_ms=None, last_success_ms=None, next_run_ms=NOW_MS + MINUTE)
BACKUP = {"name": "kafkalog-backup", "period_ms": None}
HANGS = task(state="running", last_run_ms=NOW_MS - 16 * MINUTE, last_success_ms=None)
FULL = Readiness(True, 1, 0, 3, 0, 1, (LogDirFault("/data/a", "full", "10 bytes left"),))


def alerts_found(found: dict[str, Any]) -> list[AlertView]:
    """Of a healthy daemon but for what was found."""
    well: dict[str, Any] = {
        "readiness": WELL,
        "directory": log_dir(),
        "cleaner": SOUND,
        "tasks": [task()],
    }
    facts = well | found
    return alerts_of(
        facts["readiness"], [facts["directory"]], facts["tasks"], facts["cleaner"], NOW_MS
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, []),
        ({"directory": log_dir(None), "tasks": [NO_PASS]}, []),
        ({"directory": log_dir(0.84)}, []),
        ({"directory": log_dir(0.86)}, ["/data/a has 14.0% available"]),
        ({"readiness": FULL, "directory": log_dir(0.99)}, ["/data/a is full: 10 bytes left"]),
        ({"readiness": Readiness(True, 1, 0, 2, 1, 0, ())}, ["1 partition not served"]),
        ({"cleaner": CleanerHealth(["thread-0"], 0)}, ["thread-0 is dead"]),
        (
            {"cleaner": CleanerHealth((), 2)},
            ["2 logs not compacted because of an error: see Compaction"],
        ),
        ({"tasks": [task(last_success_ms=NOW_MS - 15 * MINUTE)]}, []),
        (
            {"tasks": [task(last_success_ms=NOW_MS - 16 * MINUTE)]},
            ["retention is stalled: its last check ended 16 min ago"],
        ),
        ({"tasks": [HANGS]}, ["retention is stalled: no check has ended yet"]),
        ({"tasks": [task(period_ms=1, last_success_ms=NOW_MS - 50_000)]}, []),
        ({"tasks": [failed(DAY)]}, [f"task {RETENTION_TASK} failed: no room"]),
        ({"tasks": [failed(DAY, **BACKUP)]}, ["task kafkalog-backup failed: no room"]),
        ({"tasks": [failed(DAY + 1, **BACKUP)]}, []),
    ],
)
def test_what_needs_somebody(found: dict[str, Any], expected: list[str]) -> None:
    told = alerts_found(found)
    assert [each.sentence for each in told] == expected


@pytest.mark.parametrize(
    ("found", "runbook", "is_critical"),
    [
        ({"directory": log_dir(0.86)}, "KafkalogDiskLow", False),
        ({"directory": log_dir(0.96)}, "KafkalogDiskCritical", True),
        ({"readiness": FULL, "directory": log_dir(0.99)}, "disk-full", True),
        ({"readiness": Readiness(True, 1, 0, 2, 1, 0, ())}, "KafkalogPartitionsOffline", True),
        ({"cleaner": CleanerHealth(["thread-0"], 0)}, "KafkalogCleanerThreadDead", True),
        ({"cleaner": CleanerHealth((), 2)}, "uncleanable-log", False),
        ({"tasks": [HANGS]}, "KafkalogRetentionStalled", True),
        ({"tasks": [failed(DAY)]}, "KafkalogRetentionStalled", False),
        ({"tasks": [failed(DAY, **BACKUP)]}, None, False),
    ],
)
def test_who_is_told_is_told_what_to_do(
    found: dict[str, Any], runbook: str | None, *, is_critical: bool
) -> None:
    (alert,) = alerts_found(found)
    assert (alert.runbook, alert.is_critical) == (runbook, is_critical)
    assert runbook is None or f"# {runbook_view(started().operations, runbook).title}\n" in (
        (ROOT / "docs" / "runbooks" / f"{runbook}.md").read_text()
    )


def test_groups_that_lag_need_somebody() -> None:
    near = [GroupSample("g", "t", 7, 0, 0.1), GroupSample("h", "t", 7, 0, 0.2)]
    near.append(GroupSample("k", "t", 7, 0, 0.15, 1_200))
    unknown = GroupSample("i", "t", 7, 0, None)
    alerts = alerts_of_groups(GroupHealth([*near, unknown], {"b\u202e": 3, "c": 1_234}))
    assert [(each.sentence, each.runbook, each.is_critical) for each in alerts] == [
        (
            "group g has not read records of t that retention deletes soon: 10% of the limit is"
            " left",
            "KafkalogGroupNearRetention",
            False,
        ),
        (
            "group k has not read records of t that retention deletes soon: 15% of the limit is"
            " left; 1,200 offsets deleted unread",
            "KafkalogGroupNearRetention",
            False,
        ),
        (
            "group c is 1,234 records behind and falls further behind",
            "KafkalogGroupFallsBehind",
            False,
        ),
        (
            "group b\\u202e is 3 records behind and falls further behind",
            "KafkalogGroupFallsBehind",
            False,
        ),
    ]
    many = alerts_of_groups(GroupHealth([], {f"g{number}": 9 for number in range(12)}))
    assert len(many) == GROUPS_SHOWN + 1
    assert many[-1].sentence == "7 more of these: see Groups, by lag"


def test_the_first_page_tells_of_a_group_that_falls_behind() -> None:
    sim = world()
    commit(sim, "g", {T0: 1})
    for _ in range(50):
        assert sim.produce("t", batch_of("v")).error is None
        sim.clock.advance_ms(MINUTE)
    view = overview_view(sim.operations)
    (alert,) = [each for each in view.alerts if each.runbook == "KafkalogGroupFallsBehind"]
    assert alert.sentence.startswith("group g is ")
    assert not view.is_healthy
    assert 'href="/console/runbooks/KafkalogGroupFallsBehind"' in page_of(view)


def test_the_first_page_tells_them() -> None:
    sim = filled()
    assert overview_view(sim.operations).is_healthy
    sim.disk.capacity_bytes = 100_000
    sim.clock.advance_ms(5 * MINUTE)
    view = overview_view(sim.operations)
    assert not view.is_healthy
    first = view.troubles[0]
    assert view.sentence == f"Needs attention: {first}; {len(view.alerts) - 1} more"
    assert view.service.startswith("2 of 2 log directories online, 1 partition served, ")
    assert view.troubles == [each.sentence for each in view.alerts]
    html = page_of(view)
    assert html.index(f'role="status">Needs attention: {first}<') < html.index(view.service)
    assert 'class="card attention"' in html
    assert html.count('href="/console/runbooks/disk-full"') >= 2  # of the alert, of the directory
    assert '<span class="badge trouble">full</span>' in html


def test_the_first_page_shows_the_last_hour() -> None:
    sim = filled()
    empty = overview_view(sim.operations).model_copy(update={"traffic": []})
    assert "The first sample comes ten seconds after the start." in page_of(empty)
    for minute in range(60):
        sim.metrics.traffic.observe_append("t", 600, 6_000, 60)
        sim.metrics.append_seconds.labels("ok").observe(0.003)
        sim.disk.capacity_bytes -= 1_000_000 if minute else 0
        sim.clock.advance_ms(MINUTE)
    view = overview_view(sim.operations)
    records, requests, bytes_, latency = view.charts
    assert len(view.traffic) <= POINTS
    paces = [each.records_in for each in view.table]
    assert sum(paces) / len(paces) == pytest.approx(10, rel=0.1)
    assert records.lines[0].most == pytest.approx(20, rel=0.5)
    assert requests.lines[0].most == pytest.approx(2, rel=0.5)
    assert bytes_.lines[0].most == pytest.approx(200, rel=0.5)
    assert latency.lines[0].most == pytest.approx(0.00398)
    assert latency.lines[1].most is None
    (topic,) = view.largest_topics
    assert topic.spark.startswith("M0 ")
    left_ms = view.log_dirs[0].full_in_ms
    assert left_ms == pytest.approx(
        there(view.log_dirs[0].usable_bytes) / 1_000_000 * MINUTE, rel=0.1
    )
    html = page_of(view)
    assert html.count('class="plot"') == 4
    assert html.count('<path class="line"') == 4
    assert "first sample" not in html
    assert "A curve begins with" not in html
    assert html.index("Records appended") < html.index("Requests</h3>")
    for name in ("Records/s", "Append requests/s", "Fetch requests/s"):
        assert name in html


def test_two_samples_are_no_trend() -> None:
    sim = started().with_topic("t", 1)
    sim.metrics.traffic.observe_append("t", 600, 6_000, 60)
    sim.clock.advance_ms(20_000)
    sim.metrics.traffic.observe_append("t", 600, 6_000, 60)
    view = overview_view(sim.operations)
    assert 0 < len(view.traffic) < LEAST_SAMPLES
    html = page_of(view)
    assert 'class="plot"' not in html
    assert 'class="spark" viewBox' not in html
    first = timestamp(view.traffic[0].at_ms)[11:16]
    assert html.count(f">{first}</time> UTC. A curve begins with 6 samples.</span>") == 4
    assert html.count('class="plot-later"><span>') == 4  # else each text is a line of its own


def test_a_young_daemon_s_curves_begin_at_its_start() -> None:
    """A minute of data was a hair at the right edge of an hour."""
    sim = filled()
    sim.clock.advance_ms(MINUTE)
    view = overview_view(sim.operations)
    first = view.traffic[0].at_ms
    assert first - 10_000 <= view.traffic_since_ms < first
    assert {each.from_ms for each in view.charts} == {view.traffic_since_ms}
    assert view.axis[0].startswith("start, −")
    assert view.axis[-1] == "now"
    assert "start, −" in page_of(view)
    sim.clock.advance_ms(61 * MINUTE)
    later = overview_view(sim.operations)
    assert later.now_ms - later.traffic_since_ms == 60 * MINUTE
    assert later.axis == ["−60 min", "−40", "−20", "now"]


def test_the_first_page_says_that_the_last_start_recovered() -> None:
    clean = filled()
    assert overview_view(clean.operations).unclean_start is None
    again = SimManager(clean.stop(), config=clean.config).start()
    assert overview_view(again.operations).unclean_start is None
    put(again)
    killed = SimManager(again.kill(), config=again.config).start()
    unclean = there(overview_view(killed.operations).unclean_start)
    assert (unclean.partitions, unclean.log_dirs) == (1, 2)
    assert unclean.runbook == "KafkalogUncleanStart"
    html = page_of(overview_view(killed.operations))
    assert "Recovered after an unclean stop" in html
    assert "1 partition was checked" in html
    assert overview_view(killed.operations).is_healthy
    killed.clock.advance_ms(DAY + 1)
    assert overview_view(killed.operations).unclean_start is None


def test_the_first_page_tells_that_retention_waits_for_the_clock() -> None:
    sim = filled()
    sim.clock.step_wall_ms(3_650 * DAY)
    sim.clock.advance_ms(5 * MINUTE)
    (alert,) = [each for each in overview_view(sim.operations).alerts if "clock" in each.sentence]
    assert "kafkalog retention run --accept-clock" in alert.sentence
    assert (alert.runbook, alert.is_critical) == ("KafkalogRetentionHeldByClock", False)
    alone = overview_view(sim.operations)
    assert alone.sentence == f"Needs attention: {alert.sentence}"
    assert 'class="card attention mild"' in page_of(alone)  # no red frame for a warning
    sim.disk.capacity_bytes = 100_000
    sim.clock.advance_ms(5 * MINUTE)
    severities = [each.is_critical for each in overview_view(sim.operations).alerts]
    assert severities == sorted(severities, reverse=True)
    assert set(severities) == {True, False}
