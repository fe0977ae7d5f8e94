"""Goal: records that come and leave as Arrow are those that a loop would choose, with every field;
hostile streams end in an error.
Method: pyarrow and plain rows beside ours, batches by chance.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kafkalog.format.integers import INT64_MAX, FormatError
from kafkalog.format.records.batch_builder import build_plain_batch
from kafkalog.format.records.record import Record, iterate_records
from kafkalog.format.records.record_batch import Codec
from kafkalog.format.wire.arrow_columns import SCHEMA
from kafkalog.format.wire.arrow_messages import MessageCutter
from kafkalog.format.wire.arrow_reader import ArrowReader
from kafkalog.format.wire.arrow_writer import ArrowWriter
from kafkalog.format.wire.record_writer import FIELDS, Bounds, RecordRead, RecordShape
from tests.naive.arrow_rows import PlainAnswer, ShownBatch
from tests.naive.stored_batches import CONTROL, NOBODY, TRANSACTIONAL, Producer, stored_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.format.wire.record_writer import Chunk


NOW = 1_700_000_000_000
MAX_BYTES = 1 << 20
TEXT = st.text(max_size=12)
HEADERS = st.none() | st.lists(st.tuples(TEXT, st.none() | TEXT), max_size=3)
TEXT_TYPES = st.sampled_from(
    [pa.binary(), pa.utf8(), pa.large_binary(), pa.large_utf8(), pa.binary_view(), pa.string_view()]
)
STAMP_TYPES = st.sampled_from(
    [pa.int64(), *(pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns"))]
)


class Row(NamedTuple):
    key: str | None
    value: str | None
    headers: list[tuple[str, str | None]] | None
    stamp_s: int | None
    partition: int | None


ROWS = st.lists(
    st.builds(
        Row,
        st.none() | TEXT,
        st.none() | TEXT,
        HEADERS,
        st.none() | st.integers(0, 4_000_000_000),
        st.none() | st.integers(0, 2**31 - 1),
    ),
    max_size=9,
)


class Types(NamedTuple):
    key: pa.DataType
    value: pa.DataType
    name: pa.DataType
    header_value: pa.DataType
    stamp: pa.DataType
    partition: pa.DataType
    is_large_list: bool


TYPES = st.builds(
    Types,
    TEXT_TYPES,
    TEXT_TYPES,
    TEXT_TYPES,
    TEXT_TYPES,
    STAMP_TYPES,
    st.sampled_from([pa.int32(), pa.int64(), pa.uint64()]),
    st.booleans(),
)


def text_array(values: list[str | None], kind: pa.DataType) -> pa.Array:
    """Text of this type; from a longer array, so that nothing begins at 0."""
    padded = ["pad", *values, "pad"]
    is_text = kind in (pa.utf8(), pa.large_utf8(), pa.string_view())
    plain = [None if each is None else (each if is_text else each.encode()) for each in padded]
    return pa.array(plain, kind)[1:-1]


def stamp_array(rows: list[Row], kind: pa.DataType) -> pa.Array:
    """Seconds in this unit."""
    unit = "ms" if kind == pa.int64() else kind.unit
    factor = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[unit]
    return pa.array([None if row.stamp_s is None else row.stamp_s * factor for row in rows], kind)


def batch_of(rows: list[Row], types: Types, columns: set[str]) -> pa.RecordBatch:
    pair = pa.struct([("value", types.header_value), ("key", types.name)])
    pairs = [pair for row in rows for pair in (row.headers or [])]
    structs = pa.StructArray.from_arrays(
        [
            text_array([value for _, value in pairs], types.header_value),
            text_array([name for name, _ in pairs], types.name),
        ],
        fields=list(pair),
    )
    ends, total = [0], 0
    for row in rows:
        total += len(row.headers or [])
        ends.append(total)
    nulls = pa.array([row.headers is None for row in rows], pa.bool_())
    offsets = pa.array(ends, pa.int64() if types.is_large_list else pa.int32())
    list_class = pa.LargeListArray if types.is_large_list else pa.ListArray
    made = {
        "partition": pa.array([row.partition for row in rows], types.partition),
        "key": text_array([row.key for row in rows], types.key),
        "value": text_array([row.value for row in rows], types.value),
        "headers": list_class.from_arrays(offsets, structs, mask=nulls),
        "timestamp": stamp_array(rows, types.stamp),
    }
    return pa.record_batch({name: made[name] for name in made if name in columns | {"value"}})


def stream_of(batches: list[pa.RecordBatch], codec: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def cut(stream: bytes, cuts: list[int]) -> Iterator[bytes]:
    start = 0
    for end in sorted({each % (len(stream) + 1) for each in cuts} | {len(stream)}):
        yield stream[start:end]
        start = end


def read_all(pieces: Iterator[bytes], piece_bytes: int) -> tuple[list[tuple[Any, ...]], list[int]]:
    """(key, value, timestamp, headers, partition of each record; size of each piece's batch)."""
    cutter = MessageCutter(MAX_BYTES)
    reader = ArrowReader(piece_bytes=piece_bytes, max_bytes=MAX_BYTES)
    found: list[tuple[Any, ...]] = []
    sizes = []
    for piece in pieces:
        for message in cutter.feed(piece):
            for records in reader.read(message, NOW):
                count = len(records.columns)
                batch = build_plain_batch(records.columns)
                sizes.append(len(batch.data) if count > 1 else 0)
                named = [-1] * count if records.partitions is None else records.partitions.tolist()
                assert max(records.columns.partitions(7).tolist()) < 7
                for record, partition in zip(iterate_records(batch.data), named, strict=True):
                    fields = record.key, record.value, record.timestamp, record.headers
                    found.append((*fields, partition))
    cutter.finish()
    if cutter.fault is not None:
        raise cutter.fault
    return found, sizes


def stored(row: Row, columns: set[str]) -> tuple[Any, ...]:
    headers = (row.headers or []) if "headers" in columns else []
    has_stamp = "timestamp" in columns and row.stamp_s is not None
    return (
        row.key.encode() if "key" in columns and row.key is not None else None,
        None if row.value is None else row.value.encode(),
        row.stamp_s * 1000 if has_stamp and row.stamp_s is not None else NOW,
        tuple(
            (name.encode(), None if value is None else value.encode()) for name, value in headers
        ),
        row.partition if "partition" in columns and row.partition is not None else -1,
    )


@given(
    st.lists(ROWS, min_size=1, max_size=3),
    TYPES,
    st.sets(st.sampled_from(["key", "headers", "timestamp", "partition"])),
    st.sampled_from([None, "lz4", "zstd"]),
    st.lists(st.integers(0, 5000), max_size=4),
    st.sampled_from([1, 150, 1 << 20]),
)
def test_records_come_as_they_were_sent(
    blocks: list[list[Row]],
    types: Types,
    columns: set[str],
    codec: str | None,
    cuts: list[int],
    piece_bytes: int,
) -> None:
    """M01: every field, in order, however the stream is cut; no batch above its bound."""
    stream = stream_of([batch_of(rows, types, columns) for rows in blocks], codec)
    found, sizes = read_all(cut(stream, cuts), piece_bytes)
    assert found == [stored(row, columns) for rows in blocks for row in rows]
    assert max(sizes, default=0) <= piece_bytes + 61


@pytest.mark.parametrize(
    ("codec", "text", "stamp"),
    [
        (None, pa.utf8(), pa.timestamp("ms", "UTC")),
        ("lz4", pa.string_view(), pa.timestamp("us", "UTC")),
        ("zstd", pa.large_binary(), pa.int64()),
    ],
)
def test_every_byte_may_be_wrong(codec: str | None, text: pa.DataType, stamp: pa.DataType) -> None:
    """M02: each byte of a stream in turn, set to five values: an error of ours, or no more records
    than there were; an error for each length that breaks off.
    """
    rows = [Row("k", "v" * 5, [("h", "x"), ("h", None)], 5, 1), Row(None, None, None, None, None)]
    is_large = text == pa.large_binary()
    types = Types(text, pa.string_view(), text, text, stamp, pa.int32(), is_large)
    columns = {"key", "headers", "timestamp", "partition"}
    stream = stream_of([batch_of(rows, types, columns)], codec)
    for position in range(len(stream)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            changed = stream[:position] + bytes([value]) + stream[position + 1 :]
            with suppress(FormatError):
                found, _ = read_all(iter([changed]), 1 << 20)
                assert len(found) <= len(rows)
    behind_schema = len(MessageCutter(MAX_BYTES).feed(stream)[0])
    for end in range(len(stream) - 8):
        if end == behind_schema:
            continue  # a stream may end behind any message
        with pytest.raises(FormatError):
            read_all(iter([stream[:end]]), 1 << 20)


ABORTED_PRODUCER = 9
DATA = st.none() | st.binary(max_size=20)
NAMES = st.text(max_size=5).map(str.encode) | st.binary(max_size=6)
ROW_HEADERS = st.lists(st.tuples(NAMES, DATA), max_size=3).map(tuple)
RECORDS = st.lists(
    st.tuples(DATA, DATA, ROW_HEADERS, st.integers(0, 2), st.just(-1) | st.integers(NOW, NOW + 9)),
    max_size=4,
)


class Shape(NamedTuple):
    gap: int
    records: list[tuple[bytes | None, bytes | None, tuple[Any, ...], int, int]]
    codec: Codec
    append_time: int | None
    producer_id: int
    is_control: bool
    horizon: int | None


SHAPES = st.lists(
    st.builds(
        Shape,
        st.integers(0, 2),
        RECORDS,
        st.sampled_from([Codec.NONE] * 4 + list(Codec)),
        st.none() | st.integers(NOW, NOW + 9),
        st.sampled_from([-1, -1, 8, ABORTED_PRODUCER]),
        st.integers(0, 5).map(lambda number: number == 0),
        st.none() | st.just(NOW + 5),
    ),
    max_size=6,
)
BOUNDS = st.builds(
    Bounds,
    max_records=st.just(INT64_MAX) | st.integers(0, 12),
    max_bytes=st.just(INT64_MAX) | st.integers(0, 120),
    until_timestamp_ms=st.just(INT64_MAX) | st.integers(NOW, NOW + 9),
)


def made(shapes: list[Shape], aborted_last: int) -> tuple[bytes, list[ShownBatch], int]:
    """(batches back to back, what is to be seen of each, the offset behind them)."""
    data, shown, offset = b"", [], 0
    for shape in shapes:
        base = offset + shape.gap
        records, offset = [], base
        for key, value, headers, gap, stamp in shape.records:
            records.append(Record(offset + gap, stamp, key, value, headers))
            offset += gap + 1
        offset = max(offset, base + 1)
        is_aborted = shape.producer_id == ABORTED_PRODUCER and base <= aborted_last
        attributes = CONTROL if shape.is_control else 0
        attributes |= TRANSACTIONAL if shape.producer_id >= 0 else 0
        data += stored_batch(
            records,
            base_offset=base,
            last_offset=offset - 1,
            codec=shape.codec if records else Codec.NONE,
            attributes=attributes,
            producer=NOBODY if shape.producer_id < 0 else Producer(shape.producer_id, 0, 0),
            horizon=shape.horizon,
            append_time=shape.append_time,
        )
        is_hidden = shape.is_control or is_aborted
        shown.append(ShownBatch(records, base, offset, shape.append_time, is_hidden))
    return data, shown, offset


def rows_of(stream: bytes) -> list[dict[str, Any]]:
    with pa.ipc.open_stream(stream) as reader:
        table = reader.read_all()
    table.validate(full=True)
    if "timestamp" in table.schema.names:
        index = table.schema.get_field_index("timestamp")
        table = table.set_column(index, "timestamp", table.column(index).cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


@given(
    SHAPES,
    BOUNDS,
    st.integers(0, 8),
    st.integers(0, 30) | st.just(99),
    st.integers(-1, 20),
    st.sampled_from([1, 16, 60, 1 << 18]),
    st.integers(0, 4),
)
def test_an_answer_is_that_of_a_loop_over_records(
    shapes: list[Shape],
    bounds: Bounds,
    from_offset: int,
    end_offset: int,
    aborted_last: int,
    chunk_bytes: int,
    stop_after: int,
) -> None:
    """M01: rows, bounds, where each chunk ends and where the next read would begin."""
    data, shown, _ = made(shapes, aborted_last)
    aborted = [(ABORTED_PRODUCER, 0, aborted_last)]
    writer = ArrowWriter(
        RecordShape(), bounds, max_decompressed_bytes=1 << 20, chunk_bytes=chunk_bytes
    )
    twin = PlainAnswer(bounds.max_records, bounds.max_bytes, bounds.until_timestamp_ms)
    stream = writer.begin()
    # A reader may stop asking and come back from where the last chunk ended; then another
    # partition follows, whose bounds are those of the whole answer.
    chunks: list[Chunk] = []
    start = from_offset
    for stops in (stop_after, 99):
        if not chunks or not chunks[-1].is_end:
            read = RecordRead("t-é", 3, data + b"\0" * 7, start, end_offset, aborted)
            chunks += islice(writer.write(read), stops + 1)
            start = chunks[-1].next_offset
    expected = twin.read("t-é", 3, shown, from_offset, end_offset)
    assert (chunks[-1].next_offset, chunks[-1].is_end) == expected
    assert sum(chunk.record_count for chunk in chunks) == len(twin.rows) == writer.count
    stream += b"".join(chunk.data for chunk in chunks)
    if not writer.is_full:
        chunks = list(writer.write(RecordRead("t-é", 4, data, 0, end_offset, aborted)))
        twin.read("t-é", 4, shown, 0, end_offset)
        stream += b"".join(chunk.data for chunk in chunks)
    assert rows_of(stream + writer.end()) == twin.rows


@given(SHAPES, st.sets(st.sampled_from(FIELDS), min_size=1))
def test_fields_choose_columns(shapes: list[Shape], fields: set[str]) -> None:
    data, shown, end = made(shapes, -1)
    shape = RecordShape(fields=frozenset(fields))
    writer = ArrowWriter(shape, Bounds(), max_decompressed_bytes=1 << 20)
    chunks = list(writer.write(RecordRead("t", 0, data, 0, end)))
    stream = b"".join((writer.begin(), *(chunk.data for chunk in chunks), writer.end()))
    wanted = fields | ({"timestampType"} if "timestamp" in fields else set())
    with pa.ipc.open_stream(stream) as reader:
        assert reader.schema.names == [name for name in SCHEMA.names if name in wanted]
        assert reader.read_all().num_rows == writer.count
    twin = PlainAnswer(INT64_MAX, INT64_MAX, INT64_MAX)
    twin.read("t", 0, shown, 0, end)
    assert rows_of(stream) == [
        {name: value for name, value in row.items() if name in wanted} for row in twin.rows
    ]
