"""AbstractIndex: what the offset and the time index of a segment share.

Owns one index file and the decoded entries of it. Nothing is mapped: while the segment is active
its entries are in memory (only the real ones) and every append is one small pwrite into the file,
which was made sparse at its maximum size; once closed the file is cut to its entries, and these are
loaded on first use into the shared IndexCache. Changes are the writer thread's; look-ups are for
any thread: a reader takes the published store once, and a store is only ever appended to (its count
last), while truncation publishes a new one.

Source: Kafka's AbstractIndex. Differs from Kafka: a closed index is checked when it is loaded and
refused as CorruptIndex, where Kafka would believe zero padding to be entries (KAFKA-10207).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar, cast

import numpy as np

from kafkalog.errors import CorruptIndex
from kafkalog.log.values import WouldBlock

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
        """The last entry, when there is none what stands in front of the first."""
        store = self.store(may_block=may_block)
        return self._entry(store, store.count - 1)

    def entries(self, *, may_block: bool = True) -> list[E]:
        """All entries."""
        store = self.store(may_block=may_block)
        return [self._entry(store, slot) for slot in range(store.count)]

    @property
    def reserved_bytes(self) -> int:
        """Of the file of an active index, behind its entries; 0 of a closed one."""
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
        """Entry of a slot; slot -1 is what stands in front of the first."""

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
        """Note that an entry is wrong; True for the first caller until the file is written anew."""
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

        CorruptIndex where the length or the last entry shows damage; only who reads all entries
        (``read_store``) finds out what is wrong between them.
        """
        try:
            file = self.file.acquire()
        except FileNotFoundError:
            return 0
        size_bytes = file.size()
        self._check_length(size_bytes)
        position = size_bytes - self.entry_bytes
        # No last entry is of zeros: they are room that a crash left behind the entries.
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
        """Keep the first ``count`` entries; what lies behind them in the file is not believed."""
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


def int32_column(values: np.ndarray) -> array[int]:
    """A column of a store; each value is within int32."""
    return array("i", values.astype(np.int32).tobytes())


def int64_column(values: np.ndarray) -> array[int]:
    """A column of a store."""
    return array("q", values.astype(np.int64).tobytes())
