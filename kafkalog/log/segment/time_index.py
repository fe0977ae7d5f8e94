"""TimeIndex: timestamps to offsets, sparse. One per segment (``.timeindex``).

Entry, 12 bytes: int64 timestamp, int32 offset - base offset: the largest timestamp of the segment
so far, and the **last** offset of the batch that carries it. Timestamps strictly rise, offsets do
not fall. One slot is reserved for the entry forced at roll, close and recovery: the last entry of
a closed segment is its maximum. Source: Kafka's TimeIndex; threads and life of the file:
AbstractIndex.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kafkalog.format.disk.index_entries import (
    TIME_ENTRY,
    pack_time_entries,
    pack_time_entry,
    unpack_time_entries,
)
from kafkalog.log.segment.abstract_index import AbstractIndex, int32_column, int64_column
from kafkalog.log.values import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, TimestampOffset

if TYPE_CHECKING:
    from array import array


class TimeEntries:
    """See EntryStore."""

    __slots__ = ("count", "relative", "timestamps")

    def __init__(self, timestamps: array[int], relative: array[int]) -> None:
        self.timestamps = timestamps
        self.relative = relative
        self.count = len(relative)

    def first(self, count: int) -> TimeEntries:
        """See EntryStore."""
        return TimeEntries(self.timestamps[:count], self.relative[:count])


class TimeIndex(AbstractIndex[TimeEntries, TimestampOffset]):
    """The time index of one segment."""

    __slots__ = ()

    entry_bytes: ClassVar[int] = TIME_ENTRY.size
    entry_rule: ClassVar[str] = "time index entries must rise in timestamp and not fall in offset"

    @property
    def free_slots(self) -> int:
        """Without the slot reserved for the forced entry; may be -1."""
        return self.max_entries - 1 - self._require_active().count

    def maybe_append(self, timestamp_ms: int, offset: int, *, skip_full_check: bool) -> None:
        """Add an entry when timestamp_ms is above the last one's: one pwrite, then memory.

        ``skip_full_check`` is for the forced entry; it is left out when there is no slot at all
        (``segment.index.bytes`` below 12). On OSError nothing was added.
        """
        store = self._require_active()
        assert skip_full_check or store.count < self.max_entries - 1, "append to a full time index"
        last = self._entry(store, store.count - 1)
        if timestamp_ms <= last.timestamp_ms or store.count >= self.max_entries:
            return
        relative = offset - self.base_offset
        assert 0 <= relative <= MAX_RELATIVE_OFFSET, "offset outside the segment's range"
        assert not store.count or offset >= last.offset, "offsets must not fall"
        entry = pack_time_entry(timestamp_ms, relative)
        self.file.pin_for_write().pwrite(entry, store.count * self.entry_bytes)
        store.timestamps.append(timestamp_ms)
        store.relative.append(relative)
        store.count += 1  # last: readers look no further than this

    def lookup(self, timestamp_ms: int, *, may_block: bool = True) -> TimestampOffset:
        """Greatest entry at or below timestamp_ms, else (-1, base offset)."""
        store = self.store(may_block=may_block)
        return self._entry(store, bisect_right(store.timestamps, timestamp_ms, 0, store.count) - 1)

    def floor_offset(self, offset: int, *, may_block: bool = True) -> TimestampOffset | None:
        """The last entry for an offset that is no higher; None without one."""
        store = self.store(may_block=may_block)
        slot = bisect_right(store.relative, offset - self.base_offset, 0, store.count) - 1
        return self._entry(store, slot) if slot >= 0 else None

    def _entry(self, store: TimeEntries, slot: int) -> TimestampOffset:
        """Entry of a slot; slot -1 stands before all timestamps."""
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(store.timestamps[slot], self.base_offset + store.relative[slot])

    def _decode(self, raw: bytes) -> TimeEntries:
        table = unpack_time_entries(raw)
        return time_entries(table[:, 0], table[:, 1])

    def _encode(self, store: TimeEntries) -> bytes:
        return pack_time_entries(np.array((store.timestamps, store.relative), dtype=np.int64).T)

    def _bad_slots(self, store: TimeEntries) -> np.ndarray:
        timestamps = np.array(store.timestamps, dtype=np.int64)
        relative = np.array(store.relative, dtype=np.int64)
        bad = (timestamps < 0) | (relative < 0)
        # An entry of zeros is what a power cut leaves of one: a record at the epoch that stands
        # first in its segment costs a walk over the segment.
        bad[:1] |= (timestamps[:1] == 0) & (relative[:1] == 0)
        # Compared, not subtracted: a difference of two hostile int64 could wrap.
        bad[1:] |= (timestamps[1:] <= timestamps[:-1]) | (relative[1:] < relative[:-1])
        return bad


def time_entries(timestamps: np.ndarray, relative: np.ndarray) -> TimeEntries:
    """A store of two equally long integer columns: int64 and int32."""
    return TimeEntries(int64_column(timestamps), int32_column(relative))
