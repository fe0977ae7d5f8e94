"""A log without a daemon, for tools that work on a copy: nothing is scheduled, one thread.

The state of a log is described in the words of the oracle kit.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.env.system_scheduler import SystemScheduler
from kafkalog.env.system_threads import SystemThreads
from kafkalog.errors import CorruptData, LostOffsets
from kafkalog.format.integers import INT64_MAX
from kafkalog.log.environment import LogEnvironment
from kafkalog.log.segment.index_repair import floor_entry, floor_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.env.clock import Clock
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.segment.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog


def tool_environment(clock: Clock, filesystem: Filesystem | None = None) -> LogEnvironment:
    """The machine, or another disk of it; nothing that is scheduled ever happens."""
    threads = SystemThreads(_never)
    scheduler = SystemScheduler(clock, threads, 1, _never)
    return LogEnvironment.create(
        filesystem or SystemFilesystem(), clock, scheduler, SystemRandom(), threads
    )


@contextmanager
def naming_source(directory: str, source: str, filesystem: Filesystem) -> Iterator[None]:
    """CorruptData of a file in ``directory``, which goes, names the one in ``source``, which stays.

    As long as that has one of the name, or lacks it: what was made of it has none.
    """
    try:
        yield
    except CorruptData as error:
        parent, _, name = error.file.rpartition("/")
        path = f"{source}/{name}"
        is_of_source = isinstance(error, LostOffsets) or filesystem.exists(path)
        if parent == directory and is_of_source:
            error.message = error.message.replace(error.file, path)
            error.args, error.file = (error.message,), path
        raise


def _never(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} ran although nothing was started") from error


def log_state(log: UnifiedLog) -> dict[str, Any]:
    """Offsets, size and segments of a log."""
    return {
        "logStartOffset": log.log_start_offset,
        "logEndOffset": log.log_end_offset,
        "lastStableOffset": log.last_stable_offset,
        "recoveryPoint": log.recovery_point,
        "size": log.size_bytes,
        "segments": [_segment_state(segment) for segment in log.segments],
    }


def file_sizes(directory: str, filesystem: SystemFilesystem | None = None) -> dict[str, int]:
    """Bytes of every file by name, sorted; on the machine's disk if no other one is given."""
    stats = (filesystem or SystemFilesystem()).list_dir_stats(directory)
    return {stat.name: stat.size for stat in stats}


def flush_and_close(log: UnifiedLog) -> None:
    """Everything of the log is durable, and its files are closed, on return. OSError."""
    plan = log.plan_flush()
    if plan is not None:
        plan.run()
        log.mark_flushed(plan)
    log.close()


def _segment_state(segment: LogSegment) -> dict[str, int]:
    # These two look-ups first: entries of a damaged index are found again from the .log.
    floor_entry(segment, segment.base_offset)
    floor_timestamp(segment, INT64_MAX)
    return {
        "base": segment.base_offset,
        "bytes": segment.size_bytes,
        "largestTimestamp": segment.largest_timestamp_ms(),
        "indexEntries": segment.offset_index.entry_count(),
        "timeIndexEntries": segment.time_index.entry_count(),
    }
