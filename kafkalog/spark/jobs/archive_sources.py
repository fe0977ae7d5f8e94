"""Where an archive comes from, and who hears how far it is: daemons, or log directories.

Readers see records of ``acks=1`` before they are durable. An archive must not: a power cut would
take them from the log and give their offsets to others. So it ends at the recovery point, where a
daemon is there to write more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkalog.client import Client
from kafkalog.format.checkpoint_text import salvage_offsets
from kafkalog.format.file_names import LOCK, RECOVERY_POINT_CHECKPOINT
from kafkalog.format.topic_partition import TopicPartition
from kafkalog.spark.logs import open_logs
from kafkalog.spark.object_store import filesystem_for

if TYPE_CHECKING:
    from types import TracebackType

    from kafkalog.spark.jobs.archive_table import Offsets
    from kafkalog.spark.logs import Access, Logs


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

    def durable_end(self, topic: str, partition: int) -> int | None:
        """What lies at or above may vanish in a power cut; None: nothing may, nobody writes."""
        ...

    def tell(self, archived: Offsets) -> None:
        """Everything below is in the archive, durably."""
        ...


class DirectorySource:
    """Log directories, served by a daemon or by none."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.logs = open_logs(access)
        self._filesystem = filesystem_for(access.paths)

    def __enter__(self) -> DirectorySource:
        return self

    def __exit__(self, *_: object) -> None:
        self.logs.close()

    def durable_end(self, topic: str, partition: int) -> int | None:
        """The recovery point as its daemon last noted it; OSError."""
        name, filesystem = TopicPartition(topic, partition), self._filesystem
        for log_dir in self.access.paths:
            is_served = filesystem.is_locked(f"{log_dir}/{LOCK}")
            if is_served and filesystem.exists(f"{log_dir}/{name}"):
                return self._recovery_points(log_dir).get(name, 0)
        return None

    def tell(self, archived: Offsets) -> None:
        """A daemon hears it from a run over its URL alone."""

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
        self.logs = open_logs(access)
        self._clients = [
            Client(url, credentials=access.credentials, tls=access.tls) for url in access.urls
        ]
        self._by_topic: dict[str, Client] = {}

    def __enter__(self) -> DaemonSource:
        for client in self._clients:
            for topic in client.list_topics():
                self._by_topic.setdefault(topic, client)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self._clients:
            client.close()
        self.logs.close()

    def durable_end(self, topic: str, partition: int) -> int | None:
        """The recovery point. Raises ClientError."""
        described = self._by_topic[topic].describe_log(topic, partition)
        return int(described["recovery_point"])

    def tell(self, archived: Offsets) -> None:
        """Raise the archived offsets, a topic in a call; topics that are gone hear nothing."""
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in archived.items():
            by_topic.setdefault(topic, {})[partition] = offset
        for topic, offsets in by_topic.items():
            client = self._by_topic.get(topic)
            if client is not None:
                client.raise_archived_offsets(topic, offsets)


def open_source(access: Access) -> DirectorySource | DaemonSource:
    """By what the access names."""
    return DirectorySource(access) if access.paths else DaemonSource(access)
