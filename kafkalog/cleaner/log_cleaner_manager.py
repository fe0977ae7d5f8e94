"""LogCleanerManager: which log is cleaned next, who owns it meanwhile, and how far each is.

Owns the state of every log, the first dirty offsets that ``cleaner-offset-checkpoint`` holds, and
the failures with what follows from them. ``TRANSITIONS`` is the table of all legal changes of a
state; a log without a state is ``NONE``. The thread that acquires a log owns it until DONE: no
other one truncates, deletes, retains or cleans it meanwhile. Runs no thread and reads no record.
Any thread; the one lock here covers dictionaries only, never the disk.

Order that others rely on: a log is planned again after it was acquired, so that a plan never refers
to segments that were deleted in between. After that it is looked up among the served logs, so a
caller that removes it there first and then calls ``abort_cleaning`` has it for itself.

Source: Kafka 4.1 LogCleanerManager and LogCleaningState. Differs
from Kafka: a log that fails is tried again before it counts as uncleanable, and a full disk never
makes it so for good; a paused log may be inspected, which leaves its pauses as they are.
"""

from __future__ import annotations

import enum
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog

from kafkalog.cleaner.plan import LogToClean
from kafkalog.errors import (
    CleaningConflict,
    DiskFull,
    KafkalogError,
    LogCleaningAborted,
    StorageFault,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from kafkalog.env.clock import Clock
    from kafkalog.env.threads import Signal, Threads
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.unified_log import UnifiedLog


class CleaningPhase(enum.Enum):
    """Kafka's states; the value is what the API shows."""

    NONE = "none"
    IN_PROGRESS = "in_progress"  # a cleaner thread cleans it, or deletes its old segments
    ABORTED = "aborted"  # a caller waits until that thread releases it
    PAUSED = "paused"  # no cleaner thread takes it until every pause is taken back


class CleaningEvent(enum.Enum):
    """What may happen to a log."""

    ACQUIRE = "acquire"  # a cleaner thread takes it
    INSPECT = "inspect"  # the same although it is paused, for a dry run
    PAUSE = "pause"  # abort and pause
    RESUME = "resume"  # takes one pause back
    DONE = "done"  # the thread that acquired it releases it


class CleaningState(NamedTuple):
    """``pauses`` is n of Kafka's Paused(n); in another phase those that a dry run ignores."""

    phase: CleaningPhase
    pauses: int = 0

    def __str__(self) -> str:
        return f"{self.phase.value}({self.pauses})" if self.pauses else self.phase.value


class IllegalTransition(AssertionError):
    """A change that the table does not have: a defect of ours."""


NONE = CleaningState(CleaningPhase.NONE)

# (phase, event) -> (next phase, change of pauses); a PAUSED without pauses is NONE.
TRANSITIONS: dict[tuple[CleaningPhase, CleaningEvent], tuple[CleaningPhase, int]] = {
    (CleaningPhase.NONE, CleaningEvent.ACQUIRE): (CleaningPhase.IN_PROGRESS, 0),
    (CleaningPhase.NONE, CleaningEvent.PAUSE): (CleaningPhase.PAUSED, 1),
    (CleaningPhase.IN_PROGRESS, CleaningEvent.PAUSE): (CleaningPhase.ABORTED, 0),
    (CleaningPhase.IN_PROGRESS, CleaningEvent.RESUME): (CleaningPhase.IN_PROGRESS, -1),
    (CleaningPhase.IN_PROGRESS, CleaningEvent.DONE): (CleaningPhase.PAUSED, 0),
    (CleaningPhase.ABORTED, CleaningEvent.RESUME): (CleaningPhase.ABORTED, -1),
    (CleaningPhase.ABORTED, CleaningEvent.DONE): (CleaningPhase.PAUSED, 1),
    (CleaningPhase.PAUSED, CleaningEvent.INSPECT): (CleaningPhase.IN_PROGRESS, 0),
    (CleaningPhase.PAUSED, CleaningEvent.PAUSE): (CleaningPhase.PAUSED, 1),
    (CleaningPhase.PAUSED, CleaningEvent.RESUME): (CleaningPhase.PAUSED, -1),
}


def next_state(state: CleaningState, event: CleaningEvent) -> CleaningState:
    """The state after the event; IllegalTransition."""
    change = TRANSITIONS.get((state.phase, event))
    if change is None or state.pauses + change[1] < 0:
        raise IllegalTransition(f"{event.value} of a log that is {state}")
    phase, pauses = change[0], state.pauses + change[1]
    if phase is CleaningPhase.PAUSED and pauses == 0:
        return NONE
    return CleaningState(phase, pauses)


ATTEMPTS_MAX = 3
_BACKOFF_DOUBLINGS_MAX = 6

_log = structlog.get_logger(__name__)


class ServedLogs(Protocol):
    """What the cleaner needs from the manager of all logs."""

    def logs(self) -> Iterable[UnifiedLog]:
        """All logs of online directories at this moment."""

    def is_served(self, log: UnifiedLog) -> bool:
        """Whether this very log still serves its partition."""

    def guard(self, log: UnifiedLog) -> AbstractContextManager[object]:
        """Around disk work of the log: OSError becomes its StorageFault."""

    def write_checkpoint(self, log: UnifiedLog) -> None:
        """Replace ``cleaner-offset-checkpoint`` of the log's directory; guarded, durable."""


class CleaningFailure(NamedTuple):
    """Why a log is not cleaned now; ``retry_ns`` (monotonic) None: until a clean is requested."""

    reason: str
    error_name: str
    attempts: int
    retry_ns: int | None

    @property
    def is_uncleanable(self) -> bool:
        """Whether it is tried again on request only."""
        return self.retry_ns is None

    def is_over(self, now_ns: int) -> bool:
        """Whether it is time to try again."""
        return self.retry_ns is not None and self.retry_ns <= now_ns


class CleaningStatus(NamedTuple):
    """One compacted log at one moment: its state, the clean it needs, and what is wrong."""

    log: UnifiedLog
    state: CleaningState
    to_clean: LogToClean | None  # None: it could not be inspected, ``fault`` says why
    fault: KafkalogError | None
    failure: CleaningFailure | None
    checkpoint: int | None  # of the first dirty offset; None: no clean has begun

    @property
    def ratio(self) -> float:
        """Cleanable share of its bytes."""
        return 0.0 if self.to_clean is None else self.to_clean.cleanable_ratio


class LogCleanerManager:
    """See the module."""

    def __init__(
        self,
        served: ServedLogs,
        first_dirty: dict[TopicPartition, int],
        clock: Clock,
        threads: Threads,
        backoff_ms: int,
    ) -> None:
        """``first_dirty``: up to where each log is clean; single operations by any thread.

        ``backoff_ms``: the pause after a first failure, which doubles with each.
        """
        # constant after construction
        self._served = served
        self._first_dirty = first_dirty
        self._clock = clock
        self._threads = threads
        self._mutex = threads.mutex()
        self.on_abort: Callable[[], None] = lambda: None  # lets threads that pause look up
        # under the mutex
        self._states: dict[TopicPartition, CleaningState] = {}
        self._waiters: dict[TopicPartition, list[Signal]] = {}
        self._failures: dict[TopicPartition, CleaningFailure] = {}
        # published
        self.backoff_ms = backoff_ms
        self.statuses: tuple[CleaningStatus, ...] = ()  # when a thread inspected them last
        self.last_inspected_ms: int | None = None  # wall clock of that

    # ---- checkpoints

    def first_dirty_offset(self, topic_partition: TopicPartition) -> int | None:
        """What the checkpoint is to hold of a log; None: no clean of it has begun."""
        return self._first_dirty.get(topic_partition)

    def forget(self, topic_partition: TopicPartition) -> None:
        """The partition is gone: a new one of its name starts without a past.

        Cleaning must be paused or idle; the checkpoint is the caller's to write.
        """
        with self._mutex:
            self._first_dirty.pop(topic_partition, None)
            self._failures.pop(topic_partition, None)

    # ---- states

    def state_of(self, topic_partition: TopicPartition) -> CleaningState:
        """What is done with the log now."""
        return self._states.get(topic_partition, NONE)

    def abort_cleaning(self, topic_partition: TopicPartition) -> None:
        """Return when no cleaner thread works on the log; it may be acquired again at once."""
        self.abort_and_pause_cleaning(topic_partition)
        self.resume_cleaning([topic_partition])

    def abort_and_pause_cleaning(self, topic_partition: TopicPartition) -> None:
        """Return when no cleaner thread works on the log, and none takes it until ``resume``.

        Waits for the thread, which may be in the middle of a swap, and for others that abort the
        same log; never on a writer, for whom that thread may wait.
        """
        while True:
            with self._mutex:
                before = self.state_of(topic_partition)
                if before.phase is not CleaningPhase.ABORTED:
                    self._apply(topic_partition, CleaningEvent.PAUSE)
                if before.phase not in (CleaningPhase.ABORTED, CleaningPhase.IN_PROGRESS):
                    return
                is_released = self._threads.signal()
                self._waiters.setdefault(topic_partition, []).append(is_released)
            self.on_abort()
            is_released.wait()
            if before.phase is CleaningPhase.IN_PROGRESS:
                return  # the first pause is the one of who aborted

    def try_pause(self, topic_partition: TopicPartition) -> bool:
        """Pause a log that is idle; False: it is in work or paused."""
        with self._mutex:
            if topic_partition in self._states:
                return False
            self._apply(topic_partition, CleaningEvent.PAUSE)
            return True

    def resume_cleaning(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Take back one pause of each."""
        with self._mutex:
            for topic_partition in topic_partitions:
                self._apply(topic_partition, CleaningEvent.RESUME)

    def check_cleaning_aborted(self, topic_partition: TopicPartition) -> None:
        """LogCleaningAborted when a caller waits for this log; for the thread that acquired it."""
        if self.state_of(topic_partition).phase is CleaningPhase.ABORTED:
            raise LogCleaningAborted(f"The cleaning of {topic_partition} was aborted")

    def _apply(self, topic_partition: TopicPartition, event: CleaningEvent) -> CleaningState:
        """Under the mutex."""
        state = next_state(self.state_of(topic_partition), event)
        if state == NONE:
            del self._states[topic_partition]
        else:
            self._states[topic_partition] = state
        return state

    # ---- for cleaner threads

    def inspect_all(self, now_ms: int) -> list[CleaningStatus]:
        """The status of every compacted log; may read indexes. A log that fails has its reason."""
        return [
            self._inspect(log, now_ms) for log in self._served.logs() if log.config.is_compacted
        ]

    def inspect(self, log: UnifiedLog, now_ms: int) -> CleaningStatus:
        """The status of one log; may read indexes. Whatever is found, nothing is changed."""
        key = log.topic_partition
        state, checkpoint = self.state_of(key), self._first_dirty.get(key)
        to_clean: LogToClean | None = None
        fault: KafkalogError | None = None
        try:
            with self._served.guard(log):
                to_clean = LogToClean.of(log, checkpoint, now_ms)
        except KafkalogError as error:
            fault = error
        return CleaningStatus(log, state, to_clean, fault, self._failures.get(key), checkpoint)

    def refresh(self, log: UnifiedLog, now_ms: int) -> None:
        """Let ``statuses`` know a log whose clean has ended: a thread may not look for long."""
        status = self.inspect(log, now_ms)
        with self._mutex:
            others = [each for each in self.statuses if each.log is not log]
            self.statuses = (*others, status)

    def acquire_filthiest_log(self, now_ms: int) -> LogToClean | None:
        """The eligible log of the highest ratio, now in progress; None: there is none."""
        statuses = self.inspect_all(now_ms)
        self.statuses, self.last_inspected_ms = tuple(statuses), now_ms
        candidates = filter(self.is_candidate, statuses)
        for status in sorted(candidates, key=attrgetter("ratio"), reverse=True):
            if self.try_acquire(status.log):
                again = self._inspect_acquired(status.log, now_ms)
                if again.to_clean is not None and again.to_clean.is_eligible:
                    return again.to_clean
                self.release(status.log)
        return None

    def check_not_in_work(self, topic_partition: TopicPartition) -> None:
        """CleaningConflict while a thread works on the log: an order could only wait for it."""
        state = self.state_of(topic_partition)
        if state.phase in (CleaningPhase.IN_PROGRESS, CleaningPhase.ABORTED):
            raise CleaningConflict(
                f"The cleaning of {topic_partition} is {state}; order it again when that has ended",
                topic=topic_partition.topic,
                partition=topic_partition.partition,
            )

    def acquire_log(self, log: UnifiedLog, now_ms: int, *, pauses: int = 0) -> LogToClean:
        """The same for a requested log: whatever its ratio, and without its past failures.

        ``pauses``: as many do not matter, for who changes nothing. CleaningConflict when it is not
        idle; what keeps it from being looked at.
        """
        key = log.topic_partition
        if log.disputed_start_offset is not None:
            raise CleaningConflict(
                f"{key} is not cleaned while it is disputed where it starts: at "
                f"{log.log_start_offset} or at {log.disputed_start_offset}",
                topic=key.topic,
                partition=key.partition,
            )
        self.retry(key)
        if not self.try_acquire(log, pauses=pauses):
            message = f"The cleaning of {key} is {self.state_of(key)}, or it is moved or deleted"
            raise CleaningConflict(message, topic=key.topic, partition=key.partition)
        found = self._inspect_acquired(log, now_ms)
        if found.to_clean is None:
            self.release(log)
            assert found.fault is not None
            raise found.fault
        return found.to_clean

    def try_acquire(self, log: UnifiedLog, *, pauses: int = 0) -> bool:
        """Own an idle log; ends with done_cleaning or release.

        ``pauses``: also when it has as many, which must not be those of who works on it.
        """
        with self._mutex:
            state = self.state_of(log.topic_partition)
            if state == NONE:
                self._apply(log.topic_partition, CleaningEvent.ACQUIRE)
            elif state == CleaningState(CleaningPhase.PAUSED, pauses):
                self._apply(log.topic_partition, CleaningEvent.INSPECT)
            else:
                return False
        if self._served.is_served(log):
            return True
        self.release(log)
        return False

    def note_begun(self, to_clean: LogToClean) -> None:
        """A clean begins: from now on the file names the log, durable on return; StorageFault.

        It says to every later start that offsets may be missing, whatever the topic's policy then
        and however the clean ends. Differs from Kafka, whose recovery minds no gaps: there a log
        is named when its first clean has ended.
        """
        key = to_clean.log.topic_partition
        with self._mutex:
            if self._first_dirty.get(key) is not None:
                return
            self._first_dirty[key] = to_clean.first_dirty_offset
        try:
            self._served.write_checkpoint(to_clean.log)
        except StorageFault:
            self._first_dirty.pop(key, None)
            raise

    def done_cleaning(self, log: UnifiedLog, end_offset: int) -> None:
        """Release the log; it is clean below ``end_offset``, durable unless it was aborted.

        StorageFault: it is remembered, but the file could not be written.
        """
        if self._release(log.topic_partition, end_offset):
            self._served.write_checkpoint(log)

    def release(self, log: UnifiedLog) -> None:
        """Release the log as it is."""
        self._release(log.topic_partition, None)

    def is_candidate(self, status: CleaningStatus) -> bool:
        """Whether a thread would clean it if it were the filthiest."""
        failure, to_clean = status.failure, status.to_clean
        if failure is not None and not failure.is_over(self._clock.monotonic_ns()):
            return False
        return status.state == NONE and to_clean is not None and to_clean.is_eligible

    def _inspect_acquired(self, log: UnifiedLog, now_ms: int) -> CleaningStatus:
        """Its status, which cannot change any more; a defect in it must not keep the log."""
        try:
            return self._inspect(log, now_ms)
        except Exception:
            self.release(log)
            raise

    def _release(self, topic_partition: TopicPartition, end_offset: int | None) -> bool:
        """DONE; whether the first dirty offset was set, which an abort forbids."""
        with self._mutex:
            is_set = self._apply(topic_partition, CleaningEvent.DONE) == NONE
            is_set = is_set and end_offset is not None
            if is_set and end_offset is not None:
                self._first_dirty[topic_partition] = end_offset
            waiters = self._waiters.pop(topic_partition, [])
        for waiter in waiters:
            waiter.set()
        return is_set

    def _inspect(self, log: UnifiedLog, now_ms: int) -> CleaningStatus:
        """Plan one log. An offset outside of it is put right in the checkpoint at once."""
        status = self.inspect(log, now_ms)
        to_clean, fault = status.to_clean, status.fault
        is_disputed = log.disputed_start_offset is not None
        if to_clean is not None and to_clean.checkpoint_fault is not None and not is_disputed:
            try:
                self._put_right(to_clean, status.checkpoint)
            except KafkalogError as error:
                fault = error
        if fault is not None and not isinstance(fault, StorageFault):
            self.note_failure(log, fault)
        return status._replace(fault=fault, failure=self.failure_of(log.topic_partition))

    def _put_right(self, to_clean: LogToClean, checkpoint: int | None) -> None:
        """Once, not at every inspection (KAFKA-6266)."""
        log, offset = to_clean.log, to_clean.first_dirty_offset
        key = log.topic_partition
        with self._mutex:
            if self._first_dirty.get(key) != checkpoint:
                return
            self._first_dirty[key] = offset
        if not log.config.has_delete_policy:
            _log.warning(
                f"Resetting first dirty offset of {key} to log start offset {offset} since the "
                f"checkpointed offset {checkpoint} is invalid."
            )
        self._served.write_checkpoint(log)

    # ---- failures

    def note_failure(self, log: UnifiedLog, error: Exception) -> CleaningFailure:
        """A clean failed: tried again after a pause, and after the third time only on request.

        A full disk has no third time: the pause grows to 64 times the first one.
        """
        key = log.topic_partition
        with self._mutex:
            before = self._failures.get(key)
            attempts = 1 if before is None else before.attempts + 1
            retry_ns = None
            if isinstance(error, DiskFull) or attempts < ATTEMPTS_MAX:
                doublings = min(attempts - 1, _BACKOFF_DOUBLINGS_MAX)
                pause_ms = max(self.backoff_ms, 1_000) << doublings
                retry_ns = self._clock.monotonic_ns() + pause_ms * 1_000_000
            name = type(error).__name__
            # A defect of ours has no message that says enough.
            reason = error.message if isinstance(error, KafkalogError) else f"{name}: {error}"
            failure = CleaningFailure(reason, name, attempts, retry_ns)
            self._failures[key] = failure
        return failure

    def retry(self, topic_partition: TopicPartition) -> bool:
        """Forget what failed: the log is tried at once, or a clean ended; whether something had."""
        with self._mutex:
            return self._failures.pop(topic_partition, None) is not None

    def failure_of(self, topic_partition: TopicPartition) -> CleaningFailure | None:
        """What is wrong with the log; None: nothing."""
        return self._failures.get(topic_partition)

    def failures(self) -> dict[TopicPartition, CleaningFailure]:
        """All of them."""
        return self._failures.copy()
