"""Goal: every rule for incoming batches, with Kafka's kind of error, and the changes it makes.
Method: batches of the builder, one field or byte changed at a time.
"""

from __future__ import annotations

import struct

import pytest

from kafkalog import errors
from kafkalog.format.records.compression import compress
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.records.record_batch import (
    CRC_AT,
    HEADER_BYTES,
    Codec,
    TimestampType,
    codec_of,
    compute_crc,
    read_header,
    timestamp_type_of,
)
from kafkalog.log.log_config import LogConfig
from kafkalog.log.validator import validate
from kafkalog.log.values import AppendOrigin
from tests.partition_world import NOW_MS, batch, checked, records_of

STAMPED = LogConfig(message_timestamp_type="LogAppendTime")
COMPACTED = LogConfig(cleanup_policy=frozenset({"compact", "delete"}))


def patched(data: bytes, position: int, layout: str, value: int) -> bytes:
    """One header field changed, CRC right again."""
    changed = bytearray(data)
    struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, CRC_AT, compute_crc(changed))
    return bytes(changed)


ONE = batch([b"a", b"b"])


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", errors.InvalidRecord),
        (ONE[:-1], errors.InvalidRecord),
        (ONE + b"x", errors.InvalidRecord),
        (ONE[:-1] + b"\xff", errors.BadBatchCrc),
        (patched(ONE, 8, ">i", 40), errors.BadBatchCrc),
        (patched(ONE, 16, ">b", 1), errors.InvalidRecord),
        (patched(ONE, 0, ">q", 5), errors.InvalidRecord),
        (patched(ONE, 23, ">i", -1), errors.InvalidRecord),
        (patched(ONE, 23, ">i", 2), errors.InvalidRecord),
        (patched(ONE, 57, ">i", 0), errors.InvalidRecord),
        (patched(ONE, 57, ">i", -1), errors.InvalidRecord),
        (patched(patched(ONE, 57, ">i", 3), 23, ">i", 2), errors.InvalidRecord),
        (patched(ONE, 21, ">h", 0x20), errors.InvalidRecord),
        (patched(ONE, 43, ">q", 7), errors.InvalidRecord),
        (patched(ONE, 21, ">h", 6), errors.UnsupportedCompression),
        (patched(ONE, 21, ">h", 4), errors.UnsupportedCompression),
        (batch([b"a"], timestamps=NOW_MS + 3_700_000), errors.InvalidTimestamp),
        (patched(ONE, 27, ">q", 2**63 - 1), errors.InvalidTimestamp),
        (batch([bytes(1_048_588)]), errors.RecordBatchTooLarge),
        (batch([bytes(2 << 20)], codec=Codec.ZSTD), errors.DecompressedTooLarge),
    ],
)
def test_refused(data: bytes, error: type[errors.InvalidRequest]) -> None:
    """M02: one broken rule each."""
    with pytest.raises(error):
        checked(data)


def test_a_batch_that_is_too_large_says_what_to_do() -> None:
    """After Kafka's words: the key, and how large it has to be."""
    data = batch([bytes(1_048_588)])
    with pytest.raises(errors.RecordBatchTooLarge) as refused:
        checked(data)
    assert refused.value.message == (
        f"The record batch size is {len(data)} bytes which exceeds the maximum configured value of "
        "1048588. Send smaller batches, or raise max.message.bytes of the topic: kafkalog topics "
        f"alter TOPIC --config max.message.bytes={len(data)}"
    )


def test_good_batches_stay_as_they_are() -> None:
    """M01: not a byte is copied or changed, whatever the codec; unknown bits are kept."""
    for codec in Codec:
        data = batch([b"a" * 50, None], codec=codec)
        assert bytes(checked(data).batches[0].data) == data
    odd = patched(ONE, 21, ">h", 0x4000)
    assert bytes(checked(odd).batches[0].data) == odd
    many = checked(ONE + batch([b"c"]))
    assert (len(many.batches), many.record_count, many.size_bytes) == (2, 3, len(ONE) + 69)
    with pytest.raises(errors.InvalidRecord):
        checked(ONE + ONE, allow_many=False)


def test_timestamp_window_is_inclusive() -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    checked(batch([b"a"] * 3, timestamps=[NOW_MS - 1000, NOW_MS + 1000, -1]), config)
    for bad in (NOW_MS - 1001, NOW_MS + 1001):
        with pytest.raises(errors.InvalidTimestamp) as raised:
            checked(batch([b"a", b"b"], timestamps=[NOW_MS, bad]), config)
        assert [index for index, _ in raised.value.record_errors] == [1]


def test_lying_maximum_is_corrected() -> None:
    """CreateTime: recomputed from the records; LogAppendTime: now, and the bit is set."""
    lying = patched(ONE, 35, ">q", 77)
    fixed = checked(lying).batches[0]
    assert (fixed.max_timestamp_ms, bytes(fixed.data)) == (NOW_MS, ONE)
    stamped = checked(ONE, STAMPED, now_ms=NOW_MS + 5)
    header = read_header(stamped.batches[0].data)
    assert header.max_timestamp == stamped.log_append_time_ms == NOW_MS + 5
    assert timestamp_type_of(header.attributes) is TimestampType.LOG_APPEND_TIME
    with pytest.raises(errors.InvalidTimestamp):
        checked(patched(ONE, 21, ">h", 8), STAMPED)
    with pytest.raises(errors.InvalidTimestamp):
        checked(patched(patched(ONE, 21, ">h", 8), 35, ">q", -1))


def test_null_keys_on_a_compacted_topic() -> None:
    """M02: refused by number; with a bad timestamp as well the timestamp names the error."""
    with pytest.raises(errors.NullKey) as raised:
        checked(batch([b"a"] * 3, keys=[b"k", None, None]), COMPACTED)
    assert [index for index, _ in raised.value.record_errors] == [1, 2]
    data = batch([b"a"] * 2, keys=[None, b"k"], timestamps=[NOW_MS, NOW_MS * 2])
    with pytest.raises(errors.InvalidTimestamp):
        checked(data, COMPACTED)


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_rebuilt_for_the_codec_of_the_topic(source: Codec, target: str) -> None:
    """M02: the same records and producer fields under the topic's codec."""
    data = batch([b"a" * 40, None], keys=[b"k", None], codec=source, producer=(7, 1, 3))
    facts = checked(data, LogConfig(compression_type=target)).batches[0]
    header = read_header(facts.data)
    expected = Codec.NONE if target == "uncompressed" else Codec[target.upper()]
    assert codec_of(header.attributes) is expected
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
    assert records_of(facts.data) == records_of(data)


def test_misnumbered_records_are_numbered_again() -> None:
    """M02: compressed batches are rebuilt, uncompressed ones refused."""
    first, second = ONE[HEADER_BYTES:][:8], ONE[HEADER_BYTES:][8:]
    assert first[-2:-1] == b"a"
    swapped = second + first
    plain = patched(ONE[:HEADER_BYTES] + swapped, 21, ">h", 0)
    with pytest.raises(errors.InvalidRecord):
        checked(plain)
    body = compress(Codec.GZIP, swapped)
    packed = patched(ONE[:HEADER_BYTES] + body, 8, ">i", HEADER_BYTES - 12 + len(body))
    packed = patched(packed, 21, ">h", 1)
    records = records_of(checked(packed).batches[0].data)
    assert [(record.offset, record.value) for record in records] == [(0, b"b"), (1, b"a")]


def test_replication_keeps_offsets_and_drops_a_partial_tail() -> None:
    """Offsets, size and rules of the client do not matter; the CRC does."""
    data = patched(ONE, 0, ">q", 50)
    found = checked(
        data + data[:30], LogConfig(max_message_bytes=10), origin=AppendOrigin.REPLICATION
    )
    assert [facts.base_offset for facts in found.batches] == [50]
    with pytest.raises(errors.BadBatchCrc):
        checked(data[:-1] + b"\xff", origin=AppendOrigin.REPLICATION)


def test_markers_of_a_coordinator() -> None:
    """A control batch of the coordinator is read, and never recompressed."""
    marker = build_end_transaction_marker(7, 0, 3, ControlRecordType.COMMIT, timestamp_ms=NOW_MS)
    config = LogConfig(compression_type="zstd")
    facts = validate(
        marker, config, NOW_MS, AppendOrigin.COORDINATOR, max_decompressed_bytes=100
    ).batches[0]
    assert (facts.control_type, facts.coordinator_epoch, bytes(facts.data)) == (1, 3, marker)


def test_a_marker_that_says_it_is_compressed_ends_no_transaction() -> None:
    """A follower's copy is taken as it is: Kafka compresses no control batch."""
    marker = build_end_transaction_marker(7, 0, 3, ControlRecordType.COMMIT, timestamp_ms=NOW_MS)
    data = patched(marker, 21, ">h", 0x31)  # gzip, transactional, control
    assert checked(data, origin=AppendOrigin.REPLICATION).batches[0].control_type is None
