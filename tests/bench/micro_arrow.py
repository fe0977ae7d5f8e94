"""CPU time of Arrow out and in beside JSON: `python -m tests.bench.micro_arrow [name part ...]`.

The same records in each form, keys of 11 and values of 200 bytes; what HTTP costs is left out.
"""

from __future__ import annotations

import io
import json
from functools import partial

import pyarrow as pa

from kafkalog.env.process_facts import keep_freed_memory
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.record_batch import Codec
from kafkalog.format.wire.arrow_messages import MessageCutter
from kafkalog.format.wire.arrow_reader import ArrowReader
from kafkalog.format.wire.arrow_writer import ArrowWriter
from kafkalog.format.wire.record_text import ArrayRecords, LineRecords
from kafkalog.format.wire.record_writer import Bounds, RecordRead, RecordShape, WriterFactory
from kafkalog.server.produce.append import PartitionTarget, make_batches
from kafkalog.server.produce.json_body import DecodedRecords, Formats, columns_of, parse_documents
from kafkalog.server.protocol.media_types import EmbeddedFormat
from tests.bench.micro import CONFIG, INFLATED_MAX, NOW_MS, show

COUNT = 10_000
PER_BATCH = 300  # about 64 KiB
KEYS = [b"key%08d" % number for number in range(COUNT)]
VALUES = [(b"%08d" % number) * 25 for number in range(COUNT)]
BODY_MAX = 100 << 20


def answer(factory: WriterFactory, shape: RecordShape, data: bytes) -> None:
    """What a page does between its read and its body."""
    writer = factory(shape, Bounds(), max_decompressed_bytes=INFLATED_MAX)
    writer.begin()
    read = RecordRead("topic", 0, data, 0, COUNT)
    assert sum(chunk.record_count for chunk in writer.write(read)) == COUNT
    writer.end()


def measure_out() -> None:
    """Answers of two megabytes."""
    text = RecordShape("text", "text")
    for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
        data = b"".join(
            build_batch(
                RecordColumns.of(
                    KEYS[start : start + PER_BATCH], VALUES[start : start + PER_BATCH], NOW_MS
                ),
                base_offset=start,
                codec=codec,
            )
            for start in range(0, COUNT, PER_BATCH)
        )
        for name, factory in (
            ("arrow", ArrowWriter),
            ("json page", ArrayRecords),
            ("lines", LineRecords),
        ):
            call = partial(answer, factory, text, data)
            show(f"out {name}, {codec.name.lower()}", call, records=COUNT)


def take(records: DecodedRecords) -> None:
    """To validated batches of one partition."""
    for batch in make_batches(records, PartitionTarget(1, None, 0)):
        batch.validate(CONFIG, NOW_MS, INFLATED_MAX)


def take_arrow(stream: bytes) -> None:
    """What a produce does between its body and the writer's queue."""
    reader = ArrowReader(piece_bytes=512 << 10, max_bytes=BODY_MAX)
    for message in MessageCutter(BODY_MAX).feed(stream):
        for piece in reader.read(message, NOW_MS):
            take(DecodedRecords(*piece))


def take_lines(body: bytes) -> None:
    """The same for lines, as many at once as come together."""
    formats = Formats(EmbeddedFormat.TEXT, EmbeddedFormat.TEXT)
    lines = body.splitlines()
    for start in range(0, len(lines), 2000):
        documents = lines[start : start + 2000]
        take(columns_of(parse_documents(documents, formats), formats, now_ms=NOW_MS))


def measure_in() -> None:
    """Bodies of two megabytes."""
    table = pa.table({"key": KEYS, "value": VALUES})
    for codec in (None, "lz4", "zstd"):
        body = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.ipc.new_stream(body, table.schema, options=options) as stream:
            stream.write_table(table)
        show(f"in arrow, {codec or 'none'}", partial(take_arrow, body.getvalue()), records=COUNT)
    lines = b"".join(
        json.dumps({"key": key.decode(), "value": value.decode()}).encode() + b"\n"
        for key, value in zip(KEYS, VALUES, strict=True)
    )
    show("in lines", partial(take_lines, lines), records=COUNT)


def main() -> None:
    """Everything, or what the command line names; with the daemon's allocator."""
    keep_freed_memory()
    measure_out()
    measure_in()


if __name__ == "__main__":
    main()
