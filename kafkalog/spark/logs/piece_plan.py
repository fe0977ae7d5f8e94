"""The pieces of a range from the sizes of its files and the few index entries that decide them.

`pieces.Cuts` needs every entry of every index: 25,000 in a segment of 100 MiB. Which row is chosen
depends on two neighbouring entries, the last before a searched position and the first at or after
it. A plan searches for one position a piece, and for the offsets at which the range begins and
ends; a segment in which none of them lies needs no index. An index is read in windows around the
entry that even spacing predicts. The windows of many pieces ahead are read together, because a
piece ends close to where the one before it plus ``target_bytes`` is.

This holds for a log whose segments do not overlap and whose entries rise. Where a file name or an
entry says otherwise (a swap, a damaged index), every index of the range is read, into `Cuts`. The
pieces are those of `Cuts` in both cases, unless damage lies in a part of an index that was not
read: index entries are hints, and a reader checks what they say.

A plan is a generator without I/O: it yields reads and receives their bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import KW_ONLY, dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.format.disk.index_entries import OFFSET_ENTRY, unpack_offset_entries
from kafkalog.spark.logs.partition_files import offset_table
from kafkalog.spark.logs.pieces import Cuts, Row, pieces_at
from kafkalog.spark.logs.plan_cache import Neighbours

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import numpy.typing as npt

    from kafkalog.spark.logs.plan_cache import Versions
    from kafkalog.spark.logs.values import OffsetRange, Piece

    Table = npt.NDArray[np.int64]

WINDOW_ENTRIES = 1024
"""Entries of an index in one read: 8 KiB, for at least 4 MiB of log."""

READS_AHEAD = 256
"""Reads that a plan asks for at once, at most; it holds 16 KiB of each for a while."""

FIRST_READS_AHEAD = 4
"""Reads at the first miss; each further miss before a known answer allows four times as many."""

WHOLE_BYTES = 32 << 20
"""Bytes of whole indexes that a plan asks for at once."""

_TRIES = 4  # windows of a search, before the whole index is read
_OFFSET, _POSITION = 0, 1

Entry = tuple[int, int]
"""Last offset and position of a batch."""


class IndexRead(NamedTuple):
    """A part of an index."""

    path: str
    position: int
    size: int


class IndexedSegment(NamedTuple):
    """A segment as it was listed.

    index_path    its offset index; it may be missing, and then has no entries
    end_offset    base offset of the next segment; None: it is the last one
    is_staged     it replaces others, and overlaps them
    identity      of its files, for the cache; None: not known
    """

    base_offset: int
    end_offset: int | None
    size_bytes: int
    index_path: str
    index_entries: int
    is_staged: bool
    identity: object = None


class _Irregular(Exception):
    """The segments overlap, or an index is damaged."""


class _Window(NamedTuple):
    """Usable entries of an index; ``is_whole``: they are all of it."""

    first: int
    table: Table
    is_whole: bool


@dataclass(slots=True)
class PiecePlan:
    """One plan, for one thread. See `Logs.pieces` for the result.

    segments   those with offsets of the range, by base offset
    cache      of neighbouring entries
    """

    place: str
    wanted: OffsetRange
    segments: Sequence[IndexedSegment]
    _: KW_ONLY
    target_bytes: int
    cache: Versions[str, Neighbours]
    _ends: list[int] = field(init=False)  # bytes of log up to the end of each segment
    _windows: dict[int, list[_Window]] = field(init=False, default_factory=dict)
    _reads_ahead: int = field(init=False, default=FIRST_READS_AHEAD)

    def __post_init__(self) -> None:
        self._ends = list(accumulate(each.size_bytes for each in self.segments))

    def steps(self) -> Generator[list[IndexRead], list[bytes], list[Piece]]:
        """Yields reads, receives their bytes, returns the pieces."""
        if self.segments and not any(each.is_staged for each in self.segments):
            try:
                return (yield from self._sparse())
            except _Irregular:
                self._windows.clear()
        return (yield from self._whole())

    def _whole(self) -> Generator[list[IndexRead], list[bytes], list[Piece]]:
        cuts = Cuts(self.wanted, self.target_bytes)
        first = 0
        while first < len(self.segments):
            size, end = 0, first
            while end < len(self.segments) and (end == first or size < WHOLE_BYTES):
                size += self.segments[end].index_entries * OFFSET_ENTRY.size
                end = end + 1 if end - first < READS_AHEAD else len(self.segments)
            some = self.segments[first : min(end, first + READS_AHEAD)]
            found = yield [_all_of(each) for each in some]
            for segment, data in zip(some, found, strict=True):
                entries = offset_table(data, segment.base_offset, segment.size_bytes)
                cuts.add_segment(segment.base_offset, segment.size_bytes, entries)
            first += len(some)
        return cuts.pieces(self.place)

    def _sparse(self) -> Generator[list[IndexRead], list[bytes], list[Piece]]:
        wanted, last = self.wanted, len(self.segments) - 1
        first_base = self.segments[0].base_offset
        searches = [(last, _OFFSET, wanted.to_offset - 1)]
        if wanted.from_offset > first_base:
            searches.append((0, _OFFSET, wanted.from_offset))
        yield from self._read([each for each in searches if self._found(*each) is None])
        rows = [Row(first_base, 0, first_base, 0)]
        if wanted.from_offset > first_base:
            before, _ = yield from self._neighbours(0, _OFFSET, wanted.from_offset)
            rows = [self._row(0, before)] if before is not None else rows
        _, after = yield from self._neighbours(last, _OFFSET, wanted.to_offset - 1)
        end_total = self._ends[-1] if after is None else self._row(last, after).total_bytes
        while True:
            row = yield from self._next(rows[-1].total_bytes + max(self.target_bytes, 1))
            if row is None or row.offset >= wanted.to_offset:
                break
            if row.offset <= max(rows[-1].offset, wanted.from_offset):
                raise _Irregular  # by a damaged index
            rows.append(row)
        return pieces_at(rows, end_total, self.place, wanted, self.target_bytes)

    def _next(self, aim: int) -> Generator[list[IndexRead], list[bytes], Row | None]:
        """The first row with at least so many bytes of log before it."""
        slot = bisect_left(self._ends, aim)
        if slot == len(self.segments):
            return None
        search = slot, _POSITION, aim - self._start(slot)
        if self._known(*search) is not None:
            self._reads_ahead = FIRST_READS_AHEAD
        elif self._found(*search) is None:
            yield from self._read_ahead(aim)
        before, after = yield from self._neighbours(*search)
        while after is None:
            # The next segment's first row, unless the last entry's row has the same offset.
            highest = self.segments[slot].base_offset if before is None else before[_OFFSET] + 1
            slot += 1
            if slot == len(self.segments):
                return None
            if self.segments[slot].base_offset > highest:
                return self._row(slot, None)
            before, after = yield from self._neighbours(slot, _POSITION, 1)
        return self._row(slot, after)

    def _start(self, slot: int) -> int:
        return self._ends[slot] - self.segments[slot].size_bytes

    def _row(self, slot: int, entry: Entry | None) -> Row:
        base = self.segments[slot].base_offset
        offset, position = (base - 1, 0) if entry is None else entry
        return Row(offset + 1, self._start(slot) + position, base, position)

    def _neighbours(
        self, slot: int, column: int, value: int
    ) -> Generator[list[IndexRead], list[bytes], tuple[Entry | None, Entry | None]]:
        """The last entry of a segment below a value of this column, and the first that is not."""
        for tries in range(_TRIES + 2):
            found = self._found(slot, column, value)
            if found is not None:
                self._remember(slot, *found)
                return found
            if tries < _TRIES:
                yield from self._read([(slot, column, value)])
            else:
                yield from self._read_whole(slot)
        raise AssertionError("a whole index has neighbours")

    def _remember(self, slot: int, before: Entry | None, after: Entry | None) -> None:
        segment = self.segments[slot]
        if segment.identity is not None and segment.index_entries:
            path, identity = segment.index_path, segment.identity
            self.cache.get_or(path, identity, Neighbours).add(before, after)

    def _known(
        self, slot: int, column: int, value: int
    ) -> tuple[Entry | None, Entry | None] | None:
        """By an earlier plan."""
        segment = self.segments[slot]
        if segment.identity is None:
            return None
        known = self.cache.get(segment.index_path, segment.identity)
        return None if known is None else known.around(column, value)

    def _found(
        self, slot: int, column: int, value: int
    ) -> tuple[Entry | None, Entry | None] | None:
        segment = self.segments[slot]
        if not segment.index_entries:
            return None, None
        known = self._known(slot, column, value)
        if known is not None:
            return known
        for window in self._windows.get(slot, ()):
            at = int(np.searchsorted(window.table[:, column], value))
            is_first = window.is_whole or window.first == 0
            is_last = window.is_whole or window.first + len(window.table) == segment.index_entries
            if (at or is_first) and (at < len(window.table) or is_last):
                return (
                    _entry(window.table, at - 1) if at else None,
                    _entry(window.table, at) if at < len(window.table) else None,
                )
        return None

    def _read_ahead(self, aim: int) -> Generator[list[IndexRead], list[bytes], None]:
        """Read the windows for this position and for those that probably follow."""
        for slot in [each for each in self._windows if self._ends[each] < aim]:
            del self._windows[slot]
        searches: dict[tuple[int, int], tuple[int, int, int]] = {}
        most, self._reads_ahead = self._reads_ahead, min(4 * self._reads_ahead, READS_AHEAD)
        for _ in range(4 * most):
            if aim > self._ends[-1] or len(searches) == most:
                break
            slot = bisect_left(self._ends, aim)
            segment, start = self.segments[slot], self._start(slot)
            search = slot, _POSITION, aim - start
            step = segment.size_bytes / (segment.index_entries + 1)
            following = aim + max(self.target_bytes, 1) + int(step / 2)
            if self._found(*search) is None:
                first, count = self._window(*search)
                searches.setdefault((slot, first), search)
                # Smaller pieces than a window need it once.
                following = max(following, start + int(step * (first + count)))
            elif not segment.index_entries:
                following = max(following, self._ends[slot] + 1)
            aim = following
        yield from self._read(list(searches.values()))

    def _window(self, slot: int, column: int, value: int) -> tuple[int, int]:
        """First entry and number of entries of the window in which the neighbours should be."""
        segment = self.segments[slot]
        count = segment.index_entries
        if count <= WINDOW_ENTRIES:
            return 0, count
        # What is known: (number of an entry, its value) below and not below the searched one.
        ends = segment.end_offset, segment.size_bytes
        low, low_value = -1, (segment.base_offset - 1, 0)[column]
        high, high_value = count, ends[column]
        for window in self._windows.get(slot, ()):
            if not len(window.table):
                continue
            edges = int(window.table[0, column]), int(window.table[-1, column])
            if edges[1] < value and window.first + len(window.table) - 1 > low:
                low, low_value = window.first + len(window.table) - 1, edges[1]
            if edges[0] >= value and window.first < high:
                high, high_value = window.first, edges[0]
        if high_value is None:
            return count - WINDOW_ENTRIES, WINDOW_ENTRIES  # the end of a log ends its last index
        share = (value - low_value) / max(high_value - low_value, 1)
        middle = low + int((high - low) * min(max(share, 0.0), 1.0))
        first = min(max(middle - WINDOW_ENTRIES // 2, low, 0), max(high + 1 - WINDOW_ENTRIES, 0))
        return first, min(WINDOW_ENTRIES, count - first)

    def _read(
        self, searches: Sequence[tuple[int, int, int]]
    ) -> Generator[list[IndexRead], list[bytes], None]:
        if not searches:
            return
        wanted = [self._window(*each) for each in searches]
        data = yield [
            IndexRead(self.segments[slot].index_path, first * OFFSET_ENTRY.size, count * 8)
            for (slot, _, _), (first, count) in zip(searches, wanted, strict=True)
        ]
        odd = []
        for (slot, _, _), (first, count), part in zip(searches, wanted, data, strict=True):
            segment = self.segments[slot]
            table = unpack_offset_entries(part)
            table[:, _OFFSET] += segment.base_offset
            if len(table) != count or not _is_sound(table, segment):
                odd.append(slot)
            else:
                is_whole = count == segment.index_entries
                self._windows.setdefault(slot, []).append(_Window(first, table, is_whole))
        for slot in dict.fromkeys(odd):
            yield from self._read_whole(slot)

    def _read_whole(self, slot: int) -> Generator[list[IndexRead], list[bytes], None]:
        """Take the entries before the first bad one, as from a disk."""
        segment = self.segments[slot]
        (data,) = yield [_all_of(segment)]
        table = offset_table(data, segment.base_offset, segment.size_bytes)
        if len(table) and segment.end_offset is not None and table[-1, 0] >= segment.end_offset:
            raise _Irregular
        self._windows[slot] = [_Window(0, table, is_whole=True)]


def _all_of(segment: IndexedSegment) -> IndexRead:
    return IndexRead(segment.index_path, 0, segment.index_entries * OFFSET_ENTRY.size)


def _entry(table: Table, slot: int) -> Entry:
    offset, position = table[slot].tolist()
    return offset, position


def _is_sound(table: Table, segment: IndexedSegment) -> bool:
    """Whether the entries rise, in the segment. Raises _Irregular if they overlap the next one."""
    first, last = table[0].tolist(), table[-1].tolist()
    if not (np.diff(table, axis=0) > 0).all():
        return False
    if segment.end_offset is not None and last[_OFFSET] >= segment.end_offset:
        raise _Irregular
    is_above = first[_OFFSET] > segment.base_offset and first[_POSITION] > 0
    return bool(is_above and last[_POSITION] < segment.size_bytes)
