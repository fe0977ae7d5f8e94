"""SimFile: an open file of a SimFilesystem. Its inode lives as long as a handle or a name does."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from tests.sim.sim_inode import Inode, Resize, Write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.env.filesystem import Buffer
    from tests.sim.sim_filesystem import SimFilesystem


class SimFile:
    """See File. Handles of a killed process answer EBADF."""

    __slots__ = (
        "__weakref__",
        "_disk",
        "_generation",
        "_inode",
        "_is_open",
        "_is_scan",
        "_path",
        "is_writable",
    )

    def __init__(
        self,
        disk: SimFilesystem,
        inode: Inode,
        path: str,
        *,
        is_writable: bool = False,
        is_scan: bool = False,
    ) -> None:
        self._disk = disk
        self._inode = inode
        self._path = path
        self.is_writable = is_writable
        self._is_scan = is_scan
        self._generation = disk.generation
        self._is_open = True
        disk.open_handles += 1

    def __del__(self) -> None:
        self.close()

    @property
    def path(self) -> str:
        """Name at opening time."""
        return self._path

    @property
    def inode(self) -> Inode:
        return self._inode

    def pread(self, size: int, position: int) -> bytes:
        self._check()
        self._disk.enter("read", self._path)
        inode = self._inode
        inode.is_cached = inode.is_cached or not self._is_scan
        return bytes(memoryview(inode.content)[position : position + size])

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        view = memoryview(buffer)
        data = self.pread(len(view), position)
        view[: len(data)] = data
        return len(data)

    def cached_descriptor(self, position: int, size_bytes: int) -> None:
        """See File: nothing is sent from here."""

    def try_pread_into(self, buffer: bytearray | memoryview, position: int) -> int | None:
        self._check()
        if not self._inode.is_cached:
            return None
        return self.pread_into(buffer, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        self._check(is_writing=True)
        disk, inode = self._disk, self._inode
        fault = disk.enter("write", self._path)
        data = bytes(data)
        if fault is not None:
            self._write(data[: len(data) // 2], position)
            disk.faults.raise_after(fault, self._path)
        room = disk.charge(inode, position, len(data))
        self._write(data[:room], position)
        if room < len(data):
            raise OSError(errno.ENOSPC, "no space left on device", self._path)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self.pwrite(b"".join(buffers), position)

    def truncate(self, size: int) -> None:
        self._check(is_writing=True)
        disk, inode = self._disk, self._inode
        disk.enter("truncate", self._path)
        if size == len(inode.content):
            return
        inode.change(Resize(disk.next_order(), size))
        inode.mtime_ms = disk.now_ms()
        disk.release_beyond(inode, size)
        disk.mark_dirty(inode)

    def size(self) -> int:
        self._check()
        return len(self._inode.content)

    def datasync(self) -> None:
        self._sync("datasync")

    def sync(self) -> None:
        self._sync("sync")

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            if self._generation == self._disk.generation:
                self._disk.open_handles -= 1

    def _sync(self, kind: str) -> None:
        self._check()
        fault = self._disk.enter(kind, self._path)
        if fault is not None:
            self._inode.lose_pending(self._disk.next_order())
            self._disk.faults.raise_after(fault, self._path)
        self._inode.sync()
        self._disk.mark_clean(self._inode)

    def _write(self, data: bytes, position: int) -> None:
        if data:
            self._inode.change(Write(self._disk.next_order(), position, data))
            self._inode.mtime_ms = self._disk.now_ms()
            self._disk.mark_dirty(self._inode)

    def _check(self, *, is_writing: bool = False) -> None:
        is_stale = self._generation != self._disk.generation
        if not self._is_open or is_stale or (is_writing and not self.is_writable):
            raise OSError(errno.EBADF, "bad file descriptor", self._path)
