"""SegmentFile and MovableDirectory: where a file of a log is now, its descriptor, its bytes.

A file of a segment changes its name while readers use it (``.swap``, ``.deleted``, a renamed
partition directory). Theory of the lock-free open: the owner publishes an immutable tuple of names
that may be true; during a rename it holds the old and the new name, afterwards the new one alone.
A reader opens the first name that exists and then looks whether the tuples are still the ones it
started with. If so the file is the right one, because another file can take over a freed name only
after the new tuple was published; if not it drops the handle and starts again.

Writes are the writer thread's; ``acquire`` and the walks over chunks (``scan_chunks``) are for any
thread. The bytes of a chunk that is scanned are good only until the next one is asked for.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.format.records.batch_scan import message_size, walk
from kafkalog.format.records.record_batch import LEADER_EPOCH_AT, LENGTH_AT, MAGIC_AT, MAGIC_V2
from kafkalog.log.values import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.env.filesystem import File, Filesystem, ReadableFile
    from kafkalog.format.records.batch_scan import ScannedChunk
    from kafkalog.log.environment import LogEnvironment


class MovableDirectory:
    """The directory of one partition; renamed when the partition is deleted or moved."""

    __slots__ = ("paths",)

    def __init__(self, path: str) -> None:
        # published to readers
        self.paths: tuple[str, ...] = (path,)

    @property
    def path(self) -> str:
        """Where it is now; during a rename, where it will be."""
        return self.paths[-1]

    def rename(self, filesystem: Filesystem, new_path: str) -> None:
        """Rename on disk (the caller syncs the parent). On OSError the old path stays true."""
        old = self.path
        if new_path == old:
            return
        self.paths = (old, new_path)
        try:
            filesystem.rename(old, new_path)
        except OSError:
            self.paths = (old,)
            raise
        self.paths = (new_path,)


class SegmentFile:
    """One file of one segment: its name, and a descriptor that is pinned, cached or absent.

    Pinned: while something is unsynced (see ``LogSegment``). Cached: in ``open_files``.
    """

    __slots__ = ("_directory", "_environment", "_names", "_pinned")

    def __init__(self, environment: LogEnvironment, directory: MovableDirectory, name: str) -> None:
        """``name`` inside ``directory``; nothing is opened or checked."""
        # constant after construction
        self._environment = environment
        self._directory = directory
        # published to readers
        self._names: tuple[str, ...] = (name,)
        self._pinned: File | None = None

    @property
    def name(self) -> str:
        """File name now, with its suffix."""
        return self._names[-1]

    @property
    def path(self) -> str:
        """Absolute path now."""
        return f"{self._directory.path}/{self._names[-1]}"

    def exists(self) -> bool:
        """Whether the file is on disk."""
        return self._environment.filesystem.exists(self.path)

    def acquire(self, *, may_block: bool = True) -> File:
        """A handle to read from; keep it while reading.

        Raises WouldBlock when it would have to be opened and may_block is False,
        FileNotFoundError when the file is gone.
        """
        pinned = self._pinned
        if pinned is not None:
            return pinned
        cached = self._environment.open_files.get(self)
        if cached is not None:
            return cached
        if not may_block:
            raise WouldBlock(self.path)
        return self._environment.open_files.put(self, self._open())

    def open_scan(self) -> File:
        """A handle of one's own for a walk (``Filesystem.open_scan``), beside the cache of them.

        FileNotFoundError when the file is gone.
        """
        return self._open_by(self._environment.filesystem.open_scan)

    def pin_for_write(self, *, create: bool = False) -> File:
        """Hold for writing until ``unpin``; a handle that is pinned or cached for it is used."""
        pinned = self._pinned
        if pinned is None:
            open_files = self._environment.open_files
            pinned = open_files.get(self)
            if pinned is None or not pinned.is_writable:
                pinned = self._environment.filesystem.open_write(self.path, create=create)
            self._pinned = pinned  # before it is forgotten: a reader finds one or the other
            open_files.forget(self)
        return pinned

    @property
    def is_pinned(self) -> bool:
        """Whether a handle for writing is held."""
        return self._pinned is not None

    def unpin(self) -> None:
        """Hand the write handle over to the bounded cache."""
        pinned = self._pinned
        if pinned is not None:
            self._environment.open_files.put(self, pinned)
            self._pinned = None

    def release(self) -> None:
        """Drop every reference of ours; the descriptor closes with the last reader."""
        self._pinned = None
        self._environment.open_files.forget(self)

    def rename(self, new_name: str) -> bool:
        """Rename within the directory; False when there was no such file. The caller syncs."""
        old_name = self.name
        if new_name == old_name:
            return True
        directory = self._directory.path
        self._names = (old_name, new_name)
        try:
            self._environment.filesystem.rename(
                f"{directory}/{old_name}", f"{directory}/{new_name}"
            )
        except FileNotFoundError:
            self._names = (new_name,)
            return False
        except OSError:
            self._names = (old_name,)
            raise
        self._names = (new_name,)
        return True

    def unlink(self) -> bool:
        """Delete the file and drop our references; False when there was no such file."""
        self.release()
        try:
            self._environment.filesystem.unlink(self.path)
        except FileNotFoundError:
            return False
        return True

    def datasync(self) -> bool:
        """Make contents and size durable (flusher thread); False when the file is gone.

        A deletion that overtakes a flush is no error; every other OSError is raised.
        """
        try:
            file = self._pinned or self._open()
        except FileNotFoundError:
            return False
        file.datasync()
        return True

    def sync_name(self) -> None:
        """Make the name durable, and with it all names of the directory."""
        self._environment.filesystem.sync_dir(self._directory.path)

    def _open(self) -> File:
        return self._open_by(self._environment.filesystem.open_read)

    def _open_by(self, opener: Callable[[str], File]) -> File:
        """Open for reading whatever name it has; see the module's theory."""
        while True:
            names, directories = self._names, self._directory.paths
            file = _open_first(opener, names, directories)
            if names is self._names and directories is self._directory.paths:
                if file is None:
                    raise FileNotFoundError(2, "No such file or directory", self.path)
                return file


def _open_first(
    opener: Callable[[str], File], names: tuple[str, ...], directories: tuple[str, ...]
) -> File | None:
    """The first combination that exists, or None."""
    for directory in directories:
        for name in names:
            try:
                return opener(f"{directory}/{name}")
            except FileNotFoundError:
                continue
    return None


HEADER = struct.Struct(">qi11xi8xq")  # base offset, length, last offset delta, max timestamp
LOG_OVERHEAD_BYTES = 12
SCAN_CHUNK_BYTES = 1024 * 1024
LARGEST_UNDOUBTED_BYTES = 64 * 1024 * 1024  # a rotten length may ask for a whole segment's memory


def read_chunk(file: File, position: int, size: int, *, may_block: bool) -> memoryview:
    """Up to ``size`` bytes; shorter only at the end of the file. WouldBlock as of ``acquire``."""
    return _read_into(_chunk_memory(size), file, position, may_block=may_block)


def _chunk_memory(size: int) -> memoryview:
    return np.empty(size, dtype=np.uint8).data  # not zeroed, unlike a bytearray


def _read_into(buffer: memoryview, file: File, position: int, *, may_block: bool) -> memoryview:
    """What the file holds for the buffer; see read_chunk."""
    if may_block:
        return buffer[: file.pread_into(buffer, position)]
    done = file.try_pread_into(buffer, position)
    if done is None or done < len(buffer):
        raise WouldBlock(file.path)
    return buffer


def scan_chunks(
    log_file: SegmentFile,
    position: int,
    end: int,
    *,
    check_crc: bool,
    may_block: bool = True,
    chunk_bytes: int = SCAN_CHUNK_BYTES,
    file: File | None = None,
    with_messages: bool = False,
) -> Iterator[ScannedChunk]:
    """The batches of ``[position, end)`` as of ``walk``.

    The bytes of a chunk are good until the next one is asked for: it is read into the same memory.
    ``file``: the caller's own handle. ``with_messages``: go on over messages of format v0 and v1.
    """
    if position >= end:
        return
    handle, memory = file or log_file.acquire(may_block=may_block), memoryview(b"")

    def read(size: int, at: int) -> memoryview:
        nonlocal memory
        if size > len(memory):
            memory = _chunk_memory(size)
        return _read_into(memory[:size], handle, at, may_block=may_block)

    yield from walk(
        read,
        position,
        end,
        check_crc=check_crc,
        chunk_bytes=chunk_bytes,
        with_messages=with_messages,
    )


def has_message_at(file: ReadableFile, position: int) -> bool:
    """Whether a whole message of format v0 or v1 begins there, with a right CRC."""
    head = file.pread(MAGIC_AT + 1, position)
    if len(head) <= MAGIC_AT or head[MAGIC_AT] >= MAGIC_V2:
        return False
    size = int.from_bytes(head[LENGTH_AT:LEADER_EPOCH_AT], "big", signed=True) + LOG_OVERHEAD_BYTES
    if not 0 < size <= min(file.size() - position, LARGEST_UNDOUBTED_BYTES):
        return False
    return message_size(file.pread(size, position)) > 0
