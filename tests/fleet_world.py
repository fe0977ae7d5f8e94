"""Log directories on the machine's disk, with partitions of every kind, for the jobs."""

from __future__ import annotations

import logging
import random
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog
from structlog.testing import capture_logs

from kafkalog.env.clock import FixedWallClock
from kafkalog.env.system_filesystem import SystemFilesystem, copy_files
from kafkalog.format.disk.file_names import LOG_SUFFIX, segment_file_name
from kafkalog.format.records.record import Record
from kafkalog.log.inspect.offline_log import tool_environment
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from tests.log_world import flush
from tests.naive.cleaning_logs import TIME, MadeSegment, make_log
from tests.naive.stored_batches import NOBODY, stored_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.naive.stored_batches import Producer

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}))


def plant_partition(
    directory: Path, segments: Sequence[MadeSegment], config: LogConfig = COMPACT
) -> Path:
    """Write the ``.log`` files and let a recovery add indexes and snapshots."""
    filesystem = SystemFilesystem()
    directory.mkdir(parents=True)
    for segment in segments:
        path = directory / segment_file_name(segment.base, LOG_SUFFIX)
        path.write_bytes(b"".join(segment.batches))
        filesystem.set_mtime_ms(str(path), segment.modified_ms)
    environment = tool_environment(FixedWallClock(TIME))
    with capture_logs():  # that the indexes were missing
        log = load_log(str(directory), config, environment, clean=False, may_have_gaps=True)
    bases = [each.base for each in segments] or [0]  # a log without files gets an empty one
    assert [each.base_offset for each in log.segments] == bases
    flush(log)
    log.close()
    for segment in segments:
        path = directory / segment_file_name(segment.base, LOG_SUFFIX)
        filesystem.set_mtime_ms(str(path), segment.modified_ms)
    return directory


def plant_mixed(log_dir: Path, topic: str, partitions: int) -> Path:
    """Partitions with every kind of batch; those of a number are always the same."""
    for partition in range(partitions):
        made = make_log(random.Random(partition))
        plant_partition(log_dir / f"{topic}-{partition}", made.segments)
    return log_dir


def keyed_segments(
    segments: int,
    batches: int,
    records: int = 3,
    *,
    keys: int = 7,
    producer: Producer | None = None,
    start_ms: int = TIME,
) -> list[MadeSegment]:
    """A plain log of keyed records, one a second, without gaps; the last segment is active."""
    made, offset = [], 0
    for _ in range(segments):
        segment = MadeSegment(offset, start_ms + offset * 1_000)
        for _ in range(batches):
            some = [
                Record(each, start_ms + each * 1_000, b"k%d" % (each % keys), b"value %d" % each)
                for each in range(offset, offset + records)
            ]
            who = NOBODY if producer is None else replace(producer, sequence=offset)
            segment.batches.append(stored_batch(some, producer=who))
            offset += records
        made.append(segment)
    return made


def flip_record(directory: Path) -> Path:
    """Change a bit of the first batch's records, so that its CRC is wrong; the log."""
    log = directory / segment_file_name(0, LOG_SUFFIX)
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    return log


def gone(pattern: str) -> Callable[[Path], None]:
    """Damage: the files of a partition whose names match are deleted."""

    def delete(directory: Path) -> None:
        for path in directory.glob(pattern):
            path.unlink()

    return delete


@contextmanager
def kept_logging() -> Iterator[None]:
    """A command of the command line configures logging; afterwards it is as it was."""
    handlers, level = logging.root.handlers, logging.root.level
    yield
    logging.root.handlers, logging.root.level = handlers, level
    structlog.reset_defaults()


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def copy_of(source: Path, target: Path) -> Path:
    copy_files(str(source), str(target))
    return target
