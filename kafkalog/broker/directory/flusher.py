"""LogDirFlusher: the one thread of a log directory that calls fsync.

Owns a queue of sync jobs; runs each, in order, and hands the outcome back to the writer. Never
touches the state of a log: a job is a plan that the writer made. ``flush_once`` is the loop body.

``ThreadMetrics`` is the heartbeat of a thread of a log directory, and how long the appends took
that it finished. A thread that has nothing to do is woken every ten seconds by the metrics task, so
an old heartbeat means a thread that hangs, never an idle one. Cost: two reads of the monotonic
clock a drain, and 1 to 2 us for each finished append (measured on a busy two-core machine).
"""

from __future__ import annotations

import errno
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.broker.directory.commands import AppendCommand, JoinedAppendCommand
from kafkalog.broker.directory.storage_fault import fault_of
from kafkalog.errors import KafkalogError, LogDirOffline, UnknownTopic
from kafkalog.log.flush_plan import FailedBeforeSync
from kafkalog.observe.prometheus import observe, observe_many

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.broker.directory.commands import Command
    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.env.clock import Clock
    from kafkalog.env.threads import Thread, Threads
    from kafkalog.observe.metrics import Metrics

_BEAT_INTERVAL_NS = 1_000_000_000
_OPEN_FAILED = frozenset({errno.EMFILE, errno.ENFILE})


class ThreadMetrics:
    """Heartbeat of one thread and durations of the appends it finished."""

    __slots__ = ("_clock", "_error_seconds", "_metrics", "_name", "_next_beat_ns", "_ok_seconds")

    def __init__(self, name: str, clock: Clock, metrics: Metrics) -> None:
        """``name`` is the label of the heartbeat."""
        # constant after construction
        self._name = name
        self._clock = clock
        self._metrics = metrics
        self._ok_seconds = metrics.append_seconds.labels("ok")
        self._error_seconds = metrics.append_seconds.labels("error")
        # owned by the thread
        self._next_beat_ns = 0

    def now_ns(self) -> int:
        """Monotonic; any thread."""
        return self._clock.monotonic_ns()

    def beat(self) -> None:
        """The thread is alive; published at most once a second."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._next_beat_ns:
            self._next_beat_ns = now_ns + _BEAT_INTERVAL_NS
            self._metrics.beat(self._name, self._clock.wall_ms())

    def observe(self, finished: list[Command]) -> None:
        """Durations of the appends among commands that ended, from submission to now."""
        now_ns = self._clock.monotonic_ns()
        done: list[float] = []
        for command in finished:
            if type(command) is not AppendCommand and type(command) is not JoinedAppendCommand:
                continue
            seconds = (now_ns - command.submitted_ns) / 1e9
            if command.error is not None:
                self._observe_failed(command, command.error, seconds)
            elif type(command) is AppendCommand:
                done.append(seconds)
            else:
                observe(self._ok_seconds, seconds, command.append_count)
        if done:
            observe_many(self._ok_seconds, done)

    def _observe_failed(
        self, command: AppendCommand | JoinedAppendCommand, error: KafkalogError, seconds: float
    ) -> None:
        observe(self._error_seconds, seconds, command.append_count)
        if isinstance(error, UnknownTopic):
            return  # a deleted topic's counters are forgotten, for good
        for _ in range(command.append_count):
            self._metrics.traffic.observe_failed_append(command.log.topic_partition.topic, error)


@dataclass(frozen=True, slots=True)
class SyncJob:
    """``run`` makes things durable; ``done`` is called right after it on the flusher thread."""

    run: Callable[[], None]
    done: Callable[[KafkalogError | None], None]


class LogDirFlusher:
    """See the module."""

    def __init__(self, log_dir: LogDir, clock: Clock, threads: Threads, metrics: Metrics) -> None:
        # constant after construction
        self._meter = ThreadMetrics(f"log-dir-flusher-{log_dir.path}", clock, metrics)
        self._log_dir = log_dir
        self._clock = clock
        self._threads = threads
        self._signal = threads.signal()
        self._seconds = {
            outcome: metrics.flush_seconds.labels(outcome) for outcome in ("ok", "error")
        }
        # appended by the writer thread, popped by the flusher thread
        self._jobs: deque[SyncJob] = deque()
        self._is_stopping = False
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = self._threads.start(f"log-dir-flusher-{self._log_dir.path}", self._run)

    def stop(self) -> None:
        """Finish what is queued, then end the thread; returns when it has ended."""
        self._is_stopping = True
        self._signal.set()
        if self._thread is not None:
            self._thread.join()

    def submit(self, job: SyncJob) -> None:
        """Queue a job; writer thread."""
        self._jobs.append(job)
        self._signal.set()

    def wake(self) -> None:
        """Let the thread turn once, so that its heartbeat shows."""
        self._signal.set()

    def flush_once(self) -> int:
        """Run everything queued now; the number of jobs run. Loop body."""
        self._meter.beat()
        count = len(self._jobs)
        for _ in range(count):
            job = self._jobs.popleft()
            job.done(self._outcome_of(job))
        return count

    def _outcome_of(self, job: SyncJob) -> KafkalogError | None:
        """Run one job. A failed sync takes the directory offline: it is never tried again.

        After a failed fdatasync the kernel may have dropped the dirty pages, and the next call
        would succeed without them. Harmless are an open that found no descriptor and a failure
        before the first sync that is harmless elsewhere; a shortage of memory is not, because a
        sync itself may report it.
        """
        started_ns = self._clock.monotonic_ns()
        error: KafkalogError | None = None
        try:
            self._log_dir.check_online()
            job.run()
        except KafkalogError as fault:
            error = fault
        except FailedBeforeSync as failure:
            error = self._log_dir.fault(failure)
        except OSError as failure:
            error = fault_of(failure, self._log_dir.path)
            if failure.errno not in _OPEN_FAILED:
                error = LogDirOffline(
                    f"A sync in log directory {self._log_dir.path} failed: "
                    f"{failure.strerror or failure}",
                    log_dir=self._log_dir.path,
                )
                self._log_dir.take_offline(error.message)
        seconds = (self._clock.monotonic_ns() - started_ns) / 1e9
        self._seconds["error" if error else "ok"].observe(seconds)
        return error

    def _run(self) -> None:
        while True:
            if self.flush_once():
                continue
            if self._is_stopping:
                return
            self._signal.wait()
