"""An archive as a directory of Parquet files in Hive's layout, for every reader of Parquet.

    ROOT/topic=NAME/partition=N/FROM-TO.parquet   the records of these offsets, TO is exclusive
    ROOT/_SUCCESS          the last run archived everything; absent while a run adds files
    ROOT/_temporary/       files of a run; what a killed run left there is removed by the next one
    ROOT/_kafkalog.lock    locked while a job writes

The position is what the files say. The ranges of a partition's files have neither gap nor overlap:
the next offset is the end of the last one. An offset without a record (compaction, markers of
transactions, records that were deleted too early) is in the range of a file beside it, or in that
of a file without rows. The footer of each file with rows has the id of the topic, and offset and
checksum of its last record; that of a file without rows repeats those of the file before it.

A file appears by one rename, and its name is durable before the next file of its partition appears.
Whatever stops a run, a power failure included, readers see the beginning of each partition's log,
each record once, and the next run begins at the end of the names. Nothing else is in a commit. No
file with rows is renamed, changed or removed after that.

For file systems with atomic renames, and one machine at a time. On an object store use an Iceberg
table.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.jobs.archive.archive_table import (
    TOPICS,
    LastRecord,
    Position,
    UnusableTable,
    footer_of,
    position_of,
    sync_file,
)
from kafkalog.jobs.archive.file_layout import SCHEMA, FileLayout
from kafkalog.log.inspect.directory_facts import enclosing_log_dir

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from kafkalog.env.filesystem import DirLock, Filesystem
    from kafkalog.jobs.archive.archive_table import ArchivedFile, FileStore

FORMER_COMMITS = "_kafkalog"
LOCK = "_kafkalog.lock"
_SUCCESS = "_SUCCESS"
TEMPORARY = "_temporary"
_PENDING = ".pending"  # else **/*.parquet would find it
_HIDDEN = ("_", ".")  # readers skip such names
_NAME = re.compile(r"(\d{20})-(\d{20})\.parquet")
_IN_PATH = ("topic", "partition")
_COLUMNS = pa.schema([each for each in SCHEMA if each.name not in _IN_PATH])


@dataclass(frozen=True, slots=True)
class HiveLayout(FileLayout):
    """Without the columns that are in the path, where readers find them."""

    schema: pa.Schema = _COLUMNS

    def decode(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, None]:
        """See FileLayout."""
        return records.drop_columns(list(_IN_PATH)), None


@dataclass(frozen=True, slots=True)
class LocalStore:
    """The files below a directory, which has the same path on all machines of a job."""

    root: str

    def path_of(self, topic: str, name: str) -> str:
        """See FileStore: the name is unique for the whole table."""
        del topic
        return f"{self.root}/{TEMPORARY}/{name}{_PENDING}"

    def create(self, path: str) -> AbstractContextManager[Any]:
        """See FileStore."""
        SystemFilesystem().make_dir(path.rpartition("/")[0])
        stream: AbstractContextManager[Any] = pa.OSFile(path, "wb")
        return stream

    def open(self, path: str) -> AbstractContextManager[Any]:
        """See FileStore."""
        stream: AbstractContextManager[Any] = pa.OSFile(path, "rb")
        return stream

    def sync(self, path: str) -> None:
        """See FileStore: the bytes, the name is a temporary one."""
        sync_file(path)

    def remove(self, path: str) -> None:
        """See FileStore."""
        filesystem = SystemFilesystem()
        if filesystem.exists(path):
            filesystem.unlink(path)


class Slot(NamedTuple):
    """The place of a file in its partition; ``path``: where the file is, None: without rows."""

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    path: str | None

    @property
    def final(self) -> str:
        """The name, relative to the root."""
        directory = f"topic={self.topic}/partition={self.partition}"
        return f"{directory}/{self.from_offset:020}-{self.to_offset:020}.parquet"


def slots(files: Sequence[ArchivedFile], before: Position, after: Position) -> Iterator[Slot]:
    """The files between two positions, by partition and offset, without a gap.

    A partition that has another offset, id or last record and no file gets one without rows.
    """
    by_partition: dict[tuple[str, int], list[ArchivedFile]] = {}
    for file in sorted(files, key=attrgetter("topic", "partition", "first_offset")):
        by_partition.setdefault((file.topic, file.partition), []).append(file)
    for name, end in sorted(after.next_offsets.items()):
        own = by_partition.pop(name, [])
        at = before.next_offsets.get(name, own[0].first_offset if own else end)
        for file in own[:-1]:
            yield Slot(*name, at, file.last_offset + 1, file.path)
            at = file.last_offset + 1
        if own:
            yield Slot(*name, at, end, own[-1].path)
        elif _state(before, name) != _state(after, name):
            yield Slot(*name, at, end, None)
    assert not by_partition, "a file without a next offset"


def _state(position: Position, name: tuple[str, int]) -> tuple[object, ...]:
    own = position.next_offsets, position.last_records
    return position.topic_ids.get(name[0]), *(each.get(name) for each in own)


class ParquetTable:
    """``ArchiveTable`` for a directory; see the module. Opening creates and locks it."""

    dead_store: FileStore | None = None

    def __init__(self, root: str, filesystem: Filesystem, *, is_conversion: bool = False) -> None:
        """``root``: an absolute path. Raises UnusableTable if it is in use or damaged.

        ``is_conversion``: it may be an archive of an older version, see `convert`.
        """
        # constant after construction
        self._root = root.rstrip("/")
        self.store = LocalStore(self._root)
        self.layout: FileLayout = HiveLayout()
        self._filesystem = filesystem
        self._lock = self._open(is_conversion=is_conversion)
        # after the last commit
        self.position = Position()
        self._durable_dirs: set[str] = set()  # a killed run may have left one that is not
        try:
            if not is_conversion:
                self.abandon()
        except BaseException:
            self.close()
            raise

    def commit(
        self, files: Sequence[ArchivedFile], position: Position, dead: Sequence[ArchivedFile] = ()
    ) -> None:
        """See ArchiveTable; the lock excludes other jobs. Each file is a commit by itself."""
        assert not dead
        self._remove(_SUCCESS)
        for slot in slots(files, self.position, position):
            self.publish(slot, position)
        self.position = position

    def publish(self, slot: Slot, position: Position) -> None:
        """Give a file its name, durably; ``position`` is for the footer of one without rows."""
        filesystem, final = self._filesystem, f"{self._root}/{slot.final}"
        path = slot.path
        if path is None:
            path = self.store.path_of(slot.topic, slot.final.replace("/", "-"))
            self._write_empty(path, slot, position)
        directory = final.rpartition("/")[0]
        if directory not in self._durable_dirs:
            filesystem.make_dir(directory)
            filesystem.sync_dir(directory.rpartition("/")[0])
            filesystem.sync_dir(self._root)
            self._durable_dirs.add(directory)
        filesystem.rename(path, final)
        filesystem.sync_dir(directory)

    def widen(self, types: Mapping[str, Any]) -> None:
        """See ArchiveTable: its columns are never inferred."""
        raise TypeError("an export has no inferred columns")

    def complete(self) -> None:
        """See ArchiveTable."""
        self._filesystem.write_file_atomically(f"{self._root}/{_SUCCESS}", b"")

    def abandon(self) -> None:
        """See ArchiveTable. The files of a commit that raised an error may be there."""
        self._remove(TEMPORARY)
        ends, last = dict[tuple[str, int], int](), dict[tuple[str, int], LastRecord]()
        ids: dict[str, str] = {}
        for topic, partition, directory in self._partitions():
            found = self._position_in(topic, partition, directory)
            own_id = found.topic_ids.get(topic)
            if own_id is not None and ids.setdefault(topic, own_id) != own_id:
                raise UnusableTable(
                    f"{directory} and the directory beside it are of two topics of that name: move "
                    "one of them away"
                )
            ends.update(found.next_offsets)
            last.update(found.last_records)
        self.position = Position(ends, ids, last)

    def close(self) -> None:
        """See ArchiveTable."""
        self._lock.release()

    # ---- parts

    def _open(self, *, is_conversion: bool) -> DirLock:
        filesystem, root = self._filesystem, self._root
        if not is_conversion and filesystem.exists(f"{root}/{FORMER_COMMITS}"):
            raise UnusableTable(
                f"{root} is an archive of an older version: run kafkalog archive convert {root}"
            )
        if not filesystem.exists(f"{root}/{LOCK}"):
            self._check_place(is_conversion=is_conversion)
            filesystem.make_dir(root)
            filesystem.sync_dir(root.rpartition("/")[0] or "/")
        try:
            return filesystem.lock(f"{root}/{LOCK}")
        except BlockingIOError as error:
            raise UnusableTable(
                f"Another job writes to {root}: wait for it", passes=True
            ) from error

    def _check_place(self, *, is_conversion: bool) -> None:
        """A new archive needs an empty or missing directory outside of log directories.

        A copy of an archive may lack the names that readers skip.
        """
        filesystem, root = self._filesystem, self._root
        try:
            names = filesystem.list_dir(root) if filesystem.exists(root) else []
        except (NotADirectoryError, FileNotFoundError) as error:  # a file, a dangling link
            raise UnusableTable(f"{root} is not a directory: give another one") from error
        others = [each for each in names if not each.startswith((*_HIDDEN, "topic="))]
        if others and not is_conversion:
            raise UnusableTable(f"{root} is not an archive and not empty: give another directory")
        around = enclosing_log_dir(filesystem, filesystem.real_path(root))
        if around is not None:
            raise UnusableTable(f"{root} would be in the log directory {around}: give another path")

    def _partitions(self) -> Iterator[tuple[str, int, str]]:
        """Each topic and partition with its directory. Raises UnusableTable."""
        for topic_dir in self._dirs_in(self._root, "topic="):
            for directory in self._dirs_in(topic_dir, "partition="):
                number = directory.rpartition("=")[2]
                if not (number.isascii() and number.isdigit()):
                    raise UnusableTable(f"{directory} is of no archive: move it away")
                yield topic_dir.rpartition("/topic=")[2], int(number), directory

    def _dirs_in(self, directory: str, prefix: str) -> Iterator[str]:
        for stat in self._filesystem.list_dir_stats(directory):
            if stat.is_dir and stat.name.startswith(prefix):
                yield f"{directory}/{stat.name}"

    def _position_in(self, topic: str, partition: int, directory: str) -> Position:
        """What the files of a partition say. Raises UnusableTable."""
        names = [
            each for each in self._filesystem.list_dir(directory) if not each.startswith(_HIDDEN)
        ]
        for name in names:
            if _NAME.fullmatch(name) is None:
                raise UnusableTable(f"{directory}/{name} is of no archive: move it away")
        for before, after in pairwise(names):
            if before[21:41] != after[:20]:
                raise UnusableTable(
                    f"In {directory}, {after} does not begin where {before} ends: restore what is "
                    f"between them, or move {after} and all after it away, to archive it again"
                )
        if not names:
            return Position()
        place, at = f"{directory}/{names[-1]}", (topic, partition)
        found = position_of({topic: {partition: int(names[-1][21:41])}}, _marks_in(place), place)
        if {*found.topic_ids} - {topic} or {*found.last_records} - {at}:
            raise UnusableTable(f"{place} was archived of another partition: move it back")
        return found

    def _write_empty(self, path: str, slot: Slot, position: Position) -> None:
        """A file without rows, with what is known at its end."""
        last, topic_id = position.last_records.get(slot[:2]), position.topic_ids.get(slot.topic)
        with self.store.create(path) as sink, pq.ParquetWriter(sink, self.layout.schema) as writer:
            writer.add_key_value_metadata(footer_of(slot[:2], topic_id, last))
        self.store.sync(path)

    def _remove(self, name: str) -> None:
        """Remove a file or directory of the root, durably, if it is there."""
        path = f"{self._root}/{name}"
        if not self._filesystem.exists(path):
            return
        if self._filesystem.stat(path).is_dir:
            self._filesystem.remove_tree(path)
        else:
            self._filesystem.unlink(path)
        self._filesystem.sync_dir(self._root)


def _marks_in(path: str) -> object:
    """What the footer of a file says of its topic. Raises UnusableTable."""
    try:
        found = pq.read_metadata(path).metadata or {}
        marks: object = json.loads(found.get(TOPICS.encode(), b"{}"))
    except (pa.ArrowException, ValueError, OSError) as error:
        raise UnusableTable(f"{path} cannot be read: {error}; restore it") from error
    return marks
