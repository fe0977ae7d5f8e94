"""LogCleaner: the cleaner threads from start to shutdown, the requests they serve, their throttle.

Owns the threads, the rate that they share and the queue of requests; which log is whose is the
LogCleanerManager's. Any thread; ``startup``, ``reconfigure`` and ``shutdown`` one at a time, by
their caller. A change of the number of threads or their memory stops all of them, which aborts the
cleans in progress, and starts new ones, as in Kafka; the rate and the pause change while they run.

One turn of a ``CleanerThread`` serves a request or the filthiest log, then deletes old segments of
compacted logs (which no other task does), and pauses when there was nothing to clean. What a clean
raises is the log's failure, never the thread's end. A defect outside of a clean ends the turn, is
counted, and the thread starts again after a pause. All waits end at once when the thread is to stop
or the log it works on is wanted.

``Throttler`` is one rate of bytes for all threads together. It never waits: it returns until when
its caller does, so that a stop can end the wait. Each chunk has to be paid for before the next one
is read or written; time without a chunk, as in a swap, is credited up to a tenth of a second. With
chunks of at most a tenth of the rate (``LogCleanerConfig.chunk_bytes``), any second has at most 1.2
times the rate; only a single batch that is larger than such a chunk can exceed it. After a change
of the rate a thread that waits for the former one need not wait any longer.

Source: Kafka 4.1 LogCleaner, CleanerThread and Throttler. Differs from Kafka: a dead thread is
started again, an uncleanable log still loses what retention deletes, and the rate holds within one
clean, while Kafka looks every 300 ms.
"""

from __future__ import annotations

import functools
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import structlog

from kafkalog.cleaner.cleaner import Cleaner
from kafkalog.cleaner.log_cleaner_manager import CleaningPhase, ServedLogs
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.cleaner.stats import CleaningRun
from kafkalog.errors import (
    CleaningConflict,
    KafkalogError,
    LogCleaningAborted,
    LogDirOffline,
    NotReady,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.cleaner.cleaner import CleaningResult, OnWriter
    from kafkalog.cleaner.config import LogCleanerConfig
    from kafkalog.cleaner.log_cleaner_manager import LogCleanerManager
    from kafkalog.cleaner.plan import LogToClean
    from kafkalog.cleaner.stats import CleanRequest
    from kafkalog.env.clock import Clock
    from kafkalog.env.threads import Mutex, Thread, Threads
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.retention.plan import RetentionPlan
    from kafkalog.log.unified_log import UnifiedLog

    CleanerMaker = Callable[
        [LogCleanerConfig, Callable[[int], None], Callable[[], int]], "CleanerLike"
    ]


T = TypeVar("T")

_BEAT_INTERVAL_NS = 1_000_000_000
_WAIT_MAX_NS = 3_600_000_000_000
_PAUSE_MIN_MS = 10  # log.cleaner.backoff.ms may be 0, which would take a core for nothing
_RESTART_PAUSE_MS = 1_000  # at least, so that a defect that comes back does not fill the log

_log = structlog.get_logger("kafka.log.LogCleaner")


class CleanerHost(ServedLogs, Protocol):
    """What a thread needs from the manager of all logs."""

    def make_durable(self, log: UnifiedLog, end_offset: int) -> None:
        """Return when everything below end_offset is; KafkalogError.

        Before a clean: a power cut could otherwise take the record for which an older one of its
        key went.
        """

    def on_writer(self, log: UnifiedLog, call: Callable[[], T]) -> T:
        """Run a call of a clean on the writer thread of the log and wait for it.

        Raises what it raises, or LogCleaningAborted when the log is wanted and no swap has begun.
        """

    def operator_pauses(self, topic_partition: TopicPartition) -> int:
        """Pauses of the log by operators, who do not work on it: a dry run may ignore them."""

    def begin_retention(self) -> int:
        """A pass over the compacted logs begins: the argument of ``plan_retention``."""

    def plan_retention(self, log: UnifiedLog, jump_ms: int) -> RetentionPlan | None:
        """What ``retain`` may delete now; None: nothing. Guarded."""

    def retain(self, log: UnifiedLog, planned: RetentionPlan) -> None:
        """Delete old segments; KafkalogError: the rest is for the next pass."""


class CleanerLike(Protocol):
    """What a thread needs of a Cleaner."""

    def clean(
        self,
        to_clean: LogToClean,
        now_ms: int,
        *,
        on_writer: OnWriter,
        check_done: Callable[[], None],
        dry_run: bool = False,
    ) -> CleaningResult:
        """See Cleaner."""


class ThreadObserver(Protocol):
    """Hears what a thread does; quick, and on that thread."""

    def beat(self, thread: str, wall_ms: int) -> None:
        """It turned."""

    def spent(self, thread: str, phase: str, seconds: float) -> None:
        """On what: ``idle``, ``map``, ``copy``, ``swap`` or ``throttled``."""

    def ended(self, run: CleaningRun) -> None:
        """A clean that is no dry run ended."""

    def restarted(self, thread: str) -> None:
        """It met a defect and begins afresh."""


class ThreadStatus(NamedTuple):
    """``topic_partition``: what it cleans, None while it does not; moments are wall clock ms."""

    thread_id: int
    name: str
    is_alive: bool
    topic_partition: TopicPartition | None
    busy_since_ms: int | None
    next_turn_ms: int | None  # of an idle one
    restarts: int
    last_run: CleaningRun | None


def thread_name(thread_id: int) -> str:
    """As Kafka names it."""
    return f"kafka-log-cleaner-thread-{thread_id}"


class CleanerThread:
    """See the module."""

    def __init__(
        self,
        thread_id: int,
        work: LogCleaner,
        make_cleaner: Callable[[Callable[[int], None], Callable[[], int]], CleanerLike],
    ) -> None:
        """``make_cleaner`` gets throttle and chunk size; it is called again after a defect."""
        # constant after construction
        self.thread_id = thread_id
        self.name = thread_name(thread_id)
        self._work = work
        self._host, self._states, self._clock = work.host, work.states, work.clock
        self._make_cleaner = make_cleaner
        self._signal = work.thread_maker.signal()
        # set by any thread
        self._is_stopping = False
        self._thread: Thread | None = None
        # owned by the thread
        self._cleaner: CleanerLike | None = None
        self._next_beat_ns = 0
        self._pause_began: tuple[int, int] | None = None  # monotonic ns, wall ms; None: it is over
        # owned by the thread, published
        self._topic_partition: TopicPartition | None = None
        self._busy_since_ms: int | None = None
        self._next_turn_ms: int | None = None
        self._restarts = 0
        self._last_run: CleaningRun | None = None

    # ---- any thread

    def start(self) -> None:
        """Start the thread, at nice 15."""
        self._thread = self._work.thread_maker.start(self.name, self._run, background=True)

    def stop(self) -> None:
        """Release the log in work at the next chunk, then end; ``join`` waits for it."""
        self._is_stopping = True
        self._signal.set()

    def join(self) -> None:
        """Return when the thread has ended."""
        if self._thread is not None:
            self._thread.join()

    def wake(self) -> None:
        """End a pause: there may be something to do or to release."""
        self._signal.set()

    def status(self) -> ThreadStatus:
        """At this moment."""
        return ThreadStatus(
            self.thread_id,
            self.name,
            self._thread is not None and self._thread.is_alive(),
            self._topic_partition,
            self._busy_since_ms,
            self._next_turn_ms,
            self._restarts,
            self._last_run,
        )

    # ---- the loop

    def clean_filthiest_once(self) -> bool:
        """One turn: a request or the filthiest log, then retention. Loop body.

        False: nothing to clean, or nothing came of it, or it was a request in the middle of a
        pause: a pause is due, or the rest of it.
        """
        self._beat()
        request = self._work.take_request()
        if request is not None:
            self._serve(request)
            is_busy = self._pause_began is None
        elif self._pause_began is not None:
            return False  # another thread took the request that ended this one's wait
        else:
            to_clean = self._states.acquire_filthiest_log(self._clock.wall_ms())
            is_busy = to_clean is not None and self._clean(to_clean, is_dry=False).is_fruitful
        self._retain_compacted()
        return is_busy

    def _run(self) -> None:
        """Thread body; supervises itself, since a daemon without a cleaner looks healthy."""
        while not self._is_stopping:
            try:
                if not self.clean_filthiest_once():
                    self._pause(_PAUSE_MIN_MS)
            except Exception as error:  # noqa: BLE001 - a thread body
                self._restarts += 1
                self._work.observer.restarted(self.name)
                _log.critical(
                    "The cleaner thread met a defect and is started again",
                    thread=self.name,
                    exc_info=error,
                )
                self._pause(_RESTART_PAUSE_MS)

    def _pause(self, least_ms: int) -> None:
        """Until there is a request, the back-off of now is over, or the thread is to stop.

        A request does not end the back-off: the next call waits for the rest.
        """
        idle_from_ns = self._clock.monotonic_ns()
        if self._pause_began is None:
            self._pause_began = idle_from_ns, self._clock.wall_ms()
        began_ns, began_ms = self._pause_began
        while not self._is_stopping and not self._work.has_requests:
            self._beat()
            pause_ms = max(self._work.backoff_ms, least_ms)
            self._next_turn_ms = began_ms + pause_ms
            left_ns = began_ns + pause_ms * 1_000_000 - self._clock.monotonic_ns()
            if left_ns <= 0:
                self._pause_began = None
                break
            self._wait(left_ns)
        self._next_turn_ms = None
        self._work.observer.spent(
            self.name, "idle", (self._clock.monotonic_ns() - idle_from_ns) / 1e9
        )

    def _wait(self, left_ns: int) -> None:
        """At most so long; settings allow more than a wait of the machine takes."""
        self._signal.wait(min(left_ns, _WAIT_MAX_NS) / 1e9)

    def _throttle(self, size_bytes: int) -> None:
        """After each chunk that was read or written."""
        self._beat()
        began_ns = now_ns = self._clock.monotonic_ns()
        until_ns = self._work.throttler.observe(size_bytes, now_ns)
        while now_ns < until_ns and not self._is_wanted():
            self._wait(until_ns - now_ns)
            now_ns = self._clock.monotonic_ns()
            until_ns = min(until_ns, self._work.throttler.go_on_ns)  # less, where the rate changed
        if now_ns > began_ns:
            self._work.observer.spent(self.name, "throttled", (now_ns - began_ns) / 1e9)

    def _is_wanted(self) -> bool:
        """Whether the clean in work is to end."""
        if self._is_stopping or self._topic_partition is None:
            return True
        return self._states.state_of(self._topic_partition).phase is CleaningPhase.ABORTED

    def _check_done(self, topic_partition: TopicPartition) -> None:
        """Between two chunks: LogCleaningAborted when the clean is to end."""
        self._beat()
        if self._is_stopping:
            raise LogCleaningAborted(f"The cleaner stops; {topic_partition} is cleaned later")
        self._states.check_cleaning_aborted(topic_partition)

    def _beat(self) -> None:
        """Told at most once a second, also within a long clean."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._next_beat_ns:
            self._next_beat_ns = now_ns + _BEAT_INTERVAL_NS
            self._work.observer.beat(self.name, self._clock.wall_ms())

    # ---- one log

    def _serve(self, request: CleanRequest) -> None:
        """Clean what was asked for, whatever its ratio; the answer is never left out."""
        now_ms = self._clock.wall_ms()
        run = CleaningRun(
            request.log.topic_partition, self.thread_id, request.is_dry, now_ms, now_ms
        )
        run = run._replace(error=KafkalogError("The cleaner met a defect; the log has it"))
        try:
            key = request.log.topic_partition
            pauses = self._host.operator_pauses(key) if request.is_dry else 0
            to_clean = self._states.acquire_log(request.log, now_ms, pauses=pauses)
            if to_clean.cleanable_bytes:
                run = self._clean(to_clean, is_dry=request.is_dry)
            else:
                self._states.release(request.log)
                end_offset = to_clean.first_dirty_offset
                run = run._replace(to_clean=to_clean, end_offset=end_offset, error=None)
        except KafkalogError as error:
            run = run._replace(error=error)
        finally:
            request.on_done(run)

    def _clean(self, to_clean: LogToClean, *, is_dry: bool) -> CleaningRun:
        """Clean a log that this thread has acquired, and release it."""
        key, began_ms = to_clean.log.topic_partition, self._clock.wall_ms()
        run = CleaningRun(
            key, self.thread_id, is_dry, began_ms, began_ms, to_clean, to_clean.first_dirty_offset
        )
        self._topic_partition, self._busy_since_ms = key, began_ms
        try:
            run = self._run_cleaner(run, to_clean)
        finally:
            self._topic_partition = self._busy_since_ms = None
            run = self._end(run._replace(ended_ms=self._clock.wall_ms()), to_clean.log)
        return run

    def _run_cleaner(self, run: CleaningRun, to_clean: LogToClean) -> CleaningRun:
        """The clean itself; what it raises is in the run."""
        log = to_clean.log
        try:
            if self._cleaner is None:
                self._cleaner = self._make_cleaner(self._throttle, self._work.chunk_bytes)
            with log.environment.io_guard():
                # A clean would make a loss look as if compaction had taken the records.
                log.losses.refuse_any()
            if not run.is_dry:
                self._host.on_writer(log, log.losses.end_gapless)
                self._host.make_durable(log, to_clean.first_uncleanable_offset)
                self._states.note_begun(to_clean)
            result = self._cleaner.clean(
                to_clean,
                run.started_ms,
                on_writer=functools.partial(self._host.on_writer, log),
                check_done=functools.partial(self._check_done, log.topic_partition),
                dry_run=run.is_dry,
            )
        except LogCleaningAborted as stop:
            return run._replace(error=CleaningConflict(str(stop)), is_aborted=True)
        except KafkalogError as error:
            return run._replace(error=error)
        except Exception as error:  # noqa: BLE001 - a defect: this log's failure alone
            self._cleaner = None  # its map and buffers are in an unknown state
            _log.error("A clean met a defect", partition=str(log.topic_partition), exc_info=error)
            return run._replace(error=KafkalogError(f"{type(error).__name__}: {error}"))
        return run._replace(end_offset=result.end_offset, stats=result.stats)

    def _end(self, run: CleaningRun, log: UnifiedLog) -> CleaningRun:
        """Release the log, then log what became of it."""
        if run.stats is None or run.is_dry:
            self._states.release(log)
        else:
            self._states.retry(run.topic_partition)  # what failed before is over
            try:
                self._states.done_cleaning(log, run.end_offset)
            except KafkalogError as error:
                _log.warning(
                    "cleaner_checkpoint_not_written",
                    partition=str(run.topic_partition),
                    reason=error.message,
                )
        if not run.is_dry:
            self._last_run = run
            self._work.observer.ended(run)
            self._log_run(run, log)
            if self._host.is_served(log):
                self._states.refresh(log, self._clock.wall_ms())
        return run

    def _log_run(self, run: CleaningRun, log: UnifiedLog) -> None:
        """Kafka's lines; what a failure leads to."""
        key = str(run.topic_partition)
        if run.stats is not None:
            _log.info(_report_of(run), partition=key)
            if run.stats.invalid_messages_read:
                _log.warning(
                    f"Found {run.stats.invalid_messages_read} invalid messages during compaction.",
                    partition=key,
                )
        elif run.error is None:
            return
        elif run.is_aborted or isinstance(run.error, LogDirOffline):
            _log.info(run.error.message, partition=key)
        elif self._host.is_served(log):
            failure = self._states.note_failure(log, run.error)
            marked = f" Marking its partition ({key}) as uncleanable"
            _log.warning(
                f"Unexpected exception thrown when cleaning log {key}."
                + (marked if failure.is_uncleanable else " It is tried again."),
                partition=key,
                reason=failure.reason,
                attempts=failure.attempts,
            )

    # ---- retention

    def _retain_compacted(self) -> None:
        """Old segments of compacted logs go here and nowhere else, one log in hand at a time."""
        jump_ms = self._host.begin_retention()
        for log in self._host.logs():
            if self._is_stopping:
                return
            if not log.config.is_compacted:
                continue
            self._beat()
            try:
                planned = self._host.plan_retention(log, jump_ms)
                if planned is not None and self._states.try_acquire(log):
                    self._retain(log, planned)
            except KafkalogError as error:
                _log.error(
                    "retention_failed", partition=str(log.topic_partition), reason=error.message
                )

    def _retain(self, log: UnifiedLog, planned: RetentionPlan) -> None:
        try:
            self._host.retain(log, planned)
        finally:
            self._states.release(log)
        if self._states.retry(log.topic_partition):
            _log.info(
                "The log is cleaned again: segments of it went", partition=str(log.topic_partition)
            )


_MIB = 1024 * 1024


def _report_of(run: CleaningRun) -> str:
    """Kafka's lines of a clean (LogCleaner.recordStats)."""
    stats, to_clean = run.stats, run.to_clean
    assert stats is not None
    assert to_clean is not None
    seconds = max(stats.seconds, 1e-9)
    index_seconds = stats.map_seconds
    copy_seconds = max(seconds - index_seconds, 1e-9)
    read, mapped, written = (
        size / _MIB for size in (stats.bytes_read, stats.map_bytes_read, stats.bytes_written)
    )
    lines = (
        f"Log cleaner thread {run.thread_id} cleaned log {run.topic_partition} "
        f"(dirty section = [{to_clean.first_dirty_offset}, {run.end_offset}])",
        f"{read:,.1f} MB of log processed in {seconds:,.1f} seconds "
        f"({read / seconds:,.1f} MB/sec).",
        f"Indexed {mapped:,.1f} MB in {index_seconds:.1f} seconds "
        f"({mapped / max(index_seconds, 1e-9):,.1f} Mb/sec, "
        f"{100 * index_seconds / seconds:.1f}% of total time)",
        f"Buffer utilization: {100 * stats.buffer_utilization:.1f}%",
        f"Cleaned {read:,.1f} MB in {copy_seconds:.1f} seconds "
        f"({read / copy_seconds:,.1f} Mb/sec, {100 * copy_seconds / seconds:.1f}% of total time)",
        f"Start size: {read:,.1f} MB ({stats.messages_read:,} messages)",
        f"End size: {written:,.1f} MB ({stats.messages_written:,} messages)",
        f"{_reduction(stats.bytes_written, stats.bytes_read):.1f}% size reduction "
        f"({_reduction(stats.messages_written, stats.messages_read):.1f}% fewer messages)",
    )
    return "\n\t".join(lines)


def _reduction(left: int, before: int) -> float:
    """Percent that went."""
    return 100.0 * (1.0 - left / before) if before else 0.0


_CREDIT_NS = 100_000_000
_NEVER_NS = 1 << 62  # the smallest rates ask for more than any number


class Throttler:
    """Any thread; see the module."""

    def __init__(self, mutex: Mutex, bytes_per_second: float, now_ns: int) -> None:
        """``now_ns`` is of the monotonic clock."""
        # constant after construction
        self._mutex = mutex
        # under the mutex
        self._bytes_per_second = bytes_per_second
        # changed under the mutex, published
        self.go_on_ns = now_ns

    def change_rate(self, bytes_per_second: float, now_ns: int) -> None:
        """Change the rate from now on; a thread that waits reads ``go_on_ns`` again."""
        with self._mutex:
            self._bytes_per_second = bytes_per_second
            self.go_on_ns = now_ns

    def observe(self, size_bytes: int, now_ns: int) -> int:
        """Bytes were read or written; the monotonic time before which the caller does no more."""
        with self._mutex:
            due_ns = min(size_bytes * 1e9 / self._bytes_per_second, _NEVER_NS)
            self.go_on_ns = max(self.go_on_ns, now_ns - _CREDIT_NS) + int(due_ns)
            return self.go_on_ns


NO_CLEANER = "No cleaner runs: log.cleaner.enable or log.cleaner.threads"
"""Why a request to clean is refused."""


class LogCleaner:
    """See the module."""

    def __init__(
        self,
        config: LogCleanerConfig,
        host: CleanerHost,
        states: LogCleanerManager,
        make_cleaner: CleanerMaker,
        clock: Clock,
        threads: Threads,
        observer: ThreadObserver,
    ) -> None:
        """``make_cleaner`` is called once a thread, on its first clean. Nothing runs yet."""
        # constant after construction
        self.states = states
        self.host = host
        self._make_cleaner = make_cleaner
        self.clock = clock
        self.thread_maker = threads
        self.observer = observer
        self.throttler = Throttler(
            threads.mutex(), config.io_max_bytes_per_second, clock.monotonic_ns()
        )
        states.on_abort = self.wake
        # changed by startup, reconfigure and shutdown; published
        self.config = config
        self.backoff_ms = config.backoff_ms
        self._chunk_bytes = config.chunk_bytes
        self._running: tuple[CleanerThread, ...] = ()
        self._is_stopped = True
        # appended by any thread, popped by cleaner threads
        self._requests: deque[CleanRequest] = deque()

    # ---- life

    def startup(self) -> None:
        """Start the threads."""
        _log.info("Starting the log cleaner")
        self._is_stopped = False
        self._start_threads()

    def shutdown(self) -> None:
        """Abort what is in work and end all threads; requests that wait get NotReady."""
        if self._is_stopped:
            return
        _log.info("Shutting down the log cleaner.")
        self._is_stopped = True
        self._stop_threads()
        self._refuse_rest_when_stopped()

    def reconfigure(self, config: LogCleanerConfig) -> None:
        """Let the configuration count; returns when the threads it asks for run."""
        before, self.config = self.config, config
        if config == before:
            return
        if config.io_max_bytes_per_second != before.io_max_bytes_per_second:
            now_ns = self.clock.monotonic_ns()
            self.throttler.change_rate(config.io_max_bytes_per_second, now_ns)
        self.backoff_ms = self.states.backoff_ms = config.backoff_ms
        self._chunk_bytes = config.chunk_bytes
        self.wake()  # waiting threads take the new rate and pause
        same = replace(
            before,
            io_max_bytes_per_second=config.io_max_bytes_per_second,
            backoff_ms=config.backoff_ms,
        )
        if self._is_stopped or same == config:
            return
        _log.info("Reconfiguring the log cleaner", threads=config.threads)
        self._stop_threads()
        self._start_threads()

    def _start_threads(self) -> None:
        self._running = tuple(
            CleanerThread(thread_id, self, functools.partial(self._make_cleaner, self.config))
            for thread_id in range(self.config.threads)
        )
        for thread in self._running:
            thread.start()

    def _stop_threads(self) -> None:
        for thread in self._running:
            thread.stop()
        for thread in self._running:
            thread.join()
        self._running = ()

    # ---- any thread

    @property
    def is_enabled(self) -> bool:
        """Whether anything is ever cleaned."""
        return not self._is_stopped and self.config.threads > 0

    def threads(self) -> list[ThreadStatus]:
        """What each does."""
        return [thread.status() for thread in self._running]

    def wake(self) -> None:
        """End the pauses of threads: a caller waits for a log, or for a heartbeat."""
        for thread in self._running:
            thread.wake()

    def submit(self, request: CleanRequest) -> None:
        """Queue a clean for the next thread that is free.

        CleaningConflict when no thread runs, or one has the log.
        """
        if not self.is_enabled:
            raise CleaningConflict(NO_CLEANER)
        self.states.check_not_in_work(request.log.topic_partition)
        self._requests.append(request)
        self.wake()
        self._refuse_rest_when_stopped()

    # ---- for the threads

    def take_request(self) -> CleanRequest | None:
        """The next clean that was asked for."""
        try:
            return self._requests.popleft()
        except IndexError:
            return None

    def chunk_bytes(self) -> int:
        """How many bytes a thread reads at once now; see LogCleanerConfig."""
        return self._chunk_bytes

    @property
    def has_requests(self) -> bool:
        """Whether one waits."""
        return bool(self._requests)

    def _refuse_rest_when_stopped(self) -> None:
        """No thread is left to serve them. Any thread, also several."""
        if not self._is_stopped:
            return
        now_ms = self.clock.wall_ms()
        with suppress(IndexError):
            while True:
                request = self._requests.popleft()
                run = CleaningRun(request.log.topic_partition, -1, request.is_dry, now_ms, now_ms)
                request.on_done(run._replace(error=NotReady("The daemon is stopping")))


def make_cleaner(
    config: LogCleanerConfig, throttle: Callable[[int], None], chunk_bytes: Callable[[], int]
) -> Cleaner:
    """The cleaner of one thread with its map; InvalidConfig when no key would fit."""
    offset_map = SkimpyOffsetMap(config.map_bytes, config.io_buffer_load_factor)
    return Cleaner(offset_map, config.of_one_thread, throttle, chunk_bytes)
