"""LogDirWriter: the single writer of a log directory.

Owns every mutation of every partition below the directory: commands run here one after another, so
no partition has a lock and queue order is offset order. Never syncs: what must be durable is given
to the directory's flusher and its outcome comes back as a command. ``drain_once`` is the loop body.

Group commit: a log, or a checkpoint of the directory, has at most one sync under way. Commands that
come meanwhile are written at once and share the next one, which is planned when the first returns.
A sync therefore serves exactly the commands that were written before it was planned.

Group append: plain appends that are adjacent in the queue are sorted by log and share a write.
Between two logs no order was promised, within one it is the queue's. Any other command ends the
run.

Threads: ``submit``, ``call`` and ``start`` on any thread; all else on the writer thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeGuard, TypeVar, cast

import structlog

from kafkalog.broker.directory.commands import (
    AppendCommand,
    CallCommand,
    Command,
    JoinedAppendCommand,
    LogCommand,
    Step,
    Until,
    fault_of_write,
)
from kafkalog.broker.directory.flusher import SyncJob
from kafkalog.broker.values import Acks
from kafkalog.errors import KafkalogError, LogDirOffline, NotReady, QuotaExceeded, UnknownTopic
from kafkalog.log import append

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from kafkalog.broker.directory.flusher import LogDirFlusher, ThreadMetrics
    from kafkalog.broker.directory.limits import QueueBudget, TopicQuotas
    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.env.threads import Signal, Thread, Threads
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.append import AppendGroup
    from kafkalog.log.flush_plan import FlushPlan
    from kafkalog.log.unified_log import UnifiedLog


def is_plain(command: Command) -> TypeGuard[AppendCommand]:
    """Whether it may share a write: no producer, no expected offset, answered by the edge."""
    return (
        type(command) is AppendCommand
        and command.expected_offset is None
        and not command.is_internal
        and append.is_plain(command.records)
    )


def take_runs(
    first: AppendCommand, queue: deque[Command], limit: int
) -> dict[UnifiedLog, list[AppendCommand]]:
    """``first`` and the plain appends at the head of the queue, at most ``limit``, by log."""
    runs = {first.log: [first]}
    while limit and is_plain(command := queue[0]):
        queue.popleft()
        limit -= 1
        run = runs.get(command.log)
        if run is None:
            runs[command.log] = [command]
        else:
            run.append(command)
    return runs


class StartOffsetFiles(Protocol):
    """What keeps the log starts of a directory; each durable on return, guarded."""

    def write_start_offsets(self, log_dir: LogDir) -> None:
        """Both files: a client knows, or will know, that records are gone."""

    def write_proofs(self, log_dir: LogDir) -> None:
        """The checked one alone: whose files go, it is enough for the next start."""


@dataclass(slots=True, eq=False)
class Sync(ABC):
    """Something that is made durable together for many waiters, once at a time."""

    waiting: list[Command] = field(default_factory=list)
    covered: list[Command] = field(default_factory=list)  # by the sync under way
    is_under_way: bool = False
    is_wanted_again: bool = False

    @abstractmethod
    def plan(self) -> Callable[[], None] | None:
        """The blocking work for the flusher, None when nothing is dirty; no I/O."""

    @abstractmethod
    def completed(self, writer: LogDirWriter) -> None:
        """The planned work succeeded."""


class LogSync(Sync):
    """The files of one log."""

    __slots__ = ("_log", "_plan", "include_active")

    def __init__(self, log: UnifiedLog) -> None:
        super().__init__()
        self._log = log
        self._plan: FlushPlan | None = None
        self.include_active = False

    def plan(self) -> Callable[[], None] | None:
        """See Sync."""
        self._plan = self._log.plan_flush(include_active=self.include_active)
        self.include_active = False
        return None if self._plan is None else self._plan.run

    def completed(self, writer: LogDirWriter) -> None:
        """Move recovery point and high watermark."""
        assert self._plan is not None
        watermark = self._log.high_watermark
        self._log.mark_flushed(self._plan)
        self._plan = None
        if self._log.high_watermark != watermark:
            writer.note_advanced(self._log)


class CheckpointSync(Sync):
    """A checkpoint of the directory."""

    __slots__ = ("_write",)

    def __init__(self, write: Callable[[], None]) -> None:
        super().__init__()
        self._write = write

    def plan(self) -> Callable[[], None] | None:
        """Always dirty: a command asked for it."""
        return self._write

    def completed(self, writer: LogDirWriter) -> None:
        """Nothing to move."""


T = TypeVar("T")
_SIZE_BYTES = attrgetter("size_bytes")
_log = structlog.get_logger(__name__)


class CompletionSink(Protocol):
    """Receives finished commands; the edge."""

    def deliver(self, finished: list[Command], advanced: frozenset[TopicPartition]) -> None:
        """Called once a drain on the writer thread; must not block.

        ``advanced``: partitions whose high watermark moved. Each finished command's ``complete`` is
        called by the receiver on a thread of its choice.
        """


class _SyncDone(Command):
    """The flusher's answer; lives in the queue like any command but is never delivered."""

    __slots__ = ("key", "outcome")

    def __init__(self, key: Hashable, outcome: KafkalogError | None) -> None:
        super().__init__(None, 0)
        self.key = key
        self.outcome = outcome


_START_OFFSETS = "log-start-offsets"
_PROOFS = "proofs"


class LogDirWriter:
    """See the module."""

    def __init__(
        self,
        log_dir: LogDir,
        flusher: LogDirFlusher,
        threads: Threads,
        budget: QueueBudget,
        quotas: TopicQuotas,
        sink: CompletionSink,
        checkpoints: StartOffsetFiles,
        logs_here: Callable[[str], Iterable[UnifiedLog]],
        meter: ThreadMetrics,
    ) -> None:
        """``checkpoints`` are written by the flusher; ``logs_here``: of the directory at a path."""
        # constant after construction
        self.log_dir = log_dir
        self._flusher = flusher
        self._threads = threads
        self._signal = threads.signal()
        self._budget = budget
        self._quotas = quotas
        self._sink = sink
        self._checkpoints = {
            _START_OFFSETS: partial(checkpoints.write_start_offsets, log_dir),
            _PROOFS: partial(checkpoints.write_proofs, log_dir),
        }
        self._logs_here = logs_here
        self._meter = meter
        # any thread appends, the writer thread pops
        self._queue: deque[Command] = deque()
        self._is_idle = False
        self._is_stopping = False
        self._has_ended = False  # the thread looks into the queue no more
        self._thread: Thread | None = None
        # owned by the writer thread
        self._syncs: dict[Hashable, Sync] = {}
        self._wanted: dict[Hashable, Sync] = {}  # to be planned at the end of this drain
        self._finished: list[Command] = []
        self._advanced: set[TopicPartition] = set()
        self._has_internal = False
        self._has_dropped_logs = False
        log_dir.when_offline(lambda _: self._signal.set())

    # ---- any thread

    def start(self) -> None:
        """Start the thread; commands queued before are run then."""
        self._thread = self._threads.start(f"log-dir-writer-{self.log_dir.path}", self._run)

    def stop(self) -> None:
        """Refuse new commands, run the queued ones with their syncs, then end the thread.

        A command that was queued after the last look is answered with NotReady.
        """
        self._is_stopping = True
        self._signal.set()
        if self._thread is not None:
            self._thread.join()
        self._has_ended = True
        self._refuse_rest()

    def submit(self, command: Command) -> None:
        """Queue a command. LogDirOffline, NotReady (stopping) or Overloaded: it was not queued."""
        self.submit_all((command,))

    def submit_all(self, commands: Sequence[Command]) -> None:
        """Queue commands, one behind the other; an error as of ``submit``: none was queued."""
        self.log_dir.check_online()
        if self._is_stopping:
            raise NotReady("The daemon is stopping")
        self._budget.take(sum(map(_SIZE_BYTES, commands)))
        now_ns = self._meter.now_ns()
        for command in commands:
            command.submitted_ns = now_ns
        self._enqueue(commands)
        if self._has_ended:
            self._refuse_rest()

    def wake(self) -> None:
        """Let the thread turn once, so that its heartbeat shows."""
        self._signal.set()

    def call(self, work: Callable[[], T]) -> T:
        """Run work on the writer thread, wait for it and return its value or raise its error.

        For control-plane threads and tasks; never on the event loop or on a writer thread.
        """
        return cast("T", self.run(CallCommand(work)))

    def change(self, log: UnifiedLog, change: Callable[[], T], until: Until = Until.DONE) -> T:
        """As ``call``, for a change of one log: UnknownTopic, PartitionMoving when it is retired.

        Returns when what ``until`` names is durable.
        """
        return cast("T", self.run(LogCommand(log, change, until)))

    def run(self, command: Command) -> object:
        """Submit a command that has no receiver and wait for its result or error.

        Such a command is completed by the writer thread itself, never through the sink. It carries
        no payload and is never refused for want of room: what it belongs to may be durable already.
        """
        self.begin(command).wait()
        if command.error is not None:
            raise command.error
        return command.result

    def begin(self, command: Command) -> Signal:
        """Submit as ``run`` does; the signal is set when the command has ended."""
        assert command.on_done is None
        command.size_bytes = 0
        done = self._threads.signal()
        command.on_done = lambda _: done.set()
        command.is_internal = True
        self.submit(command)
        return done

    # ---- for commands, on the writer thread

    def retire(self, logs: Sequence[UnifiedLog]) -> None:
        """The logs' topic is deleted: commands that are queued after that are refused."""
        for log in logs:
            topic = log.topic_partition.topic
            log.refusal = partial(UnknownTopic, f"Topic {topic} was deleted", topic=topic)
            self.note_advanced(log)  # who waits for its records learns it now

    def refuse_retired(self, log: UnifiedLog) -> None:
        """UnknownTopic when the log was retired, PartitionMoving when its partition moves."""
        if log.refusal is not None:
            raise log.refusal()

    def admit(self, log: UnifiedLog, size_bytes: int) -> None:
        """Before an append: UnknownTopic, DiskFull or QuotaExceeded when it may not be written."""
        self.refuse_retired(log)
        self.log_dir.free_space.take(size_bytes)
        if log.config.quota_bytes >= 0:
            self._quotas.take(log, size_bytes)

    def note_advanced(self, log: UnifiedLog) -> None:
        """The log's high watermark moved."""
        self._advanced.add(log.topic_partition)

    def wait_for_flush(self, log: UnifiedLog, command: Command) -> None:
        """End command when everything the log holds now is durable."""
        sync = self._log_sync(log)
        sync.include_active = True
        self._wait(log, sync, command)

    def request_flush_after_roll(self, log: UnifiedLog) -> None:
        """The ``flush-log`` of a roll: closed segments become durable soon; no command waits."""
        self._wanted[log] = self._log_sync(log)

    def wait_for_start_offsets(self, command: Command) -> None:
        """End command when both files with log starts hold what is true now."""
        self._wait_for_checkpoint(_START_OFFSETS, command)

    def wait_for_proofs(self, command: Command) -> None:
        """End command when ``kafkalog.checkpoint`` holds what is true now."""
        self._wait_for_checkpoint(_PROOFS, command)

    def _wait_for_checkpoint(self, key: str, command: Command) -> None:
        sync = self._syncs.get(key)
        if sync is None:
            sync = self._syncs[key] = CheckpointSync(self._checkpoints[key])
        self._wait(key, sync, command)

    # ---- the loop

    def drain_once(self) -> int:
        """Run everything queued now, start the syncs it asked for, deliver; commands run."""
        self._meter.beat()
        if not self.log_dir.is_online:
            self._fail_everything()
        queue = self._queue
        count = left = len(queue)
        released_bytes = 0
        while left:
            command = queue.popleft()
            left -= 1
            if type(command) is _SyncDone:
                self._finish_sync(command)
                continue
            if type(command) is JoinedAppendCommand:
                if self._append_joined(command):
                    released_bytes += command.size_bytes
                else:
                    singles = command.split()
                    queue.extendleft(reversed(singles))
                    left += len(singles)
                continue
            if left and type(queue[0]) is AppendCommand and is_plain(command):
                for log, run in take_runs(command, queue, left).items():
                    left -= len(run)
                    released_bytes += self._append_run(log, run)
                left += 1  # the first one was counted already
                continue
            step = self._step(command)
            if step is Step.AGAIN:
                queue.append(command)
                continue
            released_bytes += command.size_bytes
            if step is Step.DONE:
                self._finished.append(command)
        if self._wanted:
            self._start_syncs()
        if released_bytes:
            self._budget.give_back(released_bytes)
        self._deliver()
        return count

    def _step(self, command: Command) -> Step:
        """Run one command; its errors are its own."""
        if command.is_internal:
            self._has_internal = True
        try:
            self.log_dir.check_online()
            return command.run(self)
        except KafkalogError as error:
            command.error = error
        except OSError as error:
            command.error = self.log_dir.fault(error)
        return Step.DONE

    def _append_run(self, log: UnifiedLog, run: list[AppendCommand]) -> int:
        """Append plain commands of one log in as few writes as they fit; their queue bytes."""
        records = [command.records for command in run]
        synced = [command.acks is Acks.ALL for command in run]
        start = 0
        while start < len(run):  # each group is planned when the one before it has been written
            group = log.plan_group(records, synced, start)
            end = start + max(len(group.answers), 1)
            if len(group.answers) > 1:
                self._append_group(log, run[start:end], group)
            else:
                self._append_each(run[start:end])
            start = end
        return sum(map(_SIZE_BYTES, run))

    def _append_each(self, commands: list[AppendCommand]) -> None:
        """One write for each of them."""
        for command in commands:
            if self._step(command) is Step.DONE:
                self._finished.append(command)

    def _append_group(
        self, log: UnifiedLog, commands: list[AppendCommand], group: AppendGroup
    ) -> None:
        """One write; when it fails it fails them all. Ends as ``AppendCommand.run`` does."""
        error = self._write(log, group)
        if isinstance(error, QuotaExceeded):  # some of them may fit
            self._append_each(commands)
            return
        if error is not None:
            self._end(commands, error)
            return
        for command, answer in zip(commands, group.answers, strict=True):
            command.result = answer
        if group.first_synced is None:
            self._finished += commands
            return
        for command, is_synced in zip(commands, group.is_synced, strict=True):
            if is_synced:
                self.wait_for_flush(log, command)
            else:
                self._finished.append(command)

    def _append_joined(self, command: JoinedAppendCommand) -> bool:
        """Whether they were written together, or failed together; else they are to be split."""
        log = command.log
        if log.config.quota_bytes >= 0:  # some of them may fit
            return False
        group = log.plan_joined(command.joined, synced=command.acks is Acks.ALL)
        if group is None:
            return False
        error = self._write(log, group)
        if error is not None:
            self._end((command,), error)
            return True
        command.result = group.answers
        if group.first_synced is None:
            self._finished.append(command)
        else:
            self.wait_for_flush(log, command)
        return True

    def _write(self, log: UnifiedLog, group: AppendGroup) -> KafkalogError | None:
        """Append a group with one write, or say why not."""
        watermark = log.high_watermark
        try:
            self.log_dir.check_online()
            self.admit(log, group.size_bytes)
            log.append_group(group)
        except KafkalogError as error:
            return error
        except OSError as error:
            return fault_of_write(error, log, self.log_dir)
        if log.high_watermark != watermark:
            self.note_advanced(log)
        return None

    def _log_sync(self, log: UnifiedLog) -> LogSync:
        sync = self._syncs.get(log)
        if sync is None:
            sync = self._syncs[log] = LogSync(log)
        return cast("LogSync", sync)

    def _wait(self, key: Hashable, sync: Sync, command: Command) -> None:
        sync.waiting.append(command)
        self._wanted[key] = sync

    def _start_syncs(self) -> None:
        """Plan every sync that is wanted and not under way; no I/O here."""
        wanted, self._wanted = self._wanted, {}
        for key, sync in wanted.items():
            if sync.is_under_way:
                sync.is_wanted_again = True  # planned when that one is done
                continue
            sync.is_wanted_again = False
            work = sync.plan()
            if work is None:
                self._end(sync.waiting, None)
                del self._syncs[key]
                continue
            sync.covered, sync.waiting = sync.waiting, []
            sync.is_under_way = True
            self._flusher.submit(SyncJob(work, partial(self._sync_ended, key)))

    def _sync_ended(self, key: Hashable, outcome: KafkalogError | None) -> None:
        """On the flusher's thread, when it has run the sync of ``key``."""
        self._enqueue((_SyncDone(key, outcome),))

    def _finish_sync(self, done: _SyncDone) -> None:
        """Back from the flusher: end what it covered, in this very drain."""
        sync = self._syncs.get(done.key)
        if sync is None:
            return  # the directory went offline meanwhile
        sync.is_under_way = False
        covered, sync.covered = sync.covered, []
        if done.outcome is None:
            sync.completed(self)
        self._end_waiters(covered, done.outcome)
        if sync.is_wanted_again:
            self._wanted[done.key] = sync
        elif done.key not in self._wanted:
            del self._syncs[done.key]

    def _end_waiters(self, commands: Sequence[Command], fault: KafkalogError | None) -> None:
        """The sync that they waited for has ended; what they had written is written."""
        if fault is None:
            self._end(commands, None)
            return
        for command in commands:
            self._end((command,), command.fault_of_sync(fault))

    def _end(self, commands: Sequence[Command], error: KafkalogError | None) -> None:
        """Commands have ended, all with this error."""
        for command in commands:
            command.error = error
            self._has_internal = self._has_internal or command.is_internal
        self._finished.extend(commands)

    def _deliver(self) -> None:
        """Give what ended to the receiver, once a drain."""
        if not self._finished and not self._advanced:
            return
        finished, self._finished = self._finished, []
        advanced, self._advanced = frozenset(self._advanced), set()
        has_internal, self._has_internal = self._has_internal, False
        self._hand_over(finished, advanced, has_internal=has_internal)

    def _hand_over(
        self, finished: list[Command], advanced: frozenset[TopicPartition], *, has_internal: bool
    ) -> None:
        internal: list[Command] = []
        if has_internal:
            internal = [command for command in finished if command.is_internal]
            finished = [command for command in finished if not command.is_internal]
        if finished:
            self._meter.observe(finished)
        # Counted before: a caller that waits for the end of a topic forgets its counts.
        for command in internal:
            command.complete()
        if finished or advanced:
            self._sink.deliver(finished, advanced)

    def _fail_everything(self) -> None:
        """The directory is offline: no command waits for a sync any more, handles are dropped."""
        error = LogDirOffline(str(self.log_dir.offline_reason), log_dir=self.log_dir.path)
        for sync in self._syncs.values():
            self._end_waiters(sync.covered, error)
            self._end_waiters(sync.waiting, error)
        self._syncs.clear()
        self._wanted.clear()
        if not self._has_dropped_logs:
            self._has_dropped_logs = True
            for log in self._logs_here(self.log_dir.path):
                log.close_handles()  # without a flush
                self.note_advanced(log)  # its readers learn it now

    def _refuse_rest(self) -> None:
        """The thread has ended: answer what was queued too late. Any thread, also several."""
        refused: list[Command] = []
        with suppress(IndexError):
            while True:
                command = self._queue.popleft()
                if type(command) is not _SyncDone:
                    command.error = NotReady("The daemon is stopping")
                    refused.append(command)
        self._budget.give_back(sum(map(_SIZE_BYTES, refused)))
        self._hand_over(refused, frozenset(), has_internal=True)

    def _enqueue(self, commands: Sequence[Command]) -> None:
        self._queue.extend(commands)
        if self._is_idle:
            self._signal.set()

    def _run(self) -> None:
        """Thread body: drain until a stop is requested and nothing is left."""
        while True:
            self.drain_once()
            if self._queue:
                continue
            if self._is_stopping and not self._syncs:
                return
            # Announce the wait first, look again then: a producer either sees the flag or is seen.
            self._is_idle = True
            if not self._queue:
                self._signal.wait()
            self._is_idle = False
