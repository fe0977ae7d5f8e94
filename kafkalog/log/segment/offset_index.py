"""OffsetIndex: offsets to byte positions, sparse. One per segment (``.index``).

Entry, 8 bytes: int32 offset - base offset, int32 position. The offset is the **last** offset of the
batch that starts at the position. Strictly rising in both. Source: Kafka's OffsetIndex; threads and
life of the file: AbstractIndex. A look-up is one C bisection, about a microsecond.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kafkalog.format.disk.index_entries import (
    OFFSET_ENTRY,
    pack_offset_entries,
    pack_offset_entry,
    unpack_offset_entries,
)
from kafkalog.log.segment.abstract_index import AbstractIndex, int32_column
from kafkalog.log.values import MAX_RELATIVE_OFFSET, OffsetPosition

if TYPE_CHECKING:
    from array import array


class OffsetEntries:
    """See EntryStore."""

    __slots__ = ("count", "positions", "relative")

    def __init__(self, relative: array[int], positions: array[int]) -> None:
        self.relative = relative
        self.positions = positions
        self.count = len(positions)

    def first(self, count: int) -> OffsetEntries:
        """See EntryStore."""
        return OffsetEntries(self.relative[:count], self.positions[:count])


class OffsetIndex(AbstractIndex[OffsetEntries, OffsetPosition]):
    """The offset index of one segment."""

    __slots__ = ()

    entry_bytes: ClassVar[int] = OFFSET_ENTRY.size
    entry_rule: ClassVar[str] = "offset index entries must rise in offset and position"

    @property
    def free_slots(self) -> int:
        """All that are not taken."""
        return self.max_entries - self._require_active().count

    def append(self, offset: int, position: int) -> None:
        """Add an entry: one pwrite, then memory. On OSError nothing was added."""
        store = self._require_active()
        relative = offset - self.base_offset
        assert store.count < self.max_entries, "append to a full offset index"
        assert 0 <= relative <= MAX_RELATIVE_OFFSET, "offset outside the segment's range"
        assert not store.count or relative > store.relative[store.count - 1], "offsets must rise"
        entry = pack_offset_entry(relative, position)
        self.file.pin_for_write().pwrite(entry, store.count * self.entry_bytes)
        store.relative.append(relative)
        store.positions.append(position)
        store.count += 1  # last: readers look no further than this

    def lookup(self, target_offset: int, *, may_block: bool = True) -> OffsetPosition:
        """Greatest entry at or below target_offset, else (base offset, 0)."""
        store = self.store(may_block=may_block)
        # Compared unbounded: a target far beyond the segment must not overflow the column's type.
        slot = bisect_right(store.relative, target_offset - self.base_offset, 0, store.count) - 1
        return self._entry(store, slot)

    def lookup_upper_bound(
        self, fetch_start: OffsetPosition, size_bytes: int, *, may_block: bool = True
    ) -> OffsetPosition | None:
        """First entry at or behind ``fetch_start.position + size_bytes``; None without one."""
        store = self.store(may_block=may_block)
        end = fetch_start.position + size_bytes
        slot = bisect_left(store.positions, end, 0, store.count)
        return self._entry(store, slot) if slot < store.count else None

    def entry_before(self, position: int, count: int) -> OffsetPosition:
        """The entry so many before the first one at or behind position, else (base offset, 0)."""
        store = self.store()
        slot = bisect_left(store.positions, position, 0, store.count) - count
        return self._entry(store, max(slot, -1))

    def find_entry(self, position: int) -> OffsetPosition | None:
        """The entry of the batch at a position other than 0, in a file that may be damaged."""
        try:
            file = self.file.acquire()
        except FileNotFoundError:
            return None
        raw = file.pread(file.size() // self.entry_bytes * self.entry_bytes, 0)
        table = unpack_offset_entries(raw)
        hits = table[table[:, 1] == position]
        if position == 0 or len(hits) != 1:
            return None
        return OffsetPosition(self.base_offset + int(hits[0, 0]), position)

    def _entry(self, store: OffsetEntries, slot: int) -> OffsetPosition:
        """Entry of a slot; slot -1 is the start of the segment."""
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + store.relative[slot], store.positions[slot])

    def _decode(self, raw: bytes) -> OffsetEntries:
        table = unpack_offset_entries(raw)
        return offset_entries(table[:, 0], table[:, 1])

    def _encode(self, store: OffsetEntries) -> bytes:
        return pack_offset_entries(np.array((store.relative, store.positions), dtype=np.int64).T)

    def _bad_slots(self, store: OffsetEntries) -> np.ndarray:
        relative = np.array(store.relative, dtype=np.int64)
        positions = np.array(store.positions, dtype=np.int64)
        bad = (relative < 0) | (positions < 0)
        bad[1:] |= (np.diff(relative) <= 0) | (np.diff(positions) <= 0)
        return bad


def offset_entries(relative: np.ndarray, positions: np.ndarray) -> OffsetEntries:
    """A store of two equally long integer columns, each value within int32."""
    return OffsetEntries(int32_column(relative), int32_column(positions))
