"""Operations: what HTTP, the console, the CLI and jobs call. The one layer under every edge.

Owns the rules about topics that need no partition: names, collisions, counts, internal topics, who
answers when (acks). The data plane is for any thread and never blocks on the disk unless said; the
control plane blocks and is called from a pool. Errors are those of ``errors.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog.errors import (
    InvalidPartitions,
    InvalidRequest,
    InvalidTopicName,
    KafkalogError,
    NotReady,
    TopicCollision,
    TopicExists,
    UnknownTopic,
)
from kafkalog.format.topic_id import ZERO_ID, encode_id
from kafkalog.format.topic_partition import (
    CLUSTER_METADATA_TOPIC,
    INTERNAL_TOPICS,
    collision_key,
    topic_name_fault,
)
from kafkalog.manager.commands import AppendCommand, DeleteRecordsCommand
from kafkalog.manager.partition_table import log_dir_of
from kafkalog.manager.retention_report import RetentionReport
from kafkalog.manager.topic_registry import RegisteredTopic
from kafkalog.manager.values import (
    Acks,
    ConfigChange,
    Loading,
    LogDirDescription,
    PartitionSize,
    Readiness,
    TopicDescription,
)
from kafkalog.observe.metrics import PartitionSample

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from kafkalog.env.scheduler import TaskStatus
    from kafkalog.format.topic_partition import TopicPartition
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import FetchDataInfo, Isolation, TimestampOffset, ValidatedRecords
    from kafkalog.manager.commands import Command
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.manager.retention_report import (
        RetentionOutcome,
        RetentionSimulation,
        SegmentReport,
    )
    from kafkalog.manager.values import ConfigEntry

__all__ = ["Acks", "ConfigChange", "Operations"]

_CLOSED_TO_CLIENTS = INTERNAL_TOPICS | {CLUSTER_METADATA_TOPIC}


class Operations:
    """See the module."""

    def __init__(self, manager: LogManager) -> None:
        # constant after construction
        self._manager = manager
        self._retention = RetentionReport(manager)
        self._partitions_max = manager.config.max_partitions_per_topic
        fetch_seconds = manager.seams.metrics.fetch_seconds
        self._fetch_seconds = fetch_seconds.labels("ok")
        self._fetch_error_seconds = fetch_seconds.labels("error")
        self._broker_acks = Acks(manager.config.http_produce_acks)
        self.node_id = manager.config.node_id
        self.max_decompressed_bytes = manager.config.max_decompressed_batch_bytes

    # ---- data plane, any thread

    def now_ms(self) -> int:
        """Wall clock: what ``log.append.time`` and timestamp windows are judged by."""
        return self._manager.seams.clock.wall_ms()

    def partition_log(self, topic: str, partition: int) -> UnifiedLog:
        """The log of a partition: UnknownTopic, UnknownPartition, NotReady, LogDirOffline.

        A partition that could not be loaded raises its reason.
        """
        self._registered(topic)
        return self._manager.log_of(topic, partition)

    def submit_produce(
        self,
        log: UnifiedLog,
        records: ValidatedRecords,
        acks: Acks,
        *,
        expected_offset: int | None = None,
        on_done: Callable[[Command], None] | None = None,
    ) -> None:
        """Queue an append; ``on_done`` gets the finished command (result: LogAppendInfo).

        Overloaded, LogDirOffline, DiskFull and NotReady are raised here when they are known before
        the hop, and are the command's error otherwise. InvalidRequest for internal topics.
        """
        _refuse_internal(log.topic_partition.topic, "produced to")
        unit = self._manager.unit_of(log)
        unit.writer.submit(AppendCommand(log, records, acks, expected_offset, on_done))

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int,
        isolation: Isolation,
        *,
        min_one_batch: bool = True,
        may_block: bool,
    ) -> FetchDataInfo:
        """Read batches; WouldBlock when pages are cold and ``may_block`` is False."""
        log = self.partition_log(topic, partition)
        monotonic_ns = self._manager.seams.clock.monotonic_ns
        started_ns = monotonic_ns()
        try:
            with self._manager.unit_of(log).log_dir.guard():
                found = log.read(
                    offset, max_bytes, isolation, min_one_batch=min_one_batch, may_block=may_block
                )
        except KafkalogError:
            self._fetch_error_seconds.observe((monotonic_ns() - started_ns) / 1e9)
            raise
        self._fetch_seconds.observe((monotonic_ns() - started_ns) / 1e9)
        return found

    def list_offset(
        self,
        topic: str,
        partition: int,
        timestamp_ms: int,
        isolation: Isolation,
        *,
        may_block: bool,
    ) -> TimestampOffset | None:
        """First offset at or after a time; -1 latest, -2 earliest, -3 the largest timestamp's."""
        log = self.partition_log(topic, partition)
        with self._manager.unit_of(log).log_dir.guard():
            return log.offset_for_timestamp(timestamp_ms, isolation, may_block=may_block)

    def submit_delete_records(
        self,
        topic: str,
        partition: int,
        offset: int,
        on_done: Callable[[Command], None] | None,
    ) -> None:
        """Queue a move of the log start; result: the low watermark, durable before the answer."""
        _refuse_internal(topic, "deleted from")
        log = self.partition_log(topic, partition)
        self._manager.unit_of(log).writer.submit(DeleteRecordsCommand(log, offset, on_done))

    def default_acks(self, topic: str) -> Acks:
        """Acks of a produce that names none: the topic's own setting, else the broker's."""
        fixed = self._manager.topic_config(self._registered(topic)).http_produce_acks
        return self._broker_acks if fixed is None else Acks(fixed)

    def topic_names(self) -> list[str]:
        """All topics, sorted, internal ones too."""
        return sorted(self._manager.registry.topics)

    def partition_count(self, topic: str) -> int:
        """Partitions of the topic; UnknownTopic."""
        return self._registered(topic).partition_count

    def describe_topic(self, name: str) -> TopicDescription:
        """The topic with its effective configs; UnknownTopic."""
        return self._description(self._registered(name))

    @property
    def cluster_id(self) -> str:
        """Of the log directories; empty before the daemon is loaded."""
        return self._manager.cluster_id

    def loading(self) -> Loading:
        """How far the start has come."""
        return self._manager.progress.loading

    def readiness(self) -> Readiness:
        """For probes."""
        manager = self._manager
        offline = [unit for unit in manager.units if not unit.log_dir.is_online]
        dead = sum(len(manager.table.logs_in(unit.log_dir.path)) for unit in offline)
        return Readiness(
            is_loaded=manager.is_loaded,
            online_dirs=len(manager.units) - len(offline),
            offline_dirs=len(offline),
            partitions=len(manager.table) - dead,
            offline_partitions=manager.table.fault_count + dead,
            full_dirs=sum(unit.log_dir.is_full for unit in manager.online_units),
        )

    def partition_samples(self) -> list[PartitionSample]:
        """Published facts of every served partition, for the metrics page; no disk."""
        return [
            PartitionSample(
                topic=log.topic_partition.topic,
                partition=log.topic_partition.partition,
                size_bytes=log.size_bytes,
                segments=len(log.segments),
                start_offset=log.log_start_offset,
                end_offset=log.log_end_offset,
                high_watermark=log.high_watermark,
            )
            for log in self._manager.table.logs()
        ]

    def tasks(self) -> list[TaskStatus]:
        """What the background tasks do and did, by name; no disk."""
        return self._manager.seams.scheduler.tasks()

    def log_dirs(self, topics: Collection[str] = ()) -> list[LogDirDescription]:
        """Every entry of ``log.dirs`` with its partitions, sorted; of these topics, or of all.

        No disk. Unknown topics have no partitions. Costs a look at every partition.
        """
        sizes: dict[str, list[PartitionSize]] = {}
        for log in self._manager.table.logs():
            if not topics or log.topic_partition.topic in topics:
                size = PartitionSize(log.topic_partition, log.size_bytes)
                sizes.setdefault(log_dir_of(log), []).append(size)
        described = []
        for unit in self._manager.units:
            log_dir = unit.log_dir
            reason = log_dir.offline_reason
            partitions = sizes.get(log_dir.path, []) if reason is None else []
            partitions.sort(key=lambda each: each.topic_partition)
            total_bytes, usable_bytes = log_dir.space
            described.append(
                LogDirDescription(
                    path=log_dir.path,
                    is_cordoned=log_dir.is_cordoned,
                    offline_reason=reason,
                    total_bytes=total_bytes,
                    usable_bytes=usable_bytes,
                    partitions=partitions,
                )
            )
        return described

    # ---- control plane, blocking

    def create_topic(
        self,
        name: str,
        partition_count: int | None = None,
        configs: Mapping[str, str] | None = None,
        *,
        replication_factor: int | None = None,
        validate_only: bool = False,
    ) -> TopicDescription:
        """Create a topic; durable on return. ``partition_count`` None or -1: ``num.partitions``.

        InvalidTopicName, TopicExists, TopicCollision, InvalidPartitions, InvalidTopicConfig,
        InvalidRequest (replication factor, internal name), StorageFault.
        """
        overrides = dict(configs or {})
        count = self._manager.config.num_partitions
        if partition_count not in (None, -1):
            assert partition_count is not None
            count = partition_count
        with self._manager.topics.lock:
            self._check_ready()
            self._validate_new(name, count, replication_factor)
            draft = RegisteredTopic(ZERO_ID, name, count, overrides)
            self._manager.validate_overrides(overrides)
            if validate_only:
                return self._description(draft)
            return self._description(self._manager.topics.create(name, count, overrides))

    def ensure_topic(self, name: str) -> None:
        """Create the topic with the defaults unless it exists (``auto.create.topics.enable``)."""
        if name in self._manager.registry.topics:
            return
        if not self._manager.config.auto_create_topics_enable:
            raise UnknownTopic(f"Topic {name} does not exist", topic=name)
        try:
            self.create_topic(name)
        except TopicExists:
            return  # another request was faster

    def delete_topic(self, name: str) -> None:
        """Delete a topic; its directories are renamed on return and removed later."""
        with self._manager.topics.lock:
            self._check_ready()
            self._registered(name)
            _refuse_internal(name, "deleted")
            self._manager.topics.delete(name)

    def create_partitions(
        self, name: str, partition_count: int, *, validate_only: bool = False
    ) -> TopicDescription:
        """Let a topic grow to partition_count, never shrink; all at once, durable on return.

        UnknownTopic, InvalidTopicName (internal), InvalidPartitions, StorageFault.
        """
        with self._manager.topics.lock:
            self._check_ready()
            topic = self._registered(name)
            _refuse_internal(name, "altered")
            self._validate_growth(topic, partition_count)
            if validate_only:
                return self._description(replace(topic, partition_count=partition_count))
            return self._description(self._manager.topics.add_partitions(name, partition_count))

    def alter_topic_configs(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> TopicDescription:
        """Set and delete configs of a topic, all or none; durable and in force on return.

        UnknownTopic, InvalidTopicConfig, InvalidRequest (one config twice), StorageFault.
        """
        with self._manager.topics.lock:
            self._check_ready()
            topic = self._registered(name)
            # Not of this topic: its own configs may be what is wrong, after a change of the file.
            known = {entry.name for entry in self._manager.rules.describe_topic_config({}, {})}
            for change in changes:  # deleting nothing is fine, deleting what is misspelt is not
                if change.value is None and change.name not in known | topic.overrides.keys():
                    self._manager.validate_overrides({change.name: ""})
            overrides = _altered(topic.overrides, changes)
            self._manager.validate_overrides(overrides)
            if validate_only:
                return self._description(replace(topic, overrides=overrides))
            return self._description(self._manager.topics.alter_configs(name, overrides))

    def describe_broker_configs(self) -> Sequence[ConfigEntry]:
        """Every broker config with its sources, by name."""
        dynamic = self._manager.registry.state.broker_configs
        return self._manager.rules.describe_broker_config(dynamic)

    def alter_broker_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Set and delete dynamic broker configs, all or none; durable and in force on return.

        InvalidRequest, InvalidTopicConfig when a topic's own configs forbid it, StorageFault.
        """
        with self._manager.topics.lock:
            self._check_ready()
            entries = self.describe_broker_configs()
            dynamic = {entry.name for entry in entries if not entry.is_read_only}
            for change in changes:
                if change.value is None and change.name not in dynamic:
                    self._manager.rules.topic_defaults({change.name: ""})
            configs = _altered(self._manager.registry.state.broker_configs, changes)
            self._manager.topics.validate_broker_configs(configs)
            if not validate_only:
                self._manager.topics.alter_broker_configs(configs)

    # ---- retention, blocking

    def describe_segments(self, topic: str, partition: int) -> SegmentReport:
        """Every segment of a partition, why it is still here and when it goes."""
        return self._retention.describe(self.partition_log(topic, partition))

    def retain(self, topic: str, partition: int, *, dry_run: bool) -> RetentionOutcome:
        """A retention pass over one partition, whatever its policy; a dry run deletes nothing.

        InvalidTopicName for internal topics unless it is a dry run.
        """
        if dry_run:
            return self._retention.preview(self.partition_log(topic, partition))
        _refuse_internal(topic, "deleted from")
        return self._retention.run(self.partition_log(topic, partition))

    def retain_all(
        self, *, dry_run: bool
    ) -> Iterator[tuple[TopicPartition, RetentionOutcome | KafkalogError]]:
        """The pass of the task ``kafka-log-retention`` as it is iterated; a failure is an entry."""
        self._check_ready()
        return self._retention.over_all(dry_run=dry_run)

    def simulate_retention(
        self,
        topic: str,
        partition: int,
        configs: Mapping[str, str],
        *,
        start_ms: int | None,
        horizon_ms: int,
    ) -> RetentionSimulation:
        """What goes if the topic had these configs over its own; InvalidTopicConfig."""
        registered = self._registered(topic)
        config = self._manager.validate_overrides({**registered.overrides, **configs})
        log = self.partition_log(topic, partition)
        return self._retention.simulate(log, config, start_ms, horizon_ms)

    # ---- rules

    def _registered(self, topic: str) -> RegisteredTopic:
        registered = self._manager.registry.topics.get(topic)
        if registered is None:
            self._check_ready()
            raise UnknownTopic(f"Topic {topic} does not exist", topic=topic)
        return registered

    def _check_ready(self) -> None:
        if not self._manager.is_loaded:
            raise NotReady("The daemon is starting or stopping")

    def _validate_new(self, name: str, count: int, replication_factor: int | None) -> None:
        """Kafka's order: name, existence, collision, counts."""
        fault = topic_name_fault(name)
        if fault is not None:
            raise InvalidTopicName(fault, topic=name[:300])
        _refuse_internal(name, "created")
        topics = self._manager.registry.topics
        if name in topics:
            raise TopicExists(f"Topic '{name}' already exists.", topic=name)
        key = collision_key(name)
        clash = next((each for each in topics if collision_key(each) == key), None)
        if clash is not None:
            raise TopicCollision(
                f"Topic '{name}' collides with existing topic: {clash}", topic=name, existing=clash
            )
        self._check_count(count)
        if replication_factor not in (None, 1, -1):
            raise InvalidRequest(
                f"Replication factor {replication_factor} is larger than the one available broker.",
                replication_factor=replication_factor,
            )

    def _validate_growth(self, topic: RegisteredTopic, count: int) -> None:
        """Kafka's words."""
        now = topic.partition_count
        if count == now:
            raise InvalidPartitions(f"Topic already has {now} partition(s).", partitions=now)
        if count < now:
            raise InvalidPartitions(
                f"The topic {topic.name} currently has {now} partition(s); {count} would not be an "
                "increase.",
                partitions=now,
            )
        self._check_count(count)

    def _check_count(self, count: int) -> None:
        if not 1 <= count <= self._partitions_max:
            raise InvalidPartitions(
                f"Number of partitions must be 1 to {self._partitions_max}, not {count}.",
                partitions=count,
            )

    def _description(self, topic: RegisteredTopic) -> TopicDescription:
        return TopicDescription(
            name=topic.name,
            topic_id=encode_id(topic.topic_id),
            partition_count=topic.partition_count,
            is_internal=topic.name in INTERNAL_TOPICS,
            overrides=topic.overrides,
            configs=self._manager.rules.describe_topic_config(
                topic.overrides, self._manager.registry.state.broker_configs
            ),
        )


def _refuse_internal(topic: str, verb: str) -> None:
    """Kafka's own topics are read-only for clients."""
    if topic in _CLOSED_TO_CLIENTS:
        raise InvalidTopicName(f"Internal topic {topic} cannot be {verb} by clients", topic=topic)


def _altered(configs: Mapping[str, str], changes: Sequence[ConfigChange]) -> dict[str, str]:
    """The configs after the changes; InvalidRequest in Kafka's words when one is named twice."""
    names = [change.name for change in changes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(f"Error due to duplicate config keys : {','.join(twice)}")
    altered = {name: text for name, text in configs.items() if name not in names}
    altered.update({each.name: each.value for each in changes if each.value is not None})
    return altered
