"""LogDirUnit: a log directory with its threads and the runtime that its logs get.

Owns nothing; bundles what belongs to one entry of ``log.dirs``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkalog.broker.directory.flusher import LogDirFlusher, ThreadMetrics
from kafkalog.broker.directory.writer import LogDirWriter
from kafkalog.errors import StorageFault
from kafkalog.log.environment import LogEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalog.broker.directory.limits import QueueBudget, TopicQuotas
    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.broker.directory.writer import CompletionSink, StartOffsetFiles
    from kafkalog.broker.runtime import Runtime
    from kafkalog.log.unified_log import UnifiedLog


@dataclass(frozen=True, slots=True)
class LogDirUnit:
    """See the module."""

    log_dir: LogDir
    environment: LogEnvironment
    writer: LogDirWriter
    flusher: LogDirFlusher

    def wake(self) -> None:
        """Let both threads turn once, so that their heartbeats show."""
        self.writer.wake()
        self.flusher.wake()

    def stop(self) -> None:
        """Run what is queued, with its syncs, then end both threads."""
        self.writer.stop()
        self.flusher.stop()


def drain_barrier(units: Iterable[LogDirUnit]) -> None:
    """Return when every command that is queued now has run. Blocks; NotReady while stopping.

    A directory that fails meanwhile runs nothing any more.
    """
    for unit in units:
        try:
            unit.writer.call(lambda: None)
        except StorageFault:
            continue


def make_unit(
    log_dir: LogDir,
    runtime: Runtime,
    budget: QueueBudget,
    quotas: TopicQuotas,
    sink: CompletionSink,
    *,
    open_file_count: int,
    checkpoints: StartOffsetFiles,
    logs_here: Callable[[str], Iterable[UnifiedLog]],
) -> LogDirUnit:
    """One directory. Nothing is touched and no thread runs yet."""
    environment = replace(
        LogEnvironment.create(
            runtime.filesystem,
            runtime.clock,
            runtime.scheduler,
            runtime.random,
            runtime.threads,
            open_file_count=open_file_count,
        ),
        io_guard=log_dir.guard,
    )
    flusher = LogDirFlusher(log_dir, runtime.clock, runtime.threads, runtime.metrics)
    writer = LogDirWriter(
        log_dir,
        flusher,
        runtime.threads,
        budget,
        quotas,
        sink,
        checkpoints,
        logs_here,
        ThreadMetrics(f"log-dir-writer-{log_dir.path}", runtime.clock, runtime.metrics),
    )
    runtime.metrics.log_dir_online.labels(log_dir.path).set(1)
    runtime.metrics.log_dir_full.labels(log_dir.path).set_function(lambda: float(log_dir.is_full))
    cordoned = runtime.metrics.log_dir_cordoned.labels(log_dir.path)
    cordoned.set_function(lambda: float(log_dir.is_cordoned))
    return LogDirUnit(log_dir, environment, writer, flusher)
