"""Goal: beside a running broker, with the same directories, configs and clock, the same goes.

Method: generated logs are planted under a broker and under a daemon, which both check every second
or two; log starts and files are compared when both have had their passes.
"""

from __future__ import annotations

import random
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kafkalog.format.disk.checkpoints import encode_offsets
from kafkalog.format.disk.file_names import (
    CLEAN_SHUTDOWN,
    LOG_PROOFS,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
)
from kafkalog.format.topic_names import TopicPartition
from tests.integration.daemon import Daemon
from tests.oracle.made_logs import UNLIMITED, Made, make_log, size_limit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.oracle.kafka import Broker

pytestmark = pytest.mark.oracle

HOUR = 3_600_000
KINDS = ("time", "size", "start", "mixed")
TOPICS, PARTITIONS = 8, 4
WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Planted:
    """One partition with the log start it is given."""

    topic_partition: TopicPartition
    made: Made
    start: int


def configs_of(kind: str, made: Made, chance: random.Random) -> dict[str, str]:
    """Limits of a topic, taken from one of its logs; ages lie hours from every limit."""
    configs = dict(UNLIMITED)
    if kind in ("time", "mixed"):
        configs["retention.ms"] = str((chance.choice(made.ages) + 5) * HOUR)
    if kind in ("size", "mixed"):
        configs["retention.bytes"] = size_limit(made, chance)
    return configs


def plant(log_dir: Path, planted: list[Planted], copy: Callable[[Planted, Path], None]) -> None:
    """Under a stopped server: the files, and all log starts; what ours proved is of other files."""
    (log_dir / LOG_PROOFS).unlink(missing_ok=True)
    for each in planted:
        copy(each, log_dir / f"{each.topic_partition.topic}-{each.topic_partition.partition}")
    starts = {each.topic_partition: each.start for each in planted if each.start}
    (log_dir / LOG_START_OFFSET_CHECKPOINT).write_bytes(encode_offsets(starts))
    (log_dir / CLEAN_SHUTDOWN).unlink(missing_ok=True)


def copy_segments(each: Planted, target: Path) -> None:
    """All but the topic's identity, with their modification times."""
    for path in list(target.iterdir()):
        if path.name != PARTITION_METADATA:
            path.unlink()
    for path in each.made.directory.iterdir():
        if path.suffix == ".log":  # as after a crash: indexes are built anew
            shutil.copy2(path, target / path.name)


def segments(log_dir: Path, each: Planted) -> list[tuple[int, int]]:
    """(base offset, bytes) of what is left; nothing while it changes under our eyes."""
    home = log_dir / f"{each.topic_partition.topic}-{each.topic_partition.partition}"
    try:
        return sorted((int(path.stem), path.stat().st_size) for path in home.glob("*.log"))
    except FileNotFoundError:
        return []


def settled(log_dir: Path, planted: list[Planted]) -> dict[TopicPartition, list[tuple[int, int]]]:
    """What is left once the checks have begun to delete and nothing has changed for some."""
    planted_files = {
        each.topic_partition: list(zip(each.made.bases, each.made.sizes, strict=True))
        for each in planted
    }
    deadline, seen, since = time.monotonic() + WAIT_SECONDS, planted_files, time.monotonic()
    while time.monotonic() < deadline:
        now = {each.topic_partition: segments(log_dir, each) for each in planted}
        if now != seen:
            seen, since = now, time.monotonic()
        elif now != planted_files and time.monotonic() - since > 7:
            return now
        time.sleep(0.3)
    raise AssertionError("it never settled")


@pytest.mark.timeout(400)
def test_a_broker_and_a_daemon_keep_the_same(
    new_broker: Callable[..., Broker], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """M09 M10: 32 logs by time, size, start offset and all three; segments and log starts."""
    chance, now_ms = random.Random(4), int(time.time() * 1000)
    topics: dict[str, dict[str, str]] = {}
    planted: list[Planted] = []
    for number in range(TOPICS):
        kind = KINDS[number % len(KINDS)]
        name = f"{kind}{number}"
        for partition in range(PARTITIONS):
            made = make_log(
                tmp_path / f"{name}-{partition}", chance, now_ms=now_ms, unit_ms=HOUR, step=24
            )
            start = 0
            if kind in ("start", "mixed"):
                start = min(made.end, chance.choice(made.bases) + chance.choice((0, 1, 2)))
            planted.append(Planted(TopicPartition(name, partition), made, start))
        topics[name] = configs_of(kind, planted[-1].made, chance)

    broker = new_broker("log.initial.task.delay.ms=500")
    for name, configs in topics.items():
        broker.create_topic(
            name, PARTITIONS, **{k.replace(".", "_"): v for k, v in configs.items()}
        )
    broker.stop()
    plant(broker.data, planted, copy_segments)
    broker.start()
    kafkas = settled(broker.data, planted)
    broker.stop()

    with Daemon(
        tmp_path / "ours", log_initial_task_delay_ms="500", log_retention_check_interval_ms="1000"
    ) as daemon:
        for name, configs in topics.items():
            daemon.create_topic(
                name, PARTITIONS, **{k.replace(".", "_"): v for k, v in configs.items()}
            )
        daemon.stop()
        plant(daemon.log_dirs[0], planted, copy_segments)
        daemon.start()
        ours = settled(daemon.log_dirs[0], planted)
        starts = {
            each.topic_partition: daemon.request(
                "GET",
                f"/topics/{each.topic_partition.topic}/partitions/"
                f"{each.topic_partition.partition}/offsets",
            ).json["beginning_offset"]
            for each in planted
        }
    before = {
        each.topic_partition: list(zip(each.made.bases, each.made.sizes, strict=True))
        for each in planted
    }
    deleting = sum(ours[key] != before[key] for key in before)
    keeping = sum(bool(ours[key]) and ours[key][-1][1] > 0 for key in before)
    with capsys.disabled():
        print(
            f"\nrunning broker, {len(planted)} logs: {deleting} lost segments, {keeping} kept some"
        )
    assert ours == kafkas
    for each in planted:
        first = kafkas[each.topic_partition][0][0]
        assert starts[each.topic_partition] == max(each.start, first), each
    assert deleting >= len(planted) // 3
    assert keeping >= len(planted) // 3
