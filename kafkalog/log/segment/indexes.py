"""OffsetIndex and TimeIndex: from offsets and timestamps to places in the ``.log`` of a segment.

``.index``, 8 bytes an entry: int32 offset - base offset, int32 position in the ``.log``; the
**last** offset of the batch that starts there. Both columns strictly rise.

``.timeindex``, 12 bytes an entry: int64 timestamp, int32 offset - base offset: the largest
timestamp of the segment so far, and the **last** offset of the batch that carries it. Timestamps
strictly rise, offsets do not fall. One slot is reserved for the entry forced at roll, close and
recovery: the last entry of a closed segment is its maximum.

Each owns one index file and the decoded entries of it. Nothing is mapped. While the segment is
active its entries are in memory (only the real ones) and every append is one small pwrite into the
file, which was made sparse at its maximum size. Once closed the file is cut to its entries, and
these are loaded on first use into the shared IndexCache. A look-up is one C bisection, about a
microsecond. Changes are the writer thread's; look-ups are for any thread: a reader takes the
published store once, and a store is only ever appended to (its count last), while truncation
publishes a new one.

Source: Kafka's AbstractIndex, OffsetIndex and TimeIndex. Differs from Kafka: a closed index is
checked when it is loaded and refused as CorruptIndex, where Kafka would believe zero padding to be
entries (KAFKA-10207).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar, cast

import numpy as np

from kafkalog.errors import CorruptIndex
from kafkalog.format.disk.index_entries import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    pack_offset_entries,
    pack_offset_entry,
    pack_time_entries,
    pack_time_entry,
    unpack_offset_entries,
    unpack_time_entries,
)
from kafkalog.log.values import (
    MAX_RELATIVE_OFFSET,
    NO_TIMESTAMP,
    OffsetPosition,
    TimestampOffset,
    WouldBlock,
)

if TYPE_CHECKING:
    from kafkalog.log.environment import IndexCache
    from kafkalog.log.segment.segment_file import SegmentFile


class EntryStore(Protocol):
    """Decoded entries of one index, a column each; grows at the end only.

    Columns may run ahead of ``count``.
    """

    count: int
    relative: array[int]  # offsets - base offset, not falling

    def first(self, count: int) -> EntryStore:
        """A new store of the first ``count`` entries."""
        ...


S = TypeVar("S", bound=EntryStore)
E = TypeVar("E")


class AbstractIndex(ABC, Generic[S, E]):
    """Entries of one index file: ``S`` is the store of the decoded columns, ``E`` one entry."""

    __slots__ = ("_active", "_cache", "base_offset", "file", "max_entries")

    entry_bytes: ClassVar[int]
    entry_rule: ClassVar[str]  # what a damaged file breaks

    def __init__(
        self, file: SegmentFile, base_offset: int, max_index_bytes: int, cache: IndexCache
    ) -> None:
        """A closed index; opens nothing. ``max_index_bytes`` is segment.index.bytes."""
        # constant after construction
        self.file = file
        self._cache = cache
        self.base_offset = base_offset
        self.max_entries = max_index_bytes // self.entry_bytes
        # published to readers: the entries while this index is active, else None
        self._active: S | None = None

    @property
    def is_active(self) -> bool:
        """Whether entries can be appended."""
        return self._active is not None

    def entry_count(self, *, may_block: bool = True) -> int:
        """Entries, without padding."""
        return self.store(may_block=may_block).count

    def size_in_bytes(self, *, may_block: bool = True) -> int:
        """Bytes of the entries, not of the file."""
        return self.entry_count(may_block=may_block) * self.entry_bytes

    def last_entry(self, *, may_block: bool = True) -> E:
        """The last entry, when there is none what stands before the first."""
        store = self.store(may_block=may_block)
        return self._entry(store, store.count - 1)

    def entries(self, *, may_block: bool = True) -> list[E]:
        """All entries."""
        store = self.store(may_block=may_block)
        return [self._entry(store, slot) for slot in range(store.count)]

    @property
    def reserved_bytes(self) -> int:
        """Of the file of an active index, after its entries; 0 of a closed one."""
        active = self._active
        return 0 if active is None else (self.max_entries - active.count) * self.entry_bytes

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll before the next append."""
        return self.free_slots <= 0

    @property
    @abstractmethod
    def free_slots(self) -> int:
        """Entries that appends may still add; the index must be active."""

    @abstractmethod
    def _entry(self, store: S, slot: int) -> E:
        """Entry of a slot; slot -1 is what stands before the first."""

    @abstractmethod
    def _decode(self, raw: bytes) -> S:
        """Columns of a file that is a whole number of entries long."""

    @abstractmethod
    def _bad_slots(self, store: S) -> np.ndarray:
        """Which entries of a loaded store break ``entry_rule``: a bool for each."""

    @abstractmethod
    def _encode(self, store: S) -> bytes:
        """All entries as on disk."""

    def store(self, *, may_block: bool = True) -> S:
        """The entries, loaded when they are not in memory.

        Raises WouldBlock when they would have to be read and may_block is False, CorruptIndex when
        the file breaks its rules. A missing file has no entries.
        """
        active = self._active
        if active is not None:
            return active
        cached = self._cache.get(self)
        if cached is not None:
            return cast("S", cached)
        if not may_block:
            raise WouldBlock(self.file.path)
        store = self.read_store()
        winner = self._cache.put_if_absent(self, store, store.count * self.entry_bytes)
        return cast("S", winner)

    def keep_in_cache(self, store: S) -> S:
        """Make store what look-ups of this closed index see until it is evicted."""
        self._cache.put(self, store, store.count * self.entry_bytes)
        return store

    def doubt(self) -> bool:
        """Note that an entry is wrong; True for the first caller until the file is rewritten."""
        return self._cache.doubt(self)

    def read_store(self) -> S:
        """Read and check the file; CorruptIndex names the file and the position."""
        try:
            file = self.file.acquire()
        except FileNotFoundError:
            return self._decode(b"")
        raw = file.pread(file.size(), 0)
        self._check_length(len(raw))
        store = self._decode(raw)
        bad = self._bad_slots(store)
        if bad.any():
            position = int(bad.argmax()) * self.entry_bytes
            raise CorruptIndex(self.entry_rule, file=self.file.path, position=position)
        return store

    def count_in_file(self) -> int:
        """Entries of a closed index by its length, without reading them: none when it is missing.

        CorruptIndex where the length or the last entry shows damage; only a reader of all entries
        (``read_store``) finds out what is wrong between them.
        """
        try:
            file = self.file.acquire()
        except FileNotFoundError:
            return 0
        size_bytes = file.size()
        self._check_length(size_bytes)
        position = size_bytes - self.entry_bytes
        # No last entry is of zeros: they are room that a crash left after the entries.
        if size_bytes and not any(file.pread(self.entry_bytes, position)):
            raise CorruptIndex(self.entry_rule, file=self.file.path, position=position)
        return size_bytes // self.entry_bytes

    def _check_length(self, size_bytes: int) -> None:
        torn = size_bytes % self.entry_bytes
        if torn:
            raise CorruptIndex(
                f"length {size_bytes} is not a multiple of {self.entry_bytes}",
                file=self.file.path,
                position=size_bytes - torn,
            )

    def sanity_check(self) -> None:
        """Read the file and raise CorruptIndex when it breaks the format's rules."""
        self.read_store()

    def create(self) -> None:
        """Make the file of a new active segment: empty, sparse, at its maximum size."""
        self.file.pin_for_write(create=True)
        self.reset()

    def resize_to_max(self) -> None:
        """Make a closed index active: entries into memory, the file back to its maximum size."""
        if self._active is not None:
            return
        store = self.read_store()  # not the cache: it may hold entries found again from the log
        self.file.pin_for_write(create=True).truncate(self.max_entries * self.entry_bytes)
        self._activate(cast("S", store.first(store.count)))

    def reset(self) -> None:
        """Drop all entries and become active, whatever the file held."""
        file = self.file.pin_for_write(create=True)
        file.truncate(0)  # so that what was there reads as zeros after the next line
        file.truncate(self.max_entries * self.entry_bytes)
        self._activate(self._decode(b""))

    def replace_entries(self, store: S) -> None:
        """Write store as the whole content and become active (recovery): one write."""
        self.reset()
        if store.count:
            self.file.pin_for_write().pwrite(self._encode(store), 0)
        self._activate(store)

    def trim(self) -> None:
        """Close: cut the file to its entries and leave them to the cache. Idempotent.

        The write handle stays pinned until the flush of the segment.
        """
        active = self._active
        if active is None:
            return
        self.file.pin_for_write().truncate(active.count * self.entry_bytes)
        self.keep_in_cache(active)
        self._active = None

    def truncate_to(self, offset: int) -> None:
        """Keep the entries with a smaller offset; the index must be active."""
        store = self._require_active()
        relative = offset - self.base_offset
        self.truncate_to_count(bisect_left(store.relative, relative, 0, store.count))

    def truncate_to_count(self, count: int) -> None:
        """Keep the first ``count`` entries; what lies after them in the file is not believed."""
        active = self._require_active()
        if count < active.count:
            # Cutting first turns dropped entries into zeros: an active file is entries, then zeros.
            file = self.file.pin_for_write()
            file.truncate(count * self.entry_bytes)
            self._active = cast("S", active.first(count))
            file.truncate(self.max_entries * self.entry_bytes)

    def rollback_to_count(self, count: int) -> None:
        """Forget entries of a failed append in memory only; their slots are written again."""
        active = self._require_active()
        if count < active.count:
            self._active = cast("S", active.first(count))

    def release(self) -> None:
        """Drop entries and descriptors (close, delete). Readers keep what they hold."""
        self._active = None
        self._cache.forget(self)
        self.file.release()

    def _activate(self, store: S) -> None:
        """Publish store as the entries of an active index."""
        self._cache.forget(self)
        self._active = store

    def _require_active(self) -> S:
        """The store of an active index."""
        assert self._active is not None, f"{self.file.name} is closed"
        return self._active


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
        """First entry at or after ``fetch_start.position + size_bytes``; None without one."""
        store = self.store(may_block=may_block)
        end = fetch_start.position + size_bytes
        slot = bisect_left(store.positions, end, 0, store.count)
        return self._entry(store, slot) if slot < store.count else None

    def entry_before(self, position: int, count: int) -> OffsetPosition:
        """The entry so many before the first one at or after position, else (base offset, 0)."""
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


def int32_column(values: np.ndarray) -> array[int]:
    """A column of a store; each value is within int32."""
    return array("i", values.astype(np.int32).tobytes())


def int64_column(values: np.ndarray) -> array[int]:
    """A column of a store."""
    return array("q", values.astype(np.int64).tobytes())
