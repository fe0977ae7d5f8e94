"""Reading for Spark without Spark: `python -m tests.bench.micro_spark [name part ...]`.

From segment files in the page cache to Arrow batches, one core: keys of 11 and values of 205 bytes,
every tenth record with a header, batches of 64 KiB. MB are of keys and values.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkalog.env.process_facts import keep_freed_memory
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.record_batch import Codec
from kafkalog.format.wire.arrow_columns import SCHEMA
from kafkalog.spark.logs.open import open_logs, read_piece
from kafkalog.spark.logs.values import Access, OffsetRange
from kafkalog.spark.reading import record_batches
from tests.bench.micro import show

if TYPE_CHECKING:
    from kafkalog.spark.logs.values import Piece

RECORDS = 600_000
PER_BATCH = 300
KEY_BYTES, VALUE_BYTES = 11, 205
NOW_MS = 1_700_000_000_000
PLAIN_TYPES = {"topic": pa.utf8(), "timestamp": pa.timestamp("us", tz="UTC")}
COLUMNS = pa.schema((each.name, PLAIN_TYPES.get(each.name, each.type)) for each in SCHEMA)
NARROW = pa.schema([COLUMNS.field("offset"), COLUMNS.field("timestamp")])


def write_log(directory: Path, codec: Codec) -> None:
    """One segment; without indexes, as for a scan from its beginning."""
    directory.mkdir(parents=True)
    with (directory / f"{0:020d}.log").open("wb") as log:
        for start in range(0, RECORDS, PER_BATCH):
            numbers = range(start, start + PER_BATCH)
            columns = RecordColumns.of(
                [b"key%08d" % number for number in numbers],
                [(b"%08d" % number * 26)[:VALUE_BYTES] for number in numbers],
                NOW_MS,
                [[(b"trace", b"%016d" % number)] if number % 10 == 0 else [] for number in numbers],
            )
            log.write(build_batch(columns, base_offset=start, codec=codec))


def scan(access: Access, pieces: list[Piece], schema: pa.Schema, *, check_crcs: bool) -> None:
    """Every record, one piece after the other."""
    count = 0
    for piece in pieces:
        chunks = read_piece(piece, access, check_crcs=check_crcs)
        count += sum(batch.num_rows for batch in record_batches(chunks, piece.range, schema))
    assert count == RECORDS


def measure(root: Path) -> None:
    """One topic a codec, each written when its turn comes."""
    access = Access(paths=(str(root),))
    for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP):
        topic = codec.name.lower()
        write_log(root / f"{topic}-0", codec)
        pieces = open_logs(access).pieces(OffsetRange(topic, 0, 0, RECORDS), 128 << 20)
        cases = [(COLUMNS, "all columns", True)]
        if codec is Codec.NONE:
            cases += [(COLUMNS, "all columns", False), (NARROW, "offset and timestamp", True)]
        for schema, columns, check_crcs in cases:
            call = partial(scan, access, pieces, schema, check_crcs=check_crcs)
            name = f"{topic}, {columns}{'' if check_crcs else ', no crc'}"
            show(name, call, records=RECORDS, size=RECORDS * (KEY_BYTES + VALUE_BYTES))


def main() -> None:
    """Everything, or what the command line names; with the daemon's allocator."""
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as root:
        measure(Path(root))


if __name__ == "__main__":
    main()
