"""LogManager: all logs of all log directories, from start to shutdown.

Owns the directories with their writers and flushers, the partition table, the topic registry and
the periodic tasks. Knows no request: ``operations.py`` does; changes of topics are
``topic_changes.py``. Partitions themselves are changed only by the writers. Start: lock, identify,
read the registry, decide every directory (``startup_plan``), take the clean-shutdown markers, load
in parallel, refuse or make what is missing, then serve. Shutdown order per directory: flush, close,
checkpoints, marker; a failure costs that directory its marker. Source: Kafka's LogManager (4.1).

The orderly end of log directories: flush, close, checkpoints, marker, unlock; all in parallel.

The clean-shutdown marker of a directory is its last write and only made when every step before it
succeeded, its logs had been loaded, and no partition in it is out of service. Crash anywhere
before: the next start recovers. A directory whose load was stopped half way is closed alike, so
that what was recovered is not recovered again; it gets the marker when it had one, because what was
not loaded lies as a clean stop left it. Source: Kafka's LogManager.shutdown, log-lifecycle 11.2.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.background import BackgroundOperations
from kafkalog.broker.broker_config import check_stored
from kafkalog.broker.catalog import PartitionTable
from kafkalog.broker.compaction.cleaning import Cleaning
from kafkalog.broker.directory.checkpoints import Checkpoints
from kafkalog.broker.directory.commands import FlushCommand
from kafkalog.broker.directory.cordon import LogDirChanges
from kafkalog.broker.directory.identity import (
    IdentityFiles,
    doctor_command,
    plan_identities,
    refusal,
)
from kafkalog.broker.directory.limits import QueueBudget, TopicQuotas
from kafkalog.broker.directory.log_dir import META_PROPERTIES, REGISTRY_FILE, LogDir
from kafkalog.broker.directory.unit import LogDirUnit, make_unit
from kafkalog.broker.groups.offsets import GroupOffsets
from kafkalog.broker.log_stats import LogMeter
from kafkalog.broker.moves.partition_moves import PartitionMoves
from kafkalog.broker.retention.archive_hold import ArchivedOffsets
from kafkalog.broker.retention.retention import Retention
from kafkalog.broker.startup.load import DirectoryLoading, PartitionReload
from kafkalog.broker.startup.missing import MissingPartitions, log_partitions_offline
from kafkalog.broker.startup.plan import (
    FoundPartition,
    StartupPlan,
    plan_startup,
    reason_of,
    suspects,
    unexplained,
)
from kafkalog.broker.startup.progress import LoadProgress
from kafkalog.broker.startup.scan import (
    find_partitions,
    is_unused,
    refuse_duplicates,
    rename_to_live,
    rename_with_suffix,
)
from kafkalog.broker.tasks import ManagerTasks
from kafkalog.broker.topics.changes import LogDeletion, TopicChanges
from kafkalog.broker.topics.registry import RegisteredTopic, TopicRegistry
from kafkalog.broker.transactions.coordinator import Sinks
from kafkalog.broker.transactions.producer_ids import ProducerIds
from kafkalog.broker.transactions.sink import check_transaction
from kafkalog.cleaner.log_cleaner import make_cleaner
from kafkalog.errors import (
    KafkalogError,
    LogDirOffline,
    NotReady,
    StorageFault,
    UnknownPartition,
    UnknownTopic,
    UnusableLogDirs,
)
from kafkalog.format.topic_names import DirectoryState, encode_id, new_id
from kafkalog.log.inspect.directory_facts import check_apart, log_dir_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from kafkalog.broker.broker_config import BrokerConfig, ConfigRules
    from kafkalog.broker.directory.writer import CompletionSink
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.topics.registry import RegistryState
    from kafkalog.cleaner.log_cleaner import CleanerMaker
    from kafkalog.env.threads import Threads
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.state.producer_state import ProducerBatch, ProducerStateEntry
    from kafkalog.log.unified_log import UnifiedLog


_log = structlog.get_logger(__name__)


def close_units(
    units: Sequence[LogDirUnit],
    table: PartitionTable,
    checkpoints: Checkpoints,
    threads: Threads,
) -> list[str]:
    """Close every directory on a thread ``log-closing-<dir>``; the paths that got no marker."""
    unclean: list[str] = []

    def close(unit: LogDirUnit) -> None:
        try:
            if not close_unit(unit, table, checkpoints):
                unclean.append(unit.log_dir.path)
        finally:
            unit.log_dir.release()

    started = [
        threads.start(f"log-closing-{unit.log_dir.path}", lambda unit=unit: close(unit))  # type: ignore[misc]
        for unit in units
    ]
    for thread in started:
        thread.join()
    return sorted(unclean)


def close_unit(unit: LogDirUnit, table: PartitionTable, checkpoints: Checkpoints) -> bool:
    """One directory; whether the next start finds it as a clean stop leaves it.

    A directory that the start had not begun to change stays as it was found.
    """
    log_dir = unit.log_dir
    logs = table.held_in(log_dir.path)
    if not log_dir.is_online or not checkpoints.were_read(log_dir):
        unit.stop()
        return log_dir.is_online
    try:
        for log in logs:  # a log without new records may have rebuilt indexes and snapshots
            unit.writer.submit(FlushCommand(log))
        # Behind the flushes' plans, which are made in the same drain: the logs are closed only
        # after stop() below has seen every sync return.
        unit.writer.stop()
        unit.flusher.stop()
        is_whole = all(log.recovery_point == log.log_end_offset for log in logs)
        for log in logs:
            with log_dir.guard():
                log.close()
        for log in logs:  # behind all trims: a journal commits them together
            with log_dir.guard():
                log.sync_closed()
        checkpoints.write_all(log_dir, is_stopped=True)
        is_loaded = log_dir.is_loaded and not checkpoints.awaits_futures(log_dir)
        has_all = is_loaded or log_dir.was_clean
        is_clean = is_whole and has_all and not table.out_of_service(log_dir.path)
        if is_clean and not any(log.is_broken for log in logs):
            log_dir.write_clean_shutdown_marker()
            return True
    except KafkalogError as error:
        _log.error("log_dir_not_closed_cleanly", log_dir=log_dir.path, reason=error.message)
        unit.stop()
    return False


@dataclass(frozen=True, slots=True)
class _Resolved:
    """A topic's configuration and what it was made of."""

    topic: RegisteredTopic
    dynamic: Mapping[str, str]
    config: LogConfig


class LogManager:
    """See the module."""

    def __init__(
        self,
        config: BrokerConfig,
        rules: ConfigRules,
        runtime: Runtime,
        sink: CompletionSink,
        on_all_dirs_offline: Callable[[], None],
        make_cleaner: CleanerMaker = make_cleaner,
    ) -> None:
        """Nothing is touched before ``startup``. ``make_cleaner`` as LogCleaner has it."""
        # constant after construction
        self.config = config
        self.runtime = runtime
        self.rules = rules
        self._on_all_dirs_offline = on_all_dirs_offline
        self.table = PartitionTable()
        self.registry = TopicRegistry(runtime.filesystem)
        self.producer_ids = ProducerIds(self)
        self.sinks = Sinks(self)
        self.cleaning = Cleaning(self, make_cleaner)
        self.checkpoints = Checkpoints(self.table, self.cleaning.states, self.registry)
        self.progress = LoadProgress(runtime.clock, runtime.threads, runtime.metrics)
        self.deletion = LogDeletion(
            runtime.filesystem,
            runtime.clock,
            runtime.scheduler,
            lambda: self.topic_defaults.file_delete_delay_ms,
        )
        mutex = runtime.threads.mutex
        self.quotas = TopicQuotas(self.table, runtime.clock, mutex(), runtime.metrics)
        budget = QueueBudget(mutex(), config.queued_max_request_bytes)
        paths = dict.fromkeys(map(self.absolute, config.log_dirs))
        self._units = {path: self._make_unit(path, budget, sink) for path in paths}
        self._loading = DirectoryLoading(
            config,
            runtime.filesystem,
            runtime.threads,
            self.table,
            self.checkpoints,
            self.topic_config,
            runtime.clock,
            self.progress,
            self._check_producer,
        )
        self._missing = MissingPartitions(self, self._loading)
        self.reload = PartitionReload(self, self._loading)
        self.archived_offsets = ArchivedOffsets(self)
        self.retention = Retention(self)
        self.meter = LogMeter(self)
        self.topics = TopicChanges(self, self._loading, runtime.threads.mutex())
        self.moves = PartitionMoves(self, self._loading)
        self.log_dir_changes = LogDirChanges(self)
        self.group_offsets = GroupOffsets(self)
        self._tasks = ManagerTasks(self)
        self.background = BackgroundOperations(runtime)
        # single dictionary operations by any thread
        self._configs: dict[UUID, _Resolved] = {}
        # owned by the starting thread, published
        self.cluster_id = ""
        self.is_loaded = False

    def _check_producer(self, batch: ProducerBatch, entry: ProducerStateEntry | None) -> None:
        """Raise why a client's batch of a producer may not be appended now; writer threads."""
        self.producer_ids.check_epoch(batch.producer_id, batch.producer_epoch)
        self.sinks.check_append(batch.producer_id, batch.producer_epoch, batch.is_transactional)
        check_transaction(batch, entry)

    def absolute(self, path: str) -> str:
        """An entry of ``log.dirs`` as the key it is known by here."""
        return log_dir_path(self.runtime.filesystem, path)

    def _make_unit(self, path: str, budget: QueueBudget, sink: CompletionSink) -> LogDirUnit:
        runtime = self.runtime
        log_dir = LogDir(
            path,
            runtime.filesystem,
            runtime.clock,
            runtime.random,
            runtime.threads,
            min_free_bytes=self.config.log_dir_min_free_bytes,
        )
        log_dir.when_offline(self._note_offline)
        return make_unit(
            log_dir,
            runtime,
            budget,
            self.quotas,
            sink,
            open_file_count=self.config.log_dir_max_open_files,
            note_recovery=functools.partial(self.progress.recovery_changed, path),
            checkpoints=self.checkpoints,
            drop_logs=self._drop_logs,
        )

    # ---- look-ups, any thread

    @property
    def units(self) -> list[LogDirUnit]:
        """All directories in the order of the configuration."""
        return list(self._units.values())

    @property
    def online_units(self) -> list[LogDirUnit]:
        """Directories that serve."""
        return [unit for unit in self._units.values() if unit.log_dir.is_online]

    def find_unit(self, path: str) -> LogDirUnit | None:
        """The directory that an operator means by ``path``; None: it is no entry of log.dirs."""
        return self._units.get(self.absolute(path)) if path.startswith("/") else None

    def unit_at(self, path: str) -> LogDirUnit:
        """The directory at a path, as the units name it."""
        return self._units[path]

    def unit_of(self, log: UnifiedLog) -> LogDirUnit:
        """The directory that holds the log."""
        return self._units[log.parent_dir]

    def log_of(self, topic: str, partition: int) -> UnifiedLog:
        """The log that serves a partition of an existing topic.

        UnknownPartition; NotReady while its topic is being created; LogDirOffline or the reason why
        the partition could not be loaded.
        """
        log = self.table.get(topic, partition)
        if log is None:
            registered = self.registry.topics.get(topic)
            if registered is None or not 0 <= partition < registered.partition_count:
                raise UnknownPartition(
                    f"Topic {topic} has no partition {partition}", topic=topic, partition=partition
                )
            if self.topics.topic_in_making == topic:
                raise NotReady(f"Topic {topic} is being created", topic=topic, partition=partition)
            log = self.table.get(topic, partition)  # again: the creation may just have ended
        if log is None:
            raise LogDirOffline(
                f"Partition {topic}-{partition} lies in a log directory that is offline",
                topic=topic,
                partition=partition,
            )
        self.unit_of(log).log_dir.check_online()
        return log

    def faults_of(self, topic: RegisteredTopic) -> dict[int, KafkalogError]:
        """Partitions of the topic that are not served at this moment, and why."""
        faults: dict[int, KafkalogError] = {}
        for number in range(topic.partition_count):
            try:
                self.log_of(topic.name, number)
            except KafkalogError as fault:
                faults[number] = fault.with_traceback(None)  # it would keep this frame
        return faults

    def registered(self, topic: str) -> RegisteredTopic:
        """The topic; UnknownTopic, or NotReady while it may still be found."""
        registered = self.registry.topics.get(topic)
        if registered is None:
            self.check_ready()
            raise UnknownTopic(f"Topic {topic} does not exist", topic=topic)
        return registered

    def check_ready(self) -> None:
        """NotReady unless everything is loaded."""
        if not self.is_loaded:
            raise NotReady("The daemon is starting or stopping")

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

    @property
    def topic_defaults(self) -> LogConfig:
        """Configuration of a topic without overrides, dynamic broker configs included."""
        return self.rules.topic_defaults(self.registry.state.broker_configs)

    def validate_overrides(self, overrides: Mapping[str, str]) -> LogConfig:
        """The configuration that these overrides would make; InvalidTopicConfig."""
        return self.rules.topic_config(overrides, self.registry.state.broker_configs)

    # ---- start

    def startup(self) -> None:
        """Load everything and serve. InvalidConfig: the operator must act; nothing was changed.

        Of it UnusableLogDirs: a further start will say the same; the directories are unlocked, for
        ``kafkalog doctor --repair``.
        LogDirOffline when no directory can be used. Returns early, not loaded, after
        ``stop_loading``; ``shutdown`` is due all the same.
        """
        self._open_dirs()
        try:
            plan = self._decide()
        except UnusableLogDirs:
            for unit in self.units:
                unit.log_dir.release()
            raise
        # Nothing was changed up to here: a start that is refused or stopped leaves the markers.
        if self._loading.is_stopped:
            return
        self._claim()
        self._count_repairs(REGISTRY_FILE, self.registry.spread())
        if plan.adopted:
            self.registry.change(plan.registry, [unit.log_dir for unit in self.online_units])
            names = [topic.name for topic in plan.adopted]
            _log.warning("topics_adopted", topics=names, note="retention is off until you set it")
        self._missing.remember_log_dirs()
        self._set_aside(plan)
        self._take_markers()
        self._load(plan)
        is_whole = not self._loading.is_stopped
        if is_whole:
            self._missing.complete(plan)
            self.archived_offsets.lower_to_ends(self.registry.topics.values())
            self.moves.expect(plan.moving)
        if not self.online_units:
            raise LogDirOffline("Shutdown broker because none of the log dirs can be used")
        for unit in self.online_units:
            unit.start()
        if is_whole:
            self._tasks.start()
            self.cleaning.startup()
            self.is_loaded = True
            self.moves.resume()

    def stop_loading(self) -> None:
        """Let ``startup`` return soon: no further partition is begun. Any thread.

        One that is being recovered is given up at its next chunk: it keeps what the checkpoints
        said of it, and the next start recovers it from there.
        """
        self._loading.is_stopped = True

    def _open_dirs(self) -> None:
        """Lock each; those that are not apart are refused before anything is made."""
        check_apart(self.runtime.filesystem, self._units)
        for unit in self.units:
            try:
                unit.log_dir.open()
            except StorageFault as fault:
                _log.error("log_dir_not_opened", log_dir=unit.log_dir.path, reason=fault.message)
                unit.log_dir.take_offline(fault.message)
        if not self.online_units:
            raise LogDirOffline(
                "Shutdown broker because none of the specified log dirs can be used"
            )

    def _decide(self) -> StartupPlan:
        """What becomes of every directory; writes nothing."""
        log_dirs = [unit.log_dir for unit in self.online_units]
        self.registry.read(log_dirs)
        cluster_id = self._identify([each for each in log_dirs if each.is_online])
        self.cluster_id = cluster_id or encode_id(new_id(self.runtime.random.uuid_bytes))
        self.registry.choose([unit.log_dir for unit in self.online_units])
        check_stored(self.rules, self.registry.state.broker_configs)
        self.log_dir_changes.apply(self.registry.state.broker_configs)
        return self._plan()

    def _identify(self, log_dirs: Sequence[LogDir]) -> str | None:
        """The cluster.id of the directories, None when none has one; those in doubt go offline.

        UnusableLogDirs when all are in doubt, or one belongs to somebody else. Writes nothing.
        """
        found = [self._identity_files(log_dir) for log_dir in log_dirs]
        plan = plan_identities(found, self.config.node_id, self._unknown_partitions)
        online = [log_dir for log_dir in log_dirs if log_dir.is_online]
        left = [log_dir for log_dir in online if log_dir.path not in plan.unproven]
        is_copy_left = any(log_dir in self.registry.copies for log_dir in left)
        # A new, empty store in the place of one that cannot be read would take its name.
        if plan.unproven and (
            all(log_dir.is_fresh for log_dir in left)
            or (self.registry.damaged and not is_copy_left)
        ):
            raise refusal(plan.unproven, found, self.config.node_id)
        remedy = doctor_command(self._units, self.config.node_id)
        for log_dir in online:
            if log_dir.path in plan.unproven:
                reason = "; ".join(plan.unproven[log_dir.path])
                _log.error("log_dir_damaged", log_dir=log_dir.path, reason=reason, remedy=remedy)
                log_dir.take_offline(f"{reason}. Stop the daemon and run {remedy}")
            elif log_dir.path in plan.meta:
                log_dir.prove(*plan.meta[log_dir.path])
        return plan.cluster_id

    def _identity_files(self, log_dir: LogDir) -> IdentityFiles:
        return IdentityFiles(
            log_dir.path,
            log_dir.meta,
            None if log_dir.meta_damage is None else str(log_dir.meta_damage),
            self.registry.copies.get(log_dir),
            self.registry.damaged.get(log_dir),
        )

    def _unknown_partitions(self, path: str, state: RegistryState) -> Iterator[str]:
        """Partition directories that a registry does not explain; none when the disk fails."""
        unit = self._units[path]
        try:
            found = find_partitions(unit.log_dir, self.runtime.filesystem, state)
        except StorageFault as fault:
            unit.log_dir.take_offline(fault.message)
            return
        yield from unexplained(state, found)

    def _claim(self) -> None:
        """Fresh directories join the cluster, those of an old Kafka get what they lack."""
        repaired = []
        for unit in self.online_units:
            try:
                if unit.log_dir.claim(self.cluster_id, self.config.node_id):
                    repaired.append(unit.log_dir)
            except StorageFault as fault:
                unit.log_dir.take_offline(fault.message)
        self._count_repairs(META_PROPERTIES, repaired)

    def _count_repairs(self, file: str, log_dirs: Iterable[LogDir]) -> None:
        for log_dir in log_dirs:
            self.runtime.metrics.log_dir_files_repaired.labels(log_dir.path, file).inc()

    def _take_markers(self) -> None:
        """Right before the logs are opened: from here on a stop is unclean until it is complete."""
        for unit in self.online_units:
            try:
                if not unit.log_dir.take_clean_shutdown_marker() and not unit.log_dir.is_fresh:
                    self.runtime.metrics.unclean_starts.labels(unit.log_dir.path).inc()
            except StorageFault as fault:
                unit.log_dir.take_offline(fault.message)

    def _plan(self) -> StartupPlan:
        """Scan all directories and decide."""
        found: list[FoundPartition] = []
        for unit in self.online_units:
            try:
                found.extend(
                    find_partitions(unit.log_dir, self.runtime.filesystem, self.registry.state)
                )
            except StorageFault as fault:
                unit.log_dir.take_offline(fault.message)
        adopt = self.config.adopt_unknown_topics
        plan = plan_startup(
            self.registry.state,
            found,
            self._unused(suspects(self.registry.state, found)),
            adopt=not self.registry.existed if adopt is None else adopt,
            new_topic_id=lambda: new_id(self.runtime.random.uuid_bytes),
        )
        refuse_duplicates([partition for partition, _ in plan.load])
        left_alone = [partition.path for partition in plan.left_alone + plan.orphans]
        if left_alone:
            _log.warning("directories_left_alone", directories=left_alone)
        return plan

    def _unused(self, partitions: Collection[FoundPartition]) -> frozenset[str]:
        """Paths of those that hold nothing."""
        unused = []
        for partition in partitions:
            log_dir = self._units[partition.log_dir].log_dir
            try:
                with log_dir.guard():
                    if is_unused(self.runtime.filesystem, partition.path):
                        unused.append(partition.path)
            except StorageFault as fault:
                log_dir.take_offline(fault.message)
        return frozenset(unused)

    def _set_aside(self, plan: StartupPlan) -> None:
        """Finish deletions, rename strays."""
        runtime = self.runtime
        self._finish_moves(plan)
        for partition in plan.remove:
            self.deletion.add(self._units[partition.log_dir].log_dir, partition.path)
        for state, partitions in (
            (DirectoryState.DELETE, plan.delete),
            (DirectoryState.STRAY, plan.stray),
        ):
            for partition in partitions:
                unit = self._units[partition.log_dir]
                try:
                    path = rename_with_suffix(
                        unit, runtime.filesystem, runtime.random, partition, state
                    )
                except StorageFault as fault:
                    unit.log_dir.take_offline(fault.message)
                    continue
                _log.warning(
                    "directory_set_aside",
                    directory=partition.path,
                    now=path,
                    reason=reason_of(self.registry.state, partition),
                )
                if state is DirectoryState.DELETE:
                    self.deletion.add(unit.log_dir, path)

    def _finish_moves(self, plan: StartupPlan) -> None:
        """Give the copies that a crash left complete their partition's name."""
        for move in plan.committed:
            unit = self._units[move.future.log_dir]
            try:
                live = rename_to_live(unit, self.runtime.filesystem, move.future)
            except StorageFault as fault:
                unit.log_dir.take_offline(fault.message)
                continue
            plan.load.append((live, move.topic))
            plan.remove.append(move.doomed)

    def _load(self, plan: StartupPlan) -> None:
        for partition, topic in plan.contradicted:
            self._loading.refuse(partition, topic)
        self.moves.announce(plan.moving)
        self._loading.load_all(
            [
                (unit, [job for job in plan.load if job[0].log_dir == unit.log_dir.path])
                for unit in self.online_units
            ]
        )

    # ---- failure and end

    def _note_offline(self, log_dir: LogDir) -> None:
        """Any thread: count it; end the daemon with the last one."""
        self.runtime.metrics.log_dir_online.labels(log_dir.path).set(0)
        reason = str(log_dir.offline_reason)
        self.runtime.metrics.log_dir_offline_reason.labels(log_dir.path, reason).set(1)
        if self.is_loaded:
            log_partitions_offline(log.topic_partition for log in self.table.logs_in(log_dir.path))
        if not self.online_units and self.is_loaded:
            _log.error("all_log_dirs_offline")
            self._on_all_dirs_offline()

    def _drop_logs(self, log_dir: LogDir) -> None:
        """Writer thread, once: let go of the handles without a flush, and wake who waits."""
        writer = self._units[log_dir.path].writer
        for log in self.table.held_in(log_dir.path):
            log.close_handles()
            writer.note_advanced(log)

    def shutdown(self) -> None:
        """Orderly end of everything that serves; see ``shutdown.py``. May block for long."""
        self.is_loaded = False
        self.background.stop()
        self.cleaning.shutdown()  # a clean in work needs its writer to let go
        self._tasks.stop()
        self.moves.stop()
        with self.topics.lock:
            pass  # a partition that is being loaded again is closed with the others
        unclean = close_units(self.units, self.table, self.checkpoints, self.runtime.threads)
        if unclean:
            _log.warning("Shutdown complete; the next start will recover", log_dirs=unclean)
        else:
            _log.info("Shutdown complete.")
