"""CPU time of the two passes of a cleaning: `python -m tests.bench.micro_cleaner [options]`.

A file in the page cache is read chunk by chunk into one buffer and goes through map and filter, as
in a cleaner thread; nothing is written. Prints MB/s of log bytes, best and median of the rounds,
for each pass and for both, on one thread. CPU time of this process, so that a busy machine disturbs
little. For people: no assertions.

    --records 8000000 --keys 1000000 --value 84 --key 16     the data set of the design
    --per-batch 145                                          records a batch (1: one-record batches)
    --codec none                                             or gzip, snappy, lz4, zstd
    --look-ups                                               without the bit rows, as for a range
                                                             that is too long for them
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from kafkalog.cleaner.record_batches import RecordBatches
from kafkalog.cleaner.record_filter import RecordFilter, Retention
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.format.records.record_batch import Codec
from tests.bench.datasets import keyed_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 1 << 20
MAP_BYTES = 134217728
LOAD_FACTOR = 0.9
NOW_MS = 1_800_000_000_000
INFLATED_MAX = 1 << 26


def make_log(options: argparse.Namespace) -> bytes:
    """The log as the options say."""
    return b"".join(
        keyed_batches(
            options.records,
            options.keys,
            Codec[options.codec.upper()],
            batch_records=options.per_batch,
            key_bytes=options.key,
            value_bytes=options.value,
            seed=options.seed,
        )
    )


def chunks(file: BinaryIO) -> Iterator[RecordBatches]:
    """Whole batches of about a MiB, valid until the next are read."""
    buffer, position, last = memoryview(bytearray(CHUNK_BYTES)), 0, -1
    while size := os.preadv(file.fileno(), [buffer], position):
        batches = RecordBatches.of(
            buffer[:size],
            file="bench.log",
            position=position,
            max_decompressed_bytes=INFLATED_MAX,
            previous_last_offset=last,
        )
        position += batches.rows.consumed_bytes
        last = int(batches.rows.column(BatchColumn.LAST_OFFSET)[-1])
        yield batches


def clean(log: BinaryIO, options: argparse.Namespace, offset_map: SkimpyOffsetMap) -> list[float]:
    """CPU seconds of pass 1 and pass 2, and of the reading alone that both contain; kept bytes."""
    begun = time.process_time()
    for _ in chunks(log):
        pass
    scanned = time.process_time()
    offset_map.clear(0, 0 if options.look_ups else options.records)
    mapped_from = time.process_time()
    for batches in chunks(log):
        assert not offset_map.index(batches, np.zeros(batches.rows.count, np.bool_), 0)
    mapped = time.process_time()
    record_filter, kept_bytes = RecordFilter(offset_map), 0
    for batches in chunks(log):
        count = batches.rows.count
        none = np.zeros(count, np.bool_)
        retention = np.full(count, int(Retention.DELETE_EMPTY), np.int64)
        filtered = record_filter.filter(
            batches, retention, none, none, now_ms=NOW_MS, delete_retention_ms=0
        )
        kept_bytes += len(filtered.data)
    done = time.process_time()
    return [mapped - mapped_from, done - mapped, scanned - begun, kept_bytes]


def main() -> None:
    """Measure one kind of log."""
    parser = argparse.ArgumentParser()
    for name, value in (("records", 1_000_000), ("keys", 125_000), ("value", 84), ("key", 16)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--per-batch", type=int, default=145)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--look-ups", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    offset_map = SkimpyOffsetMap(MAP_BYTES, LOAD_FACTOR)
    with tempfile.TemporaryFile() as log:
        log.write(make_log(options))
        log.flush()
        size = log.tell()
        rounds = np.array([clean(log, options, offset_map) for _ in range(options.rounds)])
    sys.stdout.write(
        f"{size / 1e6:.0f} MB, {options.records} records, {options.keys} keys, "
        f"{options.per_batch} a batch, {options.codec}; keeps {rounds[0, 3] / 1e6:.0f} MB\n"
    )
    columns = {
        "pass 1": rounds[:, 0],
        "pass 2": rounds[:, 1],
        "both": rounds[:, 0] + rounds[:, 1],
        "reading": rounds[:, 2],
    }
    for name, seconds in columns.items():
        best, median = size / 1e6 / seconds.min(), size / 1e6 / statistics.median(seconds)
        each = seconds.min() / options.records * 1e9
        sys.stdout.write(
            f"  {name:12s} best {best:7.0f} MB/s  median {median:7.0f} MB/s"
            f"  {each:6.1f} ns/record\n"
        )


if __name__ == "__main__":
    main()
