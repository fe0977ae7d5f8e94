"""Goal: records and batches are byte for byte Kafka's, and no damaged record is believed.
Method: the golden batches that Kafka 4.1 wrote, a table of structural faults, a plain twin.
"""

from __future__ import annotations

import numpy as np
import pytest

from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.record import MalformedRecord, Record, iterate_records, read_records
from kafkalog.format.records.record_batch import (
    HEADER_BYTES,
    RECORD_COUNT_AT,
    Codec,
    is_crc_valid,
    patch_prefix,
    with_log_append_time,
)
from kafkalog.kernels.records.record_scan import (
    RECORD_FACT_COUNT,
    RecordFact,
    RecordFault,
    fault_of,
    validate_records,
)
from tests.naive.records import partition_of

NONE = bytes.fromhex(
    "0000000000000000000000570000000002e40d16be0000000000020000018bcfe568000000018bcfe56805ffffffff"
    "ffffffffffffffffffff0000000326000000046b310476310404683102780468320110000a02046b32010010000604"
    "0104763300"
)
COMPRESSED = {
    Codec.GZIP: "00000000000000030000006b00000000026452a36f0001000000020000018bcfe56803"
    "0000018bcfe56808"
    "ffffffffffffffffffffffffffff000000031f8b08000000000000ff5363606060c9366429336461c93064aa60c9"
    "30621460e06262c93662641060606361642933660000e6e6609e26000000",
    Codec.LZ4: "00000000000000090000006600000000024af7b37e0003000000020000018bcfe56809"
    "0000018bcfe5680e"
    "ffffffffffffffffffffffffffff0000000304224d186040822600008026000000046b310476310404683102780468"
    "320110000a02046b32010010000604010476330000000000",
    Codec.ZSTD: "000000000000000c00000063000000000240dfaf580004000000020000018bcfe5680c"
    "0000018bcfe56811"
    "ffffffffffffffffffffffffffff0000000328b52ffd005830010026000000046b31047631040468310278046832"
    "0110000a02046b320100100006040104763300010000",
}
HORIZON = bytes.fromhex(
    "00000000000000110000003d00000000024875bf610040000000000000018bd50bc4000000018bcfe5692cffffffff"
    "ffffffffffffffffffff000000011600a7ebb25200046b390100"
)
BASE = 1700000000000
STAMPS = [BASE, BASE + 5, BASE + 3]


def golden_columns() -> RecordColumns:
    return RecordColumns.of(
        [b"k1", b"k2", None],
        [b"v1", None, b"v3"],
        STAMPS,
        [[(b"h1", b"x"), (b"h2", None)], [], []],
    )


def facts_of(records: bytes, count: int) -> tuple[int, list[int]]:
    facts = np.empty(RECORD_FACT_COUNT, np.int64)
    status = validate_records(np.frombuffer(records, np.uint8), count, facts)
    return status, facts.tolist()


def test_golden_batch_is_built_byte_for_byte() -> None:
    """The batch that Kafka 4.1 wrote."""
    assert build_batch(golden_columns(), leader_epoch=0) == NONE


@pytest.mark.parametrize("codec", list(COMPRESSED))
def test_golden_compressed_batches_read_back(codec: Codec) -> None:
    offset = {Codec.GZIP: 3, Codec.LZ4: 9, Codec.ZSTD: 12}[codec]
    batch = bytes.fromhex(COMPRESSED[codec])
    assert is_crc_valid(batch)
    records = list(iterate_records(batch))
    headers = ((b"h1", b"x"), (b"h2", None))
    stamp = BASE + offset
    assert records[0] == Record(offset, stamp, b"k1", b"v1", headers)
    assert [(r.key, r.value) for r in records[1:]] == [(b"k2", None), (None, b"v3")]
    assert [r.offset for r in records] == [offset, offset + 1, offset + 2]


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
    (record,) = iterate_records(HORIZON)
    assert record == Record(17, BASE + 300, b"k9", None)


def test_log_append_time_replaces_every_timestamp() -> None:
    stamped = with_log_append_time(NONE, 99)
    assert read_records(stamped).timestamps.tolist() == [99, 99, 99]


def test_selection_numbers_records_anew() -> None:
    batch = build_batch(golden_columns(), np.array([2, 0], np.int64))
    records = list(iterate_records(batch))
    assert [(r.offset, r.key, r.timestamp) for r in records] == [
        (0, None, BASE + 3),
        (1, b"k1", BASE),
    ]


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


def test_misnumbered_records_are_found() -> None:
    records = bytes.fromhex("0c0000000101000c000004010100")
    status, facts = facts_of(records, 2)
    assert status == 0
    assert facts[RecordFact.FIRST_MISNUMBERED_INDEX] == 1


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


def test_prefix_moves_offsets_without_touching_the_rest() -> None:
    moved = patch_prefix(NONE, 1000, 7) + NONE[16:]
    assert is_crc_valid(moved)
    assert [r.offset for r in iterate_records(moved)] == [1000, 1001, 1002]


def test_partitions_are_those_of_javas_producer() -> None:
    """The hashes are the ones in Kafka's own test of murmur2."""
    keys = [b"21", b"foobar", b"a-little-bit-long-string", b"abc", None, b""]
    columns = RecordColumns.of(keys, [None] * 6, 0)
    hashes = [-973932308, -790332482, -985981536, 479470107]
    expected = [(h & 0x7FFFFFFF) % 1000 for h in hashes]
    assert columns.partitions(1000).tolist() == [*expected, -1, partition_of(b"", 1000)]
    assert columns.null_key_count == 1
