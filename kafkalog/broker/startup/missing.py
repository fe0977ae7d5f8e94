"""MissingPartitions: partitions that no log directory holds at the start are not recreated, empty.

The registry remembers the ``directory.id`` and the last path of every log directory that served. An
entry left out of ``log.dirs``, a mount point that is not mounted, a disk that was replaced, or
partition directories that were removed must not look like empty partitions: appends would be
acknowledged from offset 0, and the records could not come back beside them. So what is found
nowhere is out of service until it is back or ``create.missing.partitions`` says that it is gone
for good. Only what a creation or a growth has not ended is completed without asking.
Source: in Kafka (KRaft) the controller knows each replica's directory.id, and the replicas of a
missing one stay offline; unlike here, a directory that vanished from a present one is recreated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from kafkalog.errors import LogDirOffline, StorageFault
from kafkalog.format.topic_names import TopicPartition, encode_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.directory.checkpoints import Checkpoints
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.startup.load import DirectoryLoading
    from kafkalog.broker.startup.plan import StartupPlan
    from kafkalog.broker.topics.changes import TopicChanges
    from kafkalog.broker.topics.registry import RegisteredTopic

_GONE = (
    "If the records are gone for good, start once with --override "
    "create.missing.partitions=true: the partition is then recreated, empty."
)

_NAMED = 10

_log = structlog.get_logger(__name__)


def log_partitions_offline(partitions: Iterable[TopicPartition]) -> None:
    """One line for all that a directory takes with it: count and first names; none for nothing."""
    names = sorted(map(str, partitions))
    if names:
        _log.error("partitions_offline", count=len(names), first=names[:_NAMED])


class MissingPartitions:
    """Owned by the starting thread."""

    def __init__(
        self,
        logs: Logs,
        runtime: Runtime,
        checkpoints: Checkpoints,
        loading: DirectoryLoading,
        topics: TopicChanges,
    ) -> None:
        # constant after construction
        self._logs = logs
        self._registry = logs.registry
        self._config = runtime.config
        self._checkpoints = checkpoints
        self._loading = loading
        self._topics = topics

    def remember_log_dirs(self, cluster_id: str, node_id: int) -> None:
        """The directories that were claimed belong to the daemon; durable before they are loaded.

        On a full disk the next start notes them. Crash: a fresh one, which holds nothing yet, may
        be forgotten.
        """
        present = {
            log_dir.meta.directory_id: log_dir.path
            for log_dir in (unit.log_dir for unit in self._logs.online_units)
            if log_dir.meta is not None and log_dir.meta.directory_id is not None
        }
        try:
            self._registry.remember_log_dirs(present, cluster_id, node_id)
        except StorageFault as fault:
            _log.warning("log_dirs_not_remembered", reason=fault.message)

    def complete(self, plan: StartupPlan) -> None:
        """Make or refuse what was found nowhere; not while a directory is offline: it may hold it.

        Behind the loading. Made without asking, unless a log directory is missing: what a creation
        has not made, and what had an empty or a deleted topic's directory in its place. When
        nothing is missing, topics are no longer in making and directories that are not there are
        forgotten: they hold nothing. A full disk leaves that to the next start.
        """
        absent = self._absent_log_dirs()
        for directory_id, path in absent.items():
            _log.warning("log_dir_missing", directory_id=encode_id(directory_id), last_path=path)
        if len(self._logs.online_units) < len(self._logs.units):
            told = self._logs.table.faults()  # which have a line of their own
            log_partitions_offline(
                [
                    TopicPartition(topic.name, number)
                    for topic in self._registry.state.topics.values()
                    for number in self._logs.faults_of(topic)
                    if (topic.name, number) not in told
                ]
            )
            return
        for orphan in plan.orphans:
            self._loading.refuse_orphan(orphan)
        put_aside = {partition.topic_partition for partition in plan.stray + plan.delete}
        in_making = self._registry.state.in_making
        is_settled = not plan.orphans
        for topic_partition, topic in self._found_nowhere():
            first_in_making = in_making.get(topic.topic_id, topic.partition_count)
            never_was = topic_partition.partition >= first_in_making or topic_partition in put_aside
            if self._config.create_missing_partitions or (never_was and not absent):
                is_settled &= self._create(topic_partition, topic)
            else:
                self._refuse(topic_partition, absent)
                is_settled = False
        if not is_settled or not (absent or in_making):
            return
        state = self._registry.state.with_all_partitions_made().without_log_dirs(absent)
        try:
            self._registry.change(state)
        except StorageFault as fault:
            _log.warning("registry_not_settled", reason=fault.message)
            return
        for directory_id, path in absent.items():
            _log.warning("log_dir_forgotten", directory_id=encode_id(directory_id), last_path=path)

    def _absent_log_dirs(self) -> dict[UUID, str]:
        """Last paths of the remembered directories that are not among those of this start.

        One that failed before it said who it is is known by its path.
        """
        identities = {unit.log_dir.path: unit.log_dir.meta for unit in self._logs.units}
        present = {meta.directory_id for meta in identities.values() if meta is not None}
        unread = {path for path, meta in identities.items() if meta is None}
        remembered = self._registry.state.log_dirs
        return {
            each: path
            for each, path in remembered.items()
            if each not in present and path not in unread
        }

    def _found_nowhere(self) -> list[tuple[TopicPartition, RegisteredTopic]]:
        """Partitions of living topics that are neither served nor at fault."""
        faults = self._logs.table.faults()
        return [
            (TopicPartition(topic.name, number), topic)
            for topic in self._registry.state.topics.values()
            for number in range(topic.partition_count)
            if (topic.name, number) not in faults
            and self._logs.table.get(topic.name, number) is None
        ]

    def _create(self, topic_partition: TopicPartition, topic: RegisteredTopic) -> bool:
        """Make the partition, empty; whether that succeeded."""
        unit = self._logs.unit_at(self._topics.place(1)[0])
        path = f"{unit.log_dir.path}/{topic_partition}"
        _log.error(
            "partition_missing_created_empty",
            partition=str(topic_partition),
            directory=path,
            remedy="To bring its records back, stop the daemon, move this directory away "
            "and put the one with the records in its place.",
        )
        try:
            with unit.log_dir.guard():
                self._checkpoints.renew(unit.log_dir)
                self._logs.table.add(self._loading.create(unit, topic_partition, topic))
        except StorageFault as fault:
            self._loading.put_out_of_service(topic_partition, fault, path)
            return False
        return True

    def _refuse(self, topic_partition: TopicPartition, absent: Mapping[UUID, str]) -> None:
        """Out of service, with the directories that may hold it."""
        if absent:
            where = next(iter(absent.values()))
            named = ", ".join(
                f"directory.id {encode_id(directory_id)} (last at {path})"
                for directory_id, path in absent.items()
            )
            reason = f"these log directories of the daemon are missing: {named}"
            remedy = f"Stop the daemon, bring the missing log directories back and start. {_GONE}"
        else:
            where = self._logs.units[0].log_dir.path
            reason = "no log directory is missing: its directory was removed"
            remedy = f"Stop the daemon, bring the partition's directory back and start. {_GONE}"
        self._loading.put_out_of_service(
            topic_partition,
            LogDirOffline(
                f"No log directory holds partition {topic_partition}, and {reason}", log_dir=where
            ),
            f"{where}/{topic_partition}",
            remedy,
        )
