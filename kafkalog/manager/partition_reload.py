"""PartitionReload: partitions that a start could not load are loaded once their fault is over.

Only a full disk and short descriptors pass; every other fault waits for a restart. Tried by a
periodic task, one partition at a time under the topics lock, so that its topic stays as it is and
``shutdown`` waits for it; making and deleting topics waits as well, as long as a recovery takes.
Has no counterpart in Kafka, where such a start takes the directory offline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from kafkalog.manager.storage_fault import is_passing

if TYPE_CHECKING:
    from kafkalog.manager.directory_loading import DirectoryLoading
    from kafkalog.manager.log_dir import LogDir
    from kafkalog.manager.log_dir_unit import LogDirUnit
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.manager.partition_table import OutOfService

_log = structlog.get_logger(__name__)


class PartitionReload:
    """See the module."""

    def __init__(self, manager: LogManager, loading: DirectoryLoading) -> None:
        self._manager = manager
        self._loading = loading

    def run_once(self, log_dir: LogDir) -> None:
        """Try those of one directory, none while its disk is full; guarded. May block for long."""
        for partition in self._manager.table.out_of_service(log_dir.path):
            if not is_passing(partition.fault):
                continue
            if log_dir.is_full:
                log_dir.measure_space()
            if log_dir.is_full:
                return
            self._load(self._manager.unit_at(log_dir.path), partition)

    def _load(self, unit: LogDirUnit, partition: OutOfService) -> None:
        """Serve the partition unless its topic is gone, the daemon stops, or the fault is not over.

        Crash: as in any load, the next start recovers.
        """
        manager, topic_partition = self._manager, partition.topic_partition
        with manager.topics.lock:
            topic = manager.registry.topics.get(topic_partition.topic)
            is_over = manager.table.find_fault(topic_partition) is not partition
            if topic is None or is_over or not manager.is_loaded:
                return
            if self._loading.load_again(unit, partition, topic) is not None:
                manager.archived_offsets.lower_to_ends([topic])
                _log.info(
                    "partition_online",
                    partition=str(topic_partition),
                    directory=partition.directory,
                )
