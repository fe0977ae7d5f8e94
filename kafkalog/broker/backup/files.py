"""BackupFiles: files into a backup, or out of one: linked or copied, checked, made durable.

Owns every write below one target directory. An OSError of the target is a fault of the backup,
never of a log directory; one of the source is decided by the source's own guard. Never writes to
the source. Runs on a background thread, in slices of 1 MiB.

Which files of a partition are backed up, in which order, as a link or as a copy, follows from what
the writer thread noted at one moment (``PartitionState``) and a listing of the directory:

* A closed segment's ``.log`` never changes again, so it may be a hard link. So may its ``.index``,
  ``.timeindex`` and the producer snapshots: a recovery may rewrite them in place, but they are
  derived, and a restore leaves out those that have changed.
* ``.txnindex`` is copied: recovery writes it in place, and a start does not miss a deleted one.
* The active segment's ``.log``, ``.index`` and ``.timeindex`` are copied up to the end of the
  moment; its ``.txnindex`` is left out: the start recovers this segment from its batches.
* Newest first: what retention deletes meanwhile is the oldest, and the rest is still a log.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from kafkalog.broker.directory.log_dir import LOST_AND_FOUND
from kafkalog.broker.directory.storage_fault import fault_of
from kafkalog.errors import BackupFailed, DescriptorsShort, DiskFull, InvalidBackupTarget
from kafkalog.format.disk.backup_manifest import BackupFile
from kafkalog.format.disk.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    segment_file_name,
)
from kafkalog.log.inspect.directory_facts import enclosing_log_dir, lies_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from kafkalog.env.filesystem import Filesystem

    Guard = Callable[[], AbstractContextManager[object]]


_CHUNK_BYTES = 1 << 20
# Another file system, one without hard links, too many links of one file, a kernel that forbids it.
_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
# What a fresh file system has in its root.
_FRESH_ENTRIES = frozenset({LOST_AND_FOUND})


class SourceGone(Exception):
    """The source file has no longer this name: its segment was replaced, or deleted."""


class BackupFiles:
    """See the module."""

    def __init__(
        self,
        filesystem: Filesystem,
        directory: str,
        *,
        check_stop: Callable[[], None] = lambda: None,
        note_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        """``directory`` is absolute. ``check_stop`` raises to end the work between two slices.

        ``note_bytes`` hears of every slice that was copied.
        """
        # constant after construction
        self.directory = directory.rstrip("/") or directory[:1]
        self._filesystem = filesystem
        self._check_stop = check_stop
        self._note_bytes = note_bytes
        # owned by the thread that works
        self.is_made = False  # make_root has ended: there may be something to clear away
        self._was_there = False

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Around work on the target: OSError becomes DiskFull, DescriptorsShort or BackupFailed.

        Before ``make_root`` has ended: InvalidBackupTarget instead of the last.
        """
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            message = f"{self.directory} cannot be used: {reason}"
            if self.is_made:
                message = (
                    f"Writing to {self.directory} failed: {reason}. What lies there is not "
                    "complete: remove it"
                )
            match fault_of(error, self.directory):
                case DiskFull():
                    raise DiskFull(message, directory=self.directory) from error
                case DescriptorsShort():
                    raise DescriptorsShort(message, directory=self.directory) from error
                case _:
                    kind = BackupFailed if self.is_made else InvalidBackupTarget
                    raise kind(message, directory=self.directory) from error

    def check_fresh(self, others: Iterable[str]) -> None:
        """InvalidBackupTarget unless it is an absolute path to nothing, or to an empty directory.

        Its parent must exist, and it must not lie in any of ``others`` nor in a log directory of
        anybody's. Touches nothing.
        """
        directory, filesystem = self.directory, self._filesystem
        if not directory.startswith("/") or "\0" in directory:
            message = (
                f"'{directory}' is no absolute path on the daemon's machine: name one there, which "
                "begins with /"
            )
            raise InvalidBackupTarget(message, directory=directory)
        parent = _parent(directory)
        with self.guard():
            if not filesystem.exists(parent):
                raise InvalidBackupTarget(f"{parent} does not exist", directory=directory)
            real = filesystem.real_path(directory)
            around = next((o for o in others if lies_in(real, filesystem.real_path(o))), None)
            if around is not None:
                message = f"{directory} lies in {around}: name a place outside it"
                raise InvalidBackupTarget(message, directory=directory)
            log_dir = enclosing_log_dir(filesystem, real)
            if log_dir is not None:
                message = (
                    f"{directory} lies in {log_dir}, which is a log directory: name a place "
                    "outside it"
                )
                raise InvalidBackupTarget(message, directory=directory)
            exists = filesystem.exists(directory)
            if exists and not set(filesystem.list_dir(directory)) <= _FRESH_ENTRIES:
                raise InvalidBackupTarget(f"{directory} is not empty", directory=directory)

    def make_root(self) -> None:
        """Make the directory unless it is there; the name is durable on return."""
        with self.guard():
            self._was_there = self._filesystem.exists(self.directory)
            self._filesystem.make_dir(self.directory)
            self._filesystem.sync_dir(_parent(self.directory))
        self.is_made = True

    def remove_root(self) -> None:
        """Undo ``make_root``, durable on return: what was there before stays, empty."""
        if not self._was_there:
            with self.guard():
                self._filesystem.remove_tree(self.directory)
                self._filesystem.sync_dir(_parent(self.directory))

    def usable_space(self) -> tuple[int, int]:
        """(device, bytes to use) of the file system it is on, or would be made on."""
        directory = self.directory
        with self.guard():
            if not self._filesystem.exists(directory):
                directory = _parent(directory)
            return self._filesystem.device(directory), self._filesystem.space(
                directory
            ).usable_bytes

    def make_dir(self, name: str) -> None:
        """Make a directory below; ``sync_dir`` of its parent makes the name durable."""
        with self.guard():
            self._filesystem.make_dir(self._path(name))

    def sync_dir(self, name: str = "") -> None:
        """Names in a directory below, or in the directory itself, are durable on return."""
        with self.guard():
            self._filesystem.sync_dir(self._path(name) if name else self.directory)

    def write(self, name: str, data: bytes) -> BackupFile:
        """A new small file, its bytes durable on return."""
        with self.guard():
            file = self._filesystem.open_write(self._path(name), exclusive=True)
            try:
                file.pwrite(data, 0)
                file.datasync()
            finally:
                file.close()
        self._note_bytes(len(data))
        return BackupFile(len(data), crc32c(data))

    def replace(self, name: str, data: bytes) -> None:
        """Old or new content, never a mix, durable on return."""
        with self.guard():
            self._filesystem.write_file_atomically(self._path(name), data)

    def remove(self, name: str) -> None:
        """Remove a file, or a directory with all below it; missing is fine."""
        path = self._path(name)
        with self.guard():
            if not self._filesystem.exists(path):
                return
            if self._filesystem.stat(path).is_dir:
                self._filesystem.remove_tree(path)
            else:
                self._filesystem.unlink(path)

    def link(self, source: str, name: str) -> bool:
        """Hard link; False where that is not possible and a copy is due. SourceGone."""
        try:
            self._filesystem.link(source, self._path(name))
        except FileNotFoundError as error:
            raise SourceGone(source) from error
        except OSError as error:
            if error.errno in _NO_LINK:
                return False
            with self.guard():
                raise
        return True

    def copy(self, source: str, name: str, size_bytes: int, source_guard: Guard) -> BackupFile:
        """The first size_bytes of source with its modification time, durable on return.

        SourceGone, also when the source has become shorter. CRC-32C of the bytes that were read.
        """
        with source_guard():
            try:
                reader = self._filesystem.open_read(source)
                mtime_ms = self._filesystem.stat(source).mtime_ms
            except FileNotFoundError as error:  # which is no fault
                raise SourceGone(source) from error
        with self.guard():
            writer = self._filesystem.open_write(self._path(name), exclusive=True)
        try:
            crc, position = 0, 0
            while position < size_bytes:
                self._check_stop()
                with source_guard():
                    data = reader.pread(min(_CHUNK_BYTES, size_bytes - position), position)
                if not data:
                    raise SourceGone(source)
                with self.guard():
                    writer.pwrite(data, position)
                crc = crc32c(data, crc)
                position += len(data)
                self._note_bytes(len(data))
            with self.guard():
                self._filesystem.set_mtime_ms(self._path(name), mtime_ms)
                writer.sync()
        finally:
            writer.close()
        return BackupFile(size_bytes, crc)

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


_DERIVED_SUFFIXES = frozenset({OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX})
# An index has at most an entry of 8 and one of 12 bytes every index.interval.bytes (4096): 1/204.
_LOG_BYTES_PER_INDEX_BYTE = 200


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A log at one moment: segments as (base offset, bytes of the ``.log``), the last one active.

    ``end_offset`` is where the last segment ends after its bytes; all of it is durable and visible
    by the time anybody reads this. ``active_index_bytes``: entries of its offset and time index.
    ``snapshot_offsets`` rise.
    """

    segments: tuple[tuple[int, int], ...]
    active_index_bytes: tuple[int, int]
    log_start_offset: int
    end_offset: int
    snapshot_offsets: tuple[int, ...] = ()


class PlannedFile(NamedTuple):
    """``size_bytes`` of a copy: that many from its beginning; of a link: what it must have."""

    name: str
    size_bytes: int
    is_link: bool


class PartitionPlan(NamedTuple):
    """Segments by base offset from the newest on, without a hole: all files of one, or none.

    ``others`` may be missing: snapshots that a start can use, and what says whose the directory is.
    """

    segments: dict[int, list[PlannedFile]]
    others: list[PlannedFile]


def is_derived(name: str) -> bool:
    """Whether a start rebuilds the file from the ``.log`` files when it is missing."""
    parsed = parse_segment_file(name)
    return parsed is not None and parsed.suffix in _DERIVED_SUFFIXES


def plan_partition(
    state: PartitionState, listing: Mapping[str, int], *, is_linked: bool
) -> PartitionPlan:
    """What to link and to copy; ``listing`` has the size of every file of the directory by name.

    A closed segment that is not in the listing ends the plan: older ones are not taken either.
    """
    *closed, (tail_base, tail_bytes) = state.segments
    tail_sizes = zip(
        (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX),
        (tail_bytes, *state.active_index_bytes),
        strict=True,
    )
    plan = PartitionPlan({}, [])
    plan.segments[tail_base] = [
        PlannedFile(segment_file_name(tail_base, suffix), size_bytes, is_link=False)
        for suffix, size_bytes in tail_sizes
    ]
    for base_offset, size_bytes in reversed(closed):
        name = segment_file_name(base_offset, LOG_SUFFIX)
        if name not in listing:
            break
        # A file that was preallocated may be longer than what was written to it.
        is_link = is_linked and listing[name] == size_bytes
        files = plan.segments[base_offset] = [PlannedFile(name, size_bytes, is_link)]
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            name = segment_file_name(base_offset, suffix)
            if name in listing:
                is_link = is_linked and suffix != TRANSACTION_INDEX_SUFFIX
                files.append(PlannedFile(name, listing[name], is_link))
    for offset in state.snapshot_offsets:
        name = segment_file_name(offset, SNAPSHOT_SUFFIX)
        if state.log_start_offset < offset <= tail_base and name in listing:
            plan.others.append(PlannedFile(name, listing[name], is_linked))
    if PARTITION_METADATA in listing:
        size_bytes = listing[PARTITION_METADATA]
        plan.others.append(PlannedFile(PARTITION_METADATA, size_bytes, is_link=False))
    return plan


def copied_bytes(size_bytes: int, active_bytes: int, *, is_linked: bool) -> int:
    """About how much room a partition takes in the backup; ``size_bytes`` of all ``.log`` files."""
    if is_linked:
        return active_bytes
    return size_bytes + size_bytes // _LOG_BYTES_PER_INDEX_BYTE
