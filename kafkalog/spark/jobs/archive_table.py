"""Where an archive goes: the values and the two promises of a table, whatever its format.

A table holds rows and, in the same commit, the offset that it wants next of each partition. That
is the only position an archive has: a job that starts again reads it there, so that no crash can
put records in twice or leave them out. Files of no commit are no part of a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    Offsets = Mapping[tuple[str, int], int]  # by topic and partition


class UnusableTable(KafkalogError):
    """A table cannot be opened, read or written as it is; the message says what to do."""


class TableChanged(KafkalogError):
    """Somebody else committed to the table since it was read; nothing of this commit is there."""


class ArchivedFile(NamedTuple):
    """A file of records in offset order, durable and verified, but of no commit yet.

    path    as its store names it; offsets are those of its first and last record
    """

    topic: str
    partition: int
    path: str
    rows: int
    size_bytes: int
    first_offset: int
    last_offset: int


class FileStore(Protocol):
    """Where tasks write files. Picklable; any process, also on another machine."""

    def path_of(self, topic: str, name: str) -> str:
        """Where a new file of a topic goes; nobody who reads the table sees it there."""
        ...

    def create(self, path: str) -> AbstractContextManager[Any]:
        """A binary stream into a new file. OSError, or the store's own."""
        ...

    def open(self, path: str) -> AbstractContextManager[Any]:
        """The whole file to read, with random access."""
        ...

    def settle(self, path: str) -> None:
        """The closed file survives a power cut on return, where that is the store's to say."""
        ...

    def remove(self, path: str) -> None:
        """Take a file back that no commit names; none is fine."""
        ...


def settle_local(path: str) -> None:
    """Of a store on a file system: a file's bytes, its name, and that of its topic's directory.

    They survive a power cut on return. OSError.
    """
    filesystem = SystemFilesystem()
    file = filesystem.open_write(path, create=False)
    try:
        file.sync()
    finally:
        file.close()
    topic_dir = path.rpartition("/")[0]
    for directory in (topic_dir, topic_dir.rpartition("/")[0]):
        filesystem.sync_dir(directory)


class ArchiveTable(Protocol):
    """One table, opened; one thread. Closing lets go of it."""

    @property
    def store(self) -> FileStore:
        """Where its files are written."""
        ...

    @property
    def next_offsets(self) -> Offsets:
        """What it wants next, as of its opening or the last commit here; empty when it is new."""
        ...

    def commit(self, files: Sequence[ArchivedFile], next_offsets: Offsets) -> None:
        """Add files and set the offsets: both or neither, durable on return.

        TableChanged when the offsets are not those of the opening any more, UnusableTable, OSError.
        After any error but TableChanged the commit may have happened: the next opening tells.
        """
        ...

    def abandon(self) -> None:
        """Take back what tasks wrote and no commit names, as far as that can be found. OSError."""
        ...

    def close(self) -> None:
        """Let go of the table."""
        ...


def offsets_text(offsets: Offsets) -> dict[str, dict[str, int]]:
    """As JSON has them, and Spark's Kafka source: ``{"topic": {"0": 123}}``, sorted."""
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def offsets_of(document: object, place: str) -> dict[tuple[str, int], int]:
    """Reverse of ``offsets_text``; UnusableTable for anything else, naming the place."""
    offsets: dict[tuple[str, int], int] = {}
    try:
        assert isinstance(document, dict)
        for topic, partitions in document.items():
            for partition, offset in partitions.items():
                assert isinstance(offset, int)
                offsets[topic, int(partition)] = offset
    except (AssertionError, AttributeError, ValueError) as error:
        raise UnusableTable(f"The offsets in {place} are damaged: {document!r}") from error
    return offsets
