"""LogManager: assembles the broker and runs its life cycle, from the start to the shutdown.

Owns no rule of a feature: it gives each part the parts that it needs, starts them and stops them.
Start: lock the directories, read the registry copies, identify the cluster, choose a copy, plan
(``startup/plan``). A start that is refused ends here and changed no log. Then claim the
directories, set aside what the plan says, take the clean-shutdown markers, load in parallel, refuse
or create what is missing, start the threads and tasks.

Shutdown: all directories in parallel, each flush, close, checkpoints, marker, unlock. The
clean-shutdown marker is the last write to a directory. It is made only when every step before it
succeeded, the logs had been loaded, and no partition of the directory is out of service. Crash
anywhere before: the next start recovers. A directory whose load was stopped half way is closed
alike, so that what was recovered is not recovered again; it gets the marker when it had one,
because what was not loaded is as a clean stop left it. Source: Kafka's LogManager (4.1).
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.background import BackgroundOperations
from kafkalog.broker.catalog import Logs, PartitionTable
from kafkalog.broker.compaction.cleaning import CleanerLogs, Cleaning, end_swap
from kafkalog.broker.directory import identity
from kafkalog.broker.directory.checkpoints import Checkpoints
from kafkalog.broker.directory.commands import FlushCommand
from kafkalog.broker.directory.cordon import LogDirChanges
from kafkalog.broker.directory.limits import QueueBudget, TopicQuotas
from kafkalog.broker.directory.log_dir import META_PROPERTIES, REGISTRY_FILE, LogDir
from kafkalog.broker.directory.unit import make_unit
from kafkalog.broker.groups.lags import GroupLags
from kafkalog.broker.groups.offsets import GroupOffsets
from kafkalog.broker.log_stats import LOG_METRICS_TASK, LogStats
from kafkalog.broker.moves.partition_move import MoveContext
from kafkalog.broker.moves.partition_moves import PartitionMoves
from kafkalog.broker.retention.archive_hold import ArchivedOffsets
from kafkalog.broker.retention.retention import Retention
from kafkalog.broker.startup import scan
from kafkalog.broker.startup.load import DirectoryLoading, LoadProgress, PartitionReload
from kafkalog.broker.startup.missing import MissingPartitions, log_partitions_offline
from kafkalog.broker.startup.plan import (
    FoundPartition,
    StartupPlan,
    plan_startup,
    reason_of,
    suspects,
    unexplained,
)
from kafkalog.broker.tasks import PeriodicTasks
from kafkalog.broker.topics.changes import TopicChanges
from kafkalog.broker.topics.deletion import DELETE_LOGS_TASK, LogDeletion
from kafkalog.broker.topics.registry import TopicRegistry
from kafkalog.broker.transactions.append_checks import SinkProducers
from kafkalog.broker.transactions.coordinator import Sinks
from kafkalog.broker.transactions.markers import SinkTransactions
from kafkalog.broker.transactions.producer_ids import ProducerIds
from kafkalog.broker.transactions.sink_table import SinkLog
from kafkalog.cleaner.log_cleaner import make_cleaner
from kafkalog.cleaner.log_cleaner_manager import LogCleanerManager
from kafkalog.errors import (
    InvalidConfig,
    InvalidRequest,
    KafkalogError,
    LogDirOffline,
    StorageFault,
    UnusableLogDirs,
)
from kafkalog.format.topic_names import DirectoryState, TopicPartition, encode_id, new_id
from kafkalog.log.inspect.directory_facts import check_apart, log_dir_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from kafkalog.broker.broker_config import ConfigRules
    from kafkalog.broker.directory.unit import LogDirUnit
    from kafkalog.broker.directory.writer import CompletionSink
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.topics.registry import RegistryState
    from kafkalog.cleaner.log_cleaner import CleanerMaker
    from kafkalog.env.threads import Threads

_log = structlog.get_logger(__name__)


def close_units(logs: Logs, checkpoints: Checkpoints, threads: Threads) -> list[str]:
    """Close every directory on a thread ``log-closing-<dir>``; the paths that got no marker."""
    unclean: list[str] = []

    def close(unit: LogDirUnit) -> None:
        try:
            if not close_unit(unit, logs.table, checkpoints):
                unclean.append(unit.log_dir.path)
        finally:
            unit.log_dir.release()

    started = [
        threads.start(f"log-closing-{unit.log_dir.path}", lambda unit=unit: close(unit))  # type: ignore[misc]
        for unit in logs.units
    ]
    for thread in started:
        thread.join()
    return sorted(unclean)


def close_unit(unit: LogDirUnit, table: PartitionTable, checkpoints: Checkpoints) -> bool:
    """One directory; whether the next start finds it as a clean stop leaves it.

    A directory that the start had not begun to change is left as it was found.
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
        for log in logs:  # after all trims: a journal commits them together
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


def _make_log_dirs(runtime: Runtime) -> list[LogDir]:
    """Each entry of ``log.dirs`` once."""
    config = runtime.config
    paths = dict.fromkeys(log_dir_path(runtime.filesystem, entry) for entry in config.log_dirs)
    return [
        LogDir(
            path,
            runtime.filesystem,
            runtime.clock,
            runtime.random,
            runtime.threads,
            min_free_bytes=config.log_dir_min_free_bytes,
        )
        for path in paths
    ]


class LogManager:
    """See the module. Every part is given the parts that it names, so each is made after those."""

    def __init__(
        self,
        rules: ConfigRules,
        runtime: Runtime,
        sink: CompletionSink,
        on_all_dirs_offline: Callable[[], None],
        make_cleaner: CleanerMaker = make_cleaner,
    ) -> None:
        """Nothing is touched before ``startup``. ``make_cleaner`` as LogCleaner has it."""
        config, clock, mutex = runtime.config, runtime.clock, runtime.threads.mutex
        # constant after construction
        self.runtime = runtime
        self._rules = rules
        self._on_all_dirs_offline = on_all_dirs_offline
        self._log_dirs = _make_log_dirs(runtime)
        self._paths = [log_dir.path for log_dir in self._log_dirs]
        self.registry = TopicRegistry(runtime.filesystem, mutex(), self._log_dirs)
        table, first_dirty = PartitionTable(), dict[TopicPartition, int]()
        self.checkpoints = Checkpoints(table, first_dirty, self.registry)
        self.progress = LoadProgress(clock, runtime.threads, runtime.metrics)
        quotas = TopicQuotas(table.size_bytes_of, clock, mutex(), runtime.metrics)
        budget = QueueBudget(mutex(), config.queued_max_request_bytes)
        units = [
            make_unit(
                log_dir,
                runtime,
                budget,
                quotas,
                sink,
                open_file_count=config.log_dir_max_open_files,
                checkpoints=self.checkpoints,
                logs_here=table.held_in,
            )
            for log_dir in self._log_dirs
        ]
        self.logs = Logs(table, self.registry, units, rules)
        self.background = BackgroundOperations(runtime)
        self.deletion = LogDeletion(runtime, self._file_delete_delay_ms)
        self.sink_producers = SinkProducers(self.logs, clock)
        self._loading = DirectoryLoading(
            self.logs, runtime, self.checkpoints, self.progress, self.sink_producers.check
        )
        self._make_features(first_dirty, quotas, make_cleaner)
        self._tasks = PeriodicTasks(
            self.logs,
            runtime,
            self.checkpoints,
            self.retention,
            self.group_offsets,
            self.group_lags,
            self.sinks,
            self.reload,
            self.cleaning.cleaner.wake,
        )
        for log_dir in self._log_dirs:
            log_dir.when_offline(self._note_offline)
        # owned by the starting thread, published
        self.cluster_id = ""
        self.node_id = identity.node_id_of((), runtime.config.node_id)

    def _file_delete_delay_ms(self) -> int:
        return self.logs.topic_defaults().file_delete_delay_ms

    def _make_features(
        self,
        first_dirty: dict[TopicPartition, int],
        quotas: TopicQuotas,
        make_cleaner: CleanerMaker,
    ) -> None:
        logs, runtime = self.logs, self.runtime
        checkpoints, loading = self.checkpoints, self._loading
        states = LogCleanerManager(
            CleanerLogs(logs, checkpoints),
            first_dirty,
            runtime.clock,
            runtime.threads,
            runtime.config.log_cleaner_backoff_ms,
        )
        self.archived_offsets = ArchivedOffsets(logs, runtime)
        hold_of = self.archived_offsets.hold_of
        end = functools.partial(end_swap, logs, states)
        self.retention = Retention(logs, runtime, states, hold_of, end, self.background)
        self.cleaning = Cleaning(logs, runtime, checkpoints, states, self.retention, make_cleaner)
        self.moves = PartitionMoves(
            MoveContext(logs, runtime, loading, checkpoints, self.deletion, states)
        )
        self.topics = TopicChanges(
            logs, runtime, loading, checkpoints, self.deletion, quotas, self.cleaning, self.moves
        )
        self.log_dir_changes = LogDirChanges(logs, runtime, self.moves)
        self.group_offsets = GroupOffsets(logs, runtime, self.topics)
        self.group_lags = GroupLags(logs, runtime.clock, self.group_offsets, hold_of)
        self.log_stats = LogStats(
            logs,
            runtime,
            self.progress,
            self.cleaning,
            self.retention,
            self.archived_offsets,
            self.deletion,
        )
        self._missing = MissingPartitions(logs, runtime, checkpoints, loading, self.topics)
        self.reload = PartitionReload(logs, loading, self.archived_offsets.lower_to_ends)
        sink_producers = self.sink_producers
        transactions = SinkTransactions(logs, runtime.clock)
        self.producer_ids = ProducerIds(
            logs, runtime, sink_producers, transactions, lambda: self.sinks.check_loaded()
        )
        sink_log = SinkLog(logs, runtime, self.topics)
        self.sinks = Sinks(logs, runtime, sink_log, sink_producers, self.producer_ids, transactions)

    # ---- start

    def startup(self) -> None:
        """Load everything and serve. InvalidConfig: the operator must act; nothing was changed.

        UnusableLogDirs (an InvalidConfig): a further start will say the same; the directories are
        unlocked, for ``kafkalog doctor --repair``.
        LogDirOffline when no directory can be used. Returns early, not loaded, after
        ``stop_loading``; ``shutdown`` is due all the same.
        """
        self._open_dirs()
        try:
            plan = self._decide()
        except UnusableLogDirs:
            for log_dir in self._log_dirs:
                log_dir.release()
            raise
        # No log was changed up to here: a start that is refused or stopped leaves the markers.
        if self._loading.is_stopped:
            return
        self._claim()
        self._count_repairs(REGISTRY_FILE, self.registry.spread())
        if plan.adopted:
            self.registry.change(plan.registry)
            names = [topic.name for topic in plan.adopted]
            _log.warning("topics_adopted", topics=names, note="retention is off until you set it")
        self._missing.remember_log_dirs(self.cluster_id, self.node_id)
        self._set_aside(plan)
        self._take_markers()
        self._load(plan)
        is_whole = not self._loading.is_stopped
        if is_whole:
            self._remember_unclean_start()
            self._missing.complete(plan)
            self.archived_offsets.lower_to_ends(self.registry.state.topics.values())
            self.moves.expect(plan.moving)
        if not self.logs.online_units:
            raise LogDirOffline("Shutdown broker because none of the log dirs can be used")
        for unit in self.logs.online_units:
            unit.flusher.start()
            unit.writer.start()
        if is_whole:
            now = self.runtime.clock.reading()
            self.retention.clock_hold.startup(self.registry.state.clock, now)
            self._tasks.start()
            schedule_once = self.runtime.scheduler.schedule_once
            schedule_once(LOG_METRICS_TASK, self.log_stats.run)
            delay_ms = self.runtime.config.log_initial_task_delay_ms
            schedule_once(DELETE_LOGS_TASK, self.deletion.run, delay_ms)
            self.cleaning.startup(self.registry.state.broker_configs)
            self.registry.is_ready = True
            self.moves.resume()

    def stop_loading(self) -> None:
        """Let ``startup`` return soon: no further partition is begun. Any thread.

        One that is being recovered is given up at its next chunk: it keeps what the checkpoints
        said of it, and the next start recovers it from there.
        """
        self._loading.is_stopped = True

    def _open_dirs(self) -> None:
        """Lock each; those that are not apart are refused before anything is made."""
        check_apart(self.runtime.filesystem, self._paths)
        reasons = []
        for log_dir in self._log_dirs:
            try:
                log_dir.open()
            except StorageFault as fault:
                reasons.append(fault.message)
                _log.error("log_dir_not_opened", log_dir=log_dir.path, reason=fault.message)
                log_dir.take_offline(fault.message)
        if not self.logs.online_units:
            raise LogDirOffline(
                "Shutdown broker because none of the specified log dirs can be used: "
                + "; ".join(reasons)
                + ". Repair them, let this user write to them, or name others in log.dirs."
            )

    def _decide(self) -> StartupPlan:
        """What becomes of every directory; writes nothing."""
        self.registry.read()
        cluster_id = self._identify([unit.log_dir for unit in self.logs.online_units])
        self.cluster_id = cluster_id or encode_id(new_id(self.runtime.random.uuid_bytes))
        self.registry.choose()
        if cluster_id is None:
            self.registry.state = replace(self.registry.state, made_cluster_id=self.cluster_id)
        self._check_stored(self.registry.state.broker_configs)
        self.log_dir_changes.apply(self.registry.state.broker_configs)
        return self._plan()

    def _check_stored(self, dynamic: Mapping[str, str]) -> None:
        """What the registry holds must still be valid: InvalidConfig."""
        try:
            self._rules.topic_defaults(dynamic)
            self._rules.cleaner_config(dynamic)
            self._rules.log_dir_config(dynamic)
        except InvalidRequest as error:
            message = f"The topic registry has a wrong dynamic broker config: {error.message}"
            raise InvalidConfig(message, **error.details) from error

    def _identify(self, log_dirs: Sequence[LogDir]) -> str | None:
        """The cluster.id of the directories, None when none has one; those in doubt go offline.

        Their node.id becomes the daemon's, unless one is configured.

        UnusableLogDirs when all are in doubt, or one belongs to another broker. Writes nothing.
        """
        found = [
            identity.IdentityFiles(
                log_dir.path,
                log_dir.meta,
                None if log_dir.meta_damage is None else str(log_dir.meta_damage),
                self.registry.copies.get(log_dir),
                self.registry.damaged.get(log_dir),
            )
            for log_dir in log_dirs
        ]
        self.node_id = identity.node_id_of(found, self.runtime.config.node_id)
        plan = identity.plan_identities(found, self.node_id, self._unknown_partitions)
        online = [log_dir for log_dir in log_dirs if log_dir.is_online]
        left = [log_dir for log_dir in online if log_dir.path not in plan.unproven]
        is_copy_left = any(log_dir in self.registry.copies for log_dir in left)
        # A new, empty store in the place of one that cannot be read would take its name.
        known = identity.known_node_id(found, self.runtime.config.node_id)
        if plan.unproven and (
            all(log_dir.is_fresh for log_dir in left)
            or (self.registry.damaged and not is_copy_left)
        ):
            raise identity.refusal(plan.unproven, found, known)
        remedy = identity.doctor_command(self._paths, known)
        for log_dir in online:
            if log_dir.path in plan.unproven:
                reason = "; ".join(plan.unproven[log_dir.path])
                _log.error("log_dir_damaged", log_dir=log_dir.path, reason=reason, remedy=remedy)
                log_dir.take_offline(f"{reason}. Stop the daemon and run {remedy}")
            elif log_dir.path in plan.meta:
                log_dir.prove(*plan.meta[log_dir.path])
        return plan.cluster_id

    def _unknown_partitions(self, path: str, state: RegistryState) -> Iterator[str]:
        """Partition directories that a registry does not explain; none when the disk fails."""
        unit = self.logs.unit_at(path)
        found: list[FoundPartition] = []
        with unit.log_dir.or_offline():
            found = scan.find_partitions(unit.log_dir, self.runtime.filesystem, state)
        yield from unexplained(state, found)

    def _claim(self) -> None:
        """Fresh directories join the cluster, those of an old Kafka get what they lack."""
        repaired = []
        for unit in self.logs.online_units:
            with unit.log_dir.or_offline():
                if unit.log_dir.claim(self.cluster_id, self.node_id):
                    repaired.append(unit.log_dir)
        self._count_repairs(META_PROPERTIES, repaired)

    def _count_repairs(self, file: str, log_dirs: Iterable[LogDir]) -> None:
        for log_dir in log_dirs:
            self.runtime.metrics.log_dir_files_repaired.labels(log_dir.path, file).inc()

    def _take_markers(self) -> None:
        """Right before the logs are opened: from here on a stop is unclean until it is complete."""
        for unit in self.logs.online_units:
            with unit.log_dir.or_offline():
                starts = self.runtime.metrics.unclean_starts.labels(unit.log_dir.path)  # shows 0
                if not unit.log_dir.take_clean_shutdown_marker() and not unit.log_dir.is_fresh:
                    starts.inc()

    def _remember_unclean_start(self) -> None:
        """A clean start may follow before anybody has looked; a full disk forgets it then."""
        found = self.progress.unclean_start
        if found is None:
            return
        try:
            self.registry.change(self.registry.state.with_unclean_start(found))
        except StorageFault as fault:
            _log.warning("unclean_start_not_remembered", reason=fault.message)

    def _plan(self) -> StartupPlan:
        """Scan all directories and decide."""
        found: list[FoundPartition] = []
        for unit in self.logs.online_units:
            with unit.log_dir.or_offline():
                found += scan.find_partitions(
                    unit.log_dir, self.runtime.filesystem, self.registry.state
                )
        adopt = self.runtime.config.adopt_unknown_topics
        plan = plan_startup(
            self.registry.state,
            found,
            self._unused(suspects(self.registry.state, found)),
            adopt=not self.registry.existed if adopt is None else adopt,
            new_topic_id=lambda: new_id(self.runtime.random.uuid_bytes),
        )
        scan.refuse_duplicates([partition for partition, _ in plan.load])
        left_alone = [partition.path for partition in plan.left_alone + plan.orphans]
        if left_alone:
            _log.warning("directories_left_alone", directories=left_alone)
        return plan

    def _unused(self, partitions: Collection[FoundPartition]) -> frozenset[str]:
        """Paths of those that hold nothing."""
        unused = []
        for partition in partitions:
            log_dir = self.logs.unit_at(partition.log_dir).log_dir
            with log_dir.or_offline(), log_dir.guard():
                if scan.is_unused(self.runtime.filesystem, partition.path):
                    unused.append(partition.path)
        return frozenset(unused)

    def _set_aside(self, plan: StartupPlan) -> None:
        """Finish deletions, rename stray directories."""
        runtime = self.runtime
        self._finish_moves(plan)
        for partition in plan.remove:
            self.deletion.add(self.logs.unit_at(partition.log_dir).log_dir, partition.path)
        for state, partitions in (
            (DirectoryState.DELETE, plan.delete),
            (DirectoryState.STRAY, plan.stray),
        ):
            for partition in partitions:
                unit = self.logs.unit_at(partition.log_dir)
                with unit.log_dir.or_offline():
                    path = scan.rename_with_suffix(
                        unit, runtime.filesystem, runtime.random, partition, state
                    )
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
            unit = self.logs.unit_at(move.future.log_dir)
            with unit.log_dir.or_offline():
                live = scan.rename_to_live(unit, self.runtime.filesystem, move.future)
                plan.load.append((live, move.topic))
                plan.remove.append(move.doomed)

    def _load(self, plan: StartupPlan) -> None:
        for partition, topic in plan.contradicted:
            self._loading.refuse(partition, topic)
        self.moves.announce(plan.moving)
        self._loading.load_all(
            [
                (unit, [job for job in plan.load if job[0].log_dir == unit.log_dir.path])
                for unit in self.logs.online_units
            ]
        )

    # ---- failure and end

    def _note_offline(self, log_dir: LogDir) -> None:
        """Any thread: count it; end the daemon with the last one."""
        self.runtime.metrics.log_dir_online.labels(log_dir.path).set(0)
        reason = str(log_dir.offline_reason)
        self.runtime.metrics.log_dir_offline_reason.labels(log_dir.path, reason).set(1)
        if self.registry.is_ready:
            log_partitions_offline(
                log.topic_partition for log in self.logs.table.logs_in(log_dir.path)
            )
        if not self.logs.online_units and self.registry.is_ready:
            _log.error("all_log_dirs_offline")
            self._on_all_dirs_offline()

    def shutdown(self) -> None:
        """Orderly end of everything that serves; see ``close_unit``. May block for long."""
        self.registry.is_ready = False
        self.background.stop()
        self.cleaning.cleaner.shutdown()  # a clean in progress needs its writer to end
        self._tasks.stop()
        self.log_stats.stop()
        self.deletion.stop()
        self.moves.stop()
        with self.registry.lock:
            pass  # a partition that is being loaded again is closed with the others
        unclean = close_units(self.logs, self.checkpoints, self.runtime.threads)
        if unclean:
            _log.warning("Shutdown complete; the next start will recover", log_dirs=unclean)
        else:
            _log.info("Shutdown complete.")
