"""Goal: an Arrow answer has the schema of Spark's Kafka source and survives damage; what Arrow may
bring is taken, and what it may not is refused by the column's name.
Method: pyarrow on one side, our writer and reader on the other.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from kafkalog.errors import DecompressedTooLarge
from kafkalog.format.records.batch_builder import build_plain_batch
from kafkalog.format.records.record import Record, iterate_records
from kafkalog.format.records.record_batch import Codec, MalformedBatch
from kafkalog.format.wire.arrow_columns import RECORDS_PER_BATCH, SCHEMA
from kafkalog.format.wire.arrow_messages import (
    METADATA_BYTES_MAX,
    MalformedArrow,
    MessageCutter,
    MessageTooLarge,
    UnusableColumn,
)
from kafkalog.format.wire.arrow_reader import ArrowReader, ArrowRecords
from kafkalog.format.wire.arrow_writer import ArrowWriter
from kafkalog.format.wire.record_writer import Bounds, RecordRead, RecordShape
from tests.naive.stored_batches import stored_batch

if TYPE_CHECKING:
    from kafkalog.format.wire.record_writer import Chunk


NOW = 1_700_000_000_000
MAX_BYTES = 1 << 20
END = b"\xff\xff\xff\xff\0\0\0\0"
PAIR = pa.struct([("key", pa.utf8()), ("value", pa.binary())])
STAMP = pa.timestamp("ms", "UTC")


def stream_of(*batches: pa.RecordBatch, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    written = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, batches[0].schema, options=written) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def pieces_of(stream: bytes, piece_bytes: int = 1 << 20) -> list[ArrowRecords]:
    cutter = MessageCutter(MAX_BYTES)
    reader = ArrowReader(piece_bytes=piece_bytes, max_bytes=MAX_BYTES)
    messages = cutter.feed(stream)
    cutter.finish()
    pieces = [piece for message in messages for piece in reader.read(message, NOW)]
    if cutter.fault is not None:
        raise cutter.fault
    return pieces


def records_of(**columns: pa.Array) -> list[Record]:
    (piece,) = pieces_of(stream_of(pa.record_batch(columns)))
    return list(iterate_records(build_plain_batch(piece.columns).data))


def test_columns_of_no_type_are_columns_of_nulls() -> None:
    """What libraries make of a column in which nothing stands."""
    nothing = pa.nulls(2)
    others = dict.fromkeys(("key", "headers", "timestamp", "partition"), nothing)
    found = records_of(value=pa.array([b"a", b"b"]), **others)
    assert found == [Record(0, NOW, None, b"a"), Record(1, NOW, None, b"b")]


@pytest.mark.parametrize(
    ("stamps", "expected"),
    [
        (pa.array([1500], pa.int64()), 1500),
        (pa.array([2], pa.timestamp("s", "Europe/Berlin")), 2000),
        (pa.array([1999], pa.timestamp("us", "UTC")), 1),
        (pa.array([1_999_999], pa.timestamp("ns", "UTC")), 1),
        (pa.array([-1], pa.timestamp("us", "UTC")), -1),
    ],
)
def test_timestamps_become_milliseconds(stamps: pa.Array, expected: int) -> None:
    (record,) = records_of(value=pa.array([b"v"]), timestamp=stamps)
    assert record.timestamp == expected


ONE = pa.array([b"v"])
REFUSED: list[tuple[str, dict[str, pa.Array], str]] = [
    ("value", {"key": ONE}, "missing"),
    ("value", {"value": pa.array([1])}, "type int64 is not taken"),
    ("value", {"value": pa.nulls(1)}, "type null is not taken"),
    ("value", {"value": pa.array(["v"]).dictionary_encode()}, "dictionary<"),
    ("key", {"value": ONE, "key": pa.array([1.5])}, "type double"),
    ("offset", {"value": ONE, "offset": pa.array([1])}, "assigned by the append"),
    ("topic", {"value": ONE, "topic": pa.array(["t"])}, "the path names it"),
    ("timestampType", {"value": ONE, "timestampType": pa.array([0])}, "configuration"),
    ("__index_level_0__", {"value": ONE, "__index_level_0__": pa.array([0])}, "it is unknown"),
    ("x" * 100, {"value": ONE, "x" * 300: ONE}, "it is unknown"),
    ("timestamp", {"value": ONE, "timestamp": pa.array([1], pa.timestamp("ms"))}, "time zone"),
    ("timestamp", {"value": ONE, "timestamp": pa.array([1], pa.int32())}, "type int32"),
    ("timestamp", {"value": ONE, "timestamp": pa.array([-2])}, "at least -1"),
    ("timestamp", {"value": ONE, "timestamp": pa.array([-1001], pa.timestamp("us", "UTC"))}, "-1"),
    ("timestamp", {"value": ONE, "timestamp": pa.array([1 << 62], pa.timestamp("s", "UTC"))}, "64"),
    ("timestamp", {"value": ONE, "timestamp": pa.array([-1 << 63], pa.timestamp("s", "UTC"))}, "1"),
    ("partition", {"value": ONE, "partition": pa.array([-1])}, "from 0 to"),
    ("partition", {"value": ONE, "partition": pa.array([1 << 31])}, "from 0 to"),
    ("partition", {"value": ONE, "partition": pa.array([1 << 63], pa.uint64())}, "64 bits"),
    ("partition", {"value": ONE, "partition": pa.array([1.0])}, "type double"),
    ("headers", {"value": ONE, "headers": pa.array([b"h"])}, "list<struct"),
    ("headers", {"value": ONE, "headers": pa.array([[b"h"]])}, "list<struct"),
    ("headers", {"value": ONE, "headers": pa.array([[{"key": "a"}]])}, "list<struct"),
    ("headers", {"value": ONE, "headers": pa.array([[{"key": 1, "value": b""}]])}, "list<struct"),
    ("headers", {"value": ONE, "headers": pa.array([[None]], pa.list_(PAIR))}, "a header is null"),
    (
        "headers",
        {"value": ONE, "headers": pa.array([[{"key": None, "value": b""}]], pa.list_(PAIR))},
        "key of a header is null",
    ),
    (
        "headers",
        {"value": ONE, "headers": pa.array([[{"key": b"\xff", "value": b""}]])},
        "not UTF-8",
    ),
]


@pytest.mark.parametrize(("column", "columns", "reason"), REFUSED)
def test_a_column_is_refused_by_its_name(
    column: str, columns: dict[str, pa.Array], reason: str
) -> None:
    with pytest.raises(UnusableColumn, match=f"column '{column}': .*{reason}") as caught:
        pieces_of(stream_of(pa.record_batch(columns)))
    assert caught.value.column == column


def test_two_columns_of_one_name_are_refused() -> None:
    batch = pa.RecordBatch.from_arrays([ONE, ONE], names=["value", "value"])
    with pytest.raises(UnusableColumn, match="several"):
        pieces_of(stream_of(batch))


def views_of_the_same(count: int, size: int) -> pa.Array:
    """Many long values that share their bytes."""
    view = struct.pack("<i4sii", size, b"xxxx", 0, 0)
    data = pa.py_buffer(b"x" * size)
    return pa.Array.from_buffers(pa.binary_view(), count, [None, pa.py_buffer(view * count), data])


def test_values_that_share_their_bytes_are_counted_one_by_one() -> None:
    """Ten MiB out of fifty KiB would be no bound at all."""
    few = pieces_of(stream_of(pa.record_batch({"value": views_of_the_same(3, 50_000)})))
    assert sum(len(piece.columns) for piece in few) == 3
    with pytest.raises(MessageTooLarge):
        pieces_of(stream_of(pa.record_batch({"value": views_of_the_same(200, 50_000)})))


def test_what_stands_in_the_place_of_a_null_is_not_read() -> None:
    """A null view of a negative size ended the process when pyarrow converted the column."""
    views = np.zeros((2, 4), np.int32)
    views[0] = 1, ord("v"), 0, 0
    views[1] = -(2**31), 7, 1 << 30, 1 << 30
    validity = pa.py_buffer(b"\x01")
    array = pa.Array.from_buffers(pa.binary_view(), 2, [validity, pa.py_buffer(views)])
    assert [record.value for record in records_of(value=array)] == [b"v", None]


def test_bytes_under_a_null_are_left_out() -> None:
    ends, data = np.array([0, 1, 4, 5], np.int32), pa.py_buffer(b"abcde")
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(ends), data]
    array = pa.Array.from_buffers(pa.binary(), 3, buffers)
    found = records_of(key=array, value=array)
    assert [record.key for record in found] == [b"a", None, b"e"]


GOOD = stream_of(pa.record_batch({"value": pa.array([b"v" * 100])}))
SCHEMA_MESSAGE, BATCH_MESSAGE = MessageCutter(MAX_BYTES).feed(GOOD)


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"", "no schema"),
        (END, "no schema"),
        (b'[{"value":"x"}]', "no Arrow IPC stream"),
        (b"ARROW1\0\0" + GOOD, "no Arrow IPC stream"),  # the file format
        (GOOD[4:], "no Arrow IPC stream"),  # before 0.15
        (BATCH_MESSAGE + END, "one schema"),
        (SCHEMA_MESSAGE + SCHEMA_MESSAGE, "one schema"),
        (GOOD + b"\0", "follow the end"),
        (GOOD + GOOD, "follow the end"),
        (SCHEMA_MESSAGE + END[:6], "breaks off"),
        (SCHEMA_MESSAGE + BATCH_MESSAGE[:-1], "breaks off"),
        (b"\xff\xff\xff\xff" + struct.pack("<i", METADATA_BYTES_MAX + 1), "metadata of"),
        (b"\xff\xff\xff\xff" + struct.pack("<i", -8), "metadata of"),
        (b"\xff\xff\xff\xff" + struct.pack("<i", 8) + b"\xff" * 8, "damaged"),
    ],
    ids=range(14),
)
def test_what_is_no_stream_is_refused(stream: bytes, reason: str) -> None:
    with pytest.raises(MalformedArrow, match=reason):
        pieces_of(stream)


def test_a_stream_may_end_without_its_end() -> None:
    assert len(pieces_of(SCHEMA_MESSAGE + BATCH_MESSAGE)) == 1
    assert pieces_of(SCHEMA_MESSAGE) == []


def test_dictionaries_are_refused_also_without_a_column() -> None:
    values = pa.array(["v"]).dictionary_encode()
    other = stream_of(pa.record_batch({"value": values}))
    dictionary = MessageCutter(MAX_BYTES).feed(other)[1]
    with pytest.raises(MalformedArrow, match="dictionary"):
        pieces_of(SCHEMA_MESSAGE + dictionary)


def test_a_message_may_not_be_larger_than_allowed() -> None:
    """By what its head says, before its body comes; as it is, and inflated."""
    large = pa.record_batch({"value": pa.array([bytes(MAX_BYTES)])})
    for codec in (None, "lz4", "zstd"):
        stream = stream_of(large, compression=codec)
        cutter = MessageCutter(MAX_BYTES)
        assert len(cutter.feed(stream if codec else stream[:1000])) == 1
        assert isinstance(cutter.fault, MessageTooLarge)


@pytest.mark.parametrize("declared", [1 << 62, 1 << 40, MAX_BYTES])
def test_a_buffer_that_claims_to_inflate_to_much_takes_no_memory(declared: int) -> None:
    """pyarrow would allocate what it says."""
    values = pa.record_batch({"value": pa.array([b"v" * 1000])})
    message = MessageCutter(MAX_BYTES).feed(stream_of(values, compression="zstd"))[1]
    changed = message.replace(struct.pack("<q", 1000), struct.pack("<q", declared))
    assert changed != message
    with pytest.raises(MessageTooLarge):
        pieces_of(SCHEMA_MESSAGE + changed)


def writer_of(bounds: Bounds | None = None, max_decompressed_bytes: int = 1 << 20) -> ArrowWriter:
    return ArrowWriter(
        RecordShape(), bounds or Bounds(), max_decompressed_bytes=max_decompressed_bytes
    )


def read_of(data: bytes, start: int = 0, end: int = 1 << 20) -> RecordRead:
    return RecordRead("t", 7, data, start, end)


def table_of(writer: ArrowWriter, chunks: list[Chunk]) -> pa.Table:
    data = b"".join((writer.begin(), *(chunk.data for chunk in chunks), writer.end()))
    table = pa.ipc.open_stream(data).read_all()
    table.validate(full=True)
    return table


def rows_of(*batches: bytes) -> list[dict[str, Any]]:
    writer = writer_of()
    rows: list[dict[str, Any]] = table_of(
        writer, list(writer.write(read_of(b"".join(batches))))
    ).to_pylist()
    return rows


def test_the_schema_is_that_of_sparks_source() -> None:
    """Names, types and order, as http-api.md 3.6 has them; every column may be null."""
    assert [(field.name, str(field.type)) for field in SCHEMA] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "dictionary<values=string, indices=int32, ordered=0>"),
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[ms, tz=UTC]"),
        ("timestampType", "int32"),
        ("headers", "list<item: struct<key: string, value: binary>>"),
    ]
    assert all(field.nullable for field in SCHEMA)


def test_an_answer_without_records_has_the_schema() -> None:
    for is_read in (False, True):
        writer = writer_of()
        table = table_of(writer, list(writer.write(read_of(b""))) if is_read else [])
        assert table.schema == SCHEMA
        assert table.num_rows == 0


def test_ill_formed_header_names_are_replaced() -> None:
    """As Python and Java decode them: Arrow text is UTF-8."""
    names = (b"\xff\xff", b"a\xe2\x82", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80z")
    record = Record(0, 0, None, None, tuple((name, b"v") for name in names))
    (row,) = rows_of(stored_batch([record]))
    assert [pair["key"] for pair in row["headers"]] == [
        name.decode("utf-8", "replace") for name in names
    ]


def test_large_records_and_many_small_ones() -> None:
    """A record above a chunk is a chunk; empty ones end a chunk by their number."""
    large = Record(0, 0, b"k" * 300_000, b"v" * 900_000, ((b"n" * 400_000, b"w" * 700_000),))
    small = [Record(1 + index, 0, None, None) for index in range(RECORDS_PER_BATCH + 5)]
    last = Record(90_000, 0, b"", b"x")
    data = b"".join(map(stored_batch, ([large], small, [last])))
    writer = writer_of()
    chunks = list(writer.write(read_of(data, end=90_001)))
    assert [chunk.record_count for chunk in chunks][:2] == [1, RECORDS_PER_BATCH]
    table = table_of(writer, chunks)
    assert table.num_rows == RECORDS_PER_BATCH + 7
    first = table.slice(0, 1).to_pylist()[0]
    assert (first["key"], first["value"]) == (large.key, large.value)
    assert first["headers"] == [{"key": "n" * 400_000, "value": b"w" * 700_000}]


def test_records_before_a_damaged_one_are_in_the_chunks_before_the_error() -> None:
    good = stored_batch([Record(0, 0, None, b"a"), Record(1, 0, None, b"b")])
    too_long = bytearray(stored_batch([Record(2, 0, None, b"good"), Record(3, 0, None, b"x" * 40)]))
    too_long[too_long.index(b"x") - 6] += 2  # the size of the second record
    legacy = good[:16] + b"\x01" + good[17:]
    for bad, count in ((bytes(too_long), 3), (legacy, 2)):
        writer = writer_of()
        chunks: list[Chunk] = []
        with pytest.raises(MalformedBatch):
            chunks.extend(writer.write(read_of(good + bad)))
        assert sum(chunk.record_count for chunk in chunks) == writer.count == count


def test_a_batch_that_inflates_too_far_ends_the_answer_behind_those_before() -> None:
    good = stored_batch([Record(0, 0, None, b"a")])
    bomb = stored_batch([Record(1, 0, None, bytes(5000))], codec=Codec.GZIP)
    writer = writer_of(max_decompressed_bytes=4000)
    chunks = writer.write(read_of(good + bomb))
    first = next(chunks)
    assert (first.record_count, first.next_offset) == (1, 1)
    with pytest.raises(DecompressedTooLarge):
        next(chunks)


def test_pyarrow_is_imported_by_nobody_but_who_asks_for_arrow() -> None:
    """It is optional, and costs a tenth of a second and tens of megabytes."""
    program = (
        "import sys, kafkalog.__main__, kafkalog.server.app, kafkalog.server.daemon;"
        "assert 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
