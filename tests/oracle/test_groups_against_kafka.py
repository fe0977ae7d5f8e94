"""Goal: what groups commit means the same to Kafka and to kafkalog, is compacted alike, and the
tool of one cannot be told from the other's by what it prints.
Method: a running broker and a daemon in turns over the same commits; standard output compared.
"""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kafkalog.cleaner.offline import CompactOptions, clean_directory
from kafkalog.env.system_filesystem import copy_files
from kafkalog.format.disk.group_offsets import (
    CommittedOffset,
    GroupPartition,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    partition_of_group,
)
from kafkalog.log.log_config import LogConfig
from kafkalog.settings.dynamic_configs import parse_topic_config
from tests.integration.daemon import Daemon
from tests.integration.http_world import until
from tests.oracle.cleans import comparable
from tests.oracle.kafka import Broker, record
from tests.oracle.loads import content
from tests.oracle.test_tools_against_kafka import compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.oracle.kafka import Kafka


pytestmark = pytest.mark.oracle
SOURCE = Path(__file__).with_name("GroupRecords.java")
GROUPS = ("g", "grüße an alle", "team/orders", "\U0001f600", "polygenelubricants")


def asked(kafka: Kafka, *words: str) -> list[str]:
    return kafka.run("java", SOURCE, *words).lines()


@pytest.mark.parametrize("group", GROUPS)
def test_records_are_kafkas_to_the_byte(kafka: Kafka, group: str) -> None:
    """Keys, values and partitions are those of Kafka's generated classes."""
    key, value = (
        GroupPartition(group, "t.t", 3),
        CommittedOffset(1 << 40, "m é", 1_700_000_000_000, 9),
    )
    fields = ("t.t", "3", str(1 << 40), "9", "m é", "1700000000000", "1700000000005", "50")
    partition, *lines = asked(kafka, "encode", group, *fields)
    legacy, newest, *values = map(bytes.fromhex, lines)
    assert int(partition) == partition_of_group(group, 50)
    assert encode_key(key) == newest
    assert encode_value(value) == values[3]
    assert {decode_key(legacy), decode_key(newest)} == {key}
    assert [decode_value(each).offset for each in values] == [1 << 40] * 5
    assert decode_value(values[4]) == value
    assert decode_value(values[1]).expire_timestamp_ms == 1_700_000_000_005
    read = asked(kafka, "decode", encode_key(key).hex(), encode_value(value).hex())
    assert read == [
        f"1 OffsetCommitKey(group='{group}', topic='t.t', partition=3)",
        f"3 OffsetCommitValue(offset={1 << 40}, leaderEpoch=9, metadata='m é',"
        " commitTimestamp=1700000000000, expireTimestamp=-1,"
        " topicId=AAAAAAAAAAAAAAAAAAAAAA)",
    ]


def test_commits_of_a_broker_are_found_where_kafka_puts_them(broker: Broker) -> None:
    """A group's commits lie in the partition that its name gives, as records that we read."""
    broker.create_topic("read-by-groups", 2)
    asked(broker.kafka, "commit", broker.bootstrap, "grüße", "read-by-groups", "1", "17", "so far")
    partitions = len(list(broker.data.glob("__consumer_offsets-*")))
    number = partition_of_group("grüße", partitions)
    records = [json.loads(line) for line in broker.consume("__consumer_offsets", partition=number)]
    commits = {
        decode_key(base64.b64decode(each["key"])): decode_value(base64.b64decode(each["value"]))
        for each in records
        if decode_key(base64.b64decode(each["key"])) is not None
    }
    found = commits[GroupPartition("grüße", "read-by-groups", 1)]
    assert (found.offset, found.metadata, found.leader_epoch) == (17, "so far", -1)


def test_groups_go_from_kafka_to_kafkalog_and_back(
    new_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """M24. Goal: an adopted directory brings its groups along, and takes them back to Kafka.

    Method: commits through a broker, its directory served by the daemon, which commits in turn, one
    group of each kind; the broker comes back on the same files.
    """
    broker = new_broker("offsets.topic.num.partitions=5")
    broker.create_topic("t", 2)
    broker.produce("t", [record(value=b"x") for _ in range(9)])
    asked(broker.kafka, "commit", broker.bootstrap, "old", "t", "0", "4", "by kafka")
    asked(broker.kafka, "commit", broker.bootstrap, "untouched", "t", "0", "5", "by kafka")
    broker.stop()
    daemon = Daemon(tmp_path, log_dirs=0)
    daemon.log_dirs = [broker.data]
    with daemon:
        until(lambda: daemon.request("GET", "/v1/groups").status != 503)
        groups = daemon.request("GET", "/v1/groups").json["groups"]
        assert [each["group"] for each in groups] == ["old", "untouched"]
        (found,) = daemon.request("GET", "/v1/groups/old/offsets").json["offsets"]
        assert (found["partition"], found["offset"], found["metadata"]) == (0, 4, "by kafka")
        configs = daemon.request("GET", "/topics/__consumer_offsets").json["configs"]
        assert configs["cleanup.policy"] == "compact"
        for group, partition, offset in (("old", 0, 6), ("old", 1, 0), ("new", 0, 7)):
            entry = {"topic": "t", "partition": partition, "offset": offset, "metadata": "here"}
            answer = daemon.request("PUT", f"/v1/groups/{group}/offsets", {"offsets": [entry]})
            assert answer.status == 204, answer.body
    broker.start()
    said = {
        group: sorted(asked(broker.kafka, "committed", broker.bootstrap, group))
        for group in ("old", "untouched", "new")
    }
    assert said == {
        "old": ["t-0 6 here", "t-1 0 here"],
        "untouched": ["t-0 5 by kafka"],
        "new": ["t-0 7 here"],
    }


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
    directory = tmp_path_factory.mktemp("groups")
    with Broker(kafka, directory, ("log.cleaner.enable=false",)) as broker:
        configs: dict[str, Any] = {key.replace(".", "_"): each for key, each in CONFIGS.items()}
        broker.create_topic(TOPIC, **configs)
        broker.create_topic(CONSUMED, PARTITIONS)
        numbers = (str(PARTITIONS), str(ROUNDS))
        kafka.run("java", PROGRAM, broker.bootstrap, "commit", CONSUMED, *numbers)
        committed = committed_in(broker)
        lines = broker.consume(TOPIC, committed=True)
        broker.stop()
        yield GroupOffsets(broker, broker.data / PARTITION, committed, [*map(json.loads, lines)])


def committed_in(broker: Broker) -> dict[str, dict[str, str]]:
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
    return {record["key"]: record for record in records}


def test_group_offsets_are_compacted_as_by_kafka(
    kafka: Kafka, written: GroupOffsets, tmp_path: Path
) -> None:
    """M17 M19 M20. The files are Kafka's, and no group loses a commit."""
    lasts = last_of_each_key(written.records)
    deletions = [key for key, record in lasts.items() if record["value"] is None]
    assert len(deletions) >= PARTITIONS, "the deleted group left no tombstones"
    assert len(written.records) > 3 * PARTITIONS * ROUNDS
    assert len(list(written.directory.glob("*.log"))) > 5
    now_ms = max(record["timestamp"] for record in written.records) + 1_000

    first = clean_with_both(kafka, written.directory, tmp_path / "1", now_ms, roll=False)
    left = {line["offset"]: line for line in map(json.loads, kafka.scan(first))}
    assert len(left) < len(written.records) / 4
    for newest in lasts.values():
        assert left[newest["offset"]] == newest

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


LONG = "a-group-whose-name-is-longer-than-any-column-of-the-tool"
RESET, TO_LATEST = ("--reset-offsets", "--group"), ("--to-latest", "--execute")
BILLING = (*RESET, "billing")
# In this order, as resets make groups; True: both tools also begin with the same error.
ACTIONS: tuple[tuple[tuple[str, ...], bool], ...] = (
    ((*BILLING, "--topic", "orders", "--to-earliest", "--execute"), False),
    ((*BILLING, "--topic", "two.parts", *TO_LATEST), False),
    ((*RESET, LONG, "--topic", "orders", "--topic", "a-topic-with-a-rather-long-name", *TO_LATEST),
     False),
    ((*RESET, "third", "--all-topics", *TO_LATEST), False),
    ((*RESET, "third", "--topic", "two.parts:0,2", "--to-offset", "0", "--execute"), False),
    ((*RESET, "third", "--topic", "orders:0", "--to-offset", "9", "--dry-run"), False),
    ((*BILLING, "--topic", "orders", "--shift-by", "2", "--dry-run"), True),
    ((*BILLING, "--all-topics", "--shift-by", "2", "--execute"), False),
    ((*BILLING, "--topic", "orders", "--to-datetime", "2020-01-01T00:00:00.000", "--dry-run"),
     False),
    ((*BILLING, "--group", "third", "--all-topics", "--to-earliest"), True),
    (("--list", "--state"), False),
    (("--describe", "--group", "billing"), True),
    (("--describe", "--group", "billing", "--offsets", "--verbose"), False),
    (("--describe", "--group", "billing", "--members"), True),
    (("--describe", "--group", "billing", "--state"), True),
    (("--describe", "--all-groups"), True),
    (("--describe", "--all-groups", "--state"), False),
    (("--describe", "--group", "nope"), False),
    (("--describe",), True),
    (("--delete",), True),
    (("--reset-offsets", "--to-latest", "--topic", "orders"), True),
    ((*BILLING, "--topic", "orders", "--execute"), True),
    ((*BILLING, *TO_LATEST), True),
    ((*BILLING, "--topic", "orders", *TO_LATEST, "--dry-run"), True),
)  # fmt: skip
DELETIONS = (("nope",), ("billing", "third"), ("billing", LONG))


def test_groups_without_members(new_broker: Callable[..., Broker], daemon: Daemon) -> None:
    """Every action on committed offsets prints Kafka's lines with its status, refusals too."""
    broker, tool = new_broker(), "kafka-consumer-groups"
    for name, count in (("orders", 1), ("two.parts", 3), ("a-topic-with-a-rather-long-name", 12)):
        create = ("--create", "--topic", name, "--partitions", str(count))
        compare(broker, daemon, "kafka-topics", *create)
    produce = ("kafka-console-producer", "--topic", "orders")
    compare(broker, daemon, *produce, stdin="a\nb\nc\n")
    assert compare(broker, daemon, tool, "--list") == []
    for options, is_error in ACTIONS:
        compare(broker, daemon, tool, *options, is_error=is_error)
    assert compare(broker, daemon, tool, "--list") == sorted(["billing", LONG, "third"])
    for groups in DELETIONS:
        named = [word for group in groups for word in ("--group", group)]
        compare(broker, daemon, tool, "--delete", *named)
    assert compare(broker, daemon, tool, "--list") == []
