"""PartitionTable: which log serves a partition, and which partitions are not served and why.

Owns the map; never the logs' state. Look-ups take no lock and are for any thread; changes are
single dictionary operations by the threads that start, create and delete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.errors import KafkalogError
    from kafkalog.format.topic_partition import TopicPartition
    from kafkalog.log.unified_log import UnifiedLog


class PartitionTable:
    """Keys are (topic, number): a tuple costs a request less than a TopicPartition."""

    def __init__(self) -> None:
        # published
        self._logs: dict[tuple[str, int], UnifiedLog] = {}
        self._faults: dict[tuple[str, int], KafkalogError] = {}

    def __len__(self) -> int:
        return len(self._logs)

    @property
    def fault_count(self) -> int:
        """Partitions that could not be loaded."""
        return len(self._faults)

    def get(self, topic: str, partition: int) -> UnifiedLog | None:
        """The log, None when there is none; raises the partition's fault when it has one."""
        key = (topic, partition)
        log = self._logs.get(key)
        if log is None and key in self._faults:
            # One object for all requests: a traceback left on it would keep their frames, and with
            # them their bodies, for ever and one more each time.
            fault = self._faults[key]
            fault.__context__ = None
            raise fault.with_traceback(None)
        return log

    def logs(self) -> list[UnifiedLog]:
        """All logs at this moment."""
        return list(self._logs.values())

    def logs_in(self, log_dir: str) -> list[UnifiedLog]:
        """The logs below one log directory."""
        return [log for log in self.logs() if log_dir_of(log) == log_dir]

    def faults(self) -> dict[tuple[str, int], KafkalogError]:
        """Partitions that are not served, with the reason."""
        return dict(self._faults)

    def add(self, log: UnifiedLog) -> None:
        """Serve the log."""
        self._logs[_key(log.topic_partition)] = log

    def add_fault(self, topic_partition: TopicPartition, fault: KafkalogError) -> None:
        """Do not serve the partition; requests get the fault."""
        self._faults[_key(topic_partition)] = fault

    def remove(self, topic_partition: TopicPartition) -> None:
        """Forget the partition, served or not."""
        self._logs.pop(_key(topic_partition), None)
        self._faults.pop(_key(topic_partition), None)


def log_dir_of(log: UnifiedLog) -> str:
    """Path of the log directory that holds the log."""
    return log.directory.rpartition("/")[0]


def _key(topic_partition: TopicPartition) -> tuple[str, int]:
    return topic_partition.topic, topic_partition.partition
