"""A daemon with something to show on every page of the console.

orders     three partitions; the first has segments of 9 to 0 days: deletable, kept and active ones
clicks     retention took some, whose files wait for an hour
profiles   compacted: clean, dirty and uncleanable segments, and those that the clean replaced
payments   empty
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.integration.daemon import Daemon
from tests.integration.http_world import append, batch_of, now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SEGMENT_BYTES = "1048576"
_LEAST_VALUE_BYTES = 540_000  # two of these do not fit a segment


@contextmanager
def shown_daemon(root: Path) -> Iterator[Daemon]:
    """Filled, ready inside; its own retention checks never come."""
    with Daemon(
        root, log_dirs=2, log_initial_task_delay_ms=str(DAY_MS), log_cleaner_backoff_ms=str(DAY_MS)
    ) as daemon:
        daemon.create_topic("orders", 3, segment_bytes=SEGMENT_BYTES)
        fill(daemon, "orders", [9, 8, 6, 5, 3, 2, 1, 0])
        for partition in (1, 2):
            fill(daemon, "orders", [6, 0], partition=partition)
        daemon.create_topic(
            "clicks", 1, segment_bytes=SEGMENT_BYTES, file_delete_delay_ms=str(HOUR_MS)
        )
        fill(daemon, "clicks", [12, 11, 10, 4, 0])
        run_retention(daemon, "clicks")
        _fill_compacted(daemon)
        daemon.create_topic("payments", 2)
        yield daemon


def fill(daemon: Daemon, topic: str, ages_days: list[int], *, partition: int = 0) -> None:
    """A segment an age, of different sizes; the last one stays active."""
    for number, age_days in enumerate(ages_days):
        _append(daemon, topic, f"{topic}-{number}", number, age_days, partition)


def run_retention(daemon: Daemon, topic: str) -> None:
    body = {"partitions": [{"topic": topic, "partition": 0}]}
    answer = daemon.request("POST", "/v1/retention:run", body)
    assert answer.status == 200, answer.body


def _fill_compacted(daemon: Daemon) -> None:
    """Old segments, a clean, more of the old and one of now, which the lag keeps from cleaning.

    A thread that has cleaned looks for more at once: what follows the clean is never dirty enough.
    """
    daemon.create_topic(
        "profiles",
        1,
        segment_bytes=SEGMENT_BYTES,
        cleanup_policy="compact",
        file_delete_delay_ms=str(HOUR_MS),
        min_compaction_lag_ms=str(HOUR_MS),
        min_cleanable_dirty_ratio="1.0",
    )
    for number in range(4):
        _append(daemon, "profiles", f"user-{number % 3}", number, 2, 0)
    answer = daemon.request("POST", "/v1/topics/profiles/partitions/0/log:clean", {})
    assert answer.json["outcome"] == "cleaned", answer.body
    for number, age_days in enumerate((1, 1, 0, 0)):
        _append(daemon, "profiles", f"user-{number}", number, age_days, 0)


def _append(
    daemon: Daemon, topic: str, key: str, number: int, age_days: int, partition: int
) -> None:
    """One record that needs a segment for itself."""
    value = b"x" * (_LEAST_VALUE_BYTES + 90_000 * (number * 3 % 5))
    timestamp_ms = now_ms() - age_days * DAY_MS
    data = batch_of(value, keys=[key.encode()], timestamp_ms=timestamp_ms)
    answer = append(daemon, topic, data, partition=partition)
    assert answer.status == 200, answer.body
