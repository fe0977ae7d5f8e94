"""LogDirOperations: what lies in the log directories, and moves of partitions between them.

The part of the operation layer that is about log directories; ``Operations`` holds it. Errors are
those of ``errors.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.manager.access_rules import Action, Resource
from kafkalog.manager.authorized import operation_class, requires
from kafkalog.manager.partition_table import log_dir_of
from kafkalog.manager.values import LogDirDescription, PartitionSize

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkalog.manager.log_manager import LogManager
    from kafkalog.manager.values import MoveStatus


@operation_class()
class LogDirOperations:
    """See the module. Blocking but for ``describe`` and ``moves``."""

    def __init__(self, manager: LogManager) -> None:
        # constant after construction
        self._manager = manager

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def describe(self, topics: Collection[str] = ()) -> list[LogDirDescription]:
        """Every entry of ``log.dirs`` with its partitions, sorted; of these topics, or of all.

        No disk. Unknown topics have no partitions. Costs a look at every partition.
        """
        sizes: dict[str, list[PartitionSize]] = {}
        for log in self._manager.table.logs():
            if not topics or log.topic_partition.topic in topics:
                size = PartitionSize(log.topic_partition, log.size_bytes)
                sizes.setdefault(log_dir_of(log), []).append(size)
                future = self._manager.table.future_of(log.topic_partition)
                if future is not None:
                    lag = log.log_end_offset - future.log_end_offset
                    size = PartitionSize(
                        log.topic_partition, future.size_bytes, max(lag, 0), is_future=True
                    )
                    sizes.setdefault(log_dir_of(future), []).append(size)
        described = []
        for unit in self._manager.units:
            log_dir = unit.log_dir
            fault = log_dir.shown_fault
            reasons = {} if fault is None else {fault.state: fault.reason}
            offline_reason = reasons.get("offline")
            partitions = sizes.get(log_dir.path, []) if offline_reason is None else []
            partitions.sort(key=lambda each: each.topic_partition)
            total_bytes, usable_bytes = log_dir.space
            described.append(
                LogDirDescription(
                    path=log_dir.path,
                    is_cordoned=log_dir.is_cordoned,
                    offline_reason=offline_reason,
                    full_reason=reasons.get("full"),
                    total_bytes=total_bytes,
                    usable_bytes=usable_bytes,
                    partitions=partitions,
                )
            )
        return described

    @requires(Action.ALTER, Resource.CLUSTER)
    def move(self, topic: str, partition: int, path: str) -> MoveStatus:
        """Begin to move a partition into another log directory; errors: ``PartitionMoves.start``.

        Goes on in the background, also after a restart.
        """
        return self._manager.moves.start(topic, partition, path)

    @requires(Action.ALTER, Resource.CLUSTER)
    def cancel_move(self, topic: str, partition: int) -> MoveStatus:
        """Give a move up; the partition stays where it is. UnknownMove."""
        return self._manager.moves.cancel(topic, partition)

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def moves(self) -> list[MoveStatus]:
        """Moves under way, and those that ended since the start; of a partition the last one."""
        return self._manager.moves.statuses()
