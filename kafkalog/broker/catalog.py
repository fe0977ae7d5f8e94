"""Logs: the one place where topics, partitions and log directories are looked up.

Owns the partition table, the directories with their writers, and the resolved configurations of
topics; reads the topic registry. Knows no feature. The table says which log serves a partition,
which partitions are out of service and why, and which ones have a copy on its way to another log
directory. Look-ups take no lock and are for any thread; changes are single dictionary operations by
the threads that start, create, move and delete.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.errors import (
    InvalidTopicName,
    KafkalogError,
    LogDirOffline,
    NotReady,
    UnknownPartition,
    UnknownTopic,
)
from kafkalog.format.topic_names import encode_id, topic_name_fault
from kafkalog.log.inspect.directory_facts import absolute_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from kafkalog.broker.broker_config import ConfigRules
    from kafkalog.broker.directory.unit import LogDirUnit
    from kafkalog.broker.topics.registry import RegisteredTopic, TopicRegistry
    from kafkalog.broker.values import Acks
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.unified_log import UnifiedLog


@dataclass(frozen=True, slots=True)
class OutOfService:
    """A partition that could not be loaded or made: its directory, and why."""

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

    def find_log(self, topic: str, partition: int) -> UnifiedLog | None:
        """As ``find``."""
        return self._logs.get((topic, partition))

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
        self._logs[key] = log  # first: a look-up finds the log or the fault
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
        """Do not serve the partition in ``directory``; requests get the fault."""
        fault.__cause__ = None
        fault = _without_frames(fault)
        self._faults[_key(topic_partition)] = OutOfService(topic_partition, directory, fault)

    def remove(self, topic_partition: TopicPartition) -> None:
        """Forget the partition, served or not."""
        self._logs.pop(_key(topic_partition), None)
        self._faults.pop(_key(topic_partition), None)


@dataclass(frozen=True, slots=True)
class _Resolved:
    """A topic's configuration and what it was made of."""

    topic: RegisteredTopic
    dynamic: Mapping[str, str]
    config: LogConfig


@dataclass(slots=True, eq=False)
class OpenTopic:
    """A topic that a request has looked up, for all that it asks of it."""

    logs: Logs
    name: str
    partition_count: int
    default_acks: Acks  # of a produce that names none

    def log_of(self, partition: int) -> UnifiedLog:
        """The log of a partition; errors as ``Logs.served``."""
        return self.logs.served(self.name, partition)

    def serves(self, partition: int) -> bool:
        """Whether an append would find a log in an online directory."""
        log = self.logs.table.find_log(self.name, partition)
        return log is not None and self.logs.is_online(log)

    def is_being_made(self, partition: int | None) -> bool:
        """Whether the partition, or without one any, is missing while the topic is being made."""
        if self.logs.topic_in_making != self.name:
            return False
        numbers = range(self.partition_count) if partition is None else (partition,)
        return any(self.logs.table.find_log(self.name, number) is None for number in numbers)


class Logs:
    """See the module."""

    def __init__(
        self,
        table: PartitionTable,
        registry: TopicRegistry,
        units: Sequence[LogDirUnit],
        rules: ConfigRules,
    ) -> None:
        # constant after construction
        self.table = table
        self.units = units  # in the order of the configuration
        self.rules = rules
        self.registry = registry
        self._units = {unit.log_dir.path: unit for unit in units}
        # single dictionary operations by any thread
        self._configs: dict[UUID, _Resolved] = {}
        # published; changed under the lock of the registry
        self.topic_in_making: str | None = None
        # single operations by any thread: what to call when the making has ended
        self._when_made: deque[Callable[[], object]] = deque()

    # ---- log directories

    @property
    def online_units(self) -> list[LogDirUnit]:
        """Directories that serve."""
        return [unit for unit in self.units if unit.log_dir.is_online]

    def find_unit(self, path: str) -> LogDirUnit | None:
        """The directory that an operator means by ``path``; None: it is no entry of log.dirs."""
        return self._units.get(absolute_log_dir(path)) if path.startswith("/") else None

    def unit_at(self, path: str) -> LogDirUnit:
        """The directory at a path, as the units name it."""
        return self._units[path]

    def unit_of(self, log: UnifiedLog) -> LogDirUnit:
        """The directory that holds the log."""
        return self._units[log.parent_dir]

    # ---- topics and partitions

    def registered(self, topic: str, topic_id: str | None = None) -> RegisteredTopic:
        """The topic; UnknownTopic, or NotReady while it may still be found; InvalidTopicName.

        ``topic_id``: UnknownTopic when the topic with that id is gone and another has its name.
        """
        registered = self.registry.state.topics.get(topic)
        if registered is None:
            self.registry.check_ready()
            fault = topic_name_fault(topic)
            if fault is not None:  # of a name in a body or a query
                raise InvalidTopicName(fault, topic=topic[:300])
            raise UnknownTopic(f"Topic {topic} does not exist", topic=topic)
        if topic_id is not None and encode_id(registered.topic_id) != topic_id:
            raise UnknownTopic(
                f"Topic {topic} has the id {encode_id(registered.topic_id)}: it was recreated, and "
                f"the one with {topic_id} was deleted. Nothing was changed.",
                topic=topic,
            )
        return registered

    def log_of(self, topic: str, partition: int) -> UnifiedLog:
        """The log that serves a partition of an existing topic.

        UnknownPartition; NotReady while its topic is being created; LogDirOffline or the reason why
        the partition could not be loaded.
        """
        log = self.table.get(topic, partition)
        if log is None:
            log = self._look_again(topic, partition)
        self._units[log.parent_dir].log_dir.check_online()
        return log

    def _look_again(self, topic: str, partition: int) -> UnifiedLog:
        """Raise why no log serves the partition, unless the creation of the topic just ended."""
        registered = self.registry.state.topics.get(topic)
        if registered is None or not 0 <= partition < registered.partition_count:
            raise UnknownPartition(
                f"Topic {topic} has no partition {partition}", topic=topic, partition=partition
            )
        if self.topic_in_making == topic:
            raise NotReady(f"Topic {topic} is being created", topic=topic, partition=partition)
        log = self.table.get(topic, partition)
        if log is None:
            raise LogDirOffline(
                f"Partition {topic}-{partition} lies in a log directory that is offline",
                topic=topic,
                partition=partition,
            )
        return log

    def served(self, topic: str, partition: int, topic_id: str | None = None) -> UnifiedLog:
        """``log_of`` for requests: UnknownTopic, and NotReady as ``registered`` has it."""
        try:
            log = self.log_of(topic, partition)
        except UnknownPartition:
            self.registered(topic)
            raise
        if topic_id is not None:
            # After the log was found: no id comes back, so a log of an older topic is never passed.
            self.registered(topic, topic_id)
        return log

    def begin_making(self, topic: str) -> None:
        """From here on a missing partition of the topic is not there yet."""
        self.topic_in_making = topic

    def end_making(self) -> None:
        """The partitions are there, or the creation has failed."""
        self.topic_in_making = None
        self._call_when_made()

    def call_when_made(self, topic: str, call: Callable[[], object]) -> None:
        """Have ``call`` made when the making of the topic has ended, now if it has; by any thread.

        It may come early: look again whether the partitions are there.
        """
        self._when_made.append(call)
        if self.topic_in_making != topic:
            self._call_when_made()

    def _call_when_made(self) -> None:
        while self._when_made:
            try:
                call = self._when_made.popleft()
            except IndexError:  # another thread was faster
                return
            call()

    def is_online(self, log: UnifiedLog) -> bool:
        """Whether the log's directory serves."""
        return self._units[log.parent_dir].log_dir.is_online

    def faults_of(self, topic: RegisteredTopic) -> dict[int, KafkalogError]:
        """Partitions of the topic that are not served at this moment, and why."""
        faults: dict[int, KafkalogError] = {}
        for number in range(topic.partition_count):
            try:
                self.log_of(topic.name, number)
            except KafkalogError as fault:
                faults[number] = fault.with_traceback(None)  # it would keep this frame
        return faults

    # ---- configurations

    def topic_config(self, topic: RegisteredTopic) -> LogConfig:
        """Effective configuration of a topic, resolved once: requests ask for it."""
        known, dynamic = self._configs.get(topic.topic_id), self.registry.state.broker_configs
        if known is None or known.topic is not topic or known.dynamic is not dynamic:
            config = self.rules.topic_config(topic.overrides, dynamic)
            known = self._configs[topic.topic_id] = _Resolved(topic, dynamic, config)
        return known.config

    def forget_config(self, topic: RegisteredTopic) -> None:
        """The topic is deleted."""
        self._configs.pop(topic.topic_id, None)

    def topic_defaults(self) -> LogConfig:
        """Configuration of a topic without overrides, dynamic broker configs included."""
        return self.rules.topic_defaults(self.registry.state.broker_configs)

    def validate_overrides(self, overrides: Mapping[str, str]) -> LogConfig:
        """The configuration that these overrides would make; InvalidTopicConfig."""
        return self.rules.topic_config(overrides, self.registry.state.broker_configs)


def _without_frames(fault: KafkalogError) -> KafkalogError:
    """The one object that all requests get.

    A traceback left on it would keep their frames, and with them their bodies, indefinitely and one
    more each time; and that of the load its open files.
    """
    fault.__context__ = None
    return fault.with_traceback(None)


def _key(topic_partition: TopicPartition) -> tuple[str, int]:
    return topic_partition.topic, topic_partition.partition
