"""Log directories in operation: their cordons, the rate of moves between them, their contents.

``LogDirChanges`` applies the configuration to the directories and to the moves, under the lock of
the registry or before anything serves. ``LogDirOperations`` is the part of the operation layer
about log directories. Owns no state. Source: Kafka 4.3 (KIP-1066) for cordons, Kafka's
``DynamicReplicationConfig`` for the rate.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.authorized import operation_class, requires
from kafkalog.broker.broker_config import cordoned_fault
from kafkalog.broker.directory.free_space import UNKNOWN_SPACE
from kafkalog.broker.values import LogDirDescription, PartitionSize
from kafkalog.errors import InvalidRequest, StorageFault
from kafkalog.log.inspect.directory_facts import log_dir_path

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.moves.partition_moves import PartitionMoves
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.values import MoveStatus


CORDONED_KEY = "cordoned.log.dirs"

_log = structlog.get_logger(__name__)


class LogDirChanges:
    """See the module."""

    def __init__(self, logs: Logs, runtime: Runtime, moves: PartitionMoves) -> None:
        # constant after construction
        self._logs = logs
        self._registry = logs.registry
        self._filesystem = runtime.filesystem
        self._config = runtime.config
        self._moves = moves

    def validate(self, dynamic: Mapping[str, str]) -> None:
        """InvalidRequest when cordons are set that name no log directory.

        What was stored before is kept: a directory may have left ``log.dirs`` since.
        """
        text = dynamic.get(CORDONED_KEY)
        config = self._logs.rules.log_dir_config(dynamic)
        if text is None or text == self._registry.state.broker_configs.get(CORDONED_KEY):
            return
        # As the file names them, and as they are shown.
        known = [*self._config.log_dirs, *(unit.log_dir.path for unit in self._logs.units)]
        fault = cordoned_fault(known, config.cordoned_log_dirs)
        if fault is not None:
            message = f"Invalid value {text} for configuration {CORDONED_KEY}: {fault}"
            raise InvalidRequest(message, key=CORDONED_KEY, value=text)

    def apply(self, dynamic: Mapping[str, str]) -> None:
        """Let the configuration count, with these dynamic broker configs."""
        config = self._logs.rules.log_dir_config(dynamic)
        self._moves.limit(config.move_bytes_per_second)
        paths = {log_dir_path(self._filesystem, path) for path in config.cordoned_log_dirs}
        for log_dir in (unit.log_dir for unit in self._logs.units):
            is_cordoned = config.cordoned_log_dirs == ("*",) or log_dir.path in paths
            if is_cordoned != log_dir.is_cordoned:
                log_dir.is_cordoned = is_cordoned
                tell = "log_dir_cordoned" if is_cordoned else "log_dir_uncordoned"
                _log.info(tell, log_dir=log_dir.path)


@operation_class()
class LogDirOperations:
    """See the module. Blocking but for ``moves``, and ``describe`` unless it may."""

    def __init__(self, logs: Logs, moves: PartitionMoves) -> None:
        # constant after construction
        self._logs = logs
        self._moves = moves

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def describe(
        self, topics: Collection[str] = (), *, may_block: bool = False
    ) -> list[LogDirDescription]:
        """Every entry of ``log.dirs`` with its partitions, sorted; of these topics, or of all.

        Unknown topics have no partitions. Costs a look at every partition.

        may_block   ask each file system for its space; else no disk: as it was last measured
        """
        if may_block:
            for log_dir in (unit.log_dir for unit in self._logs.units):
                if log_dir.space != UNKNOWN_SPACE:  # else the start has not opened it yet
                    with suppress(StorageFault):  # which is its state then
                        log_dir.measure_space()
        sizes: dict[str, list[PartitionSize]] = {}
        for log in self._logs.table.logs():
            if not topics or log.topic_partition.topic in topics:
                size = PartitionSize(log.topic_partition, log.size_bytes)
                sizes.setdefault(log.parent_dir, []).append(size)
                future = self._logs.table.future_of(log.topic_partition)
                if future is not None:
                    lag = log.log_end_offset - future.log_end_offset
                    size = PartitionSize(
                        log.topic_partition, future.size_bytes, max(lag, 0), is_future=True
                    )
                    sizes.setdefault(future.parent_dir, []).append(size)
        described = []
        for unit in self._logs.units:
            log_dir = unit.log_dir
            fault = log_dir.shown_fault
            is_offline = fault is not None and fault.state == "offline"
            partitions = [] if is_offline else sizes.get(log_dir.path, [])
            partitions.sort(key=lambda each: each.topic_partition)
            described.append(
                LogDirDescription(
                    path=log_dir.path,
                    is_cordoned=log_dir.is_cordoned,
                    state="online" if fault is None else fault.state,
                    reason=None if fault is None else fault.reason,
                    space=log_dir.space,
                    partitions=partitions,
                )
            )
        return described

    @requires(Action.ALTER, Resource.CLUSTER)
    def move(self, topic: str, partition: int, path: str) -> MoveStatus:
        """Begin to move a partition into another log directory; errors: ``PartitionMoves.start``.

        Goes on in the background, also after a restart.
        """
        return self._moves.start(topic, partition, path)

    @requires(Action.ALTER, Resource.CLUSTER)
    def cancel_move(self, topic: str, partition: int) -> MoveStatus:
        """Cancel a move; the partition is served where it is. UnknownMove."""
        return self._moves.cancel(topic, partition)

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def moves(self) -> list[MoveStatus]:
        """Moves under way, and those that ended since the start; of a partition the last one."""
        return self._moves.statuses()
