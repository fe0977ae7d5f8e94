"""The machine's disk: plain system calls, complete writes, no mapping; OSErrors are not translated.

A file closes itself with its last reference, so that a reader that holds one reads on after the
segment was renamed or unlinked. ``WholeFiles`` holds the steps that replace small files atomically
for every Filesystem, so that what a simulated power cut shows is true of the machine's disk too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat as stat_module
import struct
import threading
from typing import TYPE_CHECKING

from kafkalog.env.filesystem import DiskSpace, FileStat
from kafkalog.env.page_cache import is_cached

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.env.filesystem import Buffer, Filesystem, ReadableFile


class WholeFiles:
    """The methods of a Filesystem that read and replace whole files by its other methods."""

    __slots__ = ()

    def read_file(self: Filesystem, path: str) -> bytes:
        """See Filesystem."""
        file = self.open_read(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def write_file_atomically(self: Filesystem, path: str, data: bytes) -> None:
        """See Filesystem."""
        self.write_files_atomically(os.path.dirname(path), {os.path.basename(path): data})

    def write_files_atomically(
        self: Filesystem, directory: str, files: Mapping[str, bytes]
    ) -> None:
        """See Filesystem."""
        paths = [os.path.join(directory, name) for name in files]
        try:
            for path, data in zip(paths, files.values(), strict=True):
                file = self.open_write(f"{path}.tmp")
                try:
                    file.truncate(0)
                    file.pwrite(data, 0)
                    file.sync()
                finally:
                    file.close()
            for path in paths:
                self.rename(f"{path}.tmp", path)
        except OSError:
            for path in paths:
                with contextlib.suppress(OSError):  # a full disk needs its pages back
                    self.unlink(f"{path}.tmp")
            raise
        self.sync_dir(directory)


_IOV_MAX = 1024
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SCAN_PIECE_BYTES = 64 << 10  # of a scan: cached and dropped together
_FILE_MODE = 0o640
_DIR_MODE = 0o750
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOSYS}

# Devices whose file system does not support RWF_NOWAIT. Entries are never removed.
_no_nowait_devices: set[int] = set()
# fcntl locks do not exclude the same process: paths locked here, guarded by the mutex.
_locked_paths: set[str] = set()
_locked_paths_mutex = threading.Lock()
# Linux's struct flock: type, whence, start, length (0: to the end), process.
_FLOCK = struct.Struct("@hhqqi0q")


class SystemFile:
    """An open descriptor."""

    __slots__ = ("__weakref__", "_device", "_fd", "is_writable", "path")

    def __init__(self, fd: int, path: str, *, is_writable: bool) -> None:
        self._fd = fd
        self.is_writable = is_writable
        self.path = path  # at opening time
        self._device = os.fstat(fd).st_dev

    def __del__(self) -> None:
        fd = getattr(self, "_fd", -1)  # __init__ may have failed before it was set
        if fd >= 0:
            with contextlib.suppress(OSError):  # there is no caller that could handle it
                os.close(fd)

    def pread(self, size: int, position: int) -> bytes:
        """See File."""
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        done = len(data)
        while done < size and (more := os.pread(self._fd, size - done, position + done)):
            parts.append(more)
            done += len(more)
        return b"".join(parts)

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """See File."""
        view = memoryview(buffer)
        done = 0
        while done < len(view):
            count = os.preadv(self._fd, [view[done:]], position + done)
            if count == 0:
                break
            done += count
        return done

    def try_pread_into(self, buffer: bytearray | memoryview, position: int) -> int | None:
        """See File. A part in the cache counts as a miss: the caller reads all of it elsewhere."""
        if self._device in _no_nowait_devices:
            return None
        view = memoryview(buffer)
        try:
            count = os.preadv(self._fd, [view], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            _no_nowait_devices.add(self._device)
            return None
        if count < len(view) and position + count < self.size():
            return None
        return count

    def cached_descriptor(self, position: int, size_bytes: int) -> int | None:
        """See File."""
        return self._fd if is_cached(self._fd, position, size_bytes) else None

    def pwrite(self, data: Buffer, position: int) -> None:
        """See File."""
        done = os.pwrite(self._fd, data, position)
        if done < len(data):
            view = memoryview(data)
            while done < len(view):
                done += os.pwrite(self._fd, view[done:], position + done)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """See File."""
        for start in range(0, len(buffers), _IOV_MAX):
            part = buffers[start : start + _IOV_MAX]
            total = sum(map(len, part))
            done = os.pwritev(self._fd, part, position)
            if done < total:
                self._finish(part, position, done)
            position += total

    def _finish(self, buffers: Sequence[Buffer], position: int, done: int) -> None:
        """The rest of a short gather write, buffer by buffer."""
        for buffer in buffers:
            size = len(buffer)
            if done < size:
                self.pwrite(memoryview(buffer)[done:], position + done)
                done = size
            done -= size
            position += size

    def truncate(self, size: int) -> None:
        """See File."""
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        """See File."""
        return os.fstat(self._fd).st_size

    def datasync(self) -> None:
        """See File."""
        try:
            os.fdatasync(self._fd)
        except OSError:
            self._drop_unwritten()
            raise

    def is_at(self, path: str) -> bool:
        """See Filesystem.is_at."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(path, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def sync(self) -> None:
        """See File."""
        try:
            os.fsync(self._fd)
        except OSError:
            self._drop_unwritten()
            raise

    def _drop_unwritten(self) -> None:
        """Remove the pages that the kernel failed to write: it takes them for clean."""
        with contextlib.suppress(OSError):  # the sync's own error is the one that counts
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """See File."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class ScannedFile(SystemFile):
    """See Filesystem.open_scan."""

    __slots__ = ()

    def __init__(self, fd: int, path: str) -> None:
        super().__init__(fd, path, is_writable=False)
        # No read-ahead: its pages would look as if another process had read them.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """See Filesystem.open_scan. Without RWF_NOWAIT all pages stay in the cache."""
        view, done = memoryview(buffer), 0
        while done < len(view):
            piece = view[done : done + _SCAN_PIECE_BYTES - (position + done) % _SCAN_PIECE_BYTES]
            count = self._read_piece(piece, position + done)
            done += count
            if count < len(piece):
                break
        return done

    def _read_piece(self, piece: memoryview, position: int) -> int:
        cached = self.try_pread_into(piece, position)
        if cached is not None:
            return cached
        done = super().pread_into(piece, position)
        if self._device not in _no_nowait_devices:
            start = (
                position - position % _PAGE_BYTES
            )  # also the part of a page that was read before
            os.posix_fadvise(self._fd, start, position + done - start, os.POSIX_FADV_DONTNEED)
        return done


def _stat_of(name: str, status: os.stat_result) -> FileStat:
    return FileStat(
        name,
        status.st_size,
        status.st_mtime_ns // 1_000_000,
        stat_module.S_ISDIR(status.st_mode),
        stat_module.S_ISREG(status.st_mode),
    )


def _stat_or_none(entry: os.DirEntry[str]) -> FileStat | None:
    """None when the file was deleted during the listing."""
    try:
        return _stat_of(entry.name, entry.stat(follow_symlinks=False))
    except FileNotFoundError:
        return None


class SystemLock:
    """A POSIX record lock, as Java's FileChannel takes: Kafka and kafkalog exclude each other.

    The kernel drops such a lock when the process closes any descriptor of the file: nothing else
    may open a locked file.
    """

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    def release(self) -> None:
        """See DirLock."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        os.close(fd)
        with _locked_paths_mutex:
            _locked_paths.discard(self._path)


class SystemFilesystem(WholeFiles):
    """The operating system's files. Links are never followed at the last component."""

    def open_read(self, path: str) -> SystemFile:
        """See Filesystem."""
        return SystemFile(
            os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), path, is_writable=False
        )

    def open_scan(self, path: str) -> SystemFile:
        """See Filesystem."""
        return ScannedFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), path)

    def open_write(self, path: str, *, create: bool = True, exclusive: bool = False) -> SystemFile:
        """See Filesystem."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        if create:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        return SystemFile(os.open(path, flags, _FILE_MODE), path, is_writable=True)

    def exists(self, path: str) -> bool:
        """See Filesystem."""
        return os.path.lexists(path)

    def is_at(self, file: ReadableFile, path: str) -> bool:
        """See Filesystem."""
        assert isinstance(file, SystemFile)
        return file.is_at(path)

    def list_dir(self, path: str) -> list[str]:
        """See Filesystem."""
        return sorted(os.listdir(path))

    def list_dir_stats(self, path: str) -> list[FileStat]:
        """See Filesystem."""
        with os.scandir(path) as entries:
            found = [stat for entry in entries if (stat := _stat_or_none(entry)) is not None]
        return sorted(found, key=lambda stat: stat.name)

    def stat(self, path: str) -> FileStat:
        """See Filesystem."""
        return _stat_of(os.path.basename(path), os.stat(path, follow_symlinks=False))

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """See Filesystem."""
        os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000), follow_symlinks=False)

    def make_dir(self, path: str, *, parents: bool = True) -> None:
        """See Filesystem."""
        if not parents:
            os.mkdir(path, _DIR_MODE)
            return
        # os.makedirs gives the mode to the last component alone; parents must not be wider.
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        if parent and parent != path:
            self.make_dir(parent)
        try:
            os.mkdir(path, _DIR_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def rename(self, source: str, target: str) -> None:
        """See Filesystem."""
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        """See Filesystem."""
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """See Filesystem."""
        shutil.rmtree(path)

    def link(self, source: str, target: str) -> None:
        """See Filesystem."""
        os.link(source, target, follow_symlinks=False)

    def sync_dir(self, path: str) -> None:
        """See Filesystem."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> SystemLock:
        """See Filesystem."""
        path = _lock_path(path)
        with _locked_paths_mutex:
            if path in _locked_paths:
                raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(path, flags, _FILE_MODE)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(fd)
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise BlockingIOError(errno.EAGAIN, "locked by another", path) from error
                raise
            _locked_paths.add(path)
        return SystemLock(fd, path)

    def is_locked(self, path: str) -> bool:
        """See Filesystem."""
        path = _lock_path(path)
        with _locked_paths_mutex:  # closing a descriptor of a file drops our own lock on it
            if path in _locked_paths:
                return True
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                return False
            try:
                wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                in_the_way: int = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, wanted))[0]
            finally:
                os.close(fd)
        return in_the_way != fcntl.F_UNLCK

    def space(self, path: str) -> DiskSpace:
        """See Filesystem."""
        status = os.statvfs(path)
        used_blocks = status.f_blocks - status.f_bfree
        blocks = (status.f_blocks, status.f_bavail, used_blocks)
        return DiskSpace(*(count * status.f_frsize for count in blocks))

    def device(self, path: str) -> int:
        """See Filesystem."""
        return os.stat(path).st_dev

    def real_path(self, path: str) -> str:
        """See Filesystem."""
        return os.path.realpath(path)


def _lock_path(path: str) -> str:
    """Only the directory is resolved: a link planted as the lock file is refused."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def copy_files(source: str, target: str) -> None:
    """Copy the regular files of source into the new directory target, with their mtimes.

    Nothing is synced. OSError; target then holds a part.
    """
    os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    os.mkdir(target)
    for name, _ in files_to_copy(source):
        copy_file(f"{source}/{name}", f"{target}/{name}")


def files_to_copy(source: str) -> list[tuple[str, int]]:
    """Names and bytes of a directory's regular files, and of those that links lead to. OSError."""
    with os.scandir(source) as entries:
        return [(each.name, each.stat().st_size) for each in entries if each.is_file()]


def copy_file(source: str, target: str) -> None:
    """Copy one regular file with its mtime. Not synced; OSError, target may then hold a part."""
    shutil.copy2(source, target)
