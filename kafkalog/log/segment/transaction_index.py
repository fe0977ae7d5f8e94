"""TransactionIndex: the aborted transactions whose abort marker lies in this segment.

Entry of the ``.txnindex``, 34 bytes: int16 version 0, int64 producer id, first offset, last offset
(the marker's), last stable offset at that moment. The file is made at the first abort and never
preallocated. Changes are the writer thread's, and keep the entries in memory until the segment
closes; look-ups are for any thread and see a published tuple.
Source: Kafka's TransactionIndex and AbortedTxn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn, cast

from kafkalog.errors import CorruptIndex
from kafkalog.format.disk.index_entries import (
    ABORTED_ENTRY,
    pack_aborted_entry,
    unpack_aborted_entries,
)
from kafkalog.format.integers import FormatError
from kafkalog.log.values import AbortedTransaction, WouldBlock

if TYPE_CHECKING:
    from kafkalog.log.environment import IndexCache
    from kafkalog.log.segment.segment_file import SegmentFile

ENTRY_MEMORY_BYTES = 200  # one AbortedTransaction with its four integers


class TransactionSearch(NamedTuple):
    """Aborted transactions found; ``is_complete``: later segments cannot add any."""

    aborted: list[AbortedTransaction]
    is_complete: bool


class TransactionIndex:
    """The transaction index of one segment."""

    __slots__ = ("_cache", "_changed", "base_offset", "exists", "file")

    def __init__(
        self, file: SegmentFile, base_offset: int, cache: IndexCache, *, exists: bool
    ) -> None:
        """``exists``: whether the directory listing showed the file; opens nothing."""
        # constant after construction
        self.file = file
        self._cache = cache
        self.base_offset = base_offset
        # published to readers
        self.exists = exists  # whether an abort was ever written here
        self._changed: tuple[AbortedTransaction, ...] | None = None  # since the segment opened

    def entries(self, *, may_block: bool = True) -> tuple[AbortedTransaction, ...]:
        """All entries by rising last offset. WouldBlock, CorruptIndex as of AbstractIndex.store."""
        if not self.exists:
            return ()
        if self._changed is not None:
            return self._changed
        cached = self._cache.get(self)
        if cached is not None:
            return cast("tuple[AbortedTransaction, ...]", cached)
        if not may_block:
            raise WouldBlock(self.file.path)
        entries = self._read()
        size_bytes = len(entries) * ENTRY_MEMORY_BYTES
        winner = self._cache.put_if_absent(self, entries, size_bytes)
        return cast("tuple[AbortedTransaction, ...]", winner)

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
        self._changed = (*entries, entry)

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
        self._changed = kept

    def reset(self) -> None:
        """Drop all entries, whatever the file holds."""
        if self.exists:
            self.file.pin_for_write().truncate(0)
            self._changed = ()

    def sanity_check(self) -> None:
        """Read the file and raise CorruptIndex when it breaks the format's rules."""
        if self.exists:
            self._read()

    def trim(self) -> None:
        """Close: leave the entries to the cache."""
        if self._changed is not None:
            self._cache.put(self, self._changed, len(self._changed) * ENTRY_MEMORY_BYTES)
            self._changed = None

    def release(self) -> None:
        """Drop entries and descriptor."""
        self._changed = None
        self._cache.forget(self)
        self.file.release()

    def _read(self) -> tuple[AbortedTransaction, ...]:
        """Decode the file; a tail shorter than an entry is ignored, as in Kafka."""
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
