"""PartitionMoves: all moves of partitions between log directories, as Kafka's alterReplicaLogDirs.

Owns the moves, the thread of each target directory that has some, and the rate at which they copy.
A move is begun, cancelled and swapped under the lock of the registry, so that none of these meets
another one or a change of its topic; its slices are copied without it. A partition has one move: a
move to another target cancels it, one to its own directory cancels it and does nothing else, as in
Kafka. At a stop the copies are kept, and the next start continues with what it finds. A directory
that fails ends the moves into it, and the partitions are served where they are; the copy of a
partition whose own directory failed is kept.
Source: Kafka 4.1 ReplicaManager.alterReplicaLogDirs, ReplicaAlterLogDirsManager.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.moves.partition_move import PartitionMove
from kafkalog.broker.startup.scan import rename_with_suffix
from kafkalog.broker.values import MoveState, MoveStatus
from kafkalog.errors import (
    InvalidReplicaAssignment,
    InvalidTopicName,
    KafkalogError,
    LoadStopped,
    LogDirNotFound,
    StorageFault,
    UnknownMove,
)
from kafkalog.format.integers import INT64_MAX, FormatError
from kafkalog.format.topic_names import DirectoryState, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.broker.directory.unit import LogDirUnit
    from kafkalog.broker.moves.partition_move import MoveContext
    from kafkalog.broker.startup.plan import FoundPartition
    from kafkalog.env.threads import Signal, Thread
    from kafkalog.log.unified_log import UnifiedLog

_ENDED_MAX = 1_000  # moves remembered after their end

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Target:
    """A directory that partitions move into."""

    path: str
    signal: Signal  # wakes the thread from its pause
    moves: list[PartitionMove] = field(default_factory=list)
    thread: Thread | None = None  # None: there is nothing to do


class PartitionMoves:
    """See the module."""

    def __init__(self, context: MoveContext) -> None:
        # constant after construction
        self._context = context
        self._logs = context.logs
        self._registry = context.logs.registry
        self._checkpoints = context.checkpoints
        self._runtime = context.runtime
        self._clock = context.runtime.clock
        self._metrics = context.runtime.metrics
        self._mutex = context.runtime.threads.mutex()
        # changed under the lock of the registry, replaced as a whole
        self._moves: dict[TopicPartition, PartitionMove] = {}
        # changed under the mutex
        self._targets: dict[str, _Target] = {}
        self._next_slice_ns = 0
        self._bytes_per_second = INT64_MAX
        # set by any thread
        self._is_stopping = False

    # ---- any thread that may block

    def start(self, topic: str, partition: int, path: str) -> MoveStatus:
        """Begin to move a partition into the log directory at ``path``; it is copied later.

        The copy is there on return, empty and durable: a restart continues the move.
        UnknownTopic, UnknownPartition, LogDirNotFound, LogDirOffline (either directory),
        InvalidReplicaAssignment (cordoned, or its log start is disputed), InvalidTopicName (too
        long for ``-future``), NotReady.
        """
        with self._registry.edit():
            self._logs.registered(topic)
            log = self._logs.log_of(topic, partition)
            source, target = self._logs.unit_of(log), self._logs.find_unit(path)
            if target is None:
                known = ", ".join(unit.log_dir.path for unit in self._logs.units)
                raise LogDirNotFound(
                    f"Log dir {path} is not found in the config. Give one as log.dirs has it, an "
                    f"absolute path: {known}",
                    log_dir=path,
                )
            target.log_dir.check_online()
            own = TopicPartition(topic, partition)
            if target is not source and target.log_dir.is_cordoned:
                raise InvalidReplicaAssignment(
                    f"Log directory {path} is cordoned: no partition may be moved into it",
                    log_dir=path,
                )
            before = self._moves.get(own)
            if before is not None and not before.is_over:
                if before.target is target:
                    return before.status
                self._end(before, f"the partition is to go to {path}")
            if target is source:
                return self._nothing_to_do(own, source)
            if log.disputed_start_offset is not None:  # the copy would lack the records between
                raise InvalidReplicaAssignment(
                    f"Partition {own} is not moved while it is disputed where it starts: at "
                    f"{log.log_start_offset} or at {log.disputed_start_offset}",
                    log_dir=path,
                )
            return self._begin(own, source, target).status

    def _begin(self, own: TopicPartition, source: LogDirUnit, target: LogDirUnit) -> PartitionMove:
        unique_id = self._runtime.random.uuid_bytes().hex()
        try:
            move = PartitionMove(self._context, own, source, target, unique_id)
        except FormatError as error:
            raise InvalidTopicName(str(error), topic=own.topic) from error
        try:
            move.begin()
        except KafkalogError:
            move.clean_up()
            raise
        self._remember(move)
        self._enqueue(move)
        _log.info("move_begun", partition=str(own), target=target.log_dir.path)
        return move

    def _nothing_to_do(self, own: TopicPartition, unit: LogDirUnit) -> MoveStatus:
        current = self._logs.table.find(own)
        size_bytes = 0 if current is None else current.size_bytes
        path, now_ms = unit.log_dir.path, self._clock.wall_ms()
        return MoveStatus(
            own, path, path, MoveState.DONE, None, size_bytes, size_bytes, 0, now_ms, now_ms
        )

    def cancel(self, topic: str, partition: int) -> MoveStatus:
        """Cancel a move: its copy is deleted, the partition is served where it is. UnknownMove."""
        with self._registry.edit():
            move = self._moves.get(TopicPartition(topic, partition))
            if move is None or (move.is_over and move.future is None):
                raise UnknownMove(
                    f"Partition {topic}-{partition} is not being moved to another log directory",
                    topic=topic,
                    partition=partition,
                )
            self._end(move, "cancelled on request")
            return move.status

    def cancel_topic(self, topic: str) -> None:
        """The topic is deleted: so are its copies. Under the lock of the registry."""
        own = {each: move for each, move in self._moves.items() if each.topic == topic}
        for move in own.values():
            if not move.is_over or move.future is not None:
                self._end(move, "the topic was deleted")
        self._moves = {each: move for each, move in self._moves.items() if each not in own}

    def _end(self, move: PartitionMove, reason: str) -> None:
        move.end(MoveState.CANCELLED, reason)
        move.discard_copy()
        _log.info("move_cancelled", partition=str(move.topic_partition), reason=reason)

    def limit(self, bytes_per_second: int) -> None:
        """From the next slice on all moves together copy so much at most; pauses end."""
        with self._mutex:
            if bytes_per_second == self._bytes_per_second:
                return
            self._bytes_per_second = bytes_per_second
            self._next_slice_ns = 0
            targets = list(self._targets.values())
        for target in targets:
            target.signal.set()

    def statuses(self) -> list[MoveStatus]:
        """Moves under way and the last ones that ended, by partition. No disk."""
        moves = self._moves
        return [moves[own].status for own in sorted(moves)]

    def _remember(self, move: PartitionMove) -> None:
        """Forgets the oldest of those that ended long ago."""
        moves = {own: each for own, each in self._moves.items() if own != move.topic_partition}
        ended = [own for own, each in moves.items() if each.is_over and each.future is None]
        for own in ended[: max(len(ended) - _ENDED_MAX, 0)]:
            del moves[own]
        moves[move.topic_partition] = move
        self._moves = moves

    # ---- start and stop of the daemon

    def announce(self, found: Iterable[FoundPartition]) -> None:
        """Before the logs are loaded: what the checkpoints say of these copies is kept."""
        for future in found:
            log_dir = self._logs.unit_at(future.log_dir).log_dir
            self._checkpoints.await_future(log_dir, future.topic_partition)

    def expect(self, found: Iterable[FoundPartition]) -> None:
        """Moves of which the start has found the copy; once all logs are loaded, before they serve.

        What the logs hold now is what a copy may be compared with.
        """
        for future in found:
            target = self._logs.unit_at(future.log_dir)
            current = self._logs.table.find(future.topic_partition)
            if current is not None and self._logs.unit_of(current) is not target:
                self._expect(future, current, target)
                continue
            if current is None:
                _log.warning(
                    "move_not_resumed",
                    directory=future.path,
                    reason="the partition is out of service",
                )
            else:
                self._drop(future, target)
                self._checkpoints.settle_future(target.log_dir, future.topic_partition)

    def _expect(self, future: FoundPartition, current: UnifiedLog, target: LogDirUnit) -> None:
        assert future.unique_id is not None, "a -future has an id"
        source = self._logs.unit_of(current)
        own = future.topic_partition
        move = PartitionMove(self._context, own, source, target, future.unique_id)
        move.found_at_end = current.log_end_offset
        self._remember(move)

    def _drop(self, future: FoundPartition, target: LogDirUnit) -> None:
        """The partition is here already."""
        runtime = self._runtime
        try:
            path = rename_with_suffix(
                target, runtime.filesystem, runtime.random, future, DirectoryState.DELETE
            )
        except StorageFault as fault:
            target.log_dir.take_offline(fault.message)
            return
        self._context.deletion.add(target.log_dir, path)
        _log.warning(
            "directory_set_aside",
            directory=future.path,
            now=path,
            reason="the partition is in this log directory already",
        )

    def resume(self) -> None:
        """Go on with what was expected; the daemon serves."""
        for move in self._moves.values():
            log = self._logs.table.find(move.topic_partition)
            if log is not None and log.disputed_start_offset is not None:
                _log.warning(
                    "move_not_resumed",
                    partition=str(move.topic_partition),
                    reason="it is disputed where its log starts; a start after that goes on",
                )
                continue
            self._enqueue(move)

    def stop(self) -> None:
        """No further steps; returns when none runs. What was copied is kept."""
        self._is_stopping = True
        self._context.loading.is_stopped = True  # also the load of a copy that the start found
        with self._mutex:
            targets = list(self._targets.values())
        for target in targets:
            target.signal.set()
            thread = target.thread
            if thread is not None:
                thread.join()

    # ---- the threads

    def _enqueue(self, move: PartitionMove) -> None:
        path = move.target.log_dir.path
        with self._mutex:
            target = self._targets.get(path)
            if target is None:
                target = self._targets[path] = self._new_target(path)
            target.moves.append(move)
            if target.thread is None:
                name = f"replica-alter-log-dirs-{path}"
                target.thread = self._runtime.threads.start(
                    name, lambda: self._run(target), background=True
                )

    def _new_target(self, path: str) -> _Target:
        target = _Target(path, self._runtime.threads.signal())
        running = self._metrics.partition_moves_running.labels(path)
        running.set_function(lambda: sum(not move.is_over for move in target.moves))
        return target

    def _run(self, target: _Target) -> None:
        """Thread body: one step of each move in turn, until there is none left."""
        while True:
            with self._mutex:
                target.moves = [move for move in target.moves if not move.is_settled]
                if self._is_stopping or not target.moves:
                    target.thread = None
                    return
                moves = tuple(target.moves)
            for move in moves:
                if not self._is_stopping:
                    self._advance(move, target)

    def _advance(self, move: PartitionMove, target: _Target) -> None:
        """One step, and what its failure means."""
        if move.is_over:
            with self._registry.lock:
                move.clean_up()
            return
        try:
            copied_bytes = move.step()
        except LoadStopped:
            self._is_stopping = True  # so does the daemon: the next start continues the move
        except KafkalogError as error:
            self._fail(move, error)
        else:
            if copied_bytes:
                self._metrics.partition_move_bytes.labels(target.path).inc(copied_bytes)
                self._pause_after(copied_bytes, target.signal)

    def _fail(self, move: PartitionMove, error: KafkalogError) -> None:
        """The current log serves on, if it can."""
        with self._registry.lock:
            if move.is_over:
                return  # cancelled while it took the step
            move.end(MoveState.FAILED, error.message)
            _log.error(
                "move_failed",
                partition=str(move.topic_partition),
                target=move.target.log_dir.path,
                reason=error.message,
            )
            if move.source.log_dir.is_online:
                move.discard_copy()

    def _pause_after(self, copied_bytes: int, signal: Signal) -> None:
        """Keep all moves together below the limit; a stop or another limit ends the pause."""
        with self._mutex:
            cost_ns = copied_bytes * 1_000_000_000 // self._bytes_per_second
            if not cost_ns:
                return
            now_ns = self._clock.monotonic_ns()
            self._next_slice_ns = max(self._next_slice_ns, now_ns) + cost_ns
            pause_ns = self._next_slice_ns - now_ns
        if not self._is_stopping:
            signal.wait(pause_ns / 1e9)
