"""TopicChanges: create, delete, grow and configure topics.

Owns the order of steps that makes each change whole after a crash or a failed directory. Control
plane: one change at a time under the lock of the registry, on threads that may block; the caller
has validated it. The registry is the truth: a change is one generation of it, in every online
directory before the answer. Logs learn of a new configuration from the writer of their directory,
after it is durable. A new partition is placed in the directory with the fewest logs, among those
that are not cordoned; when all are, in the first one. Source: Kafka's ReplicationControlManager and
ConfigurationControlManager make these decisions there, LogManager.nextLogDirs places partitions.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.directory.commands import EachCommand
from kafkalog.broker.startup.scan import is_unused, read_topic_id
from kafkalog.broker.topics.registry import RegisteredTopic
from kafkalog.errors import KafkalogError, LogDirOffline, NotReady, StorageFault
from kafkalog.format.topic_names import DirectoryState, TopicPartition, directory_name, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.compaction.cleaning import Cleaning
    from kafkalog.broker.directory.checkpoints import Checkpoints
    from kafkalog.broker.directory.limits import TopicQuotas
    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.broker.directory.unit import LogDirUnit
    from kafkalog.broker.moves.partition_moves import PartitionMoves
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.startup.load import DirectoryLoading
    from kafkalog.broker.topics.deletion import LogDeletion
    from kafkalog.log.unified_log import UnifiedLog


def place(log_dirs: Sequence[LogDir], log_counts: Mapping[str, int], count: int) -> list[str]:
    """Paths of ``count`` new partitions, in order; of equally full ones the first is taken.

    ``log_dirs``: those that can take one, as configured. LogDirOffline when there is none.
    """
    if not log_dirs:
        raise LogDirOffline("No log directory is online")
    uncordoned = [log_dir.path for log_dir in log_dirs if not log_dir.is_cordoned]
    counts = {path: log_counts.get(path, 0) for path in uncordoned or [log_dirs[0].path]}
    placed = []
    for _ in range(count):
        path = min(counts, key=lambda each: counts[each])
        counts[path] += 1
        placed.append(path)
    return placed


_CREATE_OPERATIONS = 16  # directory operations of one new partition, generously
_UPDATE_OPERATIONS = 1  # a new configuration costs none, but a slice must end

_log = structlog.get_logger(__name__)


class TopicChanges:
    """See the module. Every change is made under the lock of the registry."""

    def __init__(
        self,
        logs: Logs,
        runtime: Runtime,
        loading: DirectoryLoading,
        checkpoints: Checkpoints,
        deletion: LogDeletion,
        quotas: TopicQuotas,
        cleaning: Cleaning,
        moves: PartitionMoves,
    ) -> None:
        # constant after construction
        self._logs = logs
        self._table = logs.table
        self._registry = logs.registry
        self._runtime = runtime
        self._loading = loading
        self._checkpoints = checkpoints
        self._deletion = deletion
        self._quotas = quotas
        self._cleaning = cleaning
        self._moves = moves

    # ---- create and delete

    def create(
        self, name: str, partition_count: int, overrides: Mapping[str, str]
    ) -> RegisteredTopic:
        """Register the topic, then make its partitions; durable on return.

        Crash in between: the topic exists, the next start makes the missing partitions. A directory
        that fails is left out of the next try, which has another id: what the first one left is a
        dead topic's and is deleted at the next start. When no directory is left the topic is
        deleted again.
        """

        def attempt(failed: set[str]) -> RegisteredTopic:
            topic_id = new_id(self._runtime.random.uuid_bytes)
            topic = RegisteredTopic(topic_id, name, partition_count, dict(overrides))
            state = self._registry.state.with_new_topics([topic])
            self._registry.change(state)
            try:
                self._make(topic, range(partition_count), failed, self._table.add)
            except KafkalogError:
                self.delete(name)  # all or nothing: the next try starts afresh
                raise
            self._write_proofs(name)
            self._note_made(topic, 0)
            return topic

        return self._try_without_failed_dirs(name, attempt)

    def _write_proofs(self, name: str) -> None:
        """That the new logs have no gaps is known to every later start; once a directory."""
        for unit, _ in self._by_unit(self._logs_of(name)):
            try:
                self._checkpoints.write_proofs(unit.log_dir)
            except StorageFault as fault:  # the task writes it again
                path = unit.log_dir.path
                _log.warning("proofs_not_written", log_dir=path, reason=fault.message)

    def _note_made(self, topic: RegisteredTopic, first: int) -> None:
        """From here on a partition that a start does not find was not forgotten but lost."""
        try:
            self._registry.change(self._registry.state.with_partitions_made(topic.topic_id, first))
        except StorageFault as fault:  # the topic is whole: the next start notes it
            _log.warning("registry_not_settled", topic=topic.name, reason=fault.message)

    def delete(self, name: str) -> None:
        """Unregister the topic, rename its directories ``-delete``; durable on return.

        Partitions in an offline directory go when that directory comes back: their id is dead. So
        do those whose renaming a full disk refuses, at the next start.
        """
        topic = self._registry.state.topics[name]
        self._registry.change(self._registry.state.without_topic(name))
        self._moves.cancel_topic(name)
        doomed = self._table.logs_of(name)
        for number in range(topic.partition_count):
            self._table.remove(TopicPartition(name, number))
        for log in doomed:  # after the table: from here on no cleaner thread takes them
            self._cleaning.forget(log.topic_partition)
        for unit, logs in self._by_unit(doomed):
            self._checkpoints.note_removal(unit.log_dir)
            try:  # none of them takes appends any more when the first renaming fails
                unit.writer.call(functools.partial(unit.writer.retire, logs))
                works = [functools.partial(self._mark_deleted, unit, log) for log in logs]
                unit.writer.run(EachCommand([*works, functools.partial(self._sync, unit)], 1))
                self._checkpoints.write_all(unit.log_dir)
            except StorageFault as fault:
                path = unit.log_dir.path
                _log.error("topic_not_renamed", topic=name, log_dir=path, reason=fault.message)
        self._logs.forget_config(topic)
        self._quotas.forget(name)
        self._runtime.metrics.forget_topic(name)

    # ---- grow

    def add_partitions(self, name: str, partition_count: int) -> RegisteredTopic:
        """Make the new partitions, then register them, all at once; durable on return.

        Crash before they are registered: none is there, the next start removes what was made; it
        holds no record, since nothing is served before. After: all are. A directory that fails is
        left out of the next try; when it comes back, what it holds of them is removed. Where a
        disk keeps a registration that could not be taken back, the next start makes them again.
        """

        def attempt(failed: set[str]) -> RegisteredTopic:
            topic = self._registry.state.topics[name]
            grown = replace(topic, partition_count=partition_count)
            numbers = range(topic.partition_count, partition_count)
            made: list[UnifiedLog] = []
            placed: dict[str, list[int]] = {}
            try:
                self._make(grown, numbers, failed, made.append, placed)
                self._registry.change(self._registry.state.with_grown_topic(grown))
            except KafkalogError:
                self._abandon(name, placed, made)
                raise
            for log in made:
                self._table.add(log)
            self._write_proofs(name)
            self._note_made(grown, topic.partition_count)
            return grown

        return self._try_without_failed_dirs(name, attempt)

    def _abandon(
        self, name: str, placed: Mapping[str, list[int]], made: Iterable[UnifiedLog]
    ) -> None:
        """Take back what a growth made in the directories that still serve."""
        logs = {log.topic_partition.partition: log for log in made}
        for path, numbers in placed.items():
            unit = self._logs.unit_at(path)
            works = [
                functools.partial(self._mark_deleted, unit, logs[number])
                if number in logs
                else functools.partial(
                    self._mark_remains_deleted, unit, TopicPartition(name, number)
                )
                for number in numbers
            ]
            try:
                unit.writer.run(EachCommand([*works, functools.partial(self._sync, unit)], 3))
            except KafkalogError as fault:  # the next start does it
                _log.error("partitions_not_removed", log_dir=path, reason=fault.message)
                for number in numbers:
                    if number in logs:
                        logs[number].close_handles()

    # ---- configure

    def alter_configs(self, name: str, overrides: Mapping[str, str]) -> RegisteredTopic:
        """Replace the topic's overrides: durable, and in force in every partition, on return.

        Crash: the old ones or the new ones, whole.
        """
        topic = self._registry.state.topics[name]
        altered = replace(topic, overrides=dict(overrides))
        if altered == topic:
            return topic
        self._registry.change(self._registry.state.with_topics([altered]))
        self.apply_configs(name)
        return altered

    def apply_configs(self, topic: str | None = None) -> None:
        """Let the logs of a topic, or all, have the configuration in force, each on its writer.

        A writer that cannot take it belongs to a directory that failed or to a daemon that stops:
        no append follows there, and the next start reads the registry.
        """
        topics, config_of = self._registry.state.topics, self._logs.topic_config
        for unit, several in self._by_unit(self._logs_of(topic)):
            works = [
                functools.partial(log.update_config, config_of(topics[log.topic_partition.topic]))
                for log in several
            ]
            were_compacted = {log for log in several if log.config.is_compacted}
            try:
                unit.writer.run(EachCommand(works, _UPDATE_OPERATIONS))
            except (StorageFault, NotReady) as fault:
                path = unit.log_dir.path
                _log.warning("configs_not_applied", log_dir=path, reason=fault.message)
                continue
            for log in several:
                self._cleaning.config_changed(log, was_compacted=log in were_compacted)

    # ---- parts

    def place(self, count: int, failed: Collection[str] = ()) -> list[str]:
        """Directory of each new partition; LogDirOffline when none is left."""
        log_dirs = [log_dir for log_dir in self._log_dirs() if log_dir.path not in failed]
        return place(log_dirs, Counter(log.parent_dir for log in self._logs_of()), count)

    def _try_without_failed_dirs(
        self, name: str, attempt: Callable[[set[str]], RegisteredTopic]
    ) -> RegisteredTopic:
        """Attempt until it succeeds, each time without the directories that failed before.

        Ends with the fault when all failed, or none did: then it was the registry.
        """
        failed: set[str] = set()
        before = self._registry.state.topics.get(name)
        self._logs.begin_making(name)
        try:
            while True:
                failed_before = len(failed)
                try:
                    return attempt(failed)
                except StorageFault as fault:
                    is_changed = self._registry.state.topics.get(name) is not before
                    all_paths = (log_dir.path for log_dir in self._log_dirs())
                    if (
                        is_changed  # taking it back failed
                        or len(failed) == failed_before
                        or failed.issuperset(all_paths)
                    ):
                        raise
                    _log.warning("partitions_tried_again", topic=name, reason=fault.message)
        finally:
            self._logs.end_making()

    def _make(
        self,
        topic: RegisteredTopic,
        numbers: range,
        failed: set[str],
        take: Callable[[UnifiedLog], None],
        placed: dict[str, list[int]] | None = None,
    ) -> None:
        """Make partitions, each on the writer of its directory; ``take`` gets them there.

        A directory that fails is added to ``failed``; ``placed`` gets what was tried where.
        """
        placed = {} if placed is None else placed
        for number, path in zip(numbers, self.place(len(numbers), failed), strict=True):
            placed.setdefault(path, []).append(number)
        for path, own in placed.items():
            unit = self._logs.unit_at(path)
            works = [functools.partial(self._make_one, unit, topic, each, take) for each in own]
            try:
                self._checkpoints.renew(unit.log_dir)
                unit.writer.run(EachCommand(works, _CREATE_OPERATIONS))
            except KafkalogError:
                failed.add(path)
                raise

    def _make_one(
        self,
        unit: LogDirUnit,
        topic: RegisteredTopic,
        number: int,
        take: Callable[[UnifiedLog], None],
    ) -> None:
        topic_partition = TopicPartition(topic.name, number)
        path = f"{unit.log_dir.path}/{topic_partition}"
        if read_topic_id(self._runtime.filesystem, path) in self._registry.state.deleted:
            self._mark_directory_deleted(unit, topic_partition)  # a full disk refused its renaming
        take(self._loading.create(unit, topic_partition, topic))
        configs = ", ".join(f"{key}={value}" for key, value in sorted(topic.overrides.items()))
        _log.info(
            f"Created log for partition {topic_partition} in {path} with properties {{{configs}}}"
        )

    def _mark_deleted(self, unit: LogDirUnit, log: UnifiedLog) -> None:
        """On the writer: ``-delete`` now, removed later; durable with the ``_sync`` after the last.

        A sync for each would hold up the appends of the others for 25 ms a slice.
        """
        log.rename_dir(self._deleted_name(log.topic_partition))
        _log.info(
            f"Log for partition {log.topic_partition} is renamed to {log.directory} and is "
            "scheduled for deletion"
        )
        self._deletion.add(unit.log_dir, log.directory, log)

    def _sync(self, unit: LogDirUnit) -> None:
        self._runtime.filesystem.sync_dir(unit.log_dir.path)

    def _mark_remains_deleted(self, unit: LogDirUnit, topic_partition: TopicPartition) -> None:
        """The same with a directory that never became a log, unless there is something in it."""
        filesystem, path = self._runtime.filesystem, f"{unit.log_dir.path}/{topic_partition}"
        if filesystem.exists(path) and is_unused(filesystem, path):
            self._mark_directory_deleted(unit, topic_partition)

    def _mark_directory_deleted(self, unit: LogDirUnit, topic_partition: TopicPartition) -> None:
        """The same with a directory that no log is open in; durable."""
        root = unit.log_dir.path
        doomed = f"{root}/{self._deleted_name(topic_partition)}"
        self._runtime.filesystem.rename(f"{root}/{topic_partition}", doomed)
        self._deletion.add(unit.log_dir, doomed)
        self._runtime.filesystem.sync_dir(root)

    def _deleted_name(self, topic_partition: TopicPartition) -> str:
        unique = self._runtime.random.uuid_bytes().hex()
        return directory_name(topic_partition, DirectoryState.DELETE, unique)

    def _logs_of(self, topic: str | None = None) -> list[UnifiedLog]:
        """Of one topic, or of all: those that serve and the copies for another directory."""
        logs = self._table.logs() + self._table.futures()
        return [log for log in logs if topic is None or log.topic_partition.topic == topic]

    def _log_dirs(self) -> list[LogDir]:
        return [unit.log_dir for unit in self._logs.online_units]

    def _by_unit(self, logs: Iterable[UnifiedLog]) -> list[tuple[LogDirUnit, list[UnifiedLog]]]:
        grouped: dict[str, list[UnifiedLog]] = {}
        for log in logs:
            grouped.setdefault(log.parent_dir, []).append(log)
        return [(self._logs.unit_at(path), several) for path, several in grouped.items()]
