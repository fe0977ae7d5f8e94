"""Goal: raw batches go in whole, checked and conditional, or not at all, and up to a topic's quota.
Method: batches of the builder, some of them changed, sent to a real daemon; the stored compared.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from kafkalog.client import Client, ProducerRecord, UnknownTopic
from kafkalog.format.records.record_batch import Codec, compute_crc, is_crc_valid, read_header
from tests.integration.daemon import Daemon
from tests.integration.http_world import append, batch_of, end_offset, now_ms, read_batches, refused
from tests.integration.test_cli_over_http import done, run
from tests.partition_world import records_of, split_batches

if TYPE_CHECKING:
    from pathlib import Path

LENGTH_AT, CRC_AT, ATTRIBUTES_AT = 8, 17, 21


def changed(batch: bytes, at: int, code: str, value: int, *, fix_crc: bool = True) -> bytes:
    """The batch with one header field changed, its CRC right again unless told."""
    data = bytearray(batch)
    struct.pack_into(f">{code}", data, at, value)
    if fix_crc:
        struct.pack_into(">I", data, CRC_AT, compute_crc(data))
    return bytes(data)


@pytest.fixture(scope="module")
def topic(daemon: Daemon) -> str:
    """A topic that must stay empty."""
    daemon.create_topic("empty")
    return "empty"


def test_a_batch_is_stored_as_sent_but_for_offset_and_epoch(daemon: Daemon) -> None:
    """M01: bytes from the magic on are the client's; base offset and leader epoch are ours."""
    daemon.create_topic("stored")
    batch = batch_of(b"a", None, b"", keys=[b"k", None, b""])
    answer = append(daemon, "stored", batch)
    assert answer.status == 200
    assert answer.headers["Kafka-Durability"] == "synced"
    assert answer.json == {
        "topic": "stored",
        "partition": 0,
        "base_offset": 0,
        "last_offset": 2,
        "log_append_time": -1,
        "log_start_offset": 0,
        "duplicate": False,
    }
    assert append(daemon, "stored", batch).json["base_offset"] == 3
    first, second = split_batches(read_batches(daemon, "stored", 0).body)
    assert first[16:] == second[16:] == batch[16:]
    assert (read_header(first).base_offset, read_header(second).base_offset) == (0, 3)
    assert read_header(second).leader_epoch == 0


def test_durability_of_raw_appends(daemon: Daemon) -> None:
    daemon.create_topic("rawacks")
    batch = batch_of(b"a")
    for query, said in (("?acks=1", "os"), ("?acks=1&flush=true", "synced"), ("", "synced")):
        assert append(daemon, "rawacks", batch, query=query).headers["Kafka-Durability"] == said
    answer = append(daemon, "rawacks", batch, query="?acks=0")
    assert (answer.status, answer.headers["Kafka-Durability"]) == (202, "none")
    append(daemon, "rawacks", batch)
    assert end_offset(daemon, "rawacks") == 5


def test_several_batches_are_all_or_nothing(daemon: Daemon) -> None:
    daemon.create_topic("several")
    good = [batch_of(b"a"), batch_of(b"b", b"c", codec=Codec.LZ4), batch_of(b"d")]
    answer = append(daemon, "several", b"".join(good))
    assert (answer.json["base_offset"], answer.json["last_offset"]) == (0, 3)
    bad = changed(batch_of(b"x"), CRC_AT, "I", 1, fix_crc=False)
    refused(append(daemon, "several", b"".join([*good, bad])), 422, 42209)
    refused(append(daemon, "several", b"".join([bad, *good])), 422, 42209)
    refused(append(daemon, "several", b"".join(good) + b"tail"), 422, 42210)
    assert end_offset(daemon, "several") == 4
    assert [r.value for r in records_of(read_batches(daemon, "several", 0).body)] == [
        b"a",
        b"b",
        b"c",
        b"d",
    ]


def test_codecs_that_do_not_decode(daemon: Daemon, topic: str) -> None:
    batch = batch_of(b"abc" * 30)
    for bits in range(1, 8):
        refused(append(daemon, topic, changed(batch, ATTRIBUTES_AT, "h", bits)), 422, 42213)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        whole = batch_of(*(b"abc" * 30 for _ in range(50)), codec=codec)
        cut = changed(whole[:-9], LENGTH_AT, "i", len(whole) - 9 - 12)
        refused(append(daemon, topic, cut), 422, 42213)
    assert end_offset(daemon, topic) == 0


def test_sizes_and_times(daemon: Daemon) -> None:
    daemon.create_topic("limits", max_message_bytes="500", message_timestamp_before_max_ms="60000")
    refused(append(daemon, "limits", batch_of(b"x" * 500)), 413, 41301)
    refused(append(daemon, "limits", batch_of(b"x", timestamp_ms=now_ms() + 7_200_000)), 422, 42211)
    old = refused(
        append(daemon, "limits", batch_of(b"x", timestamp_ms=now_ms() - 90_000)), 422, 42211
    )
    assert old["record_errors"]
    assert append(daemon, "limits", batch_of(b"x")).status == 200
    daemon.create_topic("rawtiny", internal_segment_bytes="300")
    refused(append(daemon, "rawtiny", batch_of(b"x" * 100) * 3), 413, 41304)
    assert (end_offset(daemon, "limits"), end_offset(daemon, "rawtiny")) == (1, 0)


def test_compacted_topics_want_keys(daemon: Daemon) -> None:
    daemon.create_topic("rawcompact", cleanup_policy="compact")
    body = refused(
        append(daemon, "rawcompact", batch_of(b"a", b"b", keys=[b"k", None])), 422, 42212
    )
    assert [e["batch_index"] for e in body["record_errors"]] == [1]  # type: ignore[attr-defined]
    assert append(daemon, "rawcompact", batch_of(b"a", keys=[b"k"])).status == 200


def test_conditional_append(daemon: Daemon) -> None:
    daemon.create_topic("conditional")
    batch = batch_of(b"a", b"b")
    assert append(daemon, "conditional", batch, query="?expected_offset=0").status == 200
    body = refused(append(daemon, "conditional", batch, query="?expected_offset=0"), 412, 41201)
    assert body["details"]["log_end_offset"] == 2  # type: ignore[index]
    assert append(daemon, "conditional", batch, query="?expected_offset=2").status == 200
    for wrong in ("x", "-1", "1.5"):
        answer = append(daemon, "conditional", batch, query=f"?expected_offset={wrong}")
        refused(answer, 400, 40005)
    assert end_offset(daemon, "conditional") == 4


def test_log_append_time_is_stamped_with_a_new_crc(daemon: Daemon) -> None:
    daemon.create_topic("rawstamped", message_timestamp_type="LogAppendTime")
    before = now_ms()
    answer = append(daemon, "rawstamped", batch_of(b"a", b"b", timestamp_ms=77))
    assert before <= answer.json["log_append_time"] <= now_ms()
    (stored,) = split_batches(read_batches(daemon, "rawstamped", 0).body)
    assert is_crc_valid(stored)
    assert read_header(stored).max_timestamp == answer.json["log_append_time"]
    assert {record.timestamp for record in records_of(stored)} == {answer.json["log_append_time"]}
    stamped = changed(batch_of(b"a"), ATTRIBUTES_AT, "h", 8)
    refused(append(daemon, "rawstamped", stamped), 422, 42211)


def test_content_type_is_needed(daemon: Daemon, topic: str) -> None:
    path = f"/v1/topics/{topic}/partitions/0/batches"
    batch = batch_of(b"a")
    for wrong in ("application/json", "text/plain", ""):
        refused(daemon.request("POST", path, batch, {"Content-Type": wrong}), 415, 415)
    refused(append(daemon, topic, batch, partition=3), 404, 40402)
    daemon.create_topic("octets")
    answer = daemon.request(
        "POST",
        "/v1/topics/octets/partitions/0/batches",
        batch,
        {"Content-Type": "application/octet-stream"},
    )
    assert answer.status == 200
    assert end_offset(daemon, topic) == 0


def test_an_unknown_topic_is_created_as_by_other_appends(daemon: Daemon, tmp_path: Path) -> None:
    """A JSON produce created it and a raw append was refused; a refused body creates nothing."""
    batch = batch_of(b"a")
    refused(append(daemon, "autoraw", changed(batch, CRC_AT, "I", 7, fix_crc=False)), 422, 42209)
    refused(append(daemon, "autoraw", batch, partition=1), 404, 40401)
    refused(append(daemon, "autoraw", batch, query="?expected_offset=5"), 404, 40401)
    assert "autoraw" not in daemon.request("GET", "/topics").json
    assert append(daemon, "autoraw", batch).json["base_offset"] == 0
    assert append(daemon, "autoraw", batch, query="?expected_offset=1").json["base_offset"] == 1
    assert "autoraw" in daemon.request("GET", "/topics").json
    with Client(f"http://127.0.0.1:{daemon.port}") as client:
        records = [ProducerRecord(b"x")]
        assert [each.base_offset for each in client.produce("autoclient", records)] == [0]
        assert client.producer().send("autosend", records)[0].base_offset == 0
    with Daemon(tmp_path, auto_create_topics_enable="false") as strict:
        refused(append(strict, "autoraw", batch), 404, 40401)
        with Client(f"http://127.0.0.1:{strict.port}") as client, pytest.raises(UnknownTopic):
            client.produce("autoclient", records)
        assert strict.request("GET", "/topics").json == []


def test_a_producer_with_an_open_transaction(tmp_path: Path) -> None:
    """Who left a transaction open in an adopted log may not append outside of it: 409/40908.
    Nothing of a producer is mixed into its own open transaction.
    """
    daemon = Daemon(tmp_path)
    directory = daemon.log_dirs[0] / "adopted-0"
    directory.mkdir(parents=True)
    opened = batch_of(
        b"open", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    (directory / "00000000000000000000.log").write_bytes(opened)
    with daemon:
        outside = batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=1)
        body = refused(append(daemon, "adopted", outside), 409, 40908)
        assert body["kafka_error"] == "INVALID_TXN_STATE"
        other = batch_of(b"x", producer_id=8, producer_epoch=0, base_sequence=0)
        assert append(daemon, "adopted", other).json["base_offset"] == 1


BATCH = batch_of(b"x" * 5_000)


def test_a_full_quota_is_507_50702(daemon: Daemon) -> None:
    """M16: raw and JSON alike, nothing appended; reads go on; more quota or less data lets in."""
    quota = 4 * len(BATCH)
    daemon.create_topic("bounded", 2, quota_bytes=str(quota), internal_segment_bytes="6000")
    for number in range(4):
        assert append(daemon, "bounded", BATCH, partition=number % 2).status == 200
    body = refused(append(daemon, "bounded", BATCH), 507, 50702)
    assert body["retriable"] is True
    assert body["kafka_error"] == "THROTTLING_QUOTA_EXCEEDED"
    assert body["details"] == {"topic": "bounded", "quota_bytes": quota, "used_bytes": quota}
    answer = daemon.request("POST", "/topics/bounded", {"records": [{"value": "x" * 5_000}]})
    refused(answer, 507, 50702)
    assert end_offset(daemon, "bounded") == 2
    assert read_batches(daemon, "bounded", 0).status == 200
    described = done(run(daemon, "topics", "describe", "bounded")).decode()
    assert f"quota.bytes={quota}" in described
    done(run(daemon, "topics", "alter", "bounded", "--config", f"quota.bytes={2 * quota}"))
    assert append(daemon, "bounded", BATCH).status == 200
    page = daemon.request("GET", "/metrics").body.decode()
    assert 'kafkalog_quota_refusals_total{topic="bounded"} 2.0' in page
    done(run(daemon, "topics", "alter", "bounded", "--config", "quota.bytes=1"))
    assert refused(append(daemon, "bounded", BATCH), 413, 41305)["retriable"] is False
