"""Archives of older versions, which had commits of their own, become what `parquet_table` has.

    ROOT/topic-NAME/PARTITION-FROM-TO-ID.parquet   committed files, or .….pending of the last commit
    ROOT/_kafkalog/COMMIT.json                     commits from 1 on: files and position
    ROOT/_kafkalog/lock                            locked while a job of an older version writes

Files are renamed, none is read or written anew: they keep their columns ``topic`` and
``partition``. Each partition gets a file without rows, whose footer has what the last commit knew
of the log. The commits go last, by one rename. Until then a conversion that was stopped is
repeated, and finds the same new names; after that there is nothing to convert.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.jobs.archive.archive_table import ArchivedFile, Position, UnusableTable, position_of
from kafkalog.jobs.archive.parquet_table import (
    FORMER_COMMITS,
    LOCK,
    TEMPORARY,
    ParquetTable,
    Slot,
    slots,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.env.filesystem import Filesystem

_FORMAT = 1
_PENDING = ".pending"
_DIGITS = 20


class ConvertedPartition(NamedTuple):
    """A partition of a converted archive; the next run begins at ``next_offset``."""

    topic: str
    partition: int
    files: int
    next_offset: int


def convert(root: str, filesystem: Filesystem) -> list[ConvertedPartition]:
    """Convert an archive in place; nothing if it needs none. Raises UnusableTable and OSError."""
    former = f"{root}/{FORMER_COMMITS}"
    if not filesystem.exists(former):
        if not filesystem.exists(f"{root}/{LOCK}"):
            raise UnusableTable(f"{root} is no archive")
        ParquetTable(root, filesystem).close()  # may remove what a conversion left
        return []
    table = ParquetTable(root, filesystem, is_conversion=True)
    try:
        lock = filesystem.lock(f"{former}/lock")
        try:
            found, position = _former_files(root, filesystem)
            _refuse_others(root, filesystem, {each.path for each in found if each.path})
            for slot in found:
                _move(table, root, slot, position, filesystem)
            for topic, partition in sorted(position.next_offsets):
                end = position.next_offsets[topic, partition]
                table.publish(Slot(topic, partition, end, end, None), position)
            _remove_former(root, filesystem)
        finally:
            lock.release()
        table.abandon()  # removes the former commits, and checks the files
    except BlockingIOError as error:
        raise UnusableTable(f"Another job writes to {root}: wait for it") from error
    finally:
        table.close()
    files = Counter(each[:2] for each in found if each.path)
    return [
        ConvertedPartition(*name, files[name], end)
        for name, end in sorted(position.next_offsets.items())
    ]


def _former_files(root: str, filesystem: Filesystem) -> tuple[list[Slot], Position]:
    """The files of all commits with their new places, and the last position."""
    directory = f"{root}/{FORMER_COMMITS}"
    names = [name for name in filesystem.list_dir(directory) if name.endswith(".json")]
    if [name[:_DIGITS] for name in names] != [f"{n:020}" for n in range(1, len(names) + 1)]:
        raise UnusableTable(f"{directory} lacks a commit: the archive is damaged, restore it")
    found: list[Slot] = []
    position = Position()
    for name in names:
        before, (files, position) = position, _commit(f"{directory}/{name}", filesystem)
        found += slots(files, before, position)
    return found, position


def _commit(path: str, filesystem: Filesystem) -> tuple[list[ArchivedFile], Position]:
    """The files of a commit, with paths relative to the root, and its position."""
    try:
        document: Mapping[str, Any] = json.loads(filesystem.read_file(path))
        if document["format"] > _FORMAT:
            raise UnusableTable(f"{path} has format {document['format']}: use a newer kafkalog")
        files = [ArchivedFile(**each) for each in document["files"]]
        return files, position_of(document["offsets"], document.get("topics", {}), path)
    except (ValueError, KeyError, TypeError) as error:
        raise UnusableTable(f"{path} is damaged: {error}; restore it") from error


def _hidden(path: str) -> str:
    """The name of a file whose commit was not finished."""
    directory, _, name = path.rpartition("/")
    return f"{directory}/.{name}{_PENDING}"


def _refuse_others(root: str, filesystem: Filesystem, known: set[str]) -> None:
    """A file that is in no commit would stay where readers of the new layout find it."""
    for directory in _former_dirs(root, filesystem):
        for name in filesystem.list_dir(f"{root}/{directory}"):
            if not name.startswith(".") and f"{directory}/{name}" not in known:
                raise UnusableTable(f"{root}/{directory}/{name} is in no commit: move it away")


def _former_dirs(root: str, filesystem: Filesystem) -> list[str]:
    found = filesystem.list_dir_stats(root)
    return [each.name for each in found if each.is_dir and each.name.startswith("topic-")]


def _move(
    table: ParquetTable, root: str, slot: Slot, position: Position, filesystem: Filesystem
) -> None:
    """Give a file its new name, unless a conversion that was stopped did so."""
    if slot.path is None:
        table.publish(slot, position)
        return
    for path in (f"{root}/{slot.path}", f"{root}/{_hidden(slot.path)}"):
        if filesystem.exists(path):
            table.publish(slot._replace(path=path), position)
            return
    if not filesystem.exists(f"{root}/{slot.final}"):
        raise UnusableTable(f"{root}/{slot.path} is missing: the archive is damaged, restore it")


def _remove_former(root: str, filesystem: Filesystem) -> None:
    """Remove the former directories, in which no file of a commit is left, and the commits."""
    for directory in _former_dirs(root, filesystem):
        filesystem.remove_tree(f"{root}/{directory}")
    filesystem.make_dir(f"{root}/{TEMPORARY}")
    filesystem.rename(f"{root}/{FORMER_COMMITS}", f"{root}/{TEMPORARY}/{FORMER_COMMITS}")
    filesystem.sync_dir(root)
