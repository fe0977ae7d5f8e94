"""SimFilesystem: a disk in memory that knows what a power cut would leave of it.

Model (strict POSIX): bytes and size of a file become durable with its sync or datasync, never its
name; names become durable with sync_dir of their directory. ``crash(mode, seed)`` gives the disk
after a power cut and leaves this one as it was, so one state can be cut in many ways; ``kill()``
ends the process alone. Faults: ``faults.add``, ``stop_at``. One operating system thread; with
``on_call`` every call is a switch point for simulated ones.
"""

from __future__ import annotations

import errno
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.env.filesystem import DiskSpace, FileStat
from kafkalog.env.system_filesystem import WholeFiles
from tests.sim.sim_crash import CrashMode, Survivor
from tests.sim.sim_faults import FaultPlan, Operation
from tests.sim.sim_file import SimFile
from tests.sim.sim_inode import PAGE_BYTES, Directory, Inode, Link, NameChange, NameStep, Node
from tests.sim.simulation_memory import note_made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.env.clock import Clock
    from kafkalog.env.filesystem import ReadableFile
    from tests.sim.sim_faults import Fault

DEFAULT_CAPACITY_BYTES = 1 << 40


@dataclass(slots=True)
class SimLock:
    locked: set[str]
    path: str

    def release(self) -> None:
        self.locked.discard(self.path)


def _stat_of(name: str, node: Node) -> FileStat:
    if isinstance(node, Inode):
        return FileStat(name, len(node.content), node.mtime_ms, False, True)
    if isinstance(node, Directory):
        return FileStat(name, PAGE_BYTES, node.mtime_ms, True, False)
    return FileStat(name, len(node.target), 0, False, False)


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rstrip("/").rpartition("/")
    return parent or "/", name


class SimFilesystem(WholeFiles):
    def __init__(
        self,
        clock: Clock | None = None,
        *,
        capacity_bytes: int = DEFAULT_CAPACITY_BYTES,
        on_call: Callable[[], None] | None = None,
        root: Directory | None = None,
    ) -> None:
        self.clock = clock
        self.faults = FaultPlan()
        self.capacity_bytes = capacity_bytes
        self.reserved_bytes = 0  # for root
        self.foreign_bytes = 0  # of other files on it
        self.on_call = on_call
        self.generation = 0  # handles of a killed process are of an older one
        self.open_handles = 0
        self.is_kept = False  # by a cache, from test to test
        self._root = root if root is not None else Directory(0)
        self._orders = itertools.count()
        self._name_changes: list[NameChange] = []
        self._dirty: dict[int, Inode] = {}
        self._used_pages = 0
        self._locked: set[str] = set()
        note_made(self)

    def dispose(self) -> None:
        directories = [self._root]
        while directories:
            directory = directories.pop()
            for node in (*directory.names.values(), *directory.durable.values()):
                if isinstance(node, Directory):
                    directories.append(node)
                elif isinstance(node, Inode):
                    node.dispose()
            directory.names, directory.durable = {}, {}
        for inode in self._dirty.values():
            inode.dispose()

    # -- what tests ask for

    @property
    def operations(self) -> list[Operation]:
        """Mutating calls so far."""
        return self.faults.operations

    def stop_at(self, count: int, *, is_partial: bool = False) -> None:
        """Raise SimulatedCrash before mutating call ``count`` (from 0), and at each later call.

        ``is_partial``: if that call is a write, half of its bytes are written first.
        """
        self.faults.stop_at(count, is_partial=is_partial)

    def crash(self, mode: CrashMode, seed: int = 0) -> SimFilesystem:
        """The disk after a power cut now; this one is left as it was."""
        survivor = Survivor(self._root, self._name_changes, list(self._dirty.values()))
        disk = SimFilesystem(
            self.clock, capacity_bytes=self.capacity_bytes, root=survivor.root(mode, seed)
        )
        disk.count_pages()
        return disk

    def kill(self, *, keep_faults: bool = False) -> SimFilesystem:
        """The process ends: page cache lives, handles and locks go, faults are disarmed."""
        self.generation += 1
        self.open_handles = 0
        self._locked = set()
        if not keep_faults:
            self.faults.clear()
        return self

    def sync_all(self) -> None:
        """Make everything durable (as sync(1)), without counting as an operation."""
        for inode in self._dirty.values():
            inode.sync()
        self._dirty.clear()
        self._make_durable(self._name_changes)
        self._name_changes = []

    def evict(self, path: str) -> None:
        """Drop a file from the page cache: try_pread_into answers None until it is read."""
        self._inode(path).is_cached = False

    def plant_link(self, path: str, target: str) -> None:
        self._set_name(path, Link(target))

    def hold_lock(self, path: str) -> None:
        self._locked.add(path)

    def durable_files(self) -> dict[str, bytes]:
        """Path -> bytes of everything that a power cut cannot take."""
        found: dict[str, bytes] = {}

        def walk(directory: Directory, prefix: str) -> None:
            for name, node in sorted(directory.durable.items()):
                if isinstance(node, Directory):
                    walk(node, f"{prefix}/{name}")
                elif isinstance(node, Inode):
                    found[f"{prefix}/{name}"] = bytes(node.durable_content())

        walk(self._root, "")
        return found

    def shown(self, path: str) -> bytes:
        """Content as readers see it, without a call that could fail or let others go first."""
        return bytes(self._inode(path).content)

    # -- Filesystem

    def open_read(self, path: str) -> SimFile:
        self.enter("open", path)
        return SimFile(self, self._inode(path), path)

    def open_scan(self, path: str) -> SimFile:
        self.enter("open", path)
        return SimFile(self, self._inode(path), path, is_scan=True)

    def open_write(self, path: str, *, create: bool = True, exclusive: bool = False) -> SimFile:
        self.enter("open", path)
        node = self._find(path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._parent(path)
            self.enter("create", path)
            self._set_name(path, Inode(bytearray(), self.now_ms()))
        elif exclusive:
            raise FileExistsError(errno.EEXIST, "file exists", path)
        return SimFile(self, self._inode(path), path, is_writable=True)

    def exists(self, path: str) -> bool:
        self.enter("exists", path)
        try:
            return self._find(path) is not None
        except NotADirectoryError:
            return False

    def is_at(self, file: ReadableFile, path: str) -> bool:
        assert isinstance(file, SimFile)
        self.enter("stat", path)
        return self._find(path) is file.inode

    def list_dir(self, path: str) -> list[str]:
        self.enter("list", path)
        return sorted(self._directory(path).names)

    def list_dir_stats(self, path: str) -> list[FileStat]:
        self.enter("list", path)
        names = self._directory(path).names
        return [_stat_of(name, names[name]) for name in sorted(names)]

    def stat(self, path: str) -> FileStat:
        self.enter("stat", path)
        return _stat_of(_split(path)[1], self._existing(path))

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        self.enter("set_mtime", path)
        node = self._existing(path)
        if not isinstance(node, Link):
            node.mtime_ms = mtime_ms

    def make_dir(self, path: str, *, parents: bool = True) -> None:
        node = self._find(path)
        if isinstance(node, Directory) and parents:
            return
        if node is not None:
            raise FileExistsError(errno.EEXIST, "file exists", path)
        if parents:
            self.make_dir(_split(path)[0])
        self.enter("make_dir", path)
        self._set_name(path, Directory(self.now_ms()))

    def rename(self, source: str, target: str) -> None:
        self.enter("rename", source)
        node = self._existing(source)
        replaced = self._find(target)
        if replaced is node:
            return
        if isinstance(replaced, Directory):
            if not isinstance(node, Directory):
                raise IsADirectoryError(errno.EISDIR, "is a directory", target)
            if replaced.names:
                raise OSError(errno.ENOTEMPTY, "directory not empty", target)
        elif replaced is not None and isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", target)
        self._change_names([(source, None), (target, node)])
        self._unlinked(replaced)

    def unlink(self, path: str) -> None:
        self.enter("unlink", path)
        node = self._existing(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        self._change_names([(path, None)])
        self._unlinked(node)

    def remove_tree(self, path: str) -> None:
        directory = self._directory(path)
        for name, node in list(directory.names.items()):
            child = f"{path}/{name}"
            if isinstance(node, Directory):
                self.remove_tree(child)
            else:
                self.unlink(child)
        self.enter("remove_dir", path)
        self._change_names([(path, None)])

    def link(self, source: str, target: str) -> None:
        self.enter("link", target)
        if self._find(target) is not None:
            raise FileExistsError(errno.EEXIST, "file exists", target)
        self._set_name(target, self._inode(source))

    def sync_dir(self, path: str) -> None:
        directory = self._directory(path)
        fault = self.enter("sync_dir", path)
        mine = [change for change in self._name_changes if change.touches(directory)]
        self._name_changes = [c for c in self._name_changes if not c.touches(directory)]
        if fault is not None:  # LOSE_SYNC: the names stay in the cache alone
            self.faults.raise_after(fault, path)
        self._make_durable(mine)

    def lock(self, path: str) -> SimLock:
        if path in self._locked:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self.open_write(path).close()
        self._locked.add(path)
        return SimLock(self._locked, path)

    def is_locked(self, path: str) -> bool:
        self.enter("stat", path)
        return path in self._locked

    def space(self, path: str) -> DiskSpace:
        self.enter("space", path)
        self._existing(path)
        used_bytes = self._used_pages * PAGE_BYTES + self.foreign_bytes
        usable_bytes = max(0, self.capacity_bytes - self.reserved_bytes - used_bytes)
        return DiskSpace(self.capacity_bytes, usable_bytes, used_bytes)

    def device(self, path: str) -> int:
        """See Filesystem; there is one file system."""
        self._existing(path)
        return 1

    def real_path(self, path: str) -> str:
        return "/" + "/".join(part for part in path.split("/") if part)

    # -- for SimFile

    def now_ms(self) -> int:
        """Wall time for modification times; 0 without a clock."""
        return self.clock.wall_ms() if self.clock is not None else 0

    def enter(self, kind: str, path: str) -> Fault | None:
        """Every call passes here: switch point, count, fault."""
        if self.on_call is not None:
            self.on_call()
        return self.faults.on_call(kind, path)

    def next_order(self) -> int:
        return next(self._orders)

    def mark_dirty(self, inode: Inode) -> None:
        self._dirty[id(inode)] = inode

    def mark_clean(self, inode: Inode) -> None:
        self._dirty.pop(id(inode), None)

    def charge(self, inode: Inode, position: int, size: int) -> int:
        """Take pages for a write; how many of its bytes find room."""
        free = (self.capacity_bytes - self.foreign_bytes) // PAGE_BYTES - self._used_pages
        end = position + size
        for page in range(position // PAGE_BYTES, -(-end // PAGE_BYTES)):
            if page in inode.pages:
                continue
            if free == 0:
                return max(0, page * PAGE_BYTES - position)
            inode.pages.add(page)
            self._used_pages += 1
            free -= 1
        return size

    def release_beyond(self, inode: Inode, size: int) -> None:
        """Give back the pages of a file from size on."""
        first_free = -(-size // PAGE_BYTES)
        gone = {page for page in inode.pages if page >= first_free}
        inode.pages -= gone
        self._used_pages -= len(gone)

    def count_pages(self) -> None:
        """Fill the link and page counts of a disk that was just made by a crash."""
        seen: set[int] = set()
        for inode in _inodes(self._root):
            inode.links += 1
            if id(inode) not in seen:
                seen.add(id(inode))
                inode.pages = set(range(-(-len(inode.content) // PAGE_BYTES)))
                self._used_pages += len(inode.pages)

    # -- names

    def _find(self, path: str) -> Node | None:
        node: Node = self._root
        for part in path.split("/"):
            if not part:
                continue
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            found = node.names.get(part)
            if found is None:
                return None
            node = found
        return node

    def _existing(self, path: str) -> Node:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def _inode(self, path: str) -> Inode:
        node = self._existing(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if isinstance(node, Link):
            raise OSError(errno.ELOOP, "is a symbolic link", path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._existing(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def _parent(self, path: str) -> Directory:
        return self._directory(_split(path)[0])

    def _set_name(self, path: str, node: Node) -> None:
        self._change_names([(path, node)])
        if isinstance(node, Inode):
            node.links += 1

    def _change_names(self, changes: list[tuple[str, Node | None]]) -> None:
        steps = [NameStep(self._parent(path), _split(path)[1], node) for path, node in changes]
        for step in steps:
            if step.node is None:
                del step.directory.names[step.name]
            else:
                step.directory.names[step.name] = step.node
            step.directory.mtime_ms = self.now_ms()
        self._name_changes.append(NameChange(self.next_order(), steps))

    def _unlinked(self, node: Node | None) -> None:
        if isinstance(node, Inode):
            node.links -= 1
            if node.links == 0:  # space comes back at once, even while readers hold the file
                self.release_beyond(node, 0)

    @staticmethod
    def _make_durable(changes: list[NameChange]) -> None:
        for change in changes:
            for step in change.steps:
                if step.node is None:
                    step.directory.durable.pop(step.name, None)
                else:
                    step.directory.durable[step.name] = step.node


def _inodes(directory: Directory) -> Iterator[Inode]:
    for node in directory.names.values():
        if isinstance(node, Directory):
            yield from _inodes(node)
        elif isinstance(node, Inode):
            yield node
