"""What a power cut may leave: eight modes, each a choice among the changes that were not synced.

A Survivor builds a new tree of inodes and directories from the durable views of the old one plus
the chosen changes, and never touches the old one.
"""

from __future__ import annotations

import enum
import random
from typing import TYPE_CHECKING

from tests.sim.sim_inode import (
    PAGE_BYTES,
    SECTOR_BYTES,
    Change,
    Directory,
    Inode,
    NameChange,
    Node,
    Resize,
    Write,
    apply_change,
    resize,
    write_into,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class CrashMode(enum.Enum):
    """What is left of the pending changes."""

    DROP_ALL = "drop all"
    KEEP_ALL = "keep all"
    PREFIX = "in-order prefix"  # over the whole disk; the seed chooses its length
    SUBSET = "random subset"  # any names, any pages, any size that the file had
    TORN_SECTOR = "write torn at a sector"  # seed 0: the last write; else any, later ones dropped
    TORN_BYTE = "write torn at a byte"  # likewise
    ZEROED_DATA = "size grown, data zero"
    NAMES_ONLY = "names kept, data lost"


ALL_MODES = tuple(CrashMode)


class Survivor:
    """The disk's state at the cut."""

    def __init__(
        self, root: Directory, name_changes: Sequence[NameChange], dirty: Sequence[Inode]
    ) -> None:
        self._root = root
        self._name_changes = name_changes
        self._dirty = dirty
        self._clones: dict[int, Node] = {}

    def root(self, mode: CrashMode, seed: int) -> Directory:
        """The tree that is found after the cut. The same mode and seed give the same tree."""
        chance = random.Random(f"{mode.name} {seed}")
        self._clones = {}
        root = self._clone_directory(self._root)
        if mode in (CrashMode.DROP_ALL, CrashMode.KEEP_ALL, CrashMode.PREFIX):
            self._keep_until(self._cut(mode, chance))
        elif mode in (CrashMode.TORN_SECTOR, CrashMode.TORN_BYTE):
            self._tear(mode, seed, chance)
        elif mode is CrashMode.SUBSET:
            self._apply_names(c for c in self._name_changes if chance.random() < 0.5)
            for inode in self._dirty:
                _keep_some(self._clone_inode(inode).content, inode, chance)
        else:
            self._apply_names(self._name_changes)
            if mode is CrashMode.ZEROED_DATA:
                for inode in self._dirty:
                    _grow(self._clone_inode(inode).content, inode.pending)
        self._settle()
        return root

    def _cut(self, mode: CrashMode, chance: random.Random) -> int:
        """Changes of a lower order are kept."""
        orders = sorted(self._orders())
        if mode is CrashMode.DROP_ALL or not orders:
            return 0
        if mode is CrashMode.KEEP_ALL:
            return orders[-1] + 1
        kept = chance.randrange(len(orders) + 1)
        return orders[kept] if kept < len(orders) else orders[-1] + 1

    def _orders(self) -> Iterable[int]:
        yield from (change.order for change in self._name_changes)
        for inode in self._dirty:
            yield from (change.order for change in inode.pending)

    def _keep_until(self, end: int) -> None:
        self._apply_names(change for change in self._name_changes if change.order < end)
        for inode in self._dirty:
            content = self._clone_inode(inode).content
            for change in inode.pending:
                if change.order < end:
                    apply_change(content, change)

    def _tear(self, mode: CrashMode, seed: int, chance: random.Random) -> None:
        writes = sorted(
            (
                (change.order, change, inode)
                for inode in self._dirty
                for change in inode.pending
                if isinstance(change, Write)
            ),
            key=lambda found: found[0],
        )
        if not writes:
            self._keep_until(max(self._orders(), default=-1) + 1)
            return
        order, torn, inode = writes[-1 if seed == 0 else chance.randrange(len(writes))]
        self._keep_until(order)
        kept = chance.randrange(len(torn.data)) if len(torn.data) > 1 else 0
        if mode is CrashMode.TORN_SECTOR:
            end = (torn.position + kept) // SECTOR_BYTES * SECTOR_BYTES
            kept = max(0, end - torn.position)
        if kept:
            content = self._clone_inode(inode).content
            write_into(content, torn.position, memoryview(torn.data)[:kept])

    def _apply_names(self, changes: Iterable[NameChange]) -> None:
        for change in changes:
            steps = [(self._clone_directory(s.directory), s.name, s.node) for s in change.steps]
            if any(node is None and name not in at.names for at, name, node in steps):
                continue  # its source never came to be
            for at, name, node in steps:
                if node is None:
                    del at.names[name]
                else:
                    at.names[name] = self._clone(node)

    def _settle(self) -> None:
        """What was found after the cut is durable."""
        for clone in self._clones.values():
            if isinstance(clone, Directory):
                clone.durable = dict(clone.names)

    def _clone(self, node: Node) -> Node:
        if isinstance(node, Inode):
            return self._clone_inode(node)
        if isinstance(node, Directory):
            return self._clone_directory(node)
        return node

    def _clone_inode(self, inode: Inode) -> Inode:
        clone = self._clones.get(id(inode))
        if clone is None:
            clone = self._clones[id(inode)] = Inode(inode.durable_content(), inode.mtime_ms)
        assert isinstance(clone, Inode)
        return clone

    def _clone_directory(self, directory: Directory) -> Directory:
        clone = self._clones.get(id(directory))
        if clone is None:
            clone = self._clones[id(directory)] = Directory(directory.mtime_ms)
            clone.names = {name: self._clone(node) for name, node in directory.durable.items()}
        assert isinstance(clone, Directory)
        return clone


def _keep_some(content: bytearray, inode: Inode, chance: random.Random) -> None:
    """Any subset of pages, and any size the file had since the last sync, each on its own."""
    sizes = [len(content)]
    size = len(content)
    for change in inode.pending:
        if isinstance(change, Resize):
            size = change.size
            if chance.random() < 0.5:
                resize(content, size)
        else:
            size = max(size, change.position + len(change.data))
            for position, piece in _pages(change):
                if chance.random() < 0.5:
                    write_into(content, position, piece)
        sizes.append(size)
    resize(content, chance.choice(sizes))


def _pages(write: Write) -> Iterable[tuple[int, memoryview]]:
    view = memoryview(write.data)
    position = write.position
    while len(view):
        size = min(len(view), PAGE_BYTES - position % PAGE_BYTES)
        yield position, view[:size]
        position += size
        view = view[size:]


def _grow(content: bytearray, changes: Iterable[Change]) -> None:
    """Sizes as if everything had been written, without the bytes."""
    for change in changes:
        if isinstance(change, Resize):
            resize(content, change.size)
        else:
            resize(content, max(len(content), change.position + len(change.data)))
