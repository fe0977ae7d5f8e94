"""Where an archive comes from, and who hears how far it is: daemons, or log directories.

Readers see records of ``acks=1`` before they are durable. An archive must not: a power cut would
take them from the log and give their offsets to others. So it ends at the recovery point, unless
its daemon has left the directory cleanly. What a killed one wrote may be in memory alone.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

import structlog

from kafkalog import client as daemons
from kafkalog.errors import CorruptData, UnknownTopic
from kafkalog.format.disk.checkpoints import salvage_offsets
from kafkalog.format.disk.file_names import (
    CLEAN_SHUTDOWN,
    LOCK,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkalog.format.disk.properties import decode_partition_metadata
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import TopicPartition, encode_id
from kafkalog.spark.logs.daemon import DaemonLogs
from kafkalog.spark.logs.object_store import filesystem_for, shown
from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.logs.partition_files import partitions_in
from kafkalog.spark.logs.values import AmbiguousPartition

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkalog.jobs.archive.archive_table import Position
    from kafkalog.spark.logs.values import Access, Logs

_log = structlog.get_logger(__name__)


class ArchiveSource(Protocol):
    """One thread; a context manager that lets go of connections."""

    @property
    def access(self) -> Access:
        """For the tasks."""
        ...

    @property
    def logs(self) -> Logs:
        """To plan with."""
        ...

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Of these topics as they are at this moment, where they are there and have one."""
        ...

    def durable_end(self, topic: str, partition: int, end: int) -> int:
        """Of what lies below ``end``: what lies at or above may vanish in a power cut."""
        ...

    def tell(self, archived: Position, topics: Collection[str]) -> None:
        """Of these topics the archive holds, durably, what lies below its offsets."""
        ...


class DirectorySource:
    """Log directories, served by a daemon or by none."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.logs = open_logs(access)
        self._filesystem = filesystem_for(access.paths)
        self._warned = set[str]()

    def __enter__(self) -> DirectorySource:
        return self

    def __exit__(self, *_: object) -> None:
        self.logs.close()

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """As each partition's own directory has it; OSError, CorruptData, AmbiguousPartition."""
        found: dict[str, str] = {}
        for path in self.access.paths:
            for each, _ in partitions_in(self._filesystem, path):
                if each.topic not in topics:
                    continue
                topic_id = self._topic_id(f"{path}/{each}/{PARTITION_METADATA}")
                if topic_id is not None and found.setdefault(each.topic, topic_id) != topic_id:
                    raise AmbiguousPartition(
                        f"Partitions of two topics have the name {each.topic}: one has the id "
                        f"{found[each.topic]}, {shown(path)}/{each} {topic_id}"
                    )
        return found

    def durable_end(self, topic: str, partition: int, end: int) -> int:
        """The recovery point as its daemon last noted it, unless it has stopped cleanly; OSError.

        Nothing is of a partition that is nowhere: a move to another directory gives it two names.
        """
        name, filesystem = TopicPartition(topic, partition), self._filesystem
        for log_dir in self.access.paths:
            if filesystem.exists(f"{log_dir}/{name}"):
                is_served = filesystem.is_locked(f"{log_dir}/{LOCK}")
                if not is_served and filesystem.exists(f"{log_dir}/{CLEAN_SHUTDOWN}"):
                    return end
                recovery_point = self._recovery_points(log_dir).get(name, 0)
                if recovery_point < end and not is_served:
                    self._warn(log_dir)
                return min(end, recovery_point)
        return 0

    def tell(self, archived: Position, topics: Collection[str]) -> None:
        """A daemon hears it from a run over its URL alone."""

    def _warn(self, log_dir: str) -> None:
        """Once: a run that leaves out what everybody can read has to say why."""
        if log_dir not in self._warned:
            self._warned.add(log_dir)
            _log.warning(
                "archive_ends_at_recovery_point",
                directory=shown(log_dir),
                reason="no daemon has left it cleanly: what lies above may not be durable",
                what_to_do="start the daemon and stop it, or archive while it runs",
            )

    def _topic_id(self, path: str) -> str | None:
        try:
            return encode_id(decode_partition_metadata(self._filesystem.read_file(path)))
        except FileNotFoundError:  # written by a Kafka without ids, or about to move
            return None
        except FormatError as error:
            raise CorruptData(error.reason, file=shown(path), position=0) from error

    def _recovery_points(self, log_dir: str) -> dict[TopicPartition, int]:
        try:
            data = self._filesystem.read_file(f"{log_dir}/{RECOVERY_POINT_CHECKPOINT}")
        except FileNotFoundError:
            return {}
        return salvage_offsets(data)[0]


class DaemonSource:
    """Daemons, each with topics of its own."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.logs = DaemonLogs(access)

    def __enter__(self) -> DaemonSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.logs.close()

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Every topic has one. Raises ClientError."""
        return self.logs.topic_ids(topics)

    def durable_end(self, topic: str, partition: int, end: int) -> int:
        """The recovery point. UnknownTopic, AmbiguousPartition, ClientError."""
        described = self.logs.client_at(topic).describe_log(topic, partition)
        return min(end, int(described["recovery_point"]))

    def tell(self, archived: Position, topics: Collection[str]) -> None:
        """Raise the archived offsets, a topic in a call. ClientError, AmbiguousPartition.

        Topics that are gone hear nothing, nor do those that were made anew under their names.
        """
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in archived.next_offsets.items():
            if topic in topics and topic in archived.topic_ids:
                by_topic.setdefault(topic, {})[partition] = offset
        for topic, offsets in by_topic.items():
            with contextlib.suppress(UnknownTopic, daemons.UnknownTopic):
                self.logs.client_at(topic).raise_archived_offsets(
                    topic, offsets, archived.topic_ids[topic]
                )


def open_source(access: Access) -> DirectorySource | DaemonSource:
    """By what the access names."""
    return DirectorySource(access) if access.paths else DaemonSource(access)
