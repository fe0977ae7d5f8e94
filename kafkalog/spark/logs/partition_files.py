"""The files of log directories and partitions, also while a daemon rolls, cleans and moves them.

A daemon renames files in an order that keeps every record readable at every moment. A segment's
files become ``.deleted`` only below the log start, or after all files that replace them have names
that end in ``.swap`` (Kafka's LocalLog.replaceSegments; `log/segment/segment_swap`). Therefore the
``.log`` and ``.log.swap`` files together are always a complete log, in which a range may be there
twice: before and after a cleaning, and both are right. A listing counts when a second one shows the
same names. An open file is read to its end whatever happens to its name. An index belongs to a
``.log`` if that name is still the open file's after the index was read: a ``.log`` loses its name
before its indexes do, and gets it before them.

Index entries are hints. Entries that do not rise, or that point beyond the end, are not used, and a
reader checks which batch begins at the position of an entry.

A move of a partition to another log directory renames the old directory to ``-delete`` before the
new one gets its name: for a moment there is none, never two. Two that stay are an operator's
mistake: AmbiguousPartition.
"""

from __future__ import annotations

import contextlib
import errno
from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from kafkalog.errors import CorruptCheckpoint, CorruptData
from kafkalog.format.disk.backup_manifest import MANIFEST_FILE
from kafkalog.format.disk.checkpoints import decode_offsets, salvage_offsets
from kafkalog.format.disk.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SegmentFileName,
    parse_segment_file,
    segment_file_name,
)
from kafkalog.format.disk.index_entries import unpack_offset_entries, unpack_time_entries
from kafkalog.format.disk.properties import decode_partition_metadata
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import (
    TopicPartition,
    directory_name,
    encode_id,
    is_internal,
    live_partition,
)
from kafkalog.spark.logs.listed_store import ListedStore
from kafkalog.spark.logs.object_store import shown
from kafkalog.spark.logs.values import AmbiguousPartition, UnusableLogDir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from kafkalog.env.filesystem import ReadableFile, ReadFilesystem

    Table = npt.NDArray[np.int64]


T = TypeVar("T")

LISTINGS_MAX = 1000
"""Listings of a directory that shows other names each time: that is not the work of a daemon."""

_BASE_OFFSET = attrgetter("base_offset")


@dataclass(frozen=True, slots=True)
class Segment:
    """The ``.log`` of a segment. ``stage`` is empty, or .swap while it replaces others."""

    directory: str
    base_offset: int
    stage: str

    def path(self, suffix: str = LOG_SUFFIX) -> str:
        """The path of one of its files."""
        return f"{self.directory}/{segment_file_name(self.base_offset, suffix, self.stage)}"


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """One listing of a partition's directory.

    segments              by base offset; of two with the same one the one without .swap
    transaction_indexes   base offset of the segment and path, by base offset
    snapshots             end offsets of the producer snapshots, rising
    orphans               base offsets of indexes whose ``.log`` is missing and not being deleted,
                          rising: a daemon keeps them as the proof of a loss
    """

    path: str
    segments: tuple[Segment, ...]
    transaction_indexes: tuple[tuple[int, str], ...]
    snapshots: tuple[int, ...]
    orphans: tuple[int, ...] = ()

    @classmethod
    def listed(cls, filesystem: ReadFilesystem, path: str) -> PartitionFiles:
        """List a directory. Raises FileNotFoundError if it does not exist (any more)."""
        if isinstance(filesystem, ListedStore):
            return filesystem.listing(path).derived(lambda names: cls.of_names(path, names))
        return cls.of_names(path, stable(lambda: filesystem.list_dir(path)))

    @classmethod
    def of_names(cls, path: str, names: Sequence[str]) -> PartitionFiles:
        """The files with these names in a directory."""
        files = [parsed for name in names if (parsed := _parsed(name)) is not None]
        deleting = {
            each.offset
            for name in names
            if name.endswith(DELETED_SUFFIX)
            and (each := _parsed(name, DELETED_SUFFIX)) is not None
            and each.stage
        }
        segments: dict[int, Segment] = {}
        transaction_indexes, snapshots, indexed = [], [], set()
        for file in files:
            if file.suffix == LOG_SUFFIX and not (file.stage and file.offset in segments):
                segments[file.offset] = Segment(path, file.offset, file.stage)
            if file.suffix == TRANSACTION_INDEX_SUFFIX:
                transaction_indexes.append((file.offset, f"{path}/{file}"))
            if file.suffix == SNAPSHOT_SUFFIX:
                snapshots.append(file.offset)
            if file.suffix in INDEX_SUFFIXES and not file.stage:
                indexed.add(file.offset)
        return cls(
            path,
            tuple(sorted(segments.values(), key=_BASE_OFFSET)),
            tuple(sorted(transaction_indexes)),
            tuple(sorted(snapshots)),
            tuple(sorted(indexed - segments.keys() - deleting)),
        )

    def floor(self, offset: int) -> Segment | None:
        """The segment with the offset, by the names; None below the first segment."""
        slot = bisect_right(self.segments, offset, key=_BASE_OFFSET)
        return self.segments[slot - 1] if slot else None

    def after(self, segment: Segment) -> Segment | None:
        """The next segment."""
        slot = bisect_right(self.segments, segment.base_offset, key=_BASE_OFFSET)
        return self.segments[slot] if slot < len(self.segments) else None


def stable(listing: Callable[[], list[str]]) -> list[str]:
    """The names that two listings in a row agree on: one is not a snapshot of its directory."""
    seen = listing()
    for _ in range(LISTINGS_MAX):
        again = listing()
        if again == seen:
            return seen
        seen = again
    raise OSError(f"The names change with every listing: {seen[:3]}")


def retried(look_up: Callable[[], T], name: str) -> T:
    """The result of a look-up, again while files that it lists are renamed before it opens them."""
    for _ in range(LISTINGS_MAX):
        with contextlib.suppress(FileNotFoundError):
            return look_up()
    raise FileNotFoundError(errno.ENOENT, "Its files change with every listing", name)


def _parsed(name: str, stage: str = SWAP_SUFFIX) -> SegmentFileName | None:
    """The parsed name of a log's file without a stage or in this one; None: another file."""
    try:
        parsed = parse_segment_file(name)
    except FormatError:
        return None  # not a file of a log
    return parsed if parsed is not None and parsed.stage in ("", stage) else None


def offset_entries(
    filesystem: ReadFilesystem, segment: Segment, file: ReadableFile, end: int
) -> Table:
    """Usable offset index entries of an open ``.log``: int64[n, 2] of last offset, position.

    Both rise; offsets are absolute, positions below ``end``. No entries if the index is missing or
    may belong to another file.
    """
    raw = _index_of(filesystem, segment, file, OFFSET_INDEX_SUFFIX)
    return offset_table(raw, segment.base_offset, end)


def offset_table(raw: bytes, base_offset: int, end: int) -> Table:
    """The usable entries of a whole offset index; see `offset_entries`."""
    entries = unpack_offset_entries(raw)
    table = _rising(entries, np.diff(entries, axis=0, prepend=0).min(axis=1) > 0)
    table[:, 0] += base_offset
    return table[: np.searchsorted(table[:, 1], end)]


def time_entries(filesystem: ReadFilesystem, segment: Segment, file: ReadableFile) -> Table:
    """Usable time index entries: int64[n, 2] of largest timestamp so far, its offset."""
    entries = unpack_time_entries(_index_of(filesystem, segment, file, TIME_INDEX_SUFFIX))
    steps = np.diff(entries, axis=0, prepend=-1)
    table = _rising(entries, (steps[:, 0] > 0) & (steps[:, 1] >= 0) & (entries[:, 0] > 0))
    table[:, 1] += segment.base_offset
    return table


def _index_of(
    filesystem: ReadFilesystem, segment: Segment, file: ReadableFile, suffix: str
) -> bytes:
    """An index; empty: it is missing, or may belong to another file."""
    try:
        raw = filesystem.read_file(segment.path(suffix))
    except FileNotFoundError:
        return b""
    return raw if filesystem.is_at(file, segment.path()) else b""


def _rising(entries: Table, is_good: npt.NDArray[np.bool_]) -> Table:
    """A copy of the entries before the first bad one, which is padding or damage."""
    bad = np.flatnonzero(~is_good)
    return entries[: bad[0]].copy() if len(bad) else entries.copy()


class Checkpoints:
    """Checkpoint files of log directories; each is decoded again only when it has changed.

    One thread.
    """

    def __init__(self, filesystem: ReadFilesystem) -> None:
        self._filesystem = filesystem
        self._known: dict[str, tuple[bytes, dict[TopicPartition, int]]] = {}

    def offsets(self, log_dir: str, name: str) -> dict[TopicPartition, int]:
        """All offsets of a checkpoint; none if it is missing. Raises CorruptCheckpoint, OSError."""
        path = f"{log_dir}/{name}"
        try:
            data = self._filesystem.read_file(path)
        except FileNotFoundError:
            return {}
        known = self._known.get(path)
        if known is None or known[0] != data:
            try:
                known = data, decode_offsets(data)
            except FormatError as error:
                raise CorruptCheckpoint(error.reason, file=shown(path), position=0) from error
            self._known[path] = known
        return known[1]


def readable_offsets(
    filesystem: ReadFilesystem, log_dir: str, name: str
) -> tuple[Mapping[TopicPartition, int], bool]:
    """The undamaged lines of a checkpoint, and whether these are all of its lines. OSError."""
    try:
        offsets, damage = salvage_offsets(filesystem.read_file(f"{log_dir}/{name}"))
    except FileNotFoundError:
        return {}, False
    return offsets, not damage


_TRIES = 3  # for a partition that is in no directory: a move has it in none for less time


def partitions_in(filesystem: ReadFilesystem, path: str) -> dict[TopicPartition, str | None]:
    """The partitions in a log directory, without internal topics, and why one cannot be read.

    Raises UnusableLogDir if it is missing, not a directory, or a backup.
    """
    found: dict[TopicPartition, str | None] = {}
    try:
        stats = filesystem.list_dir_stats(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnusableLogDir(
            f"{shown(path)} is not a directory on this machine: path must name log directories "
            "that the driver and every worker can read"
        ) from error
    if any(stat.name == MANIFEST_FILE for stat in stats):
        raise UnusableLogDir(is_a_backup(path))
    for stat in stats:
        partition = None if stat.is_file else live_partition(stat.name)
        if partition is not None and not is_internal(partition.topic):
            problem = None if stat.is_dir else is_a_link(f"{path}/{stat.name}")
            found[partition] = found.get(partition) or problem  # "t-00" is t-0 as well
    return found


def is_a_backup(path: str) -> str:
    """Why the root of a backup is not read: what lies in it is named like partitions."""
    return f"{shown(path)} is a backup: name the log directories in it, {shown(path)}/log-dir-0"


def is_a_link(path: str) -> str:
    """Why a partition whose directory is a link is not read: the daemon does not serve it."""
    return (
        f"{shown(path)} is a link or a device, which kafkalog does not serve: replace it with the "
        "partition's directory, or remove it"
    )


def place_of(
    filesystem: ReadFilesystem, paths: Sequence[str], topic: str, partition: int
) -> str | None:
    """The directory of a partition in one of the log directories; None: it is in none.

    Raises AmbiguousPartition.
    """
    name = directory_name(TopicPartition(topic, partition))

    def existing() -> list[str]:
        places = [f"{path}/{name}" for path in paths]
        return [place for place in places if filesystem.exists(place)]

    for _ in range(_TRIES):
        places = stable(existing)
        if len(places) > 1:
            raise AmbiguousPartition(f"{name} is in {' and in '.join(map(shown, places))}")
        if places:
            return places[0]
    return None


def topic_id_in(filesystem: ReadFilesystem, place: str) -> str | None:
    """The id of the topic whose partition is in a directory; None: it has none, or is not there.

    Raises CorruptData, OSError.
    """
    path = f"{place}/{PARTITION_METADATA}"
    try:
        return encode_id(decode_partition_metadata(filesystem.read_file(path)))
    except FileNotFoundError:  # a Kafka without ids wrote the partition, or it is being moved
        return None
    except FormatError as error:
        raise CorruptData(error.reason, file=shown(path), position=0) from error
