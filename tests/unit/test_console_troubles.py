"""Goal: the first page says "Healthy" only where no alert that the daemon can judge would fire.
Method: a healthy daemon's facts, and each of them made bad; a whole manager whose clock goes on.
"""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.broker.compaction.cleaning import CleanerHealth
from kafkalog.broker.retention.retention import RETENTION_TASK
from kafkalog.broker.values import LogDirFault, Readiness
from kafkalog.console.alerts import troubles_of
from kafkalog.console.views.daemon import LogDirView, TaskRow
from kafkalog.console.views.overview import overview_view
from tests.unit.test_console_views import filled

NOW_MS = 1_700_000_000_000
MINUTE = 60_000
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


NEVER = task(last_run_ms=None, last_success_ms=None, next_run_ms=NOW_MS + MINUTE)
HANGS = task(state="running", last_run_ms=NOW_MS - 16 * MINUTE, last_success_ms=None)
FULL = Readiness(True, 1, 0, 3, 0, 1, (LogDirFault("/data/a", "full", "10 bytes left"),))


@pytest.mark.parametrize(
    ("readiness", "directory", "cleaner", "tasks", "expected"),
    [
        (WELL, log_dir(), SOUND, [task()], []),
        (WELL, log_dir(None), SOUND, [NEVER], []),
        (WELL, log_dir(0.84), SOUND, [], []),
        (WELL, log_dir(0.86), SOUND, [], ["/data/a has 14.0% free"]),
        (FULL, log_dir(0.99), SOUND, [], ["/data/a is full: 10 bytes left"]),
        (Readiness(True, 1, 0, 2, 1, 0, ()), log_dir(), SOUND, [], ["1 partition not served"]),
        (WELL, log_dir(), CleanerHealth(["thread-0"], 0), [], ["thread-0 is dead"]),
        (
            WELL,
            log_dir(),
            CleanerHealth((), 2),
            [],
            ["2 logs not compacted because of an error: see Compaction"],
        ),
        (WELL, log_dir(), SOUND, [task(last_success_ms=NOW_MS - 15 * MINUTE)], []),
        (
            WELL,
            log_dir(),
            SOUND,
            [task(last_success_ms=NOW_MS - 16 * MINUTE)],
            ["retention stalls: its last check ended 16 min ago"],
        ),
        (
            WELL,
            log_dir(),
            SOUND,
            [HANGS],
            ["retention stalls: no check has ended yet"],
        ),
        (WELL, log_dir(), SOUND, [task(period_ms=1, last_success_ms=NOW_MS - 50_000)], []),
        (WELL, log_dir(), SOUND, [failed(DAY)], [f"task {RETENTION_TASK} failed: no room"]),
        (
            WELL,
            log_dir(),
            SOUND,
            [failed(DAY, name="kafkalog-backup", period_ms=None)],
            ["task kafkalog-backup failed: no room"],
        ),
        (WELL, log_dir(), SOUND, [failed(DAY + 1, name="kafkalog-backup", period_ms=None)], []),
    ],
)
def test_what_needs_somebody(
    readiness: Readiness,
    directory: LogDirView,
    cleaner: CleanerHealth,
    tasks: list[TaskRow],
    expected: list[str],
) -> None:
    """Each fact that an alert watches has its sentence, and what is well has none."""
    assert troubles_of(readiness, [directory], tasks, cleaner, NOW_MS) == expected


def test_the_first_page_tells_them() -> None:
    """The page asks the cleaner and the disks, not the tasks alone."""
    sim = filled()
    assert overview_view(sim.operations).is_healthy
    sim.disk.capacity_bytes = 100_000
    sim.clock.advance_ms(5 * MINUTE)
    view = overview_view(sim.operations)
    assert not view.is_healthy
    assert view.sentence.startswith("Needs attention: ")
