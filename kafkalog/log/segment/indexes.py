"""The three indexes of a segment, SegmentFiles (its ``.log`` with them) and their cadence.

OffsetIndex and TimeIndex lead from offsets and timestamps to places in the ``.log``.

``.index``, 8 bytes an entry: int32 offset - base offset, int32 position in the ``.log``; the
**last** offset of the batch that starts there. Both columns strictly rise.

``.timeindex``, 12 bytes an entry: int64 timestamp, int32 offset - base offset: the largest
timestamp of the segment so far, and the **last** offset of the batch that carries it. Timestamps
strictly rise, offsets do not fall. One slot is reserved for the entry forced at roll, close and
recovery: the last entry of a closed segment is its maximum.

``.txnindex``, 34 bytes an entry: int16 version 0, int64 producer id, first offset, last offset (the
abort marker's, which lies in this segment), last stable offset at that moment. The file is made at
the first abort and never preallocated.

Each owns one index file and the decoded entries of it. Nothing is mapped. While the segment is
active its entries are in memory (only the real ones) and every append is one small pwrite into the
file, which was made sparse at its maximum size. Once closed the file is cut to its entries, and
these are loaded on first use into the shared IndexCache. A look-up is one C bisection, about a
microsecond. Changes are the writer thread's; look-ups are for any thread: a reader takes the
published store once, and a store is only ever appended to (its count last), while truncation
publishes a new one.

Source: Kafka's AbstractIndex, OffsetIndex, TimeIndex, TransactionIndex and AbortedTxn. Differs from
Kafka: a closed index is checked when it is loaded and refused as CorruptIndex, where Kafka would
believe zero padding to be entries (KAFKA-10207).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, NoReturn, TypeVar, cast

import numpy as np

from kafkalog.errors import CorruptIndex
from kafkalog.format.disk.index_entries import (
    ABORTED_ENTRY,
    OFFSET_ENTRY,
    TIME_ENTRY,
    pack_aborted_entry,
    pack_offset_entries,
    pack_time_entries,
    unpack_aborted_entries,
    unpack_offset_entries,
    unpack_time_entries,
)
from kafkalog.format.integers import FormatError
from kafkalog.kernels.records.index_build import EMPTY_STATE, IndexState, index_entries
from kafkalog.log.environment import ENTRY_OVERHEAD_BYTES
from kafkalog.log.values import (
    MAX_RELATIVE_OFFSET,
    NO_TIMESTAMP,
    AbortedTransaction,
    OffsetPosition,
    TimestampOffset,
    WouldBlock,
)

if TYPE_CHECKING:
    from kafkalog.format.records.batch_scan import BatchRows
    from kafkalog.log.environment import IndexCache
    from kafkalog.log.segment.segment_file import SegmentFile

    Table = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class IndexEntries:
    """Decoded entries of one index, a column each; grows at the end only.

    Columns may run ahead of ``count``.
    """

    __slots__ = ("count", "relative", "values")

    def __init__(self, relative: array[int], values: array[int]) -> None:
        self.relative = relative  # offsets - base offset, not falling
        self.values = values  # positions, or timestamps
        self.count = len(relative)

    def first(self, count: int) -> IndexEntries:
        """A new store of the first ``count`` entries."""
        return IndexEntries(self.relative[:count], self.values[:count])

    def append(self, relative: int, value: int) -> None:
        """Add an entry."""
        self.relative.append(relative)
        self.values.append(value)
        self.count += 1  # last: readers look no further than this


S = TypeVar("S")
E = TypeVar("E")


class CachedIndex(ABC, Generic[S]):
    """One index file: its content is here while it may change, else in the shared cache."""

    __slots__ = ("_active", "_cache", "base_offset", "file")

    def __init__(self, file: SegmentFile, base_offset: int, cache: IndexCache) -> None:
        """A closed index; opens nothing."""
        # constant after construction
        self.file = file
        self.base_offset = base_offset
        self._cache = cache
        # published to readers: the entries while this index is active, else None
        self._active: S | None = None

    @abstractmethod
    def read_store(self) -> S:
        """Read and check the file; CorruptIndex names the file and the position."""

    def _weight(self, store: S) -> int:
        """What the cache counts for it."""
        return self._memory_bytes(store) + ENTRY_OVERHEAD_BYTES

    @abstractmethod
    def _memory_bytes(self, store: S) -> int:
        """Of its entries."""

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
        return cast("S", self._cache.put(self, store, self._weight(store)))

    def keep_in_cache(self, store: S) -> None:
        """Make store what look-ups of this closed index see until it is evicted."""
        self._cache.replace(self, store, self._weight(store))

    def trim(self) -> None:
        """Close: leave the entries to the cache. Idempotent."""
        if self._active is not None:
            self.keep_in_cache(self._active)
            self._active = None

    def release(self) -> None:
        """Drop entries and descriptors (close, delete). Readers keep what they hold."""
        self._active = None
        self._cache.forget(self)
        self.file.release()


class AbstractIndex(CachedIndex[IndexEntries], Generic[E]):
    """Entries of one preallocated index file; ``E`` is one entry."""

    __slots__ = ("max_entries",)

    entry_bytes: ClassVar[int]
    entry_rule: ClassVar[str]  # what a damaged file breaks

    def __init__(
        self, file: SegmentFile, base_offset: int, max_index_bytes: int, cache: IndexCache
    ) -> None:
        """A closed index; opens nothing. ``max_index_bytes`` is segment.index.bytes."""
        super().__init__(file, base_offset, cache)
        self.max_entries = max_index_bytes // self.entry_bytes  # constant after construction

    @property
    def is_active(self) -> bool:
        """Whether entries can be appended."""
        return self._active is not None

    def entry_count(self, *, may_block: bool = True) -> int:
        """Entries, without padding."""
        return self.store(may_block=may_block).count

    def size_in_bytes(self) -> int:
        """Bytes of the entries, not of the file."""
        return self.entry_count() * self.entry_bytes

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
    def _entry(self, store: IndexEntries, slot: int) -> E:
        """Entry of a slot; slot -1 is what stands before the first."""

    @abstractmethod
    def _decode(self, raw: bytes) -> IndexEntries:
        """Columns of a file that is a whole number of entries long."""

    @abstractmethod
    def _bad_slots(self, store: IndexEntries) -> np.ndarray:
        """Which entries of a loaded store break ``entry_rule``: a bool for each."""

    @abstractmethod
    def _encode(self, store: IndexEntries) -> bytes:
        """All entries as on disk."""

    def _memory_bytes(self, store: IndexEntries) -> int:
        return store.count * self.entry_bytes

    def doubt(self) -> bool:
        """Note that an entry is wrong; True for the first caller until the file is rewritten."""
        return self._cache.doubt(self)

    def read_store(self) -> IndexEntries:
        """See CachedIndex."""
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
        self._activate(store.first(store.count))

    def reset(self) -> None:
        """Drop all entries and become active, whatever the file held."""
        file = self.file.pin_for_write(create=True)
        file.truncate(0)  # so that what was there reads as zeros after the next line
        file.truncate(self.max_entries * self.entry_bytes)
        self._activate(self._decode(b""))

    def replace_entries(self, store: IndexEntries) -> None:
        """Write store as the whole content and become active (recovery): one write."""
        self.reset()
        if store.count:
            self.file.pin_for_write().pwrite(self._encode(store), 0)
        self._activate(store)

    def trim(self) -> None:
        """Also cut the file to its entries; it stays pinned until the flush of the segment."""
        active = self._active
        if active is not None:
            self.file.pin_for_write().truncate(active.count * self.entry_bytes)
        super().trim()

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
            self._active = active.first(count)
            file.truncate(self.max_entries * self.entry_bytes)

    def rollback_to_count(self, count: int) -> None:
        """Forget entries of a failed append in memory only; their slots are written again."""
        active = self._require_active()
        if count < active.count:
            self._active = active.first(count)

    def _append(self, entry: bytes, relative: int, value: int) -> None:
        """One pwrite, then memory. On OSError nothing was added."""
        store = self._require_active()
        self.file.pin_for_write().pwrite(entry, store.count * self.entry_bytes)
        store.append(relative, value)

    def _activate(self, store: IndexEntries) -> None:
        """Publish store as the entries of an active index."""
        self._cache.forget(self)
        self._active = store

    def _require_active(self) -> IndexEntries:
        """The store of an active index."""
        assert self._active is not None, f"{self.file.name} is closed"
        return self._active


class OffsetIndex(AbstractIndex[OffsetPosition]):
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
        self._append(OFFSET_ENTRY.pack(relative, position), relative, position)

    def lookup(self, target_offset: int, *, may_block: bool = True) -> OffsetPosition:
        """Greatest entry at or below target_offset, else (base offset, 0)."""
        store = self.store(may_block=may_block)
        # Compared unbounded: a target far beyond the segment must not overflow the column's type.
        slot = bisect_right(store.relative, target_offset - self.base_offset, 0, store.count) - 1
        return self._entry(store, slot)

    def entry_after(self, position: int) -> OffsetPosition | None:
        """First entry of a batch that starts after position; None without one."""
        store = self.store()
        slot = bisect_right(store.values, position, 0, store.count)
        return self._entry(store, slot) if slot < store.count else None

    def entry_before(self, position: int, count: int) -> OffsetPosition:
        """The entry so many before the first one at or after position, else (base offset, 0)."""
        store = self.store()
        slot = bisect_left(store.values, position, 0, store.count) - count
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

    def _entry(self, store: IndexEntries, slot: int) -> OffsetPosition:
        """Entry of a slot; slot -1 is the start of the segment."""
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + store.relative[slot], store.values[slot])

    def _decode(self, raw: bytes) -> IndexEntries:
        table = unpack_offset_entries(raw)
        return offset_entries(table[:, 0], table[:, 1])

    def _encode(self, store: IndexEntries) -> bytes:
        return pack_offset_entries(np.array((store.relative, store.values), dtype=np.int64).T)

    def _bad_slots(self, store: IndexEntries) -> np.ndarray:
        relative = np.array(store.relative, dtype=np.int64)
        positions = np.array(store.values, dtype=np.int64)
        bad = (relative < 0) | (positions < 0)
        bad[1:] |= (np.diff(relative) <= 0) | (np.diff(positions) <= 0)
        return bad


def offset_entries(relative: np.ndarray, positions: np.ndarray) -> IndexEntries:
    """A store of two equally long integer columns, each value within int32."""
    return IndexEntries(_column("i", relative), _column("i", positions))


class TimeIndex(AbstractIndex[TimestampOffset]):
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
        self._append(TIME_ENTRY.pack(timestamp_ms, relative), relative, timestamp_ms)

    def lookup(self, timestamp_ms: int, *, may_block: bool = True) -> TimestampOffset:
        """Greatest entry at or below timestamp_ms, else (-1, base offset)."""
        store = self.store(may_block=may_block)
        return self._entry(store, bisect_right(store.values, timestamp_ms, 0, store.count) - 1)

    def floor_offset(self, offset: int) -> TimestampOffset | None:
        """The last entry for an offset that is no higher; None without one."""
        store = self.store()
        slot = bisect_right(store.relative, offset - self.base_offset, 0, store.count) - 1
        return self._entry(store, slot) if slot >= 0 else None

    def _entry(self, store: IndexEntries, slot: int) -> TimestampOffset:
        """Entry of a slot; slot -1 stands before all timestamps."""
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(store.values[slot], self.base_offset + store.relative[slot])

    def _decode(self, raw: bytes) -> IndexEntries:
        table = unpack_time_entries(raw)
        return time_entries(table[:, 0], table[:, 1])

    def _encode(self, store: IndexEntries) -> bytes:
        return pack_time_entries(np.array((store.values, store.relative), dtype=np.int64).T)

    def _bad_slots(self, store: IndexEntries) -> np.ndarray:
        timestamps = np.array(store.values, dtype=np.int64)
        relative = np.array(store.relative, dtype=np.int64)
        bad = (timestamps < 0) | (relative < 0)
        # An entry of zeros is what a power cut leaves of one: a record at the epoch that stands
        # first in its segment costs a walk over the segment.
        bad[:1] |= (timestamps[:1] == 0) & (relative[:1] == 0)
        # Compared, not subtracted: a difference of two hostile int64 could wrap.
        bad[1:] |= (timestamps[1:] <= timestamps[:-1]) | (relative[1:] < relative[:-1])
        return bad


def time_entries(timestamps: np.ndarray, relative: np.ndarray) -> IndexEntries:
    """A store of two equally long integer columns: int64 and int32."""
    return IndexEntries(_column("i", relative), _column("q", timestamps))


def _column(code: str, values: np.ndarray) -> array[int]:
    """A column of a store; each value is within the range of the type."""
    return array(code, values.astype(code).tobytes())


_ABORTED_MEMORY_BYTES = 200  # one AbortedTransaction with its four integers


class TransactionSearch(NamedTuple):
    """Aborted transactions found; ``is_complete``: later segments cannot add any."""

    aborted: list[AbortedTransaction]
    is_complete: bool


class TransactionIndex(CachedIndex[tuple[AbortedTransaction, ...]]):
    """The aborted transactions whose abort marker lies in one segment. Active once it changed."""

    __slots__ = ("exists",)

    def __init__(
        self, file: SegmentFile, base_offset: int, cache: IndexCache, *, exists: bool
    ) -> None:
        """``exists``: whether the directory listing showed the file; opens nothing."""
        super().__init__(file, base_offset, cache)
        self.exists = exists  # whether an abort was ever written here; published to readers

    def entries(self, *, may_block: bool = True) -> tuple[AbortedTransaction, ...]:
        """All entries by rising last offset; errors as of ``store``."""
        return self.store(may_block=may_block) if self.exists else ()

    def append(self, entry: AbortedTransaction) -> None:
        """Write after the last entry; the first makes the file. On OSError nothing was added."""
        entries = self.entries()
        assert not entries or entry.last_offset > entries[-1].last_offset, "last offsets must rise"
        file = self.file.pin_for_write(create=True)
        packed = pack_aborted_entry(
            entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset
        )
        file.pwrite(packed, len(entries) * ABORTED_ENTRY.size)
        self.exists = True
        self._active = (*entries, entry)

    def search(
        self, fetch_offset: int, upper_bound_offset: int, *, may_block: bool = True
    ) -> TransactionSearch:
        """Transactions that overlap [fetch_offset, upper_bound_offset)."""
        found: list[AbortedTransaction] = []
        for entry in self.entries(may_block=may_block):
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound_offset:
                return TransactionSearch(found, is_complete=True)
        return TransactionSearch(found, is_complete=False)

    def truncate_to(self, offset: int) -> None:
        """Drop every entry from the first one whose last offset is at or above offset."""
        if not self.exists:
            return
        entries = self.entries()
        kept = tuple(entry for entry in entries if entry.last_offset < offset)
        self.file.pin_for_write().truncate(len(kept) * ABORTED_ENTRY.size)
        self._active = kept

    def reset(self) -> None:
        """Drop all entries, whatever the file holds."""
        if self.exists:
            self.file.pin_for_write().truncate(0)
            self._active = ()

    def sanity_check(self) -> None:
        """Read the file and raise CorruptIndex when it breaks the format's rules."""
        if self.exists:
            self.read_store()

    def _memory_bytes(self, store: tuple[AbortedTransaction, ...]) -> int:
        return len(store) * _ABORTED_MEMORY_BYTES

    def read_store(self) -> tuple[AbortedTransaction, ...]:
        """See CachedIndex; a tail shorter than an entry is ignored, as in Kafka."""
        try:
            file = self.file.acquire()
        except FileNotFoundError:
            return ()
        raw = file.pread(file.size(), 0)
        try:
            table = unpack_aborted_entries(raw)
        except FormatError as error:
            self._refuse(error.reason, error.position or 0)
        entries: list[AbortedTransaction] = []
        for slot, (producer_id, first, last, stable) in enumerate(table.tolist()):
            position = slot * ABORTED_ENTRY.size
            if last < self.base_offset:
                self._refuse(f"last offset {last} below the segment's base", position)
            if entries and last <= entries[-1].last_offset:
                self._refuse(f"last offset {last} does not rise", position)
            entries.append(AbortedTransaction(producer_id, first, last, stable))
        return tuple(entries)

    def _refuse(self, reason: str, position: int) -> NoReturn:
        """Raise CorruptIndex with the file's name."""
        raise CorruptIndex(reason, file=self.file.path, position=position)


@dataclass(init=False, repr=False, eq=False, slots=True)
class SegmentFiles:
    """The ``.log`` of a segment and its indexes; the writer thread alone changes the fields.

    What reads, recovery and tools share: they get this, never the ``LogSegment`` that extends it.
    """

    # constant after construction
    base_offset: int
    log_file: SegmentFile
    offset_index: OffsetIndex
    time_index: TimeIndex
    transaction_index: TransactionIndex
    index_interval_bytes: int  # the distance of index entries
    # published to readers
    size_bytes: int
    max_timestamp: TimestampOffset | None  # None: not known yet
    holds_messages: bool  # of format v0 or v1: no reader gets its records

    @property
    def files(self) -> tuple[SegmentFile, ...]:
        """The ``.log`` and the indexes that exist, in the order in which they are renamed."""
        files = (self.log_file, self.offset_index.file, self.time_index.file)
        if self.transaction_index.exists:
            return (*files, self.transaction_index.file)
        return files


class IndexCadence:
    """Which entries the batches of a segment lead to. Feed it their rows in order."""

    __slots__ = ("_interval_bytes", "_offset_tables", "_state", "_time_tables")

    def __init__(self, interval_bytes: int) -> None:
        """``interval_bytes``: index.interval.bytes."""
        self._interval_bytes = interval_bytes
        self._state = np.array(EMPTY_STATE, dtype=np.int64)
        self._offset_tables: list[Table] = []
        self._time_tables: list[Table] = []

    def add(self, rows: BatchRows, chunk_position: int) -> None:
        """The batches of a chunk that starts at chunk_position of the segment; one kernel call."""
        offsets = np.empty((rows.count, 2), dtype=np.int64)
        times = np.empty((rows.count, 2), dtype=np.int64)
        taken = index_entries(
            rows.table, 0, chunk_position, self._interval_bytes, self._state, offsets, times
        )
        assert taken == rows.count, "a batch gives at most one entry in each index"
        self._offset_tables.append(offsets[: self._state[IndexState.OFFSET_ENTRIES]].copy())
        self._time_tables.append(times[: self._state[IndexState.TIME_ENTRIES]].copy())

    @property
    def largest(self) -> TimestampOffset | None:
        """Largest timestamp and the last offset of its batch; None without any timestamp."""
        timestamp_ms = int(self._state[IndexState.MAX_TIMESTAMP])
        if timestamp_ms <= NO_TIMESTAMP:
            return None
        return TimestampOffset(timestamp_ms, int(self._state[IndexState.OFFSET_OF_MAX]))

    def entries(self, segment: SegmentFiles) -> tuple[IndexEntries, IndexEntries]:
        """Of both indexes, at most as many as the files hold; without the forced last entry.

        An index file smaller than the entries (the topic's index size was lowered) stays sparse at
        the end of the segment; look-ups then walk further.
        """
        base = segment.base_offset
        offsets = _joined(self._offset_tables)[: segment.offset_index.max_entries]
        times = _joined(self._time_tables)[: max(segment.time_index.max_entries - 1, 0)]
        return (
            offset_entries(offsets[:, 0] - base, offsets[:, 1]),
            time_entries(times[:, 0], times[:, 1] - base),
        )


def _joined(tables: list[Table]) -> Table:
    return np.concatenate(tables) if tables else np.empty((0, 2), dtype=np.int64)
