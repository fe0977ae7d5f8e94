"""The only interface to the disk. Every method may raise OSError, which `broker/` interprets.

Rules for all implementations (contract suite: tests/sim/test_filesystem_contract.py). Writes are
complete: a short write is continued, and when it cannot be, the error is raised and the file may
hold a part of the data. Nothing is memory-mapped. A name is durable only after sync_dir of its
directory, bytes only after sync or datasync of their file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Buffer = bytes | bytearray | memoryview


class DiskSpace(NamedTuple):
    """Of a file system, in bytes; -1: not known. The figures of ``df``.

    What is neither used nor usable is reserved for root: no share of it is of any use here.
    """

    total_bytes: int
    usable_bytes: int
    used_bytes: int

    @property
    def used_ratio(self) -> float | None:
        """What ``df`` calls Use%: of what is used or usable. None: not known."""
        whole_bytes = self.used_bytes + self.usable_bytes
        return self.used_bytes / whole_bytes if self.total_bytes > 0 and whole_bytes > 0 else None


class ReadableFile(Protocol):
    """A file that is open for reading, on a disk or in an object store."""

    @property
    def path(self) -> str:
        """The path at opening time; a rename does not change it."""

    def pread(self, size: int, position: int) -> bytes:
        """At most size bytes; shorter only at the end of the file."""

    def size(self) -> int:
        """Bytes in the file."""

    def close(self) -> None:
        """Close now. Reading afterwards raises OSError(EBADF)."""


class File(ReadableFile, Protocol):
    """An open file. It closes itself with its last reference, so that readers keep a reference."""

    @property
    def is_writable(self) -> bool:
        """Whether it was opened for writing; it can always be read."""

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fill buffer from position; return the bytes read, short only at the end of the file."""

    def try_pread_into(self, buffer: bytearray | memoryview, position: int) -> int | None:
        """Like pread_into from the page cache alone (RWF_NOWAIT); None when that would block."""

    def cached_descriptor(self, position: int, size_bytes: int) -> int | None:
        """The descriptor, for sendfile, if all of these bytes are in the page cache now.

        None: they are not, or nobody knows.
        """

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of data at position."""

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers back to back at position, normally with one call."""

    def truncate(self, size: int) -> None:
        """Cut or zero-extend (sparse) to size."""

    def datasync(self) -> None:
        """fdatasync: data and size durable. After an error never call it again on this file.

        The kernel may then have dropped dirty pages that it still shows to readers. They are
        removed from the page cache before the error is raised, so that later readers, also of
        another process, see what the disk holds. After a SIGKILL between the two they do not.
        """

    def sync(self) -> None:
        """Fsync, including metadata; after an error as ``datasync``."""


class DirLock(Protocol):
    """An exclusive lock on a file, held until released or the process ends."""

    def release(self) -> None:
        """Release the lock."""


class FileStat(NamedTuple):
    """One entry of a directory. A symbolic link is neither file nor directory."""

    name: str  # without directory
    size: int  # bytes
    mtime_ms: int  # 0 where it is not known
    is_dir: bool
    is_file: bool


class ReadFilesystem(Protocol):
    """Reads by absolute path, on a disk or in an object store."""

    def open_read(self, path: str) -> ReadableFile:
        """Open an existing file for reading."""

    def exists(self, path: str) -> bool:
        """Whether the path exists (links are not followed)."""

    def is_at(self, file: ReadableFile, path: str) -> bool:
        """Whether path still names this open file and not another one."""

    def list_dir(self, path: str) -> list[str]:
        """Entry names, sorted."""

    def list_dir_stats(self, path: str) -> list[FileStat]:
        """Entries with size, mtime and kind, sorted by name."""

    def stat(self, path: str) -> FileStat:
        """Of one path; FileNotFoundError when it does not exist."""

    def read_file(self, path: str) -> bytes:
        """Whole content of a small file."""

    def is_locked(self, path: str) -> bool:
        """Whether some process holds the lock on path. Takes no lock itself."""

    def real_path(self, path: str) -> str:
        """Absolute, links resolved."""


class Filesystem(ReadFilesystem, Protocol):
    """Files by absolute path."""

    def open_read(self, path: str) -> File:
        """Open an existing file for reading."""

    def open_scan(self, path: str) -> File:
        """Open an existing file for a scan in the background.

        Its ``pread_into`` removes the pages that it brought into the page cache. Pages that were
        cached before stay, except within 64 KiB of one that was not.
        """

    def open_write(self, path: str, *, create: bool = True, exclusive: bool = False) -> File:
        """Open for reading and writing, never truncating; exclusive fails when it exists."""

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """Set the modification time."""

    def make_dir(self, path: str, *, parents: bool = True) -> None:
        """Create with its missing parents; existing is fine. The caller syncs the parent.

        Without ``parents`` it must be new, in an existing directory (FileExistsError,
        FileNotFoundError).
        """

    def rename(self, source: str, target: str) -> None:
        """Atomic, replaces a file target. The caller syncs the directory."""

    def unlink(self, path: str) -> None:
        """Remove a file; FileNotFoundError when it does not exist."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it; links are removed, not followed."""

    def link(self, source: str, target: str) -> None:
        """Hard link."""

    def sync_dir(self, path: str) -> None:
        """Fsync a directory: the names in it become durable."""

    def write_file_atomically(self, path: str, data: bytes) -> None:
        """<path>.tmp, fsync, rename over path, fsync of the directory: old or new, never a mix.

        After an OSError before the rename the temporary file is removed, if the disk allows it.
        """

    def write_files_atomically(self, directory: str, files: Mapping[str, bytes]) -> None:
        """The same for several files of one directory, by name, with one fsync of the directory.

        All are written, then renamed in the order given: after a crash the first ones may be new,
        after a power cut any of them. Each is old or new.
        """

    def lock(self, path: str) -> DirLock:
        """Create the file and lock it; BlockingIOError when another process holds the lock."""

    def space(self, path: str) -> DiskSpace:
        """Of the file system of path."""

    def device(self, path: str) -> int:
        """The same number for paths on the same file system."""
