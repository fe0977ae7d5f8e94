"""Where the drawings of the console put things: segment strip, offset axis, cleaner timeline. Pure.

A drawing is WIDTH wide; its template draws the values at the places that are computed here.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.console.segment_states import SegmentState

WIDTH = 960.0
TIMELINE_WIDTH = 800.0  # no scroll bar in a window of 1,120
LEAST_BLOCK_WIDTH = 6.0
LEAST_BAR_WIDTH = 3.0
_BLOCKS_MAX = int(WIDTH // LEAST_BLOCK_WIDTH)
_TIME_TICKS = 6
CHARACTER_WIDTH = 9.5
"""Of a label on average at the most: a wide font of 15 pixels."""
_GAP = 8.0


# ---- the segment strip
#
# A block is as wide as its share of the bytes, and at least LEAST_BLOCK_WIDTH so that it can be
# clicked. Where there are more segments than blocks fit, neighbours of one state share a block.
# States are never mixed, so a strip may become wider than WIDTH; its page lets it scroll.


class Cell(NamedTuple):
    """A segment as the strip sees it; one that is being deleted has no next offset."""

    base_offset: int
    next_offset: int | None
    size_bytes: int
    state: SegmentState


class Block(NamedTuple):
    """One rectangle for ``segments`` segments from number ``first`` on."""

    x: float
    width: float
    first: int
    segments: int
    state: SegmentState
    base_offset: int
    next_offset: int | None
    size_bytes: int


class Marker(NamedTuple):
    """A named offset."""

    name: str
    offset: int
    x: float


class Strip(NamedTuple):
    """The whole drawing."""

    width: float
    blocks: list[Block]
    markers: list[Marker]


def lay_out_strip(cells: Sequence[Cell], offsets: Mapping[str, int]) -> Strip:
    """Blocks from left to right, oldest first; ``offsets`` by the name of their marker.

    Markers outside the served segments are left out. Segments that are being deleted do not count:
    compaction may have replaced them, and then another segment has their offsets.
    """
    groups = _groups(cells)
    width = max(WIDTH, LEAST_BLOCK_WIDTH * len(groups))
    free = width - LEAST_BLOCK_WIDTH * len(groups)
    sizes = [sum(each.size_bytes for each in cells[first:last]) for first, last in groups]
    total = sum(sizes)
    blocks, x = list[Block](), 0.0
    for (first, last), size_bytes in zip(groups, sizes, strict=True):
        share = size_bytes / total if total else 1 / len(groups)
        own_width = LEAST_BLOCK_WIDTH + free * share
        bounds = (cells[first].base_offset, cells[last - 1].next_offset)
        state = cells[first].state
        blocks.append(Block(x, own_width, first, last - first, state, *bounds, size_bytes))
        x += own_width
    served = [block for block in blocks if block.next_offset is not None]
    placed = [(name, offset, _place(served, offset)) for name, offset in offsets.items()]
    markers = [Marker(name, offset, at) for name, offset, at in placed if at is not None]
    return Strip(width, blocks, markers)


def _groups(cells: Sequence[Cell]) -> list[tuple[int, int]]:
    """Runs of one state as [first, last), each short enough that all blocks fit."""
    most = max(1, -(-len(cells) // _BLOCKS_MAX))
    groups, first = list[tuple[int, int]](), 0
    for index in range(1, len(cells) + 1):
        is_end = index == len(cells) or cells[index].state is not cells[first].state
        if is_end or index - first == most:
            groups.append((first, index))
            first = index
    return groups


def _place(blocks: Sequence[Block], offset: int) -> float | None:
    """The x of an offset: in its block by its share of the offsets."""
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


# ---- the offset axis
#
# Labels use as many rows as it takes that none covers another.


class OffsetTick(NamedTuple):
    """A named offset: its x, and its label, which is left of it when ``is_left``."""

    name: str
    offset: int
    x: float
    row: int
    is_left: bool
    label: str


class Axis(NamedTuple):
    """The whole drawing."""

    width: float
    rows: int
    ticks: list[OffsetTick]


def lay_out_axis(offsets: Sequence[tuple[str, int]], low: int, high: int) -> Axis:
    """Offsets by name; those outside [low, high] are left out."""
    ticks, row_ends = list[OffsetTick](), list[float]()
    for name, offset in sorted(offsets, key=lambda each: each[1]):
        if not low <= offset <= high:
            continue
        x = WIDTH * (offset - low) / (high - low) if high > low else 0.0
        label = f"{name} {offset:,}"
        length = len(label) * CHARACTER_WIDTH
        is_left = x + length > WIDTH
        begin = x - length if is_left else x
        row = next((at for at, end in enumerate(row_ends) if end + _GAP <= begin), len(row_ends))
        row_ends[row : row + 1] = [begin + length]
        ticks.append(OffsetTick(name, offset, x, row, is_left, label))
    return Axis(WIDTH, len(row_ends), ticks)


# ---- the timeline of the cleaner
#
# A phase is as long as it took, and at least LEAST_BAR_WIDTH so that a short clean among hours is
# seen. What overlaps for that reason is in the table below the drawing.


class Phase(enum.Enum):
    """What a thread does; it is idle between its phases.

    letter   on the drawing, beside its colour and pattern
    style    the state of a segment whose colour and pattern it shares
    """

    MAP = "map", "M", "clean"
    COPY = "copy", "C", "dirty"
    SWAP = "swap", "S", "active"
    RUNNING = "running", "~", "cleaning"
    EMPTY = "nothing_cleanable", "N", "kept"
    ABORTED = "aborted", "A", "deleting"
    FAILED = "failed", "F", "deletable"

    letter: str
    style: str

    def __new__(cls, value: str, letter: str, style: str) -> Phase:
        """The first of the three is the value."""
        member = object.__new__(cls)
        member._value_, member.letter, member.style = value, letter, style
        return member


class Stretch(NamedTuple):
    """A phase of a thread; ``clean`` is the number of its clean. Times in ms."""

    thread: str
    clean: int
    phase: Phase
    began_ms: float
    ended_ms: float


class Bar(NamedTuple):
    """A stretch in the drawing."""

    x: float
    width: float
    clean: int
    phase: Phase


class Lane(NamedTuple):
    """One thread."""

    thread: str
    bars: list[Bar]


class TimeTick(NamedTuple):
    """A time on the axis."""

    x: float
    timestamp_ms: int


class Timeline(NamedTuple):
    """The whole drawing."""

    width: float
    lanes: list[Lane]
    ticks: list[TimeTick]


def lay_out_timeline(
    threads: Sequence[str], stretches: Sequence[Stretch], from_ms: int, to_ms: int
) -> Timeline:
    """Lanes in the order of ``threads``; stretches are cut to [from_ms, to_ms]."""
    span_ms = max(to_ms - from_ms, 1)

    def place(timestamp_ms: float) -> float:
        return TIMELINE_WIDTH * min(max((timestamp_ms - from_ms) / span_ms, 0.0), 1.0)

    lanes = {thread: Lane(thread, []) for thread in threads}
    for each in stretches:
        lane = lanes.get(each.thread)
        if lane is None or each.ended_ms < from_ms or each.began_ms > to_ms:
            continue
        x = place(each.began_ms)
        width = max(place(each.ended_ms) - x, LEAST_BAR_WIDTH)
        lane.bars.append(Bar(min(x, TIMELINE_WIDTH - width), width, each.clean, each.phase))
    steps = (from_ms + span_ms * number // _TIME_TICKS for number in range(_TIME_TICKS + 1))
    return Timeline(TIMELINE_WIDTH, list(lanes.values()), [TimeTick(place(at), at) for at in steps])
