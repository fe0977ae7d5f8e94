"""Goal: ``__consumer_offsets`` as a broker writes it is compacted as Kafka compacts it.

Method: groups commit over and over to a real broker (by hand, as members, in transactions, one
group is deleted); both clean copies of the directory; the broker starts again with what is left.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kafkalog.cleaner.offline import CompactOptions, clean_directory
from kafkalog.env.system_filesystem import copy_files
from kafkalog.log.log_config import LogConfig
from kafkalog.settings.topic_configs import parse_topic_config
from tests.oracle.cleans import comparable
from tests.oracle.kafka import Broker
from tests.oracle.loads import content

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.oracle.kafka import Kafka

pytestmark = pytest.mark.oracle

PROGRAM = Path(__file__).with_name("GroupCommits.java")
TOPIC = "__consumer_offsets"
PARTITION = f"{TOPIC}-0"
CONSUMED, PARTITIONS, ROUNDS = "consumed", 3, 60
CONFIGS = {"cleanup.policy": "compact", "internal.segment.bytes": "6000"}
DAY_MS = 86_400_000


class GroupOffsets(NamedTuple):
    """A stopped broker and what its groups had committed."""

    broker: Broker
    directory: Path
    committed: dict[str, dict[str, str]]  # group -> partition -> offset and metadata
    records: list[dict[str, Any]]  # of the directory, without those of aborted transactions


@pytest.fixture(scope="module")
def written(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroupOffsets]:
    """The broker's own cleaner is off: both others see every commit."""
    broker = Broker(kafka, tmp_path_factory.mktemp("groups"), ("log.cleaner.enable=false",))
    try:
        broker.start()
        configs: dict[str, Any] = {key.replace(".", "_"): each for key, each in CONFIGS.items()}
        broker.create_topic(TOPIC, **configs)
        broker.create_topic(CONSUMED, PARTITIONS)
        numbers = (str(PARTITIONS), str(ROUNDS))
        kafka.run("java", PROGRAM, broker.bootstrap, "commit", CONSUMED, *numbers)
        committed = committed_in(broker)
        lines = broker.consume(TOPIC, committed=True)
        broker.stop()
        yield GroupOffsets(broker, broker.data / PARTITION, committed, [*map(json.loads, lines)])
    finally:
        broker.close()


def committed_in(broker: Broker) -> dict[str, dict[str, str]]:
    """What the coordinator answers for every group."""
    output = broker.kafka.run("java", PROGRAM, broker.bootstrap, "list")
    answer: dict[str, dict[str, str]] = json.loads(output.stdout)
    return answer


def clean_with_both(kafka: Kafka, source: Path, home: Path, now_ms: int, *, roll: bool) -> Path:
    """A clean of all of it by each on a copy, equal in every file; ours."""
    ours, kafkas = home / "ours" / PARTITION, home / "kafkas" / PARTITION
    options = [word for name, value in CONFIGS.items() for word in ("--set", f"{name}={value}")]
    theirs = kafka.compact(
        source, kafkas, *options, "--now", str(now_ms), *(["--roll"] if roll else [])
    )
    copy_files(str(source), str(ours))
    config = parse_topic_config(CONFIGS, LogConfig())
    mine = clean_directory(str(ours), config, CompactOptions(now_ms=now_ms, roll=roll))
    assert comparable(mine, set()) == comparable(theirs, set())
    assert {each.name for each in ours.iterdir()} == {each.name for each in kafkas.iterdir()}
    for path in kafkas.iterdir():
        assert content(ours / path.name) == content(path), path.name
    for path in ours.glob("*.deleted"):
        path.unlink()
    return ours


def last_of_each_key(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By key."""
    return {record["key"]: record for record in records}


def test_group_offsets_are_compacted_as_by_kafka(
    kafka: Kafka, written: GroupOffsets, tmp_path: Path
) -> None:
    """M17 M19 M20. Goal: the files are Kafka's, and no group loses a commit.

    Method: three cleans of all of it, the last one behind every delete horizon; then the broker
    loads what is left and is asked.
    """
    lasts = last_of_each_key(written.records)
    deletions = [key for key, record in lasts.items() if record["value"] is None]
    assert len(deletions) >= PARTITIONS, "the deleted group left no tombstones"
    assert len(written.records) > 3 * PARTITIONS * ROUNDS
    assert len(list(written.directory.glob("*.log"))) > 5
    now_ms = max(record["timestamp"] for record in written.records) + 1_000

    first = clean_with_both(kafka, written.directory, tmp_path / "1", now_ms, roll=False)
    left = {line["offset"]: line for line in map(json.loads, kafka.scan(first))}
    assert len(left) < len(written.records) / 4
    for record in lasts.values():
        assert left[record["offset"]] == record

    # What was the active segment has its horizon from the second clean.
    second = clean_with_both(kafka, first, tmp_path / "2", now_ms, roll=True)
    third = clean_with_both(kafka, second, tmp_path / "3", now_ms + 2 * DAY_MS, roll=False)
    kept = {line["key"]: line for line in map(json.loads, kafka.scan(third))}
    assert kept == {key: record for key, record in lasts.items() if key not in deletions}

    shutil.rmtree(written.directory)
    shutil.copytree(third, written.directory)
    written.broker.start()
    assert committed_in(written.broker) == written.committed
    last = f"{1_000 * (ROUNDS - 1)} round {ROUNDS - 1}"  # the last transaction was aborted
    assert written.committed["transacted"][f"{CONSUMED}-0"] == last
    assert not written.committed["gone"]
