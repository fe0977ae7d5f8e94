"""PartitionMove: the move of one partition to another log directory, step by step.

Kafka's protocol: the copy is in the target as ``topic-partition.<id>-future`` and is filled from
the current log, which serves meanwhile. Then appends are held (503, nothing is lost), the rest is
copied and made durable, and the names change. Owns the state of the move; each log is changed on
the writer of its own directory, the steps run on the thread of the target (``partition_moves``).

| step | durable before the next one | a crash after it leaves |
|---|---|---|
| copy, inherit, flush | all of the copy | the current log; the copy is continued |
| checkpoints of the target | log start and recovery point of the copy | the same |
| current -> ``<id>-delete`` | that name | the copy: its id is that of the ``-delete`` |
| copy -> ``topic-partition`` | that name | the copy |
| table, checkpoints | | the copy; appends continue |

Differs from Kafka, which renames the copy first: a crash then leaves the partition in two
directories and a broker that refuses to start.
Source: Kafka 4.1 ReplicaAlterLogDirsThread, Partition, LogManager.replaceCurrentWithFutureLog.

``next_step`` decides from the ends of the two logs. Pure.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.directory.commands import FlushCommand, Until
from kafkalog.broker.values import MoveState, MoveStatus
from kafkalog.errors import OffsetBelowLogStart, PartitionMoving, StorageFault
from kafkalog.format.topic_names import DirectoryState, directory_name
from kafkalog.log import future_log

if TYPE_CHECKING:
    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.directory.checkpoints import Checkpoints
    from kafkalog.broker.directory.unit import LogDirUnit
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.startup.load import DirectoryLoading
    from kafkalog.broker.topics.deletion import LogDeletion
    from kafkalog.cleaner.log_cleaner_manager import LogCleanerManager
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.future_log import Slice
    from kafkalog.log.unified_log import UnifiedLog


SLICE_BYTES = 1 << 20  # of one read and one write; a larger one would hold up the writer
# What the swap may leave to sync while appends wait; more is synced before, while they do not.
UNFLUSHED_BYTES_MAX = 16 << 20


class MoveStep(enum.Enum):
    """What is done next."""

    COPY = "copy"  # one slice
    FLUSH = "flush"  # appends go on meanwhile
    SWAP = "swap"  # hold appends, copy and sync the rest, exchange the names


def next_step(
    log_end_offset: int, future_end: int, is_near: bool, unflushed_bytes: int
) -> MoveStep:
    """Decide; it is SWAP as soon as copying and syncing keep up with the appends.

    is_near           the last slice reached the end of the current log
    unflushed_bytes   copied since the last flush of the copy
    """
    if future_end < log_end_offset and not is_near:
        return MoveStep.COPY
    if unflushed_bytes > UNFLUSHED_BYTES_MAX:
        return MoveStep.FLUSH
    return MoveStep.SWAP


_log = structlog.get_logger(__name__)


def hold_appends(log: UnifiedLog) -> None:
    """On the writer: refuse what is queued after this."""
    own = log.topic_partition
    log.refusal = lambda: PartitionMoving(
        f"Partition {own} changes its log directory this moment. Try again.",
        topic=own.topic,
        partition=own.partition,
    )


@dataclass(frozen=True, slots=True)
class MoveContext:
    """The parts of the broker that every move works with."""

    logs: Logs
    runtime: Runtime
    loading: DirectoryLoading
    checkpoints: Checkpoints
    deletion: LogDeletion
    cleaner_states: LogCleanerManager


class PartitionMove:
    """See the module."""

    def __init__(
        self,
        context: MoveContext,
        topic_partition: TopicPartition,
        source: LogDirUnit,
        target: LogDirUnit,
        unique_id: str,
    ) -> None:
        """``unique_id``: 32 hex digits. FormatError when the name of the copy would be too long."""
        # constant after construction
        self.topic_partition = topic_partition
        self.source = source
        self.target = target
        self._context = context
        self._logs = context.logs
        self._registry = context.logs.registry
        self._loading = context.loading
        self._checkpoints = context.checkpoints
        self._states = context.cleaner_states
        self._filesystem = context.runtime.filesystem
        self._clock = context.runtime.clock
        self._started_ms = self._clock.wall_ms()
        self._future_name = directory_name(topic_partition, DirectoryState.FUTURE, unique_id)
        self._deleted_name = directory_name(topic_partition, DirectoryState.DELETE, unique_id)
        # set before the first step: the copy was found at the start, when the log ended here
        self.found_at_end: int | None = None
        # owned by the thread of the target
        self._is_near = False
        self._unflushed_bytes = 0
        self.is_settled = False  # over, and nothing of it is left to do
        # changed under the lock of the registry
        self.future: UnifiedLog | None = None
        self._ended: MoveStatus | None = None

    # ---- any thread

    @property
    def is_over(self) -> bool:
        """Whether it was ended, in whatever way."""
        return self._ended is not None

    @property
    def status(self) -> MoveStatus:
        """How far it is, or how it ended."""
        return self._ended or self._status(MoveState.COPYING, None)

    def _status(self, state: MoveState, reason: str | None) -> MoveStatus:
        future = self.future
        # From the table without its faults: a directory may fail this moment.
        current = self._logs.table.find(self.topic_partition)
        size_bytes = current.size_bytes if current is not None else 0
        end_offset = current.log_end_offset if current is not None else 0
        return MoveStatus(
            self.topic_partition,
            self.source.log_dir.path,
            self.target.log_dir.path,
            state,
            reason,
            size_bytes=size_bytes,
            copied_bytes=future.size_bytes if future is not None else 0,
            offset_lag=max(end_offset - (future.log_end_offset if future is not None else 0), 0),
            started_ms=self._started_ms,
            ended_ms=None if state is MoveState.COPYING else self._clock.wall_ms(),
        )

    # ---- the steps, on the thread of the target

    def step(self) -> int:
        """Do what is next; the bytes that were copied. KafkalogError: the caller ends the move.

        Blocks for a slice, for the disk, or for a swap.
        """
        if self.future is None and self.found_at_end is not None:
            self._load(self.found_at_end)
            return 0
        current, future = self._current(), self.future
        if future is None:
            with self._registry.lock:
                if not self.is_over:
                    self.begin()
            return 0
        ends = current.log_end_offset, future.log_end_offset
        match next_step(*ends, self._is_near, self._unflushed_bytes):
            case MoveStep.COPY:
                return self._copy(current, future)
            case MoveStep.FLUSH:
                self.target.writer.run(FlushCommand(future))
                self._unflushed_bytes, self._is_near = 0, False
            case MoveStep.SWAP:
                self._swap()
        return 0

    def _current(self) -> UnifiedLog:
        """The log that serves; LogDirOffline when its directory failed."""
        own = self.topic_partition
        return self._logs.log_of(own.topic, own.partition)

    def begin(self) -> None:
        """Create the copy, durable on return: the next start continues with it.

        Under the lock of the registry. On StorageFault it may be half made: ``clean_up``.
        """
        topic = self._registry.state.topics[self.topic_partition.topic]
        create = partial(
            self._loading.create_future, self.target, self._future_name, topic, self._current()
        )
        self._take(self.target.writer.call(create))

    def _take(self, future: UnifiedLog) -> None:
        self.future = future
        self._logs.table.add_future(future)
        # After the table: no clean begins or continues while the log has a copy.
        self._states.abort_cleaning(self.topic_partition)
        self._checkpoints.settle_future(self.target.log_dir, self.topic_partition)

    def _load(self, found_at_end: int) -> None:
        """Load the copy that the start found; it is deleted unless it is the log's beginning."""
        topic = self._logs.registered(self.topic_partition.topic)
        path = f"{self.target.log_dir.path}/{self._future_name}"
        future = self._loading.load_future(self.target, self.topic_partition, topic, path)
        current = self._current()
        with self.target.log_dir.guard(), self.source.log_dir.guard():
            is_beginning = future_log.is_beginning_of(future, current, found_at_end)
        with self._registry.lock:
            if self.is_over:  # cancelled meanwhile: ``clean_up`` removes the files
                future.close_handles()
                return
            self._take(future)
            # After a clean since the copy was made it holds what is superseded, and deleted keys
            # whose tombstones are gone. From now on there is none.
            is_cleaned = self._states.first_dirty_offset(self.topic_partition) is not None
            if is_beginning and not (current.config.is_compacted or is_cleaned):
                _log.info("move_resumed", directory=path, end_offset=future.log_end_offset)
                return
            _log.warning("move_begun_anew", directory=path, reason="the copy holds other records")
            self.found_at_end = None
            self.discard_copy()

    def _copy(self, current: UnifiedLog, future: UnifiedLog) -> int:
        """One slice; its bytes. What was deleted faster than copied leaves the copy empty."""
        try:
            with self.source.log_dir.guard():
                log_start_offset = current.log_start_offset
                if future.log_end_offset < log_start_offset:
                    start = future_log.start_of_copy(current)
                    self.target.writer.call(partial(future.truncate_fully_and_start_at, start))
                piece = future_log.read_slice(current, future.log_end_offset, SLICE_BYTES)
        except OffsetBelowLogStart:
            return 0  # just deleted: the next step begins after it
        if future.log_end_offset < current.log_start_offset != log_start_offset:
            return 0  # too: the slice may begin after what the copy would have to hold
        self.target.writer.change(future, partial(self._fill, future, piece))
        size_bytes = 0 if piece.records is None else piece.records.size_bytes
        self._unflushed_bytes += size_bytes
        self._is_near = future.log_end_offset >= current.log_end_offset or piece.records is None
        return size_bytes

    def _fill(self, future: UnifiedLog, piece: Slice) -> None:
        """On the writer. Closed segments of the copy become durable soon, as after any roll."""
        writer, active = self.target.writer, future.segments.active
        size_bytes = 0 if piece.records is None else piece.records.size_bytes
        writer.log_dir.free_space.take(size_bytes)
        try:
            future_log.fill(future, piece)
        finally:
            if future.segments.active is not active:
                writer.request_flush_after_roll(future)

    # ---- the swap

    def _swap(self) -> None:
        """Hold appends, complete the copy, change the names, serve from the copy.

        Under the lock of the registry: the topic is neither deleted nor configured meanwhile. After
        a failure before the copy has its final name the current log is served on.
        """
        with self._registry.lock:
            if self.is_over:
                return
            current, future = self._current(), self.future
            assert future is not None
            held_ns = self._clock.monotonic_ns()
            is_swapped = False
            try:
                # Commands that wait for a flush are answered before the log is retired.
                hold = partial(hold_appends, current)
                self.source.writer.change(current, hold, Until.FLUSHED)
                self._complete(current, future)
                self._rename(current, future)
                is_swapped = True
            finally:
                if not is_swapped:
                    current.refusal = None
            self._logs.table.serve_future(self.topic_partition)
            self.end(MoveState.DONE, None)
            self.future = None  # it is the current log
            held_ms = (self._clock.monotonic_ns() - held_ns) // 1_000_000
            self._retire(current)
        _log.info(
            "The current replica is successfully replaced with the future replica",
            partition=str(self.topic_partition),
            source=self.source.log_dir.path,
            target=self.target.log_dir.path,
            appends_held_ms=held_ms,
        )

    def _complete(self, current: UnifiedLog, future: UnifiedLog) -> None:
        """Copy what came last and make the whole copy durable, its checkpoints too."""
        while future.log_end_offset < current.log_end_offset:
            self._copy(current, future)
        self.target.writer.call(partial(future_log.inherit, future, current))
        self.target.writer.run(FlushCommand(future))
        self._checkpoints.write_start_offsets(self.target.log_dir)
        self._checkpoints.write_recovery_points(self.target.log_dir)

    def _rename(self, current: UnifiedLog, future: UnifiedLog) -> None:
        """The current log's directory becomes ``-delete``, then the copy's gets its name."""
        name = str(self.topic_partition)
        self._rename_durably(self.source, current, self._deleted_name)
        try:
            self._rename_durably(self.target, future, name)
        except StorageFault:
            self._rename_durably(self.source, current, name)
            raise

    def _rename_durably(self, unit: LogDirUnit, log: UnifiedLog, name: str) -> None:
        """On the writer. When the sync fails the name is restored, the directory taken offline."""
        before = log.directory.rpartition("/")[2]

        def rename() -> None:
            log.rename_dir(name)
            try:
                self._filesystem.sync_dir(unit.log_dir.path)
            except OSError as error:
                unit.log_dir.take_offline(f"A sync of {unit.log_dir.path} failed: {error.strerror}")
                log.rename_dir(before)
                raise

        unit.writer.call(rename)

    def _retire(self, current: UnifiedLog) -> None:
        """Delete the old directory; the checkpoints of both say what is true now."""
        self._context.deletion.add(self.source.log_dir, current.directory, current)
        self._checkpoints.note_removal(self.source.log_dir)
        for unit in (self.target, self.source):
            try:
                self._checkpoints.write_all(unit.log_dir)
            except StorageFault as fault:  # the next start, and the periodic tasks, do it
                path = unit.log_dir.path
                _log.error("checkpoints_not_renewed", log_dir=path, reason=fault.message)

    # ---- the end, under the lock of the registry

    def end(self, state: MoveState, reason: str | None) -> None:
        """No further steps."""
        if self._ended is None:
            metrics, target = self._context.runtime.metrics, self.target.log_dir.path
            metrics.partition_moves.labels(target, state.value).inc()
        self._ended = self._status(state, reason)

    def discard_copy(self) -> None:
        """``-delete`` now, gone later; whatever fails is the next start's."""
        future = self.future
        if future is None:
            return  # ``clean_up`` will
        self._logs.table.remove_future(self.topic_partition)
        self.future, self._is_near, self._unflushed_bytes = None, False, 0
        if not self.target.log_dir.is_online:
            future.close_handles()
            return
        self._checkpoints.note_removal(self.target.log_dir)
        try:
            self.target.writer.call(partial(self._mark_deleted, future))
            self._checkpoints.write_all(self.target.log_dir)
        except StorageFault as fault:
            self._log_left_over(fault)

    def _mark_deleted(self, future: UnifiedLog) -> None:
        """On the writer: nothing is appended after this.

        The name has a new id: the move's would say that the next copy is complete.
        """
        hold_appends(future)
        future.rename_dir(self._abandoned_name())
        self._context.deletion.add(self.target.log_dir, future.directory, future)
        self._filesystem.sync_dir(self.target.log_dir.path)

    def _abandoned_name(self) -> str:
        unique_id = self._context.runtime.random.uuid_bytes().hex()
        return directory_name(self.topic_partition, DirectoryState.DELETE, unique_id)

    def clean_up(self) -> None:
        """After the end, where no step runs: delete files of the move that no log owns.

        Under the lock of the registry. The copy was found at the start and never loaded, or it was
        made half. Kept where the directory of the current log is offline: the next start may
        continue with it.
        """
        self.is_settled = True
        if self.future is not None or not self.source.log_dir.is_online:
            return
        root = self.target.log_dir.path
        path, doomed = f"{root}/{self._future_name}", f"{root}/{self._abandoned_name()}"
        self._checkpoints.settle_future(self.target.log_dir, self.topic_partition)
        try:
            with self.target.log_dir.guard():
                if self._filesystem.exists(path):
                    self._filesystem.rename(path, doomed)
                    self._context.deletion.add(self.target.log_dir, doomed)
                    self._filesystem.sync_dir(root)
        except StorageFault as fault:
            self._log_left_over(fault)

    def _log_left_over(self, fault: StorageFault) -> None:
        _log.error(
            "future_log_not_removed",
            directory=f"{self.target.log_dir.path}/{self._future_name}",
            reason=fault.message,
            consequence="the next start goes on with the move; cancel it then",
        )
