"""Commands: every mutation of a partition, run by the writer thread of its log directory.

A command is made and submitted on any thread, runs on the writer thread, and is completed
(``complete``) on the thread that the CompletionSink chooses. It is a small mutable object on
purpose: one allocation a request. A run does at most ``DIRECTORY_OPERATIONS_MAX`` directory
operations and then asks to be queued again, so that later appends do not wait for mass work.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from kafkalog.broker.values import Acks
from kafkalog.errors import AppendOutcomeUnknown, LogStartNotDurable
from kafkalog.log.append import JoinedBatches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.errors import KafkalogError, StorageFault
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import LogAppendInfo, ValidatedRecords

T = TypeVar("T")

DIRECTORY_OPERATIONS_MAX = 64
COMMAND_OVERHEAD_BYTES = 512  # what a command without payload counts in the queue


class Step(enum.Enum):
    """What the writer does with a command after a run."""

    DONE = "done"
    AGAIN = "again"  # queue it after the commands that wait
    WAIT = "wait"  # the command registered itself with a sync and ends with it


class WriterContext(Protocol):
    """What the writer of a log directory offers the command that it runs."""

    @property
    def log_dir(self) -> LogDir:
        """The directory."""

    def refuse_retired(self, log: UnifiedLog) -> None:
        """UnknownTopic when the log was retired, PartitionMoving when its partition moves."""

    def admit(self, log: UnifiedLog, size_bytes: int) -> None:
        """Before an append: UnknownTopic, DiskFull or QuotaExceeded when it may not be written."""

    def note_advanced(self, log: UnifiedLog) -> None:
        """The log's high watermark moved."""

    def request_flush_after_roll(self, log: UnifiedLog) -> None:
        """The ``flush-log`` of a roll: closed segments become durable soon; no command waits."""

    def wait_for_flush(self, log: UnifiedLog, command: Command) -> None:
        """End command when everything the log holds now is durable."""

    def wait_for_start_offsets(self, command: Command) -> None:
        """End command when both files with log starts hold what is true now."""

    def wait_for_proofs(self, command: Command) -> None:
        """End command when ``kafkalog.checkpoint`` holds what is true now."""


class Command:
    """``result`` is what ``complete``'s receiver reads unless ``error`` is set."""

    __slots__ = ("error", "is_internal", "on_done", "result", "size_bytes", "submitted_ns")

    def __init__(self, on_done: Callable[[Command], None] | None, size_bytes: int) -> None:
        # constant after construction
        self.on_done = on_done
        self.size_bytes = size_bytes
        self.is_internal = False  # completed by the writer thread, not through the sink
        self.submitted_ns = 0  # monotonic; set when it is queued
        # owned by the writer thread until it is delivered
        self.result: object = None
        self.error: KafkalogError | None = None

    def run(self, writer: WriterContext) -> Step:
        """On the writer thread. KafkalogError and OSError end the command with that error."""
        raise AssertionError(f"{type(self).__name__} has no run")

    def fault_of_sync(self, fault: KafkalogError) -> KafkalogError:
        """The command's error when the sync that it waited for failed."""
        return fault

    def complete(self) -> None:
        """On the receiver's thread, once, after the command was delivered."""
        if self.on_done is not None:
            self.on_done(self)


class AppendCommand(Command):
    """Append validated records; result: LogAppendInfo."""

    __slots__ = ("acks", "expected_offset", "log", "records")
    append_count = 1

    def __init__(
        self,
        log: UnifiedLog,
        records: ValidatedRecords,
        acks: Acks,
        expected_offset: int | None,
        on_done: Callable[[Command], None] | None,
    ) -> None:
        super().__init__(on_done, records.size_bytes + COMMAND_OVERHEAD_BYTES)
        self.log = log
        self.records = records
        self.acks = acks
        self.expected_offset = expected_offset

    def run(self, writer: WriterContext) -> Step:
        """Write; then wait for the fdatasync when acks or ``flush.messages`` want it.

        An append that reaches ``flush.messages`` is answered after its flush, whatever its acks, so
        that fewer than that many acknowledged records can ever be lost.
        """
        log, records = self.log, self.records
        self._admit(writer)
        unflushed = log.log_end_offset - log.recovery_point + records.record_count
        synced = self.acks is Acks.ALL or unflushed >= log.config.flush_messages
        watermark, active = log.high_watermark, log.segments.active
        try:
            self.result = log.append(records, synced=synced, expected_offset=self.expected_offset)
        except OSError as error:
            raise fault_of_write(error, log, writer.log_dir) from error
        finally:  # the roll may have succeeded and the append after it failed
            if log.segments.active is not active:
                writer.request_flush_after_roll(log)
        if log.high_watermark != watermark:
            writer.note_advanced(log)
        if not synced:
            return Step.DONE
        writer.wait_for_flush(log, self)
        return Step.WAIT

    def split(self) -> list[AppendCommand]:
        """As of ``JoinedAppendCommand``."""
        return [self]

    def _admit(self, writer: WriterContext) -> None:
        """Raises why the records may not be written."""
        writer.admit(self.log, self.records.size_bytes)

    def fault_of_sync(self, fault: KafkalogError) -> KafkalogError:
        """See ``_not_durable``."""
        return _not_durable(cast("LogAppendInfo", self.result), fault)


def _not_durable(written: LogAppendInfo, fault: KafkalogError) -> KafkalogError:
    """The records are written: no number that says "nothing was appended" may be the answer."""
    return AppendOutcomeUnknown(
        f"The records were written at offset {written.first_offset}, but could not be made "
        f"durable. {fault.message}",
        **fault.details,
        first_offset=written.first_offset,
        last_offset=written.last_offset,
    )


class JoinedAppendCommand(Command):
    """Appends of small plain batches to one log, of several requests, as one; one answer each.

    ``result``: a LogAppendInfo each. Where they do not fit together, the writer runs ``split`` in
    its place.
    """

    __slots__ = ("acks", "joined", "log", "receivers", "sync_fault")

    def __init__(self, log: UnifiedLog, acks: Acks) -> None:
        super().__init__(_answer_each, 0)
        self.log = log
        self.acks = acks
        self.joined = JoinedBatches()
        self.receivers: list[Callable[[Command], None]] = []  # the ``on_done`` of each
        self.sync_fault: KafkalogError | None = None  # what the error of each is made of

    def add(
        self,
        batch: bytes | memoryview,
        record_count: int,
        max_timestamp_ms: int,
        on_done: Callable[[Command], None],
    ) -> None:
        """One append more, before it is submitted."""
        self.joined.add(batch, record_count, max_timestamp_ms)
        self.receivers.append(on_done)
        self.size_bytes += len(batch) + COMMAND_OVERHEAD_BYTES

    @property
    def append_count(self) -> int:
        """Of requests."""
        return len(self.receivers)

    def fault_of_sync(self, fault: KafkalogError) -> KafkalogError:
        """As of an AppendCommand; each request is told its own offsets."""
        self.sync_fault = fault
        return _not_durable(cast("list[LogAppendInfo]", self.result)[0], fault)

    def split(self) -> list[AppendCommand]:
        """An append each, in their order."""
        singles: list[AppendCommand] = []
        for records, on_done in zip(self.joined.split(), self.receivers, strict=True):
            single = AppendCommand(self.log, records, self.acks, None, on_done)
            single.submitted_ns = self.submitted_ns
            singles.append(single)
        return singles


def _answer_each(command: Command) -> None:
    """The outcome of joined appends is that of each of them."""
    assert isinstance(command, JoinedAppendCommand)
    single = Command(None, 0)
    single.error = command.error
    nothing: list[LogAppendInfo | None] = [None] * command.append_count
    infos = cast("list[LogAppendInfo | None] | None", command.result) or nothing
    for info, receiver in zip(infos, command.receivers, strict=True):
        single.result = info
        if info is not None and command.sync_fault is not None:
            single.error = _not_durable(info, command.sync_fault)
        receiver(single)


class CoordinatorAppendCommand(AppendCommand):
    """Append what ends a transaction, synced; result: LogAppendInfo.

    No quota and no reserve keeps a transaction open: this is what they are kept for.
    """

    __slots__ = ()

    def __init__(self, log: UnifiedLog, records: ValidatedRecords) -> None:
        super().__init__(log, records, Acks.ALL, None, None)

    def _admit(self, writer: WriterContext) -> None:
        writer.refuse_retired(self.log)


class EndTransactionCommand(CoordinatorAppendCommand):
    """Append a marker if the producer has a transaction open at its epoch; durable at the end.

    Without one the marker was written before, or what it would end was never there: all that the
    log holds is made durable then, and there is no result.
    """

    __slots__ = ("_producer_epoch", "_producer_id")

    def __init__(
        self, log: UnifiedLog, marker: ValidatedRecords, producer_id: int, producer_epoch: int
    ) -> None:
        super().__init__(log, marker)
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch

    def run(self, writer: WriterContext) -> Step:
        """See AppendCommand."""
        entry = self.log.producers.entries.get(self._producer_id)
        if (
            entry is not None
            and entry.current_txn_first_offset is not None
            and entry.producer_epoch == self._producer_epoch
        ):
            return super().run(writer)
        writer.wait_for_flush(self.log, self)
        return Step.WAIT

    def fault_of_sync(self, fault: KafkalogError) -> KafkalogError:
        """Written or not: the next try finds out."""
        return fault


def fault_of_write(error: OSError, log: UnifiedLog, log_dir: LogDir) -> StorageFault:
    """What a failed write is to those whose records it carried, the directory's fate decided.

    A log that is broken now may hold them all the same: they could not be cut off again.
    """
    fault = log_dir.fault(error)
    if not log.is_broken:
        return fault
    if log_dir.is_online:
        log_dir.note_broken(f"{log.topic_partition} takes no appends: {fault.message}")
    return AppendOutcomeUnknown(
        f"A part of the records may have been written. {fault.message}", **fault.details
    )


class DeleteRecordsCommand(Command):
    """Move the log start offset; result: the low watermark, checkpointed durably before.

    Readers have it as soon as it moves, as in Kafka: a checkpoint that then fails takes nothing
    back. LogStartNotDurable says so; the checkpoint of the next deletion, of the task or of a clean
    stop holds it. Killed before one of them, the log begins where the last checkpoint said.
    """

    __slots__ = ("log", "offset")

    def __init__(
        self, log: UnifiedLog, offset: int, on_done: Callable[[Command], None] | None
    ) -> None:
        super().__init__(on_done, COMMAND_OVERHEAD_BYTES)
        self.log = log
        self.offset = offset

    def run(self, writer: WriterContext) -> Step:
        """Offset -1 is the high watermark; policy and bounds are the log's rules.

        Waits also when nothing moved: an earlier command may have moved it whose checkpoint is not
        durable yet. Where it is, nothing can bring the records back, and no write that fails.
        """
        writer.refuse_retired(self.log)
        self.result = low_watermark = self.log.delete_records(self.offset)
        if low_watermark <= self.log.durable_start_offset:
            return Step.DONE
        writer.wait_for_start_offsets(self)
        return Step.WAIT

    def fault_of_sync(self, fault: KafkalogError) -> KafkalogError:
        """The log start has moved: no number that says "nothing was done" may be the answer."""
        return LogStartNotDurable(
            f"The records below offset {self.result} are gone for readers, but the new log start "
            "could not be made durable: after a crash they may be back. Delete them again to make "
            f"sure. {fault.public_message}",
            **fault.details,
            low_watermark=cast("int", self.result),
        )


class CallCommand(Command, Generic[T]):
    """Run a function on the writer thread: creation, renaming, closing, configuration."""

    __slots__ = ("_call",)

    def __init__(
        self, call: Callable[[], T], on_done: Callable[[Command], None] | None = None
    ) -> None:
        super().__init__(on_done, COMMAND_OVERHEAD_BYTES)
        self._call = call

    def run(self, writer: WriterContext) -> Step:
        """The function's value is the result."""
        self.result = self._call()
        return Step.DONE


class Until(enum.Enum):
    """What has to be durable before a change of a log is answered."""

    DONE = "done"  # nothing
    FLUSHED = "flushed"  # all that the log holds then
    CHECKPOINTED = "checkpointed"  # ``kafkalog.checkpoint``


class LogCommand(Command):
    """Change one log by a function, unless it was retired; the function's value is the result."""

    __slots__ = ("_change", "_log", "_until")

    def __init__(self, log: UnifiedLog, change: Callable[[], object], until: Until) -> None:
        super().__init__(None, COMMAND_OVERHEAD_BYTES)
        self._log = log
        self._change = change
        self._until = until

    def run(self, writer: WriterContext) -> Step:
        """Ends when that is durable."""
        writer.refuse_retired(self._log)
        self.result = self._change()
        if self._until is Until.FLUSHED:
            writer.wait_for_flush(self._log, self)
        elif self._until is Until.CHECKPOINTED:
            writer.wait_for_proofs(self)
        return Step.DONE if self._until is Until.DONE else Step.WAIT


class EachCommand(Command):
    """Run many pieces of work with a few directory operations each, in slices; no result.

    The first error ends it; what was done is kept.
    """

    __slots__ = ("_slice", "_works")

    def __init__(self, works: Sequence[Callable[[], object]], operations_each: int) -> None:
        """``operations_each``: directory operations of one piece, 1 to the most allowed."""
        super().__init__(None, COMMAND_OVERHEAD_BYTES)
        assert 1 <= operations_each <= DIRECTORY_OPERATIONS_MAX
        self._works = deque(works)
        self._slice = DIRECTORY_OPERATIONS_MAX // operations_each

    def run(self, writer: WriterContext) -> Step:
        """One slice."""
        for _ in range(min(self._slice, len(self._works))):
            self._works.popleft()()
        return Step.AGAIN if self._works else Step.DONE


class FlushCommand(Command):
    """Make everything appended so far durable (``kafka-log-flusher``, ``flush-log``)."""

    __slots__ = ("log",)

    def __init__(self, log: UnifiedLog, on_done: Callable[[Command], None] | None = None) -> None:
        super().__init__(on_done, COMMAND_OVERHEAD_BYTES)
        self.log = log

    def run(self, writer: WriterContext) -> Step:
        """Ends with the flush."""
        writer.wait_for_flush(self.log, self)
        return Step.WAIT
