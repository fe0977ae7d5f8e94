"""The segment strip: where each segment and each marker stands on a line of pixels. Pure.

A segment is as wide as its share of the bytes, and at least ``LEAST_WIDTH`` so that it can be hit.
Where there are more segments than places, neighbours of one state share a block; states are never
mixed, so that a strip may become wider than ``WIDTH`` and its page lets it scroll.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.console.segment_states import SegmentState

WIDTH = 960.0
LEAST_WIDTH = 6.0
_PLACES = int(WIDTH // LEAST_WIDTH)


class Cell(Protocol):
    """What a strip needs of a segment."""

    @property
    def base_offset(self) -> int:
        """Its first offset."""
        ...

    @property
    def next_offset(self) -> int | None:
        """Where the next one begins; None of one that is being deleted."""
        ...

    @property
    def size_bytes(self) -> int:
        """Of its ``.log`` file."""
        ...

    @property
    def state(self) -> SegmentState:
        """What it is drawn as."""
        ...


class Block(NamedTuple):
    """One rectangle: ``segments`` of them, from number ``first`` on."""

    x: float
    width: float
    first: int
    segments: int
    state: SegmentState
    base_offset: int
    next_offset: int | None
    size_bytes: int


class Marker(NamedTuple):
    """An offset that has a name."""

    name: str
    offset: int
    x: float


class Strip(NamedTuple):
    """The whole picture."""

    width: float
    blocks: list[Block]
    markers: list[Marker]


def lay_out(cells: Sequence[Cell], offsets: Mapping[str, int]) -> Strip:
    """Blocks from left to right, oldest first; ``offsets`` by the name of their marker.

    A marker that lies outside the served ones of these segments is left out: what is being deleted
    may have been replaced by compaction, and then its offsets are another segment's too.
    """
    groups = _groups(cells)
    width = max(WIDTH, LEAST_WIDTH * len(groups))
    free = width - LEAST_WIDTH * len(groups)
    sizes = [sum(each.size_bytes for each in cells[first:last]) for first, last in groups]
    total = sum(sizes)
    blocks, x = list[Block](), 0.0
    for (first, last), size_bytes in zip(groups, sizes, strict=True):
        share = size_bytes / total if total else 1 / len(groups)
        own_width = LEAST_WIDTH + free * share
        bounds = (cells[first].base_offset, cells[last - 1].next_offset)
        state = cells[first].state
        blocks.append(Block(x, own_width, first, last - first, state, *bounds, size_bytes))
        x += own_width
    served = [block for block in blocks if block.next_offset is not None]
    placed = [(name, offset, _place(served, offset)) for name, offset in offsets.items()]
    markers = [Marker(name, offset, at) for name, offset, at in placed if at is not None]
    return Strip(width, blocks, markers)


def _groups(cells: Sequence[Cell]) -> list[tuple[int, int]]:
    """Runs of one state as [first, last), each of so few that the picture has place for all."""
    most = max(1, -(-len(cells) // _PLACES))
    groups, first = list[tuple[int, int]](), 0
    for index in range(1, len(cells) + 1):
        is_end = index == len(cells) or cells[index].state is not cells[first].state
        if is_end or index - first == most:
            groups.append((first, index))
            first = index
    return groups


def _place(blocks: Sequence[Block], offset: int) -> float | None:
    """Where an offset lies: within its block by its share of the offsets."""
    at = bisect_right(blocks, offset, key=lambda block: block.base_offset) - 1
    if at < 0:
        return None
    block = blocks[at]
    assert block.next_offset is not None, "a served segment has an end"
    if offset > block.next_offset:
        return None
    offsets = block.next_offset - block.base_offset
    share = (offset - block.base_offset) / offsets if offsets else 0.0
    return block.x + block.width * share
