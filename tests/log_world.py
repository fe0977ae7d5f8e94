"""A simulated machine with one partition directory: for the log's lower half, and what all need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.env.system_threads import SystemThreads
from kafkalog.log.environment import LogEnvironment
from kafkalog.log.local_log import LocalLog, LogSegments
from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment.log_segment import LogSegment
from kafkalog.log.segment.segment_file import MovableDirectory
from tests.naive.batches import one_record
from tests.sim.sim_clock import SimClock
from tests.sim.sim_faults import Effect, Fault
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.sim_random import SimRandom
from tests.sim.sim_scheduler import SimScheduler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.segment.segment_reader import SegmentRead
    from kafkalog.log.unified_log import UnifiedLog
    from tests.naive.batches import PlainBatch

DIRECTORY = "/data/topic-0"


def environment_of(disk: Filesystem, clock: SimClock, **caches: int) -> LogEnvironment:
    """Fresh caches on a disk; tasks run when their time has come."""
    scheduler = SimScheduler(clock)
    scheduler.startup()
    threads = SystemThreads(_raise)
    return LogEnvironment.create(disk, clock, scheduler, SimRandom(1), threads, **caches)


def flush(log: UnifiedLog) -> None:
    """One group commit."""
    plan = log.plan_flush()
    if plan is not None:
        plan.run()
        log.mark_flushed(plan)


class LogHolder:
    """What tests do with a whole log."""

    log: UnifiedLog

    def flush(self) -> None:
        flush(self.log)

    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments]


class LogWorld:
    """Disk, clock and scheduler of one test, and the partition directory on it."""

    def __init__(
        self,
        config: LogConfig | None = None,
        *,
        index_cache_bytes: int = 1 << 20,
        disk: SimFilesystem | None = None,
    ) -> None:
        """``disk``: what a crash left behind, instead of an empty one."""
        self.config = LogConfig(segment_index_bytes=4096) if config is None else config
        self.clock = SimClock()
        self.call_count = 0
        new_disk = SimFilesystem(self.clock, on_call=self._count_call)
        self.filesystem = new_disk if disk is None else disk
        self.environment = environment_of(
            self.filesystem, self.clock, index_cache_bytes=index_cache_bytes, open_file_count=2
        )
        self.filesystem.make_dir(DIRECTORY)
        self.directory = MovableDirectory(DIRECTORY)

    def _count_call(self) -> None:
        self.call_count += 1

    def fail_writes_to(self, suffix: str, error: int) -> None:
        """From now on half of each write to such files is done, then it fails with errno."""
        writes = frozenset({"write"})
        fault = Fault(Effect.SHORT_WRITE, error, writes, path_contains=suffix, times=10**9)
        self.filesystem.faults.add(fault)

    def heal(self) -> None:
        self.filesystem.faults.clear()

    def new_segment(self, base_offset: int = 0) -> LogSegment:
        return LogSegment.create(self.environment, self.directory, base_offset, self.config)

    def reopened(self, segment: LogSegment) -> LogSegment:
        """The same files as a closed segment that was just found on disk."""
        stat = self.filesystem.stat(segment.log_file.path)
        return LogSegment(
            self.environment,
            self.directory,
            segment.base_offset,
            self.config,
            size_bytes=stat.size,
            last_modified_ms=stat.mtime_ms,
            has_transaction_index=segment.transaction_index.exists,
        )

    def new_log(self, base_offset: int = 0) -> LocalLog:
        return LocalLog(
            self.environment,
            self.directory,
            self.config,
            LogSegments([self.new_segment(base_offset)]),
            recovery_point=base_offset,
            log_end_offset=base_offset,
        )

    def reopen(self, log: LocalLog, *, clean: bool) -> None:
        """Give log fresh segment objects over the same files: clean, or recovered after a crash."""
        if clean:
            log.close()
        else:
            log.close_handles()
        segments = [self.reopened(segment) for segment in log.segments]
        if not clean:
            for segment in segments:
                segment.recover()
        segments[-1].become_active()
        log.segments = LogSegments(segments)

    def run_tasks(self) -> None:
        self.clock.advance_ms(self.config.file_delete_delay_ms)

    def size(self, name: str) -> int:
        return self.filesystem.stat(f"{self.directory.path}/{name}").size

    def content(self, name: str) -> bytes:
        return self.filesystem.read_file(f"{self.directory.path}/{name}")

    def flip(self, name: str, position: int) -> None:
        file = self.filesystem.open_write(f"{self.directory.path}/{name}")
        file.pwrite(bytes([file.pread(1, position)[0] ^ 0xFF]), position)

    def names(self) -> list[str]:
        return self.filesystem.list_dir(self.directory.path)


def _raise(name: str, error: BaseException) -> None:
    raise AssertionError(name) from error


def append(target: LogSegment | LocalLog, *batches: PlainBatch) -> None:
    target.append([batch.encode() for batch in batches], [batch.facts() for batch in batches])


def filled(world: LogWorld, segments: int = 3, each: int = 4) -> tuple[LocalLog, list[PlainBatch]]:
    """A log with segments at 0, 4, 8 ..., the last one active, and its batches."""
    log = world.new_log()
    batches = [one_record(offset, 1000 + offset) for offset in range(segments * each)]
    for one in batches:
        if one.base_offset and one.base_offset % each == 0:
            log.roll()
        append(log, one)
    return log, batches


def joined(batches: Sequence[PlainBatch]) -> bytes:
    return b"".join(batch.encode() for batch in batches)


def bytes_of(found: SegmentRead | None) -> bytes | None:
    return None if found is None else bytes(found.data)
