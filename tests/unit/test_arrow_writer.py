"""Goal: an Arrow answer has the schema of Spark's Kafka source and survives odd or damaged batches.
Method: small batches with every kind of field, records above a chunk, damage behind good batches.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kafkalog.errors import DecompressedTooLarge
from kafkalog.format.records.record import Record
from kafkalog.format.records.record_batch import Codec, MalformedBatch
from kafkalog.format.wire.arrow_columns import RECORDS_PER_BATCH, SCHEMA
from kafkalog.format.wire.arrow_writer import ArrowWriter
from kafkalog.format.wire.record_writer import Bounds, RecordRead, RecordShape
from tests.naive.stored_batches import stored_batch

if TYPE_CHECKING:
    from kafkalog.format.wire.record_writer import Chunk


def writer_of(bounds: Bounds | None = None, max_decompressed_bytes: int = 1 << 20) -> ArrowWriter:
    return ArrowWriter(
        RecordShape(), bounds or Bounds(), max_decompressed_bytes=max_decompressed_bytes
    )


def read_of(data: bytes, start: int = 0, end: int = 1 << 20) -> RecordRead:
    return RecordRead("t", 7, data, start, end)


def table_of(writer: ArrowWriter, chunks: list[Chunk]) -> pa.Table:
    """The stream of these chunks."""
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


def test_null_is_not_empty() -> None:
    """Keys, values and header values; a record without headers has null ones."""
    records = [
        Record(5, 1000, None, b""),
        Record(6, -1, b"", None, ((b"", None), (b"h", b""))),
    ]
    first, second = rows_of(stored_batch(records))
    assert (first["key"], first["value"], first["headers"]) == (None, b"", None)
    assert (second["key"], second["value"]) == (b"", None)
    assert second["headers"] == [{"key": "", "value": None}, {"key": "h", "value": b""}]
    assert [row["timestamp"].timestamp() for row in (first, second)] == [1.0, -0.001]
    assert [(row["topic"], row["partition"], row["offset"]) for row in (first, second)] == [
        ("t", 7, 5),
        ("t", 7, 6),
    ]


def test_the_type_of_timestamps_is_told_for_each_batch() -> None:
    """0: the producer's; 1: the batch's own stands for all of its records."""
    rows = rows_of(
        stored_batch([Record(0, 1000, None, b"a")]),
        stored_batch([Record(1, 2000, None, b"b"), Record(2, 3000, None, b"c")], append_time=9000),
    )
    assert [(row["timestampType"], row["timestamp"].timestamp()) for row in rows] == [
        (0, 1.0),
        (1, 9.0),
        (1, 9.0),
    ]


def test_an_answer_without_records_has_the_schema() -> None:
    """Also when nothing was read."""
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


def test_one_topic_after_another() -> None:
    """A stream of two topics, which no route asks for, is still a sound one."""
    writer = writer_of()
    chunks: list[Chunk] = []
    for topic in ("a", "b", "a"):
        data = stored_batch([Record(0, 0, None, topic.encode())])
        chunks += list(writer.write(RecordRead(topic, 0, data, 0, 1)))
    assert table_of(writer, chunks)["topic"].to_pylist() == ["a", "b", "a"]


def test_records_before_a_damaged_one_are_in_the_chunks_before_the_error() -> None:
    """A record that breaks its format, and a batch that is none."""
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
    """What came before it is told."""
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
