"""LogDeletion: the queue of ``-delete`` directories and the task ``kafka-delete-logs``.

Owns the queue; an entry is removed from disk when the broker's ``log.segment.delete.delay.ms`` is
over (the topic's own delay is not used, as in Kafka). Runs on scheduler threads under the guard of
the log directory; nothing is appended to these logs any more. Crash: the next start finds the names
and queues the directories again. Source: Kafka's LogManager.deleteLogs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from kafkalog.errors import work_on_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.broker.runtime import Runtime
    from kafkalog.env.scheduler import ScheduledTask
    from kafkalog.errors import KafkalogError
    from kafkalog.log.unified_log import UnifiedLog

_log = structlog.get_logger(__name__)

DELETE_LOGS_TASK = "kafka-delete-logs"


@dataclass(frozen=True, slots=True)
class _DeletedDirectory:
    log_dir: LogDir
    path: str
    log: UnifiedLog | None  # None: found at the start, never loaded
    due_ns: int


class LogDeletion:
    """See the module."""

    def __init__(self, runtime: Runtime, delay_ms: Callable[[], int]) -> None:
        # constant after construction
        self._filesystem = runtime.filesystem
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._delay_ms = delay_ms
        # appended by any thread, popped by the task
        self._queue: deque[_DeletedDirectory] = deque()
        self._task: ScheduledTask | None = None
        self._is_stopped = False

    def bytes_in(self, log_dir: LogDir) -> int:
        """Of the ``.log`` files that wait in a directory; what the start found counts nothing."""
        waiting = self._queue.copy()
        return sum(each.log.size_bytes for each in waiting if each.log and each.log_dir is log_dir)

    def add(self, log_dir: LogDir, path: str, log: UnifiedLog | None = None) -> None:
        """Queue a directory that has its ``-delete`` name; a power cut may still take the name."""
        due_ns = self._clock.monotonic_ns() + self._delay_ms() * 1_000_000
        self._queue.append(_DeletedDirectory(log_dir, path, log, due_ns))

    def stop(self) -> None:
        """No further runs."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    def _take_due(self) -> Iterator[_DeletedDirectory]:
        while self._queue and self._queue[0].due_ns <= self._clock.monotonic_ns():
            yield self._queue.popleft()

    def _remove(self, doomed: _DeletedDirectory) -> None:
        with doomed.log_dir.guard():
            if doomed.log is not None:
                doomed.log.delete()
            if self._filesystem.exists(doomed.path):
                self._filesystem.remove_tree(doomed.path)
            self._filesystem.sync_dir(doomed.log_dir.path)
        partition = "" if doomed.log is None else f" for partition {doomed.log.topic_partition}"
        _log.info(f"Deleted log{partition} in {doomed.path}.")

    def run(self) -> None:
        """The task: removes what is due; as Kafka's, due again when the head of the queue is.

        The rule of at most 64 directory operations binds writers only; this thread holds up none.
        What could not be removed is queued again by the next start.
        """
        if self._is_stopped:
            return
        try:
            work_on_each(self._take_due(), self._remove, _tell)
        finally:
            if not self._is_stopped:
                delay_ms = self._next_delay_ms()
                self._task = self._scheduler.schedule_once(DELETE_LOGS_TASK, self.run, delay_ms)

    def _next_delay_ms(self) -> int:
        if not self._queue:
            return max(self._delay_ms(), 1)
        wait_ns = self._queue[0].due_ns - self._clock.monotonic_ns()
        return max(-(-wait_ns // 1_000_000), 0)


def _tell(doomed: _DeletedDirectory, fault: KafkalogError) -> None:
    _log.error("log_not_deleted", path=doomed.path, reason=fault.message)
