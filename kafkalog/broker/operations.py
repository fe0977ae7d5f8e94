"""Operations: what HTTP, the console, the CLI and jobs call. The one layer under every edge.

Owns who answers when (acks); the parts for topics, groups and the rest are its fields. The data
plane is for any thread and never blocks on the disk unless said; the control plane blocks and is
called from a pool. Errors are those of ``errors.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.authorized import lists, open_to_all, operation_class, requires
from kafkalog.broker.backup.backup import Backup, BackupRequest
from kafkalog.broker.catalog import OpenTopic
from kafkalog.broker.compaction.cleaning import CleaningOperations
from kafkalog.broker.directory.commands import (
    AppendCommand,
    DeleteRecordsCommand,
    JoinedAppendCommand,
)
from kafkalog.broker.directory.cordon import LogDirOperations
from kafkalog.broker.groups.consumers import ConsumerGroups
from kafkalog.broker.groups.groups import GroupOperations
from kafkalog.broker.retention.maintenance import LogOperations
from kafkalog.broker.retention.report import RetentionOperations
from kafkalog.broker.topics.topics import TopicOperations, altered, refuse_internal
from kafkalog.broker.values import (
    Acks,
    ConfigChange,
    ListedPartition,
    Loading,
    Readiness,
    UncleanStart,
)
from kafkalog.env.clock import TimeSlice
from kafkalog.errors import BackupRunning, InvalidTopicConfig, KafkalogError, UnknownTopic
from kafkalog.log.values import Isolation, WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kafkalog.broker.background import BackgroundOperation, OperationKind
    from kafkalog.broker.directory.commands import Command
    from kafkalog.broker.groups.lags import GroupHealth
    from kafkalog.broker.log_manager import LogManager
    from kafkalog.broker.topics.registry import RegisteredTopic
    from kafkalog.broker.values import ConfigEntry
    from kafkalog.env.scheduler import TaskStatus
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import FetchDataInfo, FetchSpan, TimestampOffset, ValidatedRecords
    from kafkalog.observe.history import TrafficHistory
    from kafkalog.observe.partition_metrics import Snapshot

__all__ = ["Acks", "ConfigChange", "Operations"]

BACKUP: Final = "backup"
NODE_ID: Final = "node.id"

_UNCLEAN_START_MS = 86_400_000  # how long it is told


@operation_class("broker_acks", "max_decompressed_bytes")
class Operations:
    """See the module."""

    def __init__(self, manager: LogManager) -> None:
        # constant after construction
        logs, runtime, background = manager.logs, manager.runtime, manager.background
        config = runtime.config
        self._manager = manager
        self._logs = logs
        self._registry = logs.registry
        self._runtime = runtime
        self._background = background
        self.topics = TopicOperations(logs, runtime, manager.topics, manager.group_offsets)
        self.cleaning = CleaningOperations(logs, runtime, manager.cleaning, background)
        members = ConsumerGroups(logs, runtime, manager.group_offsets)
        self.groups = GroupOperations(logs, manager.group_offsets, members)
        self.producers = manager.producer_ids
        self.log_dirs = LogDirOperations(logs, manager.moves)
        self.sinks = manager.sinks
        self.retention = RetentionOperations(
            logs,
            runtime,
            manager.retention,
            manager.cleaning,
            manager.archived_offsets,
            manager.log_stats,
            background,
        )
        self.logs = LogOperations(
            logs, manager.log_stats, manager.checkpoints, manager.cleaning.states
        )
        fetch_seconds = runtime.metrics.fetch_seconds
        self._traffic = runtime.metrics.traffic
        self._fetch_seconds = fetch_seconds.labels("ok")
        self._fetch_error_seconds = fetch_seconds.labels("error")
        self._backup_mutex = runtime.threads.mutex()
        self.broker_acks = Acks(config.http_produce_acks)
        self.max_decompressed_bytes = config.max_decompressed_batch_bytes

    # ---- data plane, any thread

    @open_to_all
    def now_ms(self) -> int:
        """Wall clock: what ``log.append.time`` and timestamp windows are judged by."""
        return self._runtime.clock.wall_ms()

    @open_to_all
    def monotonic_ns(self) -> int:
        """For deadlines: it never goes back and does not jump."""
        return self._runtime.clock.monotonic_ns()

    @open_to_all
    def time_slice(self) -> TimeSlice:
        """For one run of a loop that is not to slow appends."""
        return TimeSlice(self._runtime.clock)

    @requires(Action.DESCRIBE, Resource.TOPIC, "topic")
    def partition_log(self, topic: str, partition: int, topic_id: str | None = None) -> UnifiedLog:
        """The log of a partition: UnknownTopic, UnknownPartition, NotReady, LogDirOffline.

        ``topic_id``: UnknownTopic for the log of another topic of that name. A partition that could
        not be loaded raises its reason.
        """
        return self._logs.served(topic, partition, topic_id)

    @requires(Action.DESCRIBE, Resource.TOPIC, "topic")
    def open_topic(self, topic: str) -> OpenTopic:
        """The topic for all that a request asks of it; UnknownTopic, NotReady."""
        registered = self._logs.registered(topic)
        acks = self._acks_of(registered)
        return OpenTopic(self._logs, registered.name, registered.partition_count, acks)

    @requires(Action.WRITE, Resource.TOPIC, "log")
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
        self.submit_appends(log, (AppendCommand(log, records, acks, expected_offset, on_done),))

    @requires(Action.WRITE, Resource.TOPIC, "log")
    def submit_appends(
        self, log: UnifiedLog, commands: Sequence[AppendCommand | JoinedAppendCommand]
    ) -> None:
        """As ``submit_produce`` for each; what is raised here refuses them all."""
        refuse_internal(log.topic_partition.topic, "produced to")
        self._logs.unit_of(log).writer.submit_all(commands)

    @requires(Action.READ, Resource.TOPIC, "log")
    def fetch_checked(self, log: UnifiedLog, offset: int, max_bytes: int) -> FetchSpan | None:
        """Where the batches lie that ``fetch`` would read; None: it has to (``read_checked``).

        The caller counts it (``observe_reads``).
        """
        with self._logs.unit_of(log).log_dir.guard():
            return log.read_checked(offset, max_bytes)

    @requires(Action.READ, Resource.TOPIC, "log")
    def fetch_now(
        self, log: UnifiedLog, offset: int, max_bytes: int, *, remembers: bool
    ) -> FetchDataInfo | None:
        """What ``fetch`` reads up to the high watermark, from the page cache.

        None: ``fetch`` has to wait for the disk, or refuses. The caller counts it.
        """
        isolation = Isolation.HIGH_WATERMARK
        try:
            with self._logs.unit_of(log).log_dir.guard():
                return log.read(offset, max_bytes, isolation, may_block=False, remembers=remembers)
        except (KafkalogError, WouldBlock):
            return None

    @requires(Action.READ, Resource.TOPIC, "log")
    def read_again(self, log: UnifiedLog, span: FetchSpan) -> memoryview:
        """The bytes of what ``fetch_checked`` found, when they left the page cache meanwhile.

        Blocks. CorruptBatch when they are not what was checked, and StorageFault.
        """
        try:
            with self._logs.unit_of(log).log_dir.guard():
                return log.local.read_again(span)
        except KafkalogError as error:
            self._traffic.observe_cut_read(log.topic_partition.topic, error)
            raise

    @requires(Action.READ, Resource.TOPIC, "log")
    def fetch(
        self,
        log: UnifiedLog,
        offset: int,
        max_bytes: int,
        isolation: Isolation,
        *,
        may_block: bool,
        remembers: bool = False,
    ) -> FetchDataInfo:
        """Read batches; WouldBlock when pages are cold and ``may_block`` is False.

        ``remembers``: for ``fetch_checked``.
        """
        topic = log.topic_partition.topic
        monotonic_ns = self._runtime.clock.monotonic_ns
        started_ns = monotonic_ns()
        try:
            with self._logs.unit_of(log).log_dir.guard():
                found = log.read(
                    offset, max_bytes, isolation, may_block=may_block, remembers=remembers
                )
        except KafkalogError as error:
            self._fetch_error_seconds.observe((monotonic_ns() - started_ns) / 1e9)
            self._traffic.observe_read(topic, error)
            raise
        self._fetch_seconds.observe((monotonic_ns() - started_ns) / 1e9)
        self._traffic.observe_read(topic)
        return found

    @requires(Action.DESCRIBE, Resource.TOPIC, "log")
    def list_offset(
        self, log: UnifiedLog, timestamp_ms: int, isolation: Isolation, *, may_block: bool
    ) -> TimestampOffset | None:
        """First offset at or after a time; -1 latest, -2 earliest, -3 the largest timestamp's."""
        with self._logs.unit_of(log).log_dir.guard():
            return log.offset_for_timestamp(timestamp_ms, isolation, may_block=may_block)

    @requires(Action.DELETE, Resource.TOPIC, "topic")
    def submit_delete_records(
        self,
        topic: str,
        partition: int,
        offset: int,
        on_done: Callable[[Command], None] | None,
        topic_id: str | None = None,
    ) -> None:
        """Queue a move of the log start; result: the low watermark, durable before the answer.

        ``topic_id``: of no other topic of that name; errors: ``partition_log``.
        """
        refuse_internal(topic, "deleted from")
        log = self.partition_log(topic, partition, topic_id)
        self._logs.unit_of(log).writer.submit(DeleteRecordsCommand(log, offset, on_done))

    @requires(Action.DESCRIBE, Resource.TOPIC, "topic")
    def default_acks(self, topic: str) -> Acks:
        """Acks of a produce that names none: the topic's own setting, else the broker's.

        A topic that does not exist yet has none, nor has one whose configs are not
        understood: its partitions refuse the append themselves.
        """
        try:
            return self._acks_of(self._logs.registered(topic))
        except UnknownTopic:
            return self.broker_acks

    def _acks_of(self, topic: RegisteredTopic) -> Acks:
        try:
            fixed = self._logs.topic_config(topic).http_produce_acks
        except InvalidTopicConfig:
            return self.broker_acks
        return self.broker_acks if fixed is None else Acks(fixed)

    @open_to_all
    def is_topic(self, name: str) -> bool:
        """Whether there is a topic of that name now: for what is counted, no client is told."""
        return name in self._registry.state.topics

    @lists(Resource.TOPIC)
    def topic_names(self) -> list[str]:
        """All topics, sorted, internal ones too."""
        return sorted(self._registry.state.topics)

    @requires(Action.DESCRIBE, Resource.TOPIC, "topic")
    def partition_count(self, topic: str) -> int:
        """Partitions of the topic; UnknownTopic."""
        return self._logs.registered(topic).partition_count

    @lists(Resource.TOPIC)
    def partitions(self) -> list[ListedPartition]:
        """Every partition by topic and number, and why it is not served; no disk."""
        listed: list[ListedPartition] = []
        for name in self.topic_names():
            topic = self._registry.state.topics.get(name)
            if topic is not None:  # deleted since the names were taken
                faults = self._logs.faults_of(topic)
                numbers = range(topic.partition_count)
                listed += [ListedPartition(name, each, faults.get(each)) for each in numbers]
        return listed

    @property
    @open_to_all
    def cluster_id(self) -> str:
        """Of the log directories; empty before the daemon is loaded."""
        return self._manager.cluster_id

    @property
    @open_to_all
    def node_id(self) -> int:
        """Of the log directories, or the one that is configured."""
        return self._manager.node_id

    @open_to_all
    def loading(self) -> Loading:
        """How far the start has come."""
        return self._manager.progress.loading

    @open_to_all
    def unclean_start(self) -> UncleanStart | None:
        """What the last unclean start had to recover, for a day, also after clean ones; or None."""
        found = self._manager.progress.unclean_start or self._registry.state.unclean_start
        is_news = found is not None and self.now_ms() - found.ended_ms <= _UNCLEAN_START_MS
        return found if is_news else None

    @open_to_all
    def readiness(self) -> Readiness:
        """For probes."""
        logs, is_loaded = self._logs, self._registry.is_ready
        offline = [unit for unit in logs.units if not unit.log_dir.is_online]
        dead = sum(len(logs.table.logs_in(unit.log_dir.path)) for unit in offline)
        served = len(logs.table) - dead
        faults = [fault for unit in logs.units if (fault := unit.log_dir.shown_fault)]
        return Readiness(
            is_loaded=is_loaded,
            online_dirs=len(logs.units) - len(offline),
            offline_dirs=len(offline),
            partitions=served,
            offline_partitions=(
                max(self._partitions_due() - served, 0)  # a topic may just be deleted
                if is_loaded
                else len(logs.table.faults()) + dead
            ),
            full_dirs=sum(fault.state == "full" for fault in faults),
            faults=tuple(faults),
        )

    def _partitions_due(self) -> int:
        """Partitions of all topics, as far as those that are being made have come."""
        in_making = self._logs.topic_in_making
        return sum(
            len(self._logs.table.logs_of(topic.name))
            if topic.name == in_making
            else topic.partition_count
            for topic in list(self._registry.state.topics.values())
        )

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def metrics_snapshot(self) -> Snapshot:
        """What a scrape sees of the logs; no disk."""
        snapshot = self._manager.log_stats.snapshot(self.readiness())
        return snapshot._replace(groups=self._manager.group_lags.samples)

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def group_health(self) -> GroupHealth:
        """Which groups fall behind, and how near retention is to what they miss; no disk."""
        return self._manager.group_lags.health()

    @requires(Action.CLUSTER, Resource.CLUSTER)
    def look_inside(self) -> None:
        """The right to stacks, configuration and log levels of the process itself."""

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def tasks(self) -> list[TaskStatus]:
        """What the background tasks do and did, by name; no disk."""
        return self._runtime.scheduler.tasks()

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def history(self) -> TrafficHistory:
        """The traffic of the last hour; no disk."""
        return self._runtime.metrics.history

    @requires(Action.DESCRIBE, Resource.TOPIC, "topic")
    def bytes_in(self, topic: str) -> Sequence[float]:
        """Bytes appended to a topic in the last hour, see ``TrafficHistory.topic_bytes_known``."""
        return self._runtime.metrics.history.topic_bytes_known(topic)

    @open_to_all
    def bytes_in_since_ms(self) -> int:
        """Since when ``bytes_in`` counts, wall clock: an hour ago, or since the start."""
        return self._runtime.metrics.history.since_ms(self.now_ms())

    # ---- control plane, blocking

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def describe_broker_configs(self) -> Sequence[ConfigEntry]:
        """Every broker config with its sources, by name."""
        dynamic = self._registry.state.broker_configs
        return [
            replace(entry, value=str(self.node_id)) if entry.name == NODE_ID else entry
            for entry in self._logs.rules.describe_broker_config(dynamic)
        ]

    @requires(Action.ALTER, Resource.CLUSTER)
    def alter_broker_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Set and delete dynamic broker configs, all or none; durable and in force on return.

        InvalidRequest, InvalidTopicConfig when a topic's own configs forbid it, StorageFault.
        Crash: the old ones or the new ones, whole.
        """
        manager = self._manager
        with self._registry.edit() as state:
            entries = self.describe_broker_configs()
            dynamic = {entry.name for entry in entries if not entry.is_read_only}
            for change in changes:
                if change.value is None and change.name not in dynamic:
                    self._logs.rules.topic_defaults({change.name: ""})
            configs = self._logs.rules.plain_texts(altered(state.broker_configs, changes))
            self._validate_broker_configs(configs)
            if validate_only or configs == state.broker_configs:
                return
            self._registry.change(state.with_broker_configs(configs))
            manager.topics.apply_configs()
            manager.cleaning.reconfigure(configs)
            manager.log_dir_changes.apply(configs)

    def _validate_broker_configs(self, configs: Mapping[str, str]) -> None:
        rules = self._logs.rules
        rules.topic_defaults(configs)
        self._manager.cleaning.validate(configs)
        self._manager.log_dir_changes.validate(configs)
        for topic in self._registry.state.topics.values():
            try:
                rules.topic_config(topic.overrides, configs)
            except InvalidTopicConfig as error:
                message = f"Topic {topic.name} forbids it: {error.message}"
                raise InvalidTopicConfig(message, topic=topic.name, **error.details) from error

    # ---- backup

    @requires(Action.CLUSTER, Resource.CLUSTER)
    def begin_backup(
        self, directory: str, topics: Collection[str] = (), *, may_link: bool = True
    ) -> BackgroundOperation:
        """Check everything, then back up in the background; blocking. ``topics`` empty: all.

        InvalidBackupTarget, BackupRunning, UnknownTopic, DiskFull, and the reason of a partition
        that is not served: nothing was begun.
        """
        self._registry.check_ready()
        wanted = BackupRequest(directory, topics, may_link, self.cluster_id)
        with self._backup_mutex:
            if self._background.is_running(BACKUP):
                raise BackupRunning("Another backup is running")
            backup = Backup(self._logs, self._runtime, self._background, wanted)
            backup.prepare()
            return self._background.begin(BACKUP, {"directory": directory}, backup.run)

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def background_operation(self, operation_id: str) -> BackgroundOperation | None:
        """What was begun in the background; None when its id is not known (any more)."""
        return self._background.find(operation_id)

    @open_to_all  # what the work does asks for its own rights
    def in_background(
        self, kind: OperationKind, details: Mapping[str, str], work: Callable[[], dict[str, object]]
    ) -> BackgroundOperation:
        """Do what a request asked for after it was answered; what work returns is the result."""

        def run(operation: BackgroundOperation) -> None:
            operation.result = work()

        self._registry.check_ready()
        return self._background.begin(kind, details, run)

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def background_operations(self) -> list[BackgroundOperation]:
        """All that are known, in the order in which they were begun."""
        return self._background.known()
