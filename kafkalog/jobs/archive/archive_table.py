"""The interfaces and values of an archive's table, for all formats.

One commit adds files to a table and sets its position: the next offset of each partition, and the
topic ids. The position is stored nowhere else. A job that starts again reads it there, so that no
crash can add records twice or skip them. A file without a commit is not part of the table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import KafkalogError
from kafkalog.format.topic_names import decode_id, encode_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from kafkalog.jobs.archive.file_layout import FileLayout

    Offsets = Mapping[tuple[str, int], int]  # by topic and partition


TOPICS = "kafkalog.topics"
"""The name of `topics_text` in the properties of a table and in the footers of files."""

T = TypeVar("T")


class UnusableTable(KafkalogError):
    """A table cannot be opened, read or written as it is; the message says what to do.

    passes  whether it may be usable later
    """

    def __init__(self, message: str, *, passes: bool = False) -> None:
        super().__init__(message)
        self.retriable = passes


class TableChanged(KafkalogError):
    """Another job committed to the table since it was read; this commit was not made."""

    retriable = True


class LastRecord(NamedTuple):
    """The newest record of a partition in a table; ``checksum``: see `last_record`."""

    offset: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Position:
    """The position of an archive in its logs, a part of each commit.

    next_offsets   by topic and partition
    topic_ids      by topic: another topic may have the name later
    last_records   by topic and partition: a log that lost its end has another record there

    A topic or partition may lack the latter two, because older versions did not store them.
    """

    next_offsets: Offsets = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    last_records: Mapping[tuple[str, int], LastRecord] = field(default_factory=dict)


class ArchivedFile(NamedTuple):
    """A file of records in offset order, durable and verified.

    path    in the form of its store; offsets are those of its first and last record
    partition_values  the values of the table's partition, see `FileLayout.split`
    """

    topic: str
    partition: int
    path: str
    rows: int
    size_bytes: int
    first_offset: int
    last_offset: int
    partition_values: tuple[Any, ...] = ()


class FileStore(Protocol):
    """The storage of a table's files. Picklable, for tasks on other machines."""

    def path_of(self, topic: str, name: str) -> str:
        """The path of a new file of a topic, where readers of the table do not see it."""

    def create(self, path: str) -> AbstractContextManager[Any]:
        """A binary stream into a new file. Raises OSError, or errors of the store."""

    def open(self, path: str) -> AbstractContextManager[Any]:
        """A binary stream to read a file, with random access."""

    def sync(self, path: str) -> None:
        """Make a closed file durable, if the store does not do so by itself."""

    def remove(self, path: str) -> None:
        """Remove a file that is in no commit, if it exists."""


def sync_file(path: str) -> None:
    """Sync the bytes of a file on a disk. Raises OSError."""
    file = SystemFilesystem().open_write(path, create=False)
    try:
        file.sync()
    finally:
        file.close()


def sync_local(path: str) -> None:
    """Sync a file on a disk, its directory, and the parent of that. Raises OSError."""
    sync_file(path)
    filesystem = SystemFilesystem()
    topic_dir = path.rpartition("/")[0]
    for directory in (topic_dir, topic_dir.rpartition("/")[0]):
        filesystem.sync_dir(directory)


class ArchiveTable(Protocol):
    """One open table, for one thread."""

    @property
    def store(self) -> FileStore:
        """The storage of its files."""

    @property
    def dead_store(self) -> FileStore | None:
        """The storage of the files of dead letters; None if its layout has none."""

    @property
    def layout(self) -> FileLayout:
        """How records become rows of its files, for the tasks."""

    @property
    def position(self) -> Position:
        """The position at the opening or after the last commit; empty for a new table."""

    def commit(
        self, files: Sequence[ArchivedFile], position: Position, dead: Sequence[ArchivedFile] = ()
    ) -> None:
        """Add files and set the position: both or neither, durable on return.

        dead  files of dead letters; these are committed first, see `dead_letters`

        Raises TableChanged if another job moved the position, UnusableTable, OSError. After an
        error other than TableChanged the commit may have been made: the next opening shows it.
        """

    def widen(self, types: Mapping[str, Any]) -> None:
        """Give inferred columns these types, by part; changes position never, the layout always.

        Raises UnusableTable.
        """

    def complete(self) -> None:
        """A run has ended and archived all that it planned. Raises OSError."""

    def abandon(self) -> None:
        """Remove the files without a commit, as far as they can be found. Raises OSError."""

    def close(self) -> None:
        """Close the table."""


def offsets_text(position: Position) -> dict[str, dict[str, int]]:
    """The JSON of the offsets, as in Spark's Kafka source: ``{"topic": {"0": 123}}``, sorted."""
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(position.next_offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def topics_text(position: Position) -> dict[str, dict[str, Any]]:
    """The JSON of the rest: ``{"topic": {"id": "...", "last": {"0": [offset, checksum]}}}``.

    It is a separate document, so that older versions can use the table and ignore it.
    """
    document: dict[str, dict[str, Any]] = {
        topic: {"id": topic_id} for topic, topic_id in sorted(position.topic_ids.items())
    }
    for (topic, partition), last in sorted(position.last_records.items()):
        document.setdefault(topic, {}).setdefault("last", {})[str(partition)] = list(last)
    return document


def footer_of(
    partition: tuple[str, int], topic_id: str | None, last: LastRecord | None
) -> dict[str, str]:
    """What the footer of a file says: the topic's id, and the last record up to its end."""
    ids = {} if topic_id is None else {partition[0]: topic_id}
    known = Position({}, ids, {} if last is None else {partition: last})
    return {TOPICS: json.dumps(topics_text(known))}


def position_of(offsets: object, topics: object, place: str) -> Position:
    """The position in both documents; ``place`` is for messages. Raises UnusableTable."""
    try:
        found = msgspec.convert(offsets, dict[str, dict[int, int]], str_keys=True)
        rest = msgspec.convert(topics, dict[str, _TopicEntry], str_keys=True)
        ids = {
            topic: encode_id(decode_id(each.id))
            for topic, each in rest.items()
            if each.id is not msgspec.UNSET
        }
    except ValueError as error:
        raise UnusableTable(
            f"The offsets in {place} are damaged: {offsets!r}, {topics!r}"
        ) from error
    return Position(_by_partition(found), ids, _by_partition({t: e.last for t, e in rest.items()}))


class _TopicEntry(msgspec.Struct):
    """A topic in ``topics_text``."""

    id: str | msgspec.UnsetType = msgspec.UNSET
    last: dict[int, LastRecord] = {}


def _by_partition(found: Mapping[str, Mapping[int, T]]) -> dict[tuple[str, int], T]:
    return {(topic, at): each for topic, parts in found.items() for at, each in parts.items()}
