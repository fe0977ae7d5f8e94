"""Log directories of any size for `spark_growth`, written fast: batches are repeated, not records.

A few different batches are built once; each copy gets its offset and time, and a checksum. One
partition is recovered by the daemon's own loader, which adds indexes and a snapshot; the others are
copies of it.
"""

from __future__ import annotations

import os
import shutil
import struct
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kafkalog.env.clock import FixedWallClock
from kafkalog.format.disk.checkpoints import encode_offsets
from kafkalog.format.disk.file_names import (
    CLEAN_SHUTDOWN,
    CLEAN_SHUTDOWN_CONTENT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    segment_file_name,
)
from kafkalog.format.disk.properties import encode_partition_metadata
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.inspect.offline_log import tool_environment
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from tests.bench import datasets
from tests.log_world import flush

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "grown"
PARTITIONS = 16
VALUE_BYTES = 78  # a record has about 100 bytes with its key and lengths
_KEY = b"key%08d"
_DIFFERENT_BATCHES = 256
_BATCH_RECORDS, _SMALL_BATCH_RECORDS = 160, 4
_SEGMENT_BATCHES, _SMALL_SEGMENT_BATCHES = 4_000, 2  # 64 MB, and 800 bytes


class Written(NamedTuple):
    """A log directory of a daemon that was stopped cleanly."""

    log_dir: str
    records: int
    segments: int
    log_bytes: int


def write_records(log_dir: Path, records: int) -> Written:
    """About so many records in segments of 64 MB, each partition with bytes of its own."""
    batches = max(records // PARTITIONS // _BATCH_RECORDS, 1)
    return _write(log_dir, batches, _BATCH_RECORDS, _SEGMENT_BATCHES, is_linked=False)


def write_segments(log_dir: Path, segments: int) -> Written:
    """About so many segments of 8 records; partitions are hard links to the files of one."""
    batches = max(segments // PARTITIONS, 1) * _SMALL_SEGMENT_BATCHES
    return _write(log_dir, batches, _SMALL_BATCH_RECORDS, _SMALL_SEGMENT_BATCHES, is_linked=True)


def _write(
    log_dir: Path, batches: int, batch_records: int, segment_batches: int, *, is_linked: bool
) -> Written:
    first = log_dir / f"{TOPIC}-0"
    first.mkdir(parents=True)
    different = [bytearray(each) for each in _different_batches(batch_records, batches)]
    for begin in range(0, batches, segment_batches):
        base = begin * batch_records
        with (first / segment_file_name(base, LOG_SUFFIX)).open("wb") as log:
            for number in range(begin, min(begin + segment_batches, batches)):
                batch = different[number % len(different)]
                struct.pack_into(">q", batch, 0, number * batch_records)
                datasets.set_timestamp(batch, datasets.FIRST_TIMESTAMP_MS + number)
                log.write(batch)
    (first / PARTITION_METADATA).write_bytes(encode_partition_metadata(UUID(int=7)))
    environment = tool_environment(FixedWallClock(datasets.FIRST_TIMESTAMP_MS + batches))
    loaded = load_log(str(first), LogConfig(), environment, clean=False)
    segments, end = len(loaded.segments), loaded.log_end_offset
    flush(loaded)
    loaded.close()
    for number in range(1, PARTITIONS):
        shutil.copytree(
            first,
            log_dir / f"{TOPIC}-{number}",
            copy_function=os.link if is_linked else shutil.copyfile,
        )
    ends = encode_offsets({TopicPartition(TOPIC, number): end for number in range(PARTITIONS)})
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        (log_dir / name).write_bytes(ends)
    (log_dir / CLEAN_SHUTDOWN).write_bytes(CLEAN_SHUTDOWN_CONTENT)
    log_bytes = sum(path.stat().st_size for path in first.glob(f"*{LOG_SUFFIX}"))
    return Written(str(log_dir), end * PARTITIONS, segments * PARTITIONS, log_bytes * PARTITIONS)


def _different_batches(batch_records: int, batches: int) -> list[bytes]:
    noise = datasets.values(1, 1 << 16)[0]
    made = []
    for number in range(min(batches, _DIFFERENT_BATCHES)):
        numbers = range(number * batch_records, (number + 1) * batch_records)
        spots = [each * 37 % (len(noise) - VALUE_BYTES) for each in numbers]
        columns = RecordColumns.of(
            [_KEY % each for each in numbers],
            [noise[at : at + VALUE_BYTES] for at in spots],
            datasets.FIRST_TIMESTAMP_MS,
        )
        made.append(build_batch(columns, leader_epoch=0))
    return made
