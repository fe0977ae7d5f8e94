"""Directories that a real broker wrote, as a crash and as a clean stop left them.

Owns the topics, what is in them, and what Kafka's own consumer read from them. Made once a session.
"""

from __future__ import annotations

import json
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.integration.http_world import until
from tests.oracle.kafka import Broker, action, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIME = 1_700_000_000_000
SMALL = {"internal_segment_bytes": 6000, "index_interval_bytes": 300}
TOPICS: dict[str, dict[str, str | int]] = {
    "plain": {},
    "txn": {},
    "late": {"message_timestamp_type": "LogAppendTime"},
    "compacted": {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"},
    "trimmed": {},
}
TRIMMED_TO = 57


@dataclass(frozen=True)
class RealDirectories:
    """Copies of the data directory and the lines of Kafka's consumer for it."""

    broker: Broker  # stopped cleanly after the second copy; whoever starts it stops it again
    killed: Path  # data directory after SIGKILL
    stopped: Path  # after a restart and a clean stop
    consumed: dict[str, list[str]]  # topic -> every record of the stopped one
    committed: dict[str, list[str]]  # topic -> read_committed
    killed_trimmed: list[str]  # topic trimmed as read after the crash

    def partition(self, state: str, topic: str) -> Path:
        """killed or stopped."""
        root: Path = getattr(self, state)
        return root / f"{topic}-0"


def records_of_every_kind(seed: int) -> list[dict[str, Any]]:
    """Nulls, empties, headers, text of all planes, bytes that are no UTF-8; two batches."""
    chance = random.Random(seed)
    lines = [
        record(b"k1", b"v1", headers=[("h1", b"x"), ("h2", None)], timestamp_ms=TIME),
        record(b"k2", None, timestamp_ms=TIME + 5),
        record(None, b"v3", timestamp_ms=TIME + 1),
        record(None, None, timestamp_ms=TIME + 2),
        record(b"", b"", headers=[("", b"")], timestamp_ms=TIME),
        action("flush"),
        record("äß€😀".encode(), b"line\nfeed\r\n\0", headers=[('ü,]\\u001f\t"\x1f\x7f', b"")]),
        record(b"\xff\xfe\xc0\x80\xed\xa0\x80", b"\xe2\x82 \xf0\x9f\x98 cut \xe2"),
    ]
    return [*lines, *some_records(chance, 60), action("flush")]


def some_records(chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Random bytes with timestamps that jump to and fro."""
    return [
        record(
            chance.randbytes(9),
            chance.randbytes(chance.randrange(80)),
            timestamp_ms=TIME + chance.randrange(10**6),
        )
        for _ in range(count)
    ]


def transactions(seed: int) -> Iterator[dict[str, Any]]:
    """Three transactions of one producer: aborted, committed, aborted."""
    chance = random.Random(seed)
    for end in ("abort", "commit", "abort"):
        yield action("begin")
        for _ in range(chance.randrange(1, 4)):
            yield from some_records(chance, chance.randrange(1, 12))
            yield action("flush")
        yield action(end)


def _write_plain(broker: Broker) -> None:
    for seed, codec in enumerate(CODECS):
        broker.produce("plain", records_of_every_kind(seed), "--codec", codec)
    broker.produce("late", records_of_every_kind(9), "--codec", "lz4")
    broker.produce("late", some_records(random.Random(8), 150), "--batch-size", "300")


def _write_transactions(broker: Broker) -> None:
    few = some_records(random.Random(5), 90)
    broker.produce("txn", few, "--idempotent", "--each")
    for seed, codec in enumerate(CODECS[:4]):
        name = f"tx-{codec}"
        broker.produce("txn", transactions(seed), "--codec", codec, "--transactional", name)
    broker.produce("txn", few[:30], "--idempotent", "--each")
    opened = [action("begin"), record(b"open", b"transaction"), action("flush")]
    broker.produce("txn", opened, "--transactional", "tx-open", "--abandon")
    broker.produce("txn", few[:20], "--idempotent", "--each")


def _write_compacted(broker: Broker) -> None:
    chance = random.Random(6)
    keyed = [
        record(b"k%d" % chance.randrange(30), chance.randbytes(40) if n % 7 else None)
        for n in range(400)
    ]
    lines: list[dict[str, Any]] = []
    for place, line in enumerate(keyed):
        if place % 50 == 0:
            lines.append(action("begin"))
        lines.append(line)
        if place % 5 == 4:
            lines.append(action("flush"))
        if place % 50 == 49:
            lines.append(action("abort" if place % 100 == 49 else "commit"))
    broker.produce("compacted", lines, "--transactional", "tx-compacted", "--codec", "zstd")
    broker.produce("compacted", keyed[:150], "--idempotent", "--batch-size", "300")


def _wait_for_cleaner(broker: Broker) -> None:
    """Until the cleaner has noted how far it came in the compacted topic."""
    checkpoint = broker.data / "cleaner-offset-checkpoint"

    def is_clean() -> bool:
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        return any(line.startswith("compacted 0 ") and int(line.split()[2]) > 300 for line in lines)

    until(is_clean, "Kafka's cleaner did nothing")


def _trim(broker: Broker, home: Path) -> None:
    """Delete-records inside the first segment."""
    request = home / "delete.json"
    partition = {"topic": "trimmed", "partition": 0, "offset": TRIMMED_TO}
    request.write_text(json.dumps({"partitions": [partition], "version": 1}))
    bootstrap = ("--bootstrap-server", broker.bootstrap)
    broker.kafka.run("delete-records", *bootstrap, "--offset-json-file", request)


def _write_trimmed(broker: Broker) -> None:
    broker.produce("trimmed", some_records(random.Random(7), 200), "--batch-size", "500")


def make(broker: Broker, home: Path) -> RealDirectories:
    """Write all topics, crash the broker, start and stop it. Under a minute."""
    with ThreadPoolExecutor(2) as pool:  # most of the time goes into starting Java

        def all_of(*jobs: Callable[[], object]) -> None:
            for done in [pool.submit(job) for job in jobs]:
                done.result()

        all_of(*(partial(_create, broker, topic) for topic in TOPICS))
        writers = (_write_compacted, _write_transactions, _write_plain, _write_trimmed)
        all_of(*(partial(write, broker) for write in writers))
        _trim(broker, home)
        _wait_for_cleaner(broker)
        broker.kill()
        shutil.copytree(broker.data, home / "killed")
        broker.start()
        killed_trimmed = broker.consume("trimmed")
        _trim(broker, home)  # not durable before the crash; now the clean stop writes it down
        _wait_for_cleaner(broker)
        starts = {topic: TRIMMED_TO if topic == "trimmed" else 0 for topic in TOPICS}
        consumed = dict(
            zip(
                starts,
                pool.map(lambda topic: broker.consume(topic, from_offset=starts[topic]), starts),
                strict=True,
            )
        )
        transactional = ("txn", "compacted")
        committed = dict(
            zip(
                transactional,
                pool.map(lambda topic: broker.consume(topic, committed=True), transactional),
                strict=True,
            )
        )
    broker.stop()
    shutil.copytree(broker.data, home / "stopped")
    return RealDirectories(
        broker, home / "killed", home / "stopped", consumed, committed, killed_trimmed
    )


def _create(broker: Broker, topic: str) -> None:
    configs: dict[str, Any] = {**SMALL, **TOPICS[topic]}
    broker.create_topic(topic, **configs)
