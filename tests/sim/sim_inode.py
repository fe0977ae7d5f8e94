"""What a simulated disk is made of: inodes, directories and changes that are not yet durable.

An inode holds ``content`` (page cache: what every reader sees) and ``durable`` (platter) with the
ordered changes between them. A directory holds the same two views of its names; the changes of
names lie in one list for the whole disk, since a rename may touch two directories.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PAGE_BYTES = 4096
SECTOR_BYTES = 512


@dataclass(slots=True)
class Write:
    """Bytes written but not synced; ``order`` counts over the whole disk."""

    order: int
    position: int
    data: bytes


@dataclass(slots=True)
class Resize:
    order: int
    size: int


Change = Write | Resize


def write_into(target: bytearray, position: int, data: bytes | memoryview) -> None:
    """Write as the kernel does: a gap before position becomes zeros."""
    if position > len(target):
        target.extend(bytes(position - len(target)))
    target[position : position + len(data)] = data


def resize(target: bytearray, size: int) -> None:
    if size < len(target):
        del target[size:]
    else:
        target.extend(bytes(size - len(target)))


def apply_change(target: bytearray, change: Change) -> None:
    if isinstance(change, Write):
        write_into(target, change.position, change.data)
    else:
        resize(target, change.size)


class Inode:
    """A regular file. ``durable`` is None while it equals ``content``: most files never change."""

    __slots__ = ("content", "durable", "is_cached", "links", "mtime_ms", "pages", "pending")

    def __init__(self, content: bytearray, mtime_ms: int) -> None:
        self.content = content
        self.durable: bytearray | None = None
        self.pending: list[Change] = []
        self.mtime_ms = mtime_ms
        self.links = 0
        self.is_cached = True
        self.pages: set[int] = set()  # pages that take space; sparse ones do not

    def change(self, change: Change) -> None:
        """Carry out in the page cache; durable only after sync."""
        if self.durable is None:
            self.durable = bytearray(self.content)
        apply_change(self.content, change)
        self.pending.append(change)

    def sync(self) -> None:
        if self.durable is not None:
            for change in self.pending:
                apply_change(self.durable, change)
            self.pending.clear()

    def lose_pending(self, order: int) -> None:
        """A failed fsync: the kernel marks the pages clean and forgets to write them.

        The file then drops them from the cache, so that readers see the platter; the size, which
        is no page, stays and is still to be written.
        """
        if self.durable is None:
            return
        size = len(self.content)
        self.pending = [each for each in self.pending if isinstance(each, Resize)]
        self.pending.append(Resize(order, size))
        self.content[:] = self.durable
        for change in self.pending:
            apply_change(self.content, change)

    def dispose(self) -> None:
        """Give the memory back; handles may still know the inode."""
        self.content, self.durable = bytearray(), None
        self.pending.clear()

    def durable_content(self) -> bytearray:
        return bytearray(self.content if self.durable is None else self.durable)


@dataclass(slots=True)
class Link:
    target: str


class Directory:
    """Names: as every process sees them and as the platter holds them."""

    __slots__ = ("durable", "mtime_ms", "names")

    def __init__(self, mtime_ms: int) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.mtime_ms = mtime_ms


Node = Inode | Directory | Link


@dataclass(slots=True)
class NameStep:
    """One name in one directory; node None: the name goes away."""

    directory: Directory
    name: str
    node: Node | None


@dataclass(slots=True)
class NameChange:
    """An atomic change of one name (create, unlink, link) or of two (rename)."""

    order: int
    steps: list[NameStep] = field(default_factory=list)

    def touches(self, directory: Directory) -> bool:
        """Whether a sync of that directory makes it durable."""
        return any(step.directory is directory for step in self.steps)
