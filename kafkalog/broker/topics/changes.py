"""TopicChanges: create, delete, grow and configure topics; configure the broker.

Owns the order of steps that makes each change whole after a crash or a failed directory. Control
plane: one change at a time under ``lock``, on threads that may block; the caller has validated it.
The registry is the truth: a change is one generation of it, in every online directory before the
answer. Logs learn of a new configuration from the writer of their directory, after it is durable.
Source: Kafka's ReplicationControlManager and ConfigurationControlManager decide the same
things there; log-lifecycle 11.

Placement: the log directories that new partitions go to.

Pure. Source: Kafka's LogManager.nextLogDirs: the directory with the fewest logs, among those that
are not cordoned; when all are, the first one takes everything.

LogDeletion: the queue of ``-delete`` directories and the task ``kafka-delete-logs``.

Owns the queue; an entry is removed from disk when the broker's ``log.segment.delete.delay.ms`` is
over (the topic's own delay is not used, as in Kafka). Runs on scheduler threads under the guard of
the log directory; nobody appends to these logs any more. Crash: the name says what to do, the next
start queues the directory again. Source: Kafka's LogManager.deleteLogs, log-lifecycle 11.1 and
11.3.
"""

from __future__ import annotations

import functools
from collections import Counter, deque
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.directory.commands import EachCommand
from kafkalog.broker.startup.scan import is_unused, read_topic_id
from kafkalog.broker.topics.registry import RegisteredTopic
from kafkalog.errors import (
    InvalidTopicConfig,
    KafkalogError,
    LogDirOffline,
    NotReady,
    StorageFault,
    work_on_each,
)
from kafkalog.format.topic_names import DirectoryState, TopicPartition, directory_name, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.broker.directory.unit import LogDirUnit
    from kafkalog.broker.log_manager import LogManager
    from kafkalog.broker.startup.load import DirectoryLoading
    from kafkalog.env.clock import Clock
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.env.scheduler import ScheduledTask, Scheduler
    from kafkalog.env.threads import Mutex
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
    """See the module."""

    def __init__(self, manager: LogManager, loading: DirectoryLoading, lock: Mutex) -> None:
        # constant after construction
        self.lock = lock
        self._manager = manager
        self._loading = loading
        self._seams = manager.runtime
        self._registry = manager.registry
        self._table = manager.table
        # published; changed under the lock
        self.topic_in_making: str | None = None

    # ---- create and delete

    def create(
        self, name: str, partition_count: int, overrides: Mapping[str, str]
    ) -> RegisteredTopic:
        """Register the topic, then make its partitions; durable on return.

        Crash in between: the topic exists, the next start makes the missing partitions. A directory
        that fails is left out of the next try, which has an id of its own: what the first one left
        behind belongs to a dead topic and goes at the next start. When no directory is left the
        topic is deleted again.
        """

        def attempt(failed: set[str]) -> RegisteredTopic:
            topic_id = new_id(self._seams.random.uuid_bytes)
            topic = RegisteredTopic(topic_id, name, partition_count, dict(overrides))
            state = self._registry.state.with_new_topics([topic])
            self._registry.change(state, self._log_dirs())
            try:
                self._make(topic, range(partition_count), failed, self._table.add)
            except KafkalogError:
                self.delete(name)  # all or nothing: the next try starts afresh
                raise
            self._write_proofs(name)
            self._settle(topic, 0)
            return topic

        return self._try_without_failed_dirs(name, attempt)

    def _write_proofs(self, name: str) -> None:
        """That the new logs have no gaps is known to every later start; once a directory."""
        for unit, _ in self._by_unit(
            log for log in self._all_logs() if log.topic_partition.topic == name
        ):
            try:
                self._manager.checkpoints.write_proofs(unit.log_dir)
            except StorageFault as fault:  # the task writes it again
                path = unit.log_dir.path
                _log.warning("proofs_not_written", log_dir=path, reason=fault.message)

    def _settle(self, topic: RegisteredTopic, first: int) -> None:
        """From here on a partition that a start does not find was not forgotten but lost."""
        try:
            self._registry.change(
                self._registry.state.settled(topic.topic_id, first), self._log_dirs()
            )
        except StorageFault as fault:  # the topic is whole: the next start notes it
            _log.warning("registry_not_settled", topic=topic.name, reason=fault.message)

    def delete(self, name: str) -> None:
        """Unregister the topic, rename its directories ``-delete``; durable on return.

        Partitions in an offline directory go when that directory comes back: their id is dead. So
        do those whose renaming a full disk refuses, at the next start.
        """
        manager = self._manager
        topic = self._registry.topics[name]
        self._registry.change(self._registry.state.without_topic(name), self._log_dirs())
        manager.moves.cancel_topic(name)
        doomed: list[UnifiedLog] = []
        faults = self._table.faults()
        for number in range(topic.partition_count):
            if (name, number) not in faults:
                log = self._table.get(name, number)
                if log is not None:
                    doomed.append(log)
            self._table.remove(TopicPartition(name, number))
        for log in doomed:  # behind the table: from here on no cleaner thread takes them
            manager.cleaning.forget(log.topic_partition)
        for unit, logs in self._by_unit(doomed):
            manager.checkpoints.note_removal(unit.log_dir)
            try:  # none of them takes appends any more when the first renaming fails
                unit.writer.call(functools.partial(unit.writer.retire, logs))
                works = [functools.partial(self._doom, unit, log) for log in logs]
                unit.writer.run(EachCommand([*works, functools.partial(self._sync, unit)], 1))
                manager.checkpoints.write_all(unit.log_dir)
            except StorageFault as fault:
                path = unit.log_dir.path
                _log.error("topic_not_renamed", topic=name, log_dir=path, reason=fault.message)
        manager.forget_config(topic)
        manager.quotas.forget(name)
        self._seams.metrics.forget_topic(name)

    # ---- grow

    def add_partitions(self, name: str, partition_count: int) -> RegisteredTopic:
        """Make the new partitions, then register them, all at once; durable on return.

        Crash before they are registered: none is there, the next start removes what was made; it
        holds no record, since nothing is served before. After: all are. A directory that fails is
        left out of the next try; when it comes back, what it holds of them is removed. Where a
        disk keeps a registration that could not be taken back, the next start makes them again.
        """

        def attempt(failed: set[str]) -> RegisteredTopic:
            topic = self._registry.topics[name]
            grown = replace(topic, partition_count=partition_count)
            numbers = range(topic.partition_count, partition_count)
            made: list[UnifiedLog] = []
            placed: dict[str, list[int]] = {}
            try:
                self._make(grown, numbers, failed, made.append, placed)
                self._registry.change(
                    self._registry.state.with_grown_topic(grown), self._log_dirs()
                )
            except KafkalogError:
                self._abandon(name, placed, made)
                raise
            for log in made:
                self._table.add(log)
            self._write_proofs(name)
            self._settle(grown, topic.partition_count)
            return grown

        return self._try_without_failed_dirs(name, attempt)

    def _abandon(
        self, name: str, placed: Mapping[str, list[int]], made: Iterable[UnifiedLog]
    ) -> None:
        """Take back what a growth made in the directories that still serve."""
        logs = {log.topic_partition.partition: log for log in made}
        for path, numbers in placed.items():
            unit = self._manager.unit_at(path)
            works = [
                functools.partial(self._doom, unit, logs[number])
                if number in logs
                else functools.partial(self._doom_remains, unit, TopicPartition(name, number))
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
        topic = self._registry.topics[name]
        altered = replace(topic, overrides=MappingProxyType(dict(overrides)))
        if altered == topic:
            return topic
        self._change_topic(altered)
        self._apply_configs(log for log in self._all_logs() if log.topic_partition.topic == name)
        return altered

    def alter_broker_configs(self, configs: Mapping[str, str]) -> None:
        """Replace the dynamic broker configs: durable, and in force in every log, on return.

        Crash: the old ones or the new ones, whole. The caller has validated them.
        """
        state = self._registry.state
        if configs == state.broker_configs:
            return
        self._registry.change(state.with_broker_configs(configs), self._log_dirs())
        self._apply_configs(self._all_logs())
        self._manager.cleaning.reconfigure(configs)
        self._manager.log_dir_changes.apply(configs)

    def validate_broker_configs(self, configs: Mapping[str, str]) -> None:
        """InvalidRequest; InvalidTopicConfig when a topic's own configs do not go with them."""
        rules = self._manager.rules
        rules.topic_defaults(configs)
        self._manager.cleaning.validate(configs)
        self._manager.log_dir_changes.validate(configs)
        for topic in self._registry.topics.values():
            try:
                rules.topic_config(topic.overrides, configs)
            except InvalidTopicConfig as error:
                message = f"Topic {topic.name} forbids it: {error.message}"
                raise InvalidTopicConfig(message, topic=topic.name, **error.details) from error

    def _apply_configs(self, logs: Iterable[UnifiedLog]) -> None:
        """Tell logs what counts now, each on its writer.

        A writer that cannot take it belongs to a directory that failed or to a daemon that stops:
        no append follows there, and the next start reads the registry.
        """
        topics, config_of = self._registry.topics, self._manager.topic_config
        for unit, several in self._by_unit(logs):
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
                self._manager.cleaning.config_changed(log, was_compacted=log in were_compacted)

    # ---- parts

    def place(self, count: int, failed: Collection[str] = ()) -> list[str]:
        """Directory of each new partition; LogDirOffline when none is left."""
        log_dirs = [log_dir for log_dir in self._log_dirs() if log_dir.path not in failed]
        return place(log_dirs, Counter(log.parent_dir for log in self._all_logs()), count)

    def _try_without_failed_dirs(
        self, name: str, attempt: Callable[[set[str]], RegisteredTopic]
    ) -> RegisteredTopic:
        """Attempt until it succeeds, each time without the directories that failed before.

        Ends with the fault when all failed, or none did: then it was the registry.
        """
        failed: set[str] = set()
        before = self._registry.topics.get(name)
        self.topic_in_making = name
        try:
            while True:
                failed_before = len(failed)
                try:
                    return attempt(failed)
                except StorageFault as fault:
                    is_changed = self._registry.topics.get(name) is not before
                    all_paths = (log_dir.path for log_dir in self._log_dirs())
                    if (
                        is_changed  # taking it back failed
                        or len(failed) == failed_before
                        or failed.issuperset(all_paths)
                    ):
                        raise
                    _log.warning("partitions_tried_again", topic=name, reason=fault.message)
        finally:
            self.topic_in_making = None

    def _make(
        self,
        topic: RegisteredTopic,
        numbers: range,
        failed: set[str],
        take: Callable[[UnifiedLog], None],
        placed: dict[str, list[int]] | None = None,
    ) -> None:
        """Make partitions, each on the writer of its directory; ``take`` gets them there.

        A directory that fails is added to ``failed``; ``placed`` tells what was tried where.
        """
        placed = {} if placed is None else placed
        for number, path in zip(numbers, self.place(len(numbers), failed), strict=True):
            placed.setdefault(path, []).append(number)
        for path, own in placed.items():
            unit = self._manager.unit_at(path)
            works = [functools.partial(self._make_one, unit, topic, each, take) for each in own]
            try:
                self._manager.checkpoints.renew(unit.log_dir)
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
        if read_topic_id(self._seams.filesystem, path) in self._registry.state.deleted:
            self._doom_directory(unit, topic_partition)  # a full disk refused its renaming
        take(self._loading.create(unit, topic_partition, topic))
        configs = ", ".join(f"{key}={value}" for key, value in sorted(topic.overrides.items()))
        _log.info(
            f"Created log for partition {topic_partition} in {path} with properties {{{configs}}}"
        )

    def _doom(self, unit: LogDirUnit, log: UnifiedLog) -> None:
        """On the writer: ``-delete`` now, gone later; durable with the ``_sync`` behind the last.

        A sync for each would hold up the appends of the others for 25 ms a slice.
        """
        log.rename_dir(self._doomed_name(log.topic_partition))
        _log.info(
            f"Log for partition {log.topic_partition} is renamed to {log.directory} and is "
            "scheduled for deletion"
        )
        self._manager.deletion.add(unit.log_dir, log.directory, log)

    def _sync(self, unit: LogDirUnit) -> None:
        self._seams.filesystem.sync_dir(unit.log_dir.path)

    def _doom_remains(self, unit: LogDirUnit, topic_partition: TopicPartition) -> None:
        """The same with a directory that never became a log, unless there is something in it."""
        filesystem, path = self._seams.filesystem, f"{unit.log_dir.path}/{topic_partition}"
        if filesystem.exists(path) and is_unused(filesystem, path):
            self._doom_directory(unit, topic_partition)

    def _doom_directory(self, unit: LogDirUnit, topic_partition: TopicPartition) -> None:
        """The same with a directory that no log is open in; durable."""
        root = unit.log_dir.path
        doomed = f"{root}/{self._doomed_name(topic_partition)}"
        self._seams.filesystem.rename(f"{root}/{topic_partition}", doomed)
        self._manager.deletion.add(unit.log_dir, doomed)
        self._seams.filesystem.sync_dir(root)

    def _doomed_name(self, topic_partition: TopicPartition) -> str:
        unique = self._seams.random.uuid_bytes().hex()
        return directory_name(topic_partition, DirectoryState.DELETE, unique)

    def _change_topic(self, topic: RegisteredTopic) -> None:
        self._registry.change(self._registry.state.with_topics([topic]), self._log_dirs())

    def _all_logs(self) -> list[UnifiedLog]:
        """Those that serve and those on their way to another directory."""
        return self._table.logs() + self._table.futures()

    def _log_dirs(self) -> list[LogDir]:
        return [unit.log_dir for unit in self._manager.online_units]

    def _by_unit(self, logs: Iterable[UnifiedLog]) -> list[tuple[LogDirUnit, list[UnifiedLog]]]:
        grouped: dict[str, list[UnifiedLog]] = {}
        for log in logs:
            grouped.setdefault(log.parent_dir, []).append(log)
        return [(self._manager.unit_at(path), several) for path, several in grouped.items()]


DELETE_LOGS_TASK = "kafka-delete-logs"


@dataclass(frozen=True, slots=True)
class _Doomed:
    log_dir: LogDir
    path: str
    log: UnifiedLog | None  # None: found at the start, never loaded
    due_ns: int


class LogDeletion:
    """See the module."""

    def __init__(
        self,
        filesystem: Filesystem,
        clock: Clock,
        scheduler: Scheduler,
        delay_ms: Callable[[], int],
    ) -> None:
        # constant after construction
        self._filesystem = filesystem
        self._clock = clock
        self._scheduler = scheduler
        self._delay_ms = delay_ms
        # appended by any thread, popped by the task
        self._queue: deque[_Doomed] = deque()
        self._task: ScheduledTask | None = None
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._queue)

    def bytes_in(self, log_dir: LogDir) -> int:
        """Of the ``.log`` files that wait in a directory; what the start found counts nothing."""
        waiting = self._queue.copy()
        return sum(each.log.size_bytes for each in waiting if each.log and each.log_dir is log_dir)

    def add(self, log_dir: LogDir, path: str, log: UnifiedLog | None = None) -> None:
        """Queue a directory that has its ``-delete`` name; a power cut may still take the name."""
        due_ns = self._clock.monotonic_ns() + self._delay_ms() * 1_000_000
        self._queue.append(_Doomed(log_dir, path, log, due_ns))

    def schedule(self, delay_ms: int) -> None:
        """Run the task after delay_ms; it schedules itself from then on."""
        if not self._is_stopped:
            self._task = self._scheduler.schedule_once(DELETE_LOGS_TASK, self._run, delay_ms)

    def stop(self) -> None:
        """No further runs."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    def delete_due_once(self) -> None:
        """Remove what is due; raises the first fault after the last of them. Loop body.

        The rule of at most 64 directory operations binds writers only; this thread holds up none.
        What could not be removed is queued again by the next start.
        """
        work_on_each(self._take_due(), self._remove, _tell)

    def _take_due(self) -> Iterator[_Doomed]:
        while self._queue and self._queue[0].due_ns <= self._clock.monotonic_ns():
            yield self._queue.popleft()

    def _remove(self, doomed: _Doomed) -> None:
        with doomed.log_dir.guard():
            if doomed.log is not None:
                doomed.log.delete()
            if self._filesystem.exists(doomed.path):
                self._filesystem.remove_tree(doomed.path)
            self._filesystem.sync_dir(doomed.log_dir.path)
        partition = "" if doomed.log is None else f" for partition {doomed.log.topic_partition}"
        _log.info(f"Deleted log{partition} in {doomed.path}.")

    def _run(self) -> None:
        """The task: as Kafka's, due again when the head of the queue is."""
        try:
            self.delete_due_once()
        finally:
            self.schedule(self._next_delay_ms())

    def _next_delay_ms(self) -> int:
        if not self._queue:
            return max(self._delay_ms(), 1)
        wait_ns = self._queue[0].due_ns - self._clock.monotonic_ns()
        return max(-(-wait_ns // 1_000_000), 0)


def _tell(doomed: _Doomed, fault: KafkalogError) -> None:
    _log.error("log_not_deleted", path=doomed.path, reason=fault.message)
