"""Goal: an Arrow answer holds exactly the records that a loop would choose, with every field.
Method: random batches by struct (codecs, gaps, transactions, control batches, append time), random
bounds and chunk sizes; pyarrow reads the stream and validates it; the loop is the plain twin.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.integers import INT64_MAX
from kafkalog.format.records.record import Record
from kafkalog.format.records.record_batch import Codec
from kafkalog.format.wire.arrow_columns import SCHEMA
from kafkalog.format.wire.arrow_writer import ArrowWriter
from kafkalog.format.wire.record_writer import FIELDS, Bounds, RecordRead, RecordShape
from tests.naive.arrow_rows import PlainAnswer, ShownBatch
from tests.naive.stored_batches import CONTROL, NOBODY, TRANSACTIONAL, Producer, stored_batch

if TYPE_CHECKING:
    from kafkalog.format.wire.record_writer import Chunk

NOW = 1_700_000_000_000
ABORTED_PRODUCER = 9
DATA = st.none() | st.binary(max_size=20)
NAMES = st.text(max_size=5).map(str.encode) | st.binary(max_size=6)
HEADERS = st.lists(st.tuples(NAMES, DATA), max_size=3).map(tuple)
RECORDS = st.lists(
    st.tuples(DATA, DATA, HEADERS, st.integers(0, 2), st.just(-1) | st.integers(NOW, NOW + 9)),
    max_size=4,
)


class Shape(NamedTuple):
    """How a batch is made."""

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
    """What pyarrow reads, timestamps as milliseconds."""
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
    """The wanted columns in the schema's order, timestampType with the timestamp."""
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
