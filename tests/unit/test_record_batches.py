"""Goal: batches and records are byte for byte Kafka's, no damaged one is believed, a scan tells
whole batches from every kind of end, and many compressed ones are worked on at a time.
Method: bytes that Kafka wrote, bytes changed one by one, the plain twins.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, strategies as st

from kafkalog.cleaner.record_batches import GROUP_BYTES, BatchInflater, RecordBatches
from kafkalog.cleaner.record_filter import BatchRetention, RecordFilter
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.errors import CorruptBatch
from kafkalog.format.field_reader import MalformedVarint, decode_varint, encode_varint
from kafkalog.format.records import record_batch as rb
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.batch_scan import BatchColumn, CrcState, ScanStop, scan
from kafkalog.format.records.compression import decompress
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
from kafkalog.format.records.record import MalformedRecord, Record, iterate_records, read_records
from kafkalog.format.records.record_batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    RECORD_COUNT_AT,
    BatchHeader,
    Codec,
    compute_crc,
    encode_header,
    is_crc_valid,
)
from kafkalog.kernels.crc32c import LANE_BYTES, crc32c_of
from kafkalog.kernels.processor import LEVEL, ProcessorLevel
from kafkalog.kernels.records.batch_scan import INLINE_CRC_MAX
from kafkalog.kernels.records.index_build import EMPTY_STATE, IndexState, index_entries
from kafkalog.kernels.records.record_scan import (
    RECORD_FACT_COUNT,
    RecordFact,
    RecordFault,
    fault_of,
    validate_records,
)
from kafkalog.log.values import AppendedBatch
from tests.cleaner_world import batches_in
from tests.naive.batch_walk import walk
from tests.naive.index_entries_due import entries_due
from tests.naive.records import partition_of
from tests.naive.stored_batches import stored_batch

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
    batch = BATCHES[name]
    header = rb.read_header(batch)
    assert header.size_bytes == len(batch)
    assert header.crc == rb.compute_crc(batch)
    assert rb.is_crc_valid(batch)
    assert rb.encode_header(header) == batch[:61]
    assert not rb.is_crc_valid(batch[:-1])
    assert not rb.is_crc_valid(batch[:60])


def test_golden_batches_say_what_kafka_wrote() -> None:
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


def test_patch_prefix_changes_offset_and_epoch_alone() -> None:
    batch = BATCHES["none"]
    patched = rb.patch_prefix(batch, 1 << 40, 9) + batch[16:]
    header = rb.read_header(patched)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 9)
    assert rb.is_crc_valid(patched)
    assert [each.offset - (1 << 40) for each in iterate_records(patched)] == [0, 1, 2]


def test_rewritten_timestamps_get_a_new_crc() -> None:
    """LogAppendTime sets bit 3; with_max_timestamp clears it."""
    stamped = rb.with_log_append_time(BATCHES["zstd"], T0 + 99)
    header = rb.read_header(stamped)
    assert rb.timestamp_type_of(header.attributes) is rb.TimestampType.LOG_APPEND_TIME
    assert (header.max_timestamp, header.base_timestamp) == (T0 + 99, T0 + 12)
    assert rb.is_crc_valid(stamped)
    assert read_records(stamped).timestamps.tolist() == [T0 + 99] * 3
    assert rb.with_max_timestamp(stamped, T0 + 17) == BATCHES["zstd"]


def test_malformed_headers_name_the_byte() -> None:
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
    assert rb.add_to_sequence(2**31 - 1, 1) == 0
    assert rb.add_to_sequence(2**31 - 2, 5) == 3


def test_abort_marker_is_kafkas() -> None:
    marker = build_end_transaction_marker(
        7, 2, 4, ControlRecordType.ABORT, timestamp_ms=T0 + 200, base_offset=16, leader_epoch=3
    )
    assert marker == BATCHES["abort"]
    key, value = encode_control_key(ControlRecordType.COMMIT), encode_marker_value(4)
    expected = EndTransactionMarker(ControlRecordType.COMMIT, 4)
    assert read_end_transaction_marker(key, value + b"later") == expected


def test_odd_control_records() -> None:
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
    assert encode_varint(2**63 - 1).hex() == "fe" + "ff" * 8 + "01"
    assert encode_varint(-(2**63)).hex() == "ff" * 9 + "01"
    for data in (b"", b"\x80", b"\x80" * 5 + b"\x00"):
        with pytest.raises(MalformedVarint):
            decode_varint(data)


NONE = BATCHES["none"]
STAMPS = [T0, T0 + 5, T0 + 3]


def golden_columns() -> RecordColumns:
    return RecordColumns.of(
        [b"k1", b"k2", None], [b"v1", None, b"v3"], STAMPS, [[(b"h1", b"x"), (b"h2", None)], [], []]
    )


def facts_of(records: bytes, count: int) -> tuple[int, list[int]]:
    facts = np.empty(RECORD_FACT_COUNT, np.int64)
    status = validate_records(np.frombuffer(records, np.uint8), count, facts)
    return status, facts.tolist()


def test_golden_batch_is_built_byte_for_byte() -> None:
    assert build_batch(golden_columns(), leader_epoch=0) == NONE


@pytest.mark.parametrize("codec", list(Codec))
def test_golden_compressed_batches_read_back(codec: Codec) -> None:
    first, second, third = iterate_records(BATCHES[codec.name.lower()])
    offset = 3 * codec
    headers = ((b"h1", b"x"), (b"h2", None))
    assert first == Record(offset, T0 + offset, b"k1", b"v1", headers)
    assert (second.key, second.value, third.key, third.value) == (b"k2", None, None, b"v3")
    assert (second.offset, third.offset) == (offset + 1, offset + 2)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_reads_back_what_was_built(codec: Codec) -> None:
    batch = build_batch(golden_columns(), codec=codec, base_offset=40, base_sequence=2**31 - 2)
    assert is_crc_valid(batch)
    records = list(iterate_records(batch))
    assert [r.offset for r in records] == [40, 41, 42]
    assert [r.timestamp for r in records] == STAMPS
    assert [r.sequence for r in records] == [2**31 - 2, 2**31 - 1, 0]


def test_delete_horizon_is_the_base_of_timestamps() -> None:
    """The record keeps its own timestamp behind a horizon."""
    (record,) = iterate_records(BATCHES["dhoriz"])
    assert record == Record(17, T0 + 300, b"k9", None)


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        RecordColumns.of([None], [b"a", b"b"], 0)


def test_one_record_makes_the_columns_of_many() -> None:
    """A single record with one stamp for all takes a shorter way to the same columns."""
    for key in (None, b"", b"k", "schlüssel"):
        for value in (None, b"", "wert", b"v" * 300):
            short = RecordColumns.of([key], [value], 7)
            long = RecordColumns.of([key], [value], [7])
            assert short.table.dtype == long.table.dtype
            assert short.table.tolist() == long.table.tolist()
            assert bytes(short.keys) == bytes(long.keys)
            assert bytes(short.values) == bytes(long.values)
            assert build_batch(short) == build_batch(long)
    with pytest.raises(OverflowError):
        RecordColumns.of([None], [b"a"], 2**63)


def test_facts_of_a_good_batch() -> None:
    status, facts = facts_of(NONE[HEADER_BYTES:], 3)
    assert status == 0
    assert facts[RecordFact.MAX_TIMESTAMP_DELTA] == 5
    assert facts[RecordFact.MAX_TIMESTAMP_INDEX] == 1
    assert facts[RecordFact.MIN_TIMESTAMP_DELTA] == 0
    assert facts[RecordFact.NULL_KEYS] == 1
    assert facts[RecordFact.FIRST_NULL_KEY_INDEX] == 2
    assert facts[RecordFact.FIRST_MISNUMBERED_INDEX] == -1
    assert facts[RecordFact.LAST_OFFSET_DELTA] == 2
    status, facts = facts_of(bytes.fromhex("0c0000000101000c000004010100"), 2)
    assert (status, facts[RecordFact.FIRST_MISNUMBERED_INDEX]) == (0, 1)


FAULTS = [
    ("0c000000010100", 2, RecordFault.BAD_COUNT, 0),
    ("0c000000010100", -1, RecordFault.BAD_COUNT, 0),
    ("0e000000010100", 1, RecordFault.BAD_SIZE, 0),
    ("01000000010100", 1, RecordFault.BAD_SIZE, 0),
    ("0cffffffffffffff", 1, RecordFault.BAD_VARINT, 0),
    ("0c000000080100", 1, RecordFault.BAD_KEY, 0),
    ("0c000000010800", 1, RecordFault.BAD_VALUE, 0),
    ("0c000000010101", 1, RecordFault.BAD_HEADER_COUNT, 0),
    ("0c000000010102", 1, RecordFault.BAD_HEADER_COUNT, 0),
    ("100000000101020101", 1, RecordFault.BAD_HEADER, 0),
    ("0e00000001010000", 1, RecordFault.LEFTOVER_IN_RECORD, 0),
    ("0c00000001010000", 1, RecordFault.LEFTOVER_IN_BATCH, 1),
    ("0c0000000101000c0000020801ff", 2, RecordFault.BAD_KEY, 1),
]


@pytest.mark.parametrize(("text", "count", "fault", "index"), FAULTS)
def test_each_structural_fault_is_named(
    text: str, count: int, fault: RecordFault, index: int
) -> None:
    status, _ = facts_of(bytes.fromhex(text), count)
    assert status < 0
    assert fault_of(status) == (fault, index)


def test_every_truncation_of_a_batch_is_malformed() -> None:
    records = NONE[HEADER_BYTES:]
    for end in range(len(records)):
        assert facts_of(records[:end], 3)[0] < 0


def test_hostile_count_takes_no_memory() -> None:
    batch = bytearray(NONE)
    batch[RECORD_COUNT_AT : RECORD_COUNT_AT + 4] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(MalformedRecord) as caught:
        read_records(batch)
    assert caught.value.fault is RecordFault.BAD_COUNT


def test_partitions_are_those_of_javas_producer() -> None:
    """The hashes are the ones in Kafka's own test of murmur2."""
    keys = [b"21", b"foobar", b"a-little-bit-long-string", b"abc", None, b""]
    columns = RecordColumns.of(keys, [None] * 6, 0)
    hashes = [-973932308, -790332482, -985981536, 479470107]
    expected = [(h & 0x7FFFFFFF) % 1000 for h in hashes]
    assert columns.partitions(1000).tolist() == [*expected, -1, partition_of(b"", 1000)]
    assert columns.null_key_count == 1


COLUMNS_AS_WALKED = (
    BatchColumn.POSITION,
    BatchColumn.SIZE,
    BatchColumn.BASE_OFFSET,
    BatchColumn.LEADER_EPOCH,
    BatchColumn.MAGIC,
    BatchColumn.ATTRIBUTES,
    BatchColumn.BASE_TIMESTAMP,
    BatchColumn.MAX_TIMESTAMP,
    BatchColumn.PRODUCER_ID,
    BatchColumn.PRODUCER_EPOCH,
    BatchColumn.BASE_SEQUENCE,
    BatchColumn.RECORD_COUNT,
)
WALKED_FIELDS = (0, 1, 2, 4, 5, 7, 9, 10, 11, 12, 13, 14)


def make_batch(base_offset: int, payload: int, count: int = 1, timestamp: int = 5) -> bytes:
    """A v2 batch of 61 + payload bytes with a right CRC; its records are noise."""
    header = BatchHeader(
        base_offset, 49 + payload, 3, 2, 0, 16, count - 1, 4, timestamp, 7, 2, 1, count
    )
    batch = bytearray(encode_header(header) + bytes(i * 7 & 255 for i in range(payload)))
    struct.pack_into(">I", batch, 17, compute_crc(batch))
    return bytes(batch)


SMALL = make_batch(10, 40, count=3)
LARGE = make_batch(13, INLINE_CRC_MAX)
TWO = SMALL + LARGE


def with_bytes(batch: bytes, position: int, data: bytes) -> bytes:
    return batch[:position] + data + batch[position + len(data) :]


@pytest.mark.parametrize(
    ("tail", "stop"),
    [
        (b"", ScanStop.END),
        (bytes(17), ScanStop.END),
        (bytes(18), ScanStop.BAD_SIZE),
        (SMALL[:17], ScanStop.END),
        (SMALL[:18], ScanStop.PARTIAL),
        (SMALL[:-1], ScanStop.PARTIAL),
        (with_bytes(SMALL, 8, struct.pack(">i", 13)), ScanStop.BAD_SIZE),
        (with_bytes(SMALL, 8, struct.pack(">i", -1)), ScanStop.BAD_SIZE),
        (with_bytes(SMALL, 8, struct.pack(">i", 14)), ScanStop.SHORT_BATCH),
        (with_bytes(SMALL, 8, struct.pack(">i", 2**31 - 1)), ScanStop.PARTIAL),
        (with_bytes(SMALL, 16, b"\x00"), ScanStop.LEGACY),
        (with_bytes(SMALL, 16, b"\x01"), ScanStop.LEGACY),
        (with_bytes(SMALL, 16, b"\x03"), ScanStop.BAD_MAGIC),
        (with_bytes(SMALL, 60, b"\xee"), ScanStop.BAD_CRC),
        (with_bytes(LARGE, 900, b"\xee"), ScanStop.BAD_CRC),
    ],
)
def test_every_kind_of_end(tail: bytes, stop: ScanStop) -> None:
    """log-format.md 1.5: the rows before it stay, the position is that of the odd batch."""
    rows = scan(TWO + tail)
    assert rows.count == 2
    assert rows.stop is stop
    assert rows.stop_position == rows.consumed_bytes == len(TWO)
    assert set(rows.column(BatchColumn.CRC_STATE).tolist()) == {CrcState.VALID}


def test_a_bad_large_batch_ends_before_a_bad_small_one_behind_it() -> None:
    """The CRCs checked by the shell and by the kernel give one answer: the first bad batch."""
    bad_large, bad_small = with_bytes(LARGE, 900, b"\xee"), with_bytes(SMALL, 60, b"\xee")
    rows = scan(SMALL + bad_large + SMALL + bad_small)
    assert (rows.count, rows.stop, rows.stop_position) == (1, ScanStop.BAD_CRC, len(SMALL))
    unchecked = scan(SMALL + bad_large + bad_small, check_crc=False)
    assert (unchecked.count, unchecked.stop) == (3, ScanStop.END)
    assert not unchecked.column(BatchColumn.CRC_STATE).any()


def test_start_and_other_buffers() -> None:
    for chunk in (bytearray(TWO), memoryview(TWO)):
        rows = scan(chunk, len(SMALL))
        assert rows.column(BatchColumn.POSITION).tolist() == [len(SMALL)]
        assert rows.consumed_bytes == len(LARGE)
    assert scan(b"").stop is ScanStop.END


def test_disorder_is_reported() -> None:
    assert scan(TWO).first_disorder() is None
    assert scan(TWO).first_disorder(9) is None
    assert scan(TWO).first_disorder(10) == 0
    assert scan(LARGE + SMALL).first_disorder() == 1
    assert scan(SMALL + make_batch(12, 0)).first_disorder() == 1
    assert scan(make_batch(5, 0, count=0)).first_disorder() == 0
    assert scan(b"").first_disorder() is None


BATCH = st.builds(make_batch, st.integers(0, 2**62), st.integers(0, 200), st.integers(1, 2**31 - 1))


@given(st.lists(BATCH, max_size=5), st.data(), st.booleans())
def test_damaged_chunks_scan_as_the_plain_walk(
    batches: list[bytes], data: st.DataObject, check_crc: bool
) -> None:
    chunk = bytearray(b"".join(batches))
    for _ in range(data.draw(st.integers(0, 2))):
        if chunk:
            at = data.draw(st.integers(0, len(chunk) - 1))
            chunk[at] = data.draw(st.integers(0, 255))
    cut = bytes(chunk[: data.draw(st.integers(0, len(chunk)))])
    rows = scan(cut, check_crc=check_crc)
    expected, reason, position = walk(cut, check_crc=check_crc)
    assert (rows.stop.name, rows.stop_position) == (reason, position)
    mine = rows.table[:, COLUMNS_AS_WALKED].tolist()
    assert mine == [[row[i] for i in WALKED_FIELDS] for row in expected]
    assert rows.column(BatchColumn.LAST_OFFSET).tolist() == [
        (row[2] + row[8] + 2**63) % 2**64 - 2**63 for row in expected
    ]


@given(st.binary(max_size=70), st.integers(0, 70), st.integers(0, 70))
def test_table_crc_is_crc32c(data: bytes, start: int, end: int) -> None:
    start, end = min(start, len(data)), min(end, len(data))
    array = np.frombuffer(data, dtype=np.uint8)
    for level in {ProcessorLevel.GENERIC, LEVEL}:
        assert crc32c_of(array, start, end, level) == crc32c(data[start:end])


@pytest.mark.parametrize("level", sorted({ProcessorLevel.GENERIC, LEVEL}))
def test_crc_of_long_spans(level: int) -> None:
    data = np.random.default_rng(3).bytes(10 * LANE_BYTES)
    array = np.frombuffer(data, dtype=np.uint8)
    for lanes in (1, 2, 3, 4, 6, 9):
        for length in range(lanes * LANE_BYTES - 9, lanes * LANE_BYTES + 10):
            for start in (0, 3):
                end = start + length
                assert crc32c_of(array, start, end, level) == crc32c(data[start:end])


@given(
    st.lists(st.tuples(st.integers(61, 300), st.integers(-1, 20)), max_size=40),
    st.integers(0, 400),
    st.integers(1, 4),
)
def test_index_entries_are_those_of_appending_one_by_one(
    batches: list[tuple[int, int]], interval: int, room: int
) -> None:
    """Chunks and full outputs in between change nothing: the state carries over."""
    facts = [
        AppendedBatch(10 * number, 10 * number, size, timestamp)
        for number, (size, timestamp) in enumerate(batches)
    ]
    table = np.zeros((len(facts), len(BatchColumn)), dtype=np.int64)
    position = 0
    for row, each in enumerate(facts):
        table[row, BatchColumn.POSITION] = position
        table[row, BatchColumn.SIZE] = each.size_bytes
        table[row, BatchColumn.LAST_OFFSET] = each.last_offset
        table[row, BatchColumn.MAX_TIMESTAMP] = each.max_timestamp_ms
        position += each.size_bytes
    state = np.array(EMPTY_STATE, dtype=np.int64)
    offset_out, time_out = np.empty((room, 2), np.int64), np.empty((room, 2), np.int64)
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    row = 0
    while row < len(facts):
        row = index_entries(table, row, 1000, interval, state, offset_out, time_out)
        offsets += [
            (a, b - 1000) for a, b in offset_out[: state[IndexState.OFFSET_ENTRIES]].tolist()
        ]
        times += [(a, b) for a, b in time_out[: state[IndexState.TIME_ENTRIES]].tolist()]
    assert (offsets, times) == entries_due(facts, interval)


CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
KIB = 1 << 10
PLACE = [BatchColumn.POSITION, BatchColumn.SIZE]
VALUE_BYTES = [100, 30 * KIB, 300 * KIB, 90 * KIB, 3 << 20, 200, 700 * KIB, 500 * KIB, 60 * KIB]


def batches_of(codecs: list[Codec], value_bytes: list[int]) -> list[bytes]:
    """A batch each, of records with the keys "old", "gone" and one of its own."""
    return [
        stored_batch(
            [
                Record(3 * place + index, 1000, key, b"v" * (size // 3))
                for index, key in enumerate((b"old", b"gone", b"%d" % place))
            ],
            codec=codec,
        )
        for place, (codec, size) in enumerate(zip(codecs, value_bytes, strict=True))
    ]


def of(*parts: bytes, max_decompressed_bytes: int = 1 << 26) -> RecordBatches:
    return batches_in(b"".join(parts), max_decompressed_bytes)


@pytest.mark.parametrize("codec", CODECS)
def test_groups_hold_every_batch_once_and_no_more_than_allowed(codec: Codec) -> None:
    parts = batches_of([codec] * len(VALUE_BYTES), VALUE_BYTES)
    batches, wanted = of(*parts), np.array([0, 1, 2, 4, 5, 6, 7, 8])
    inflater = BatchInflater()
    for _ in range(2):  # its memory is used again
        row, seen = 0, list[int]()
        for group in inflater.groups(batches, wanted):
            assert group.first_row == row < group.end_row
            row = group.end_row
            for each in group.rows.tolist():
                assert group.first_row <= each < group.end_row
                content = parts[each][HEADER_BYTES:]
                position, size = group.plain_table[each, PLACE].tolist()
                inflated = group.data[position + HEADER_BYTES : position + size].tobytes()
                assert inflated == decompress(codec, content, max_bytes=1 << 26)
            sizes = group.plain_table[group.rows, BatchColumn.SIZE]
            assert sizes[:-1].sum() < GROUP_BYTES + HEADER_BYTES * len(sizes)
            seen += group.rows.tolist()
            untouched = np.setdiff1d(np.arange(row), seen)
            assert (group.plain_table[untouched] == batches.rows.table[untouched]).all()
        assert (row, seen) == (len(parts), wanted.tolist())


def test_nothing_to_inflate_is_one_group() -> None:
    for parts in (batches_of([Codec.NONE] * 3, [10, 20, 30]), []):
        (group,) = BatchInflater().groups(of(*parts), np.array([], np.int64))
        assert (group.first_row, group.end_row, len(group.rows)) == (0, len(parts), 0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("has_right_crc", [True, False])
def test_what_lies_before_a_damaged_batch_goes_first(codec: Codec, *, has_right_crc: bool) -> None:
    parts = batches_of([codec, Codec.NONE, codec, codec], [30, 30, 30, 30])
    bent = bytearray(parts[2])
    bent[HEADER_BYTES:] = bytes(len(bent) - HEADER_BYTES)
    if has_right_crc:
        bent[CRC_AT:ATTRIBUTES_AT] = compute_crc(bent).to_bytes(4, "big")
    parts[2] = bytes(bent)
    groups = BatchInflater().groups(of(*parts), np.array([0, 2, 3]))
    group = next(groups)
    assert (group.first_row, group.end_row, group.rows.tolist()) == (0, 2, [0])
    reason = codec.name.lower() if has_right_crc else "CRC does not match"
    with pytest.raises(CorruptBatch, match=rf"offsets 6 to 8 .*{reason}") as caught:
        next(groups)
    assert caught.value.position == len(parts[0]) + len(parts[1])


def test_a_bomb_among_small_batches_is_refused() -> None:
    parts = batches_of([Codec.LZ4] * 3, [100, 40 * KIB, 100])
    size = len(decompress(Codec.LZ4, parts[1][HEADER_BYTES:], max_bytes=1 << 20))
    rows = np.arange(3)
    assert list(BatchInflater().groups(of(*parts, max_decompressed_bytes=size), rows))
    groups = BatchInflater().groups(of(*parts, max_decompressed_bytes=size - 1), rows)
    assert next(groups).end_row == 1
    with pytest.raises(CorruptBatch, match=f"inflates to more than {size - 1} bytes"):
        next(groups)


def test_the_output_has_no_room_for_what_is_compressed_again() -> None:
    """A cleaner thread does not keep the inflated size of a batch twice."""
    parts = batches_of([Codec.ZSTD, Codec.NONE], [12 << 20, 100])
    offset_map = SkimpyOffsetMap(24 * 1000, 0.9)
    none = np.zeros(2, np.bool_)
    assert not offset_map.index(of(*parts), none, 0)
    retention = np.full(2, int(BatchRetention.DELETE_EMPTY), np.int64)
    filtered = RecordFilter(offset_map).filter(
        of(*parts), retention, none, none, now_ms=0, delete_retention_ms=0
    )
    assert filtered.statistics.superseded == 2
    assert memoryview(filtered.data.obj).nbytes < 64 * KIB
