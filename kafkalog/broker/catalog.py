"""PartitionTable: which log serves a partition, which ones are not served and why, which ones move.

Owns the map; never the logs' state. Look-ups take no lock and are for any thread; changes are
single dictionary operations by the threads that start, create and delete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.errors import KafkalogError
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.unified_log import UnifiedLog


@dataclass(frozen=True, slots=True)
class OutOfService:
    """A partition that could not be loaded or made: where it lies, or was to lie, and why."""

    topic_partition: TopicPartition
    directory: str
    fault: KafkalogError

    @property
    def log_dir(self) -> str:
        """Path of the log directory that holds it."""
        return self.directory.rpartition("/")[0]


class PartitionTable:
    """Keys are (topic, number): a tuple costs a request less than a TopicPartition."""

    def __init__(self) -> None:
        # published
        self._logs: dict[tuple[str, int], UnifiedLog] = {}
        self._futures: dict[tuple[str, int], UnifiedLog] = {}
        self._faults: dict[tuple[str, int], OutOfService] = {}

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
        if log is None:
            unserved = self._faults.get(key)
            if unserved is not None:
                raise _without_frames(unserved.fault)
        return log

    def find(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        """The log; None when there is none, whatever the reason."""
        return self._logs.get(_key(topic_partition))

    def serves(self, log: UnifiedLog) -> bool:
        """Whether this very log serves its partition."""
        return self._logs.get(_key(log.topic_partition)) is log

    def logs(self) -> list[UnifiedLog]:
        """All logs at this moment."""
        return list(self._logs.values())

    def logs_in(self, log_dir: str) -> list[UnifiedLog]:
        """The logs below one log directory."""
        return [log for log in self.logs() if log.parent_dir == log_dir]

    def logs_of(self, topic: str) -> list[UnifiedLog]:
        """The served logs of one topic."""
        return [log for log in self.logs() if log.topic_partition.topic == topic]

    def size_bytes_of(self, topic: str) -> int:
        """Bytes of all ``.log`` files of the topic's served logs; looks at every segment."""
        return sum(log.size_bytes for log in self.logs_of(topic))

    def future_of(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        """The copy of a partition on its way to another log directory."""
        return self._futures.get(_key(topic_partition))

    def futures(self) -> list[UnifiedLog]:
        """All such copies at this moment; none of them is served."""
        return list(self._futures.values())

    def held_in(self, log_dir: str) -> list[UnifiedLog]:
        """The logs below one log directory, served or future."""
        futures = [log for log in self.futures() if log.parent_dir == log_dir]
        return self.logs_in(log_dir) + futures

    def faults(self) -> dict[tuple[str, int], KafkalogError]:
        """Partitions that are not served, with the reason."""
        return {key: each.fault for key, each in self._faults.copy().items()}

    def find_fault(self, topic_partition: TopicPartition) -> OutOfService | None:
        """Why the partition is not served; None when nothing keeps it from it."""
        return self._faults.get(_key(topic_partition))

    def out_of_service(self, log_dir: str) -> list[OutOfService]:
        """The partitions below one log directory that are not served."""
        return [each for each in self._faults.copy().values() if each.log_dir == log_dir]

    def add(self, log: UnifiedLog) -> None:
        """Serve the log, whatever kept its partition from it before."""
        key = _key(log.topic_partition)
        self._logs[key] = log  # first: nobody may find the partition neither served nor at fault
        self._faults.pop(key, None)

    def add_future(self, log: UnifiedLog) -> None:
        """A copy is being filled."""
        self._futures[_key(log.topic_partition)] = log

    def remove_future(self, topic_partition: TopicPartition) -> None:
        """The copy is given up."""
        self._futures.pop(_key(topic_partition), None)

    def serve_future(self, topic_partition: TopicPartition) -> None:
        """The copy takes the place of the log."""
        key = _key(topic_partition)
        self._logs[key] = self._futures[key]
        del self._futures[key]

    def add_fault(
        self, topic_partition: TopicPartition, fault: KafkalogError, directory: str
    ) -> None:
        """Do not serve the partition that lies in ``directory``; requests get the fault."""
        fault.__cause__ = None
        fault = _without_frames(fault)
        self._faults[_key(topic_partition)] = OutOfService(topic_partition, directory, fault)

    def remove(self, topic_partition: TopicPartition) -> None:
        """Forget the partition, served or not."""
        self._logs.pop(_key(topic_partition), None)
        self._faults.pop(_key(topic_partition), None)


def _without_frames(fault: KafkalogError) -> KafkalogError:
    """The one object that all requests get.

    A traceback left on it would keep their frames, and with them their bodies, for ever and one
    more each time; and that of the load its open files.
    """
    fault.__context__ = None
    return fault.with_traceback(None)


def _key(topic_partition: TopicPartition) -> tuple[str, int]:
    return topic_partition.topic, topic_partition.partition
