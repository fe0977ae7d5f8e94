"""A daemon with something to show on every page of the console.

orders     three partitions; the first has segments of 9 to 0 days: deletable, kept and active ones
clicks     retention took some, whose files wait for an hour
profiles   compacted: clean, dirty and uncleanable segments, and those that the clean replaced
payments   empty
events     JSON of three partitions, with keys and headers; the groups billing, which is behind, and
           search-index, which has a member
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.integration.daemon import V2, Daemon
from tests.integration.http_world import append, batch_of, now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MINUTE_MS = 60_000
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
        _fill_events(daemon)
        yield daemon


def _fill_events(daemon: Daemon) -> None:
    """Ninety records a minute apart; every third is paid, one has a value that is no text."""
    daemon.create_topic("events", 3)
    for number in range(90):
        kind = ("created", "paid", "shipped")[number % 3]
        customer = {"name": ("Ada", "Grace", "Käthe")[number % 3], "tags": ["new", {"level": 3}]}
        value = {"id": number, "type": f"order.{kind}", "customer": customer, "total": 99.90}
        data = batch_of(
            json.dumps(value, ensure_ascii=False).encode() if number else b"\x00\xff\x10",
            keys=[f"order-{number // 3}".encode()],
            timestamp_ms=now_ms() - (90 - number) * MINUTE_MS,
        )
        assert append(daemon, "events", data, partition=number % 3).status == 200
    for group, offset in (("billing", 12), ("search-index", 30)):
        entries = [{"topic": "events", "partition": at, "offset": offset} for at in range(3)]
        answer = daemon.request("PUT", f"/v1/groups/{group}/offsets", {"offsets": entries})
        assert answer.status == 204, answer.body
    headers = {"Content-Type": V2}
    consumer = "/consumers/search-index"
    answer = daemon.request("POST", consumer, {"name": "worker-1"}, headers)
    assert answer.status == 200, answer.body
    topics = {"topics": ["events"]}
    subscription = f"{consumer}/instances/worker-1/subscription"
    answer = daemon.request("POST", subscription, topics, headers)
    assert answer.status == 204, answer.body


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
