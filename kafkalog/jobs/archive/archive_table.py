"""Where an archive goes: the values and the two promises of a table, whatever its format.

A table holds rows and, in the same commit, the offset that it wants next of each partition, and of
which topic. That is the only position an archive has: a job that starts again reads it there, so
that no crash can put records in twice or leave them out. Files of no commit are no part of a table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import KafkalogError
from kafkalog.format.topic_names import decode_id, encode_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    Offsets = Mapping[tuple[str, int], int]  # by topic and partition


class UnusableTable(KafkalogError):
    """A table cannot be opened, read or written as it is; the message says what to do."""


class TableChanged(KafkalogError):
    """Somebody else committed to the table since it was read; nothing of this commit is there."""


class LastRecord(NamedTuple):
    """The newest record of a partition that a table has; ``checksum``: `last_record`."""

    offset: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Position:
    """What a commit says beside its files: how far the archive is, and of which logs.

    next_offsets   what it wants next, by topic and partition
    topic_ids      of these topics: another one may have the name by now
    last_records   of these partitions: a log that lost its end has another record there

    A topic or partition may lack the latter two: older versions did not note them.
    """

    next_offsets: Offsets = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    last_records: Mapping[tuple[str, int], LastRecord] = field(default_factory=dict)


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
    def position(self) -> Position:
        """As of its opening or the last commit here; empty when it is new."""
        ...

    def commit(self, files: Sequence[ArchivedFile], position: Position) -> None:
        """Add files and set the position: both or neither, durable on return.

        TableChanged when the position is not that of the opening any more, UnusableTable, OSError.
        After any error but TableChanged the commit may have happened: the next opening tells.
        """
        ...

    def abandon(self) -> None:
        """Take back what tasks wrote and no commit names, as far as that can be found. OSError."""
        ...

    def close(self) -> None:
        """Let go of the table."""
        ...


def offsets_text(position: Position) -> dict[str, dict[str, int]]:
    """As JSON has them, and Spark's Kafka source: ``{"topic": {"0": 123}}``, sorted."""
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(position.next_offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def topics_text(position: Position) -> dict[str, dict[str, Any]]:
    """The rest: ``{"topic": {"id": "22 characters", "last": {"0": [offset, checksum]}}}``.

    A document of its own, so that older versions go on with the table and pass over it.
    """
    document: dict[str, dict[str, Any]] = {
        topic: {"id": topic_id} for topic, topic_id in sorted(position.topic_ids.items())
    }
    for (topic, partition), last in sorted(position.last_records.items()):
        document.setdefault(topic, {}).setdefault("last", {})[str(partition)] = list(last)
    return document


def position_of(offsets: object, topics: object, place: str) -> Position:
    """Of both documents; UnusableTable for anything else, naming the place."""
    next_offsets: dict[tuple[str, int], int] = {}
    topic_ids: dict[str, str] = {}
    last_records: dict[tuple[str, int], LastRecord] = {}
    try:
        for topic, partitions in _object(offsets).items():
            for partition, offset in _object(partitions).items():
                next_offsets[topic, int(partition)] = _integer(offset)
        for topic, told in _object(topics).items():
            if "id" in _object(told):
                topic_ids[topic] = encode_id(decode_id(str(told["id"])))
            for partition, (offset, checksum) in _object(told.get("last", {})).items():
                last = LastRecord(_integer(offset), _integer(checksum))
                last_records[topic, int(partition)] = last
    except (TypeError, ValueError) as error:
        raise UnusableTable(
            f"The offsets in {place} are damaged: {offsets!r}, {topics!r}"
        ) from error
    return Position(next_offsets, topic_ids, last_records)


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no object")
    return value


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no integer")
    return value
