"""Goal: batch headers, CRCs, rewrites, markers and varints are byte for byte Apache Kafka's.
Method: batches that Kafka 4.1.0 wrote, and published figures recomputed by hand with struct.
"""

from __future__ import annotations

import struct

import pytest

from kafkalog.format.field_reader import (
    MalformedVarint,
    decode_varint,
    encode_varint,
)
from kafkalog.format.records import record_batch as rb
from kafkalog.format.records.control_record import (
    ControlRecordType,
    EndTransactionMarker,
    MalformedControlRecord,
    build_end_transaction_marker,
    encode_control_key,
    encode_marker_value,
    read_control_type,
    read_end_transaction_marker,
)

GOLDEN = {
    "none": "0000000000000000000000570000000002e40d16be0000000000020000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff0000000326000000046b310476310404683102780468320110000a02046b320100100006040104763300",  # noqa: E501 - bytes as Kafka wrote them
    "gzip": "00000000000000030000006b00000000026452a36f0001000000020000018bcfe568030000018bcfe56808ffffffffffffffffffffffffffff000000031f8b08000000000000ff5363606060c9366429336461c93064aa60c930621460e06262c93662641060606361642933660000e6e6609e26000000",  # noqa: E501 - bytes as Kafka wrote them
    "snappy": "00000000000000060000006d00000000029212f4ff0002000000020000018bcfe568060000018bcfe5680bffffffffffffffffffffffffffff0000000382534e4150505900000000010000000100000028269426000000046b310476310404683102780468320110000a02046b320100100006040104763300",  # noqa: E501 - bytes as Kafka wrote them
    "lz4": "00000000000000090000006600000000024af7b37e0003000000020000018bcfe568090000018bcfe5680effffffffffffffffffffffffffff0000000304224d186040822600008026000000046b310476310404683102780468320110000a02046b32010010000604010476330000000000",  # noqa: E501 - bytes as Kafka wrote them
    "zstd": "000000000000000c00000063000000000240dfaf580004000000020000018bcfe5680c0000018bcfe56811ffffffffffffffffffffffffffff0000000328b52ffd005830010026000000046b310476310404683102780468320110000a02046b320100100006040104763300010000",  # noqa: E501 - bytes as Kafka wrote them
    "abort": "00000000000000100000004200000003026cd4a71a0030000000000000018bcfe568c80000018bcfe568c800000000000000070002ffffffff000000012000000008000000000c00000000000400",  # noqa: E501 - bytes as Kafka wrote them
    "dhoriz": "00000000000000110000003d00000000024875bf610040000000000000018bd50bc4000000018bcfe5692cffffffffffffffffffffffffffff000000011600a7ebb25200046b390100",  # noqa: E501 - bytes as Kafka wrote them
}
BATCHES = {name: bytes.fromhex(text) for name, text in GOLDEN.items()}
T0 = 1_700_000_000_000


@pytest.mark.parametrize("name", BATCHES)
def test_golden_batches_have_valid_crcs_and_encode_back(name: str) -> None:
    """All seven batches: size, CRC, and the header encodes to the same 61 bytes."""
    batch = BATCHES[name]
    header = rb.read_header(batch)
    assert header.size_bytes == len(batch)
    assert header.crc == rb.compute_crc(batch)
    assert rb.is_crc_valid(batch)
    assert rb.encode_header(header) == batch[:61]
    assert not rb.is_crc_valid(batch[:-1])
    assert not rb.is_crc_valid(batch[:60])


def test_golden_batches_say_what_kafka_wrote() -> None:
    """Codecs, offsets, timestamps, transaction and horizon bits."""
    headers = {name: rb.read_header(batch) for name, batch in BATCHES.items()}
    for codec, name in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        header = headers[name]
        assert rb.codec_of(header.attributes) == codec == rb.Codec[name.upper()]
        assert (header.base_offset, header.last_offset) == (3 * codec, 3 * codec + 2)
        assert header.next_offset == 3 * codec + 3
        assert header.record_count == 3
        assert not header.has_producer_id
        assert header.last_sequence == rb.NO_SEQUENCE
    abort, horizon = headers["abort"], headers["dhoriz"]
    assert rb.is_control(abort.attributes)
    assert rb.is_transactional(abort.attributes)
    assert (abort.producer_id, abort.producer_epoch, abort.leader_epoch) == (7, 2, 3)
    assert rb.has_delete_horizon(horizon.attributes)
    assert horizon.delete_horizon_ms == 1_700_086_400_000
    assert headers["none"].delete_horizon_ms is None


@pytest.mark.parametrize(
    ("message_id", "created_ms", "value_bytes", "batch_bytes", "crc"),
    [
        (1, 1639132508991, 78, 148, 2142666254),
        (4, 1639132514555, 78, 148, 1895373344),
        (7, 1639132519561, 78, 148, 1097825866),
        (322, 1639133044553, 80, 150, 3361402726),
        (325, 1639133049552, 80, 150, 1749984078),
    ],
)
def test_published_crcs(
    message_id: int, created_ms: int, value_bytes: int, batch_bytes: int, crc: int
) -> None:
    """tests/golden/published.md 1: one record a batch, built here field by field."""
    value = (
        f'{{"producerId":"strimzi-canary-client","messageId":{message_id},'
        f'"timestamp":{created_ms}}}'
    ).encode()
    assert len(value) == value_bytes
    body = b"\x00\x00\x00\x01" + encode_varint(len(value)) + value + b"\x00"
    records = encode_varint(len(body)) + body
    tail = struct.pack(">hiqqqhii", 0, 0, created_ms, created_ms, -1, -1, 0, 1) + records
    batch = struct.pack(">qiibI", 0, len(tail) + 9, 0, 2, crc) + tail
    assert len(batch) == batch_bytes
    assert rb.compute_crc(batch) == crc
    assert rb.is_crc_valid(rb.patch_prefix(batch, 107, 5) + batch[16:])


def test_patch_prefix_changes_offset_and_epoch_alone() -> None:
    """Offsets are assigned without touching what the CRC covers."""
    batch = BATCHES["none"]
    patched = rb.patch_prefix(batch, 1 << 40, 9) + batch[16:]
    header = rb.read_header(patched)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 9)
    assert rb.is_crc_valid(patched)


def test_rewritten_timestamps_get_a_new_crc() -> None:
    """LogAppendTime sets bit 3; with_max_timestamp clears it."""
    stamped = rb.with_log_append_time(BATCHES["zstd"], T0 + 99)
    header = rb.read_header(stamped)
    assert rb.timestamp_type_of(header.attributes) is rb.TimestampType.LOG_APPEND_TIME
    assert (header.max_timestamp, header.base_timestamp) == (T0 + 99, T0 + 12)
    assert rb.is_crc_valid(stamped)
    assert rb.with_max_timestamp(stamped, T0 + 17) == BATCHES["zstd"]


def test_malformed_headers_name_the_byte() -> None:
    """Too short, wrong magic, impossible length, illegal codec."""
    batch = BATCHES["none"]
    for broken, position in (
        (batch[:60], 0),
        (batch[:16] + b"\x01" + batch[17:], 16),
        (batch[:8] + struct.pack(">i", 48) + batch[12:], 8),
    ):
        with pytest.raises(rb.MalformedBatch) as caught:
            rb.read_header(broken)
        assert caught.value.position == position
    with pytest.raises(rb.MalformedBatch):
        rb.codec_of(5)


def test_sequences_wrap_to_zero() -> None:
    """2^31-1 is followed by 0."""
    assert rb.add_to_sequence(2**31 - 1, 1) == 0
    assert rb.add_to_sequence(2**31 - 2, 5) == 3


def test_abort_marker_is_kafkas() -> None:
    """The golden abort marker, byte for byte, and back."""
    marker = build_end_transaction_marker(
        7, 2, 4, ControlRecordType.ABORT, timestamp_ms=T0 + 200, base_offset=16, leader_epoch=3
    )
    assert marker == BATCHES["abort"]
    key, value = encode_control_key(ControlRecordType.COMMIT), encode_marker_value(4)
    expected = EndTransactionMarker(ControlRecordType.COMMIT, 4)
    assert read_end_transaction_marker(key, value + b"later") == expected


def test_odd_control_records() -> None:
    """Unknown types are tolerated, short or negative ones refused."""
    assert read_control_type(struct.pack(">hh", 3, 99)) is ControlRecordType.UNKNOWN
    for key in (None, b"\x00\x00\x00", struct.pack(">hh", -1, 0)):
        with pytest.raises(MalformedControlRecord):
            read_control_type(key)
    abort = encode_control_key(ControlRecordType.ABORT)
    for value in (None, b"\x00" * 5, struct.pack(">hi", -1, 0)):
        with pytest.raises(MalformedControlRecord):
            read_end_transaction_marker(abort, value)
    with pytest.raises(MalformedControlRecord):
        read_end_transaction_marker(struct.pack(">hh", 0, 2), encode_marker_value(1))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (300, "d804"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_varints(value: int, encoded: str) -> None:
    """Zigzag, low group first."""
    data = bytes.fromhex(encoded)
    assert encode_varint(value) == data
    assert decode_varint(b"\xff" + data, 1) == (value, 1 + len(data))


def test_varint_limits() -> None:
    """Ten bytes hold any 64 bits; at most 5 are read, and never beyond the buffer."""
    assert encode_varint(2**63 - 1).hex() == "fe" + "ff" * 8 + "01"
    assert encode_varint(-(2**63)).hex() == "ff" * 9 + "01"
    for data in (b"", b"\x80", b"\x80" * 5 + b"\x00"):
        with pytest.raises(MalformedVarint):
            decode_varint(data)
