"""Goal: what groups commit means the same to Kafka and to kafkalog, in both directions.
Method: Kafka's own record classes; a running broker whose `__consumer_offsets` kafkalog reads.
"""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalog.format.disk.group_offsets import (
    CommittedOffset,
    GroupPartition,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    partition_of_group,
)
from tests.integration.daemon import Daemon
from tests.oracle.kafka import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.oracle.kafka import Broker, Kafka

pytestmark = pytest.mark.oracle

SOURCE = Path(__file__).with_name("GroupRecords.java")
GROUPS = ("g", "grüße an alle", "team/orders", "\U0001f600", "polygenelubricants")


def asked(kafka: Kafka, *words: str) -> list[str]:
    """Lines of the Java program."""
    return kafka.run("java", SOURCE, *words).lines()


@pytest.mark.parametrize("group", GROUPS)
def test_records_are_kafkas_to_the_byte(kafka: Kafka, group: str) -> None:
    """Goal: keys, values and partitions are those of Kafka's generated classes.

    Method: every version that Kafka writes or reads; ours read back by Kafka.
    """
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
        deadline = time.monotonic() + 60
        while daemon.request("GET", "/v1/groups").status == 503:
            assert time.monotonic() < deadline, daemon.log_tail()
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
