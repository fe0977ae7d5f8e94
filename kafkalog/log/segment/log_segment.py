"""LogSegment: one ``.log`` file and its three indexes, from creation to deletion.

Theory. A segment is *active* while it may be appended to: its files are open for writing, its
indexes in memory and preallocated on disk. Any other segment is *closed*: making such an object
costs no system call, sizes come from the directory listing, and everything else (descriptor, index
entries, largest timestamp, first timestamp) is fetched on first use. A log of 20,000 segments is
therefore quick to open and needs about 1 KiB a segment.

An append is all or nothing: one gather write, then one small write per index entry that is due.
Whatever fails, the ``.log`` is cut back to its old size and memory keeps the old state, so the next
append starts at the same place. If the cut fails too, ``is_broken`` is set: the segment takes no
more appends, and the next load cuts the torn batch or finds it whole.

A full disk or a shortage of descriptors must not end a log: whatever call of a
roll fails, the old segment is the active one again and the same roll can be tried later. Differs
from Kafka: there a failed roll takes the log directory offline. After a crash in between, the
unclean start rebuilds the indexes of unflushed segments. ``SegmentRoom`` is the rule of
Kafka's LogSegment.shouldRoll as limits that many sets can be compared with.

Descriptors. The kernel reports a failed writeback once, to the descriptors that are open then. So
the files are pinned from the first unsynced change until the flush that covers it. Then their
handles, still good for writing, go to the bounded cache (``open_files``); the next append takes
them from there or opens the files again. The number of open descriptors is bounded by a setting and
by what is unsynced, not by the number of segments.

Changes are the writer thread's (in recovery: the loader's, before others see the segment). Reads
are for any thread; they see ``size_bytes``, which moves only after a batch is whole.
Source: Kafka's LogSegment (4.1). Reading is in ``segment_reader``, recovery in
``segment_recovery``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import CorruptIndex
from kafkalog.format.disk.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from kafkalog.format.integers import INT32_MAX, INT64_MAX, INT64_MIN
from kafkalog.log.segment import index_repair, segment_reader, segment_recovery
from kafkalog.log.segment.indexes import OffsetIndex, SegmentFiles, TimeIndex, TransactionIndex
from kafkalog.log.segment.segment_file import SegmentFile
from kafkalog.log.values import (
    MAX_RELATIVE_OFFSET,
    NO_TIMESTAMP,
    AbortedTransaction,
    TimestampOffset,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.env.filesystem import Buffer
    from kafkalog.log.environment import LogEnvironment
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.segment.segment_file import MovableDirectory
    from kafkalog.log.segment.segment_recovery import Judge, OnBatches, RecoveryResult
    from kafkalog.log.values import AppendedBatch, CompletedTransaction


MAX_SEGMENT_BYTES = INT32_MAX  # positions are int32
_SIZE_BYTES = attrgetter("size_bytes")


class SegmentRoom(NamedTuple):
    """What the next append may measure before the segment is rolled.

    ``holds`` compares one append; ``plan_group`` and ``plan_joined`` of ``log/append.py`` compare
    several at once, where every batch may need an index entry. ``UnifiedLog.append`` rolls.
    """

    size_bytes: int  # at most
    timestamp_ms: int  # the largest timestamp may be at most this
    first_offset: int
    last_offset: int  # relative offsets of the indexes end here
    index_entries: int  # left in the fuller index; each batch may take one

    def holds(self, size_bytes: int, max_timestamp_ms: int, last_offset: int) -> bool:
        """Whether an append of this measure needs no roll."""
        return (
            size_bytes <= self.size_bytes
            and max_timestamp_ms <= self.timestamp_ms
            and self.index_entries > 0
            and self.first_offset <= last_offset <= self.last_offset
        )


class LogSegment(SegmentFiles):
    """See the module."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_created_ms",
        "_environment",
        "_first_timestamp_ms",
        "_flushed_version",
        "_jitter_ms",
        "is_active",
        "is_broken",
        "last_modified_ms",
        "version",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        directory: MovableDirectory,
        base_offset: int,
        config: LogConfig,
        *,
        size_bytes: int,
        last_modified_ms: int,
        has_transaction_index: bool,
        suffix: str = "",
    ) -> None:
        """A closed segment whose files exist; touches no disk.

        ``size_bytes`` and ``last_modified_ms`` are the ``.log``'s of the directory listing,
        ``suffix`` is "" or one of ".cleaned", ".swap", ".deleted". Index size, index interval and
        jitter are fixed here, as in Kafka.
        """
        cache, index_bytes = environment.index_cache, config.segment_index_bytes

        def file(kind: str) -> SegmentFile:
            return SegmentFile(environment, directory, segment_file_name(base_offset, kind, suffix))

        # constant after construction
        self.base_offset = base_offset
        self.log_file = file(LOG_SUFFIX)
        self.offset_index = OffsetIndex(file(OFFSET_INDEX_SUFFIX), base_offset, index_bytes, cache)
        self.time_index = TimeIndex(file(TIME_INDEX_SUFFIX), base_offset, index_bytes, cache)
        self.transaction_index = TransactionIndex(
            file(TRANSACTION_INDEX_SUFFIX), base_offset, cache, exists=has_transaction_index
        )
        self.index_interval_bytes = config.index_interval_bytes
        self._environment = environment
        self._created_ms = environment.clock.wall_ms()
        jitter_bound = min(config.segment_jitter_ms, config.segment_ms)
        self._jitter_ms = environment.random.below(jitter_bound) if jitter_bound > 0 else 0
        # owned by the writer thread
        self.is_active = False  # whether it can be appended to
        self._bytes_since_index_entry = 0
        self.last_modified_ms = last_modified_ms  # of the listing, or of the last append
        self.version = 0  # counts changes: a flush plan notes it for ``mark_flushed``
        self._flushed_version = 0
        self.is_broken = False
        # published to readers
        self.size_bytes = size_bytes
        self.max_timestamp: TimestampOffset | None = None
        self.holds_messages = False
        self._first_timestamp_ms: int | None = None

    @classmethod
    def create(
        cls,
        environment: LogEnvironment,
        directory: MovableDirectory,
        base_offset: int,
        config: LogConfig,
        *,
        suffix: str = "",
    ) -> LogSegment:
        """Make the files of a new, empty, active segment. The caller removed left-overs before.

        On OSError some of the files may exist; they are removed as left-overs by the next attempt.
        """
        segment = cls(
            environment,
            directory,
            base_offset,
            config,
            size_bytes=0,
            last_modified_ms=environment.clock.wall_ms(),
            has_transaction_index=False,
            suffix=suffix,
        )
        log = segment.log_file.pin_for_write(create=True)
        if config.preallocate:
            log.truncate(config.max_segment_bytes)
        segment.offset_index.create()
        segment.time_index.create()
        segment.max_timestamp = TimestampOffset(NO_TIMESTAMP, base_offset)
        segment.is_active = True
        segment.mark_unflushed()
        return segment

    def __repr__(self) -> str:
        return f"LogSegment({self.log_file.name}, {self.size_bytes} bytes)"

    # ---- append

    def append(self, buffers: Sequence[Buffer], batches: Sequence[AppendedBatch]) -> None:
        """Write ``buffers`` back to back at the end; ``batches`` describe the same bytes in order.

        All or nothing: on OSError the file is cut back and memory is unchanged; when the cut fails
        too, ``is_broken`` is set before the first error is raised.
        """
        assert self.is_active, "append to a closed segment"
        assert not self.is_broken, "append to a segment with a torn tail"
        if not self.log_file.is_pinned:
            self._pin_files()
        position = self.size_bytes
        size = sum(map(_SIZE_BYTES, batches))
        assert size == sum(map(len, buffers)), "facts must match the bytes"
        assert position + size <= MAX_SEGMENT_BYTES, "a segment holds at most 2^31 - 1 bytes"
        assert batches[0].base_offset >= self.base_offset, "offset below the segment's base"
        assert batches[-1].last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
        offset_entries = self.offset_index.entry_count()
        time_entries = self.time_index.entry_count()
        try:
            file = self.log_file.pin_for_write()
            file.pwritev(buffers, position)
            since, largest = self._write_index_entries(batches)
        except OSError as error:
            self.offset_index.rollback_to_count(offset_entries)
            self.time_index.rollback_to_count(time_entries)
            self._cut_back(position, error)
            raise
        if position == 0:
            self._first_timestamp_ms = batches[0].max_timestamp_ms
        self._bytes_since_index_entry = since
        self.max_timestamp = largest
        self.last_modified_ms = self._environment.clock.wall_ms()
        self.mark_unflushed()
        self._environment.checked_batches.note_appended(file, position, batches)
        self.size_bytes = position + size  # last: readers look no further than this

    def _write_index_entries(self, batches: Sequence[AppendedBatch]) -> tuple[int, TimestampOffset]:
        """Index entries due by these batches; returns the new cadence counter and maximum."""
        since, position = self._bytes_since_index_entry, self.size_bytes
        largest = self.max_timestamp_so_far()
        for batch in batches:
            if batch.max_timestamp_ms > largest.timestamp_ms:
                largest = TimestampOffset(batch.max_timestamp_ms, batch.last_offset)
            # Tested before this batch is counted: the first batch of a segment has no entry. An
            # index that fills up in the middle of a set stays sparse there; the segment rolls next.
            if since > self.index_interval_bytes and not self.offset_index.is_full:
                self.offset_index.append(batch.last_offset, position)
                if not self.time_index.is_full:
                    self.time_index.maybe_append(
                        largest.timestamp_ms, largest.offset, skip_full_check=False
                    )
                since = 0
            since += batch.size_bytes
            position += batch.size_bytes
        return since, largest

    def _cut_back(self, size_bytes: int, cause: OSError) -> None:
        """Remove what a failed append left after the last whole batch."""
        try:
            self._cut(size_bytes)
        except OSError as error:
            self.is_broken = True
            cause.add_note(f"cutting {self.log_file.path} back to {size_bytes} failed: {error}")

    def _cut(self, size_bytes: int) -> None:
        """Make the ``.log`` so long; other bytes may come after these."""
        file = self.log_file.pin_for_write()
        self._environment.checked_batches.forget(file)
        file.truncate(size_bytes)

    def update_transaction_index(
        self, completed: CompletedTransaction, last_stable_offset: int
    ) -> None:
        """Note a transaction whose end marker was appended here; only aborted ones are kept."""
        if completed.is_aborted:
            self.transaction_index.append(
                AbortedTransaction(
                    producer_id=completed.producer_id,
                    first_offset=completed.first_offset,
                    last_offset=completed.last_offset,
                    last_stable_offset=last_stable_offset,
                )
            )
            self.mark_unflushed()

    def room(self, max_bytes: int, max_ms: int, now_ms: int) -> SegmentRoom:
        """The limits of the next append: age, size, offsets and index entries.

        Event time counts from the timestamp of the first batch, which may be read for it; wall
        time, from when the segment was made, where it has none. An empty segment is never too old.
        """
        max_age_ms = max_ms - self._jitter_ms
        timestamp_ms = INT64_MAX
        first_ms = self.first_batch_timestamp_ms()
        if self.size_bytes and first_ms >= 0:
            timestamp_ms = first_ms + max_age_ms
        elif self.size_bytes and now_ms - self._created_ms > max_age_ms:
            timestamp_ms = INT64_MIN
        return SegmentRoom(
            size_bytes=max_bytes - self.size_bytes,
            timestamp_ms=timestamp_ms,
            first_offset=self.base_offset,
            last_offset=self.base_offset + MAX_RELATIVE_OFFSET,
            index_entries=min(self.offset_index.free_slots, self.time_index.free_slots),
        )

    @property
    def is_first_timestamp_known(self) -> bool:
        """Whether ``room`` costs no read."""
        return self._first_timestamp_ms is not None

    def first_batch_timestamp_ms(self, *, may_block: bool = True) -> int:
        """Maximum timestamp of the first batch, -1 when empty or without; read once, then kept."""
        known = self._first_timestamp_ms
        if known is not None:
            return known
        self._first_timestamp_ms = segment_reader.first_batch_timestamp_ms(
            self, may_block=may_block
        )
        return NO_TIMESTAMP if self._first_timestamp_ms is None else self._first_timestamp_ms

    # ---- timestamps

    def max_timestamp_so_far(self, *, may_block: bool = True) -> TimestampOffset:
        """Largest timestamp and the last offset of its batch; (-1, base offset) without any.

        Of a segment found on disk: the last time index entry, fetched once.
        """
        known = self.max_timestamp
        if known is not None:
            return known
        last = index_repair.floor_timestamp(self, INT64_MAX, may_block=may_block)
        self.max_timestamp = last
        return last

    def largest_timestamp_ms(self, *, may_block: bool = True) -> int:
        """What time retention compares: the largest record timestamp, else the file's mtime."""
        largest = self.max_timestamp_so_far(may_block=may_block).timestamp_ms
        return largest if largest >= 0 else self.last_modified_ms

    def description(self, *, may_read: bool = True) -> str:
        """As Kafka's log lines name it (``LogSegment.toString``); may read the time index.

        The largest timestamp is -1 where it is not known and may not be read.
        """
        largest = self.max_timestamp_so_far() if may_read else self.max_timestamp
        return (
            f"LogSegment(baseOffset={self.base_offset}, size={self.size_bytes}, "
            f"lastModifiedTime={self.last_modified_ms}, "
            f"largestRecordTimestamp={NO_TIMESTAMP if largest is None else largest.timestamp_ms})"
        )

    # ---- life

    def become_active(self) -> None:
        """Open for appending: indexes (rebuilt when damaged) in memory and at maximum size."""
        self.log_file.pin_for_write()
        try:
            self.offset_index.resize_to_max()
            self.time_index.resize_to_max()
        except CorruptIndex:
            segment_recovery.rebuild_indexes(self)
            self.mark_unflushed()
        self.is_active = True

    def on_become_inactive(self) -> None:
        """Close for appending: forced time entry, indexes trimmed, preallocation cut off.

        All or nothing: on OSError it can be appended to again, or ``is_broken`` is set. The files
        stay pinned until ``mark_flushed``.
        """
        if not self.is_active:
            return
        self._pin_files()
        times = self.time_index.entry_count()
        try:
            self.seal()
        except OSError as cause:
            try:
                self.offset_index.resize_to_max()
                self.time_index.resize_to_max()
                self.time_index.truncate_to_count(times)  # without the forced last entry
            except (OSError, CorruptIndex) as error:
                self.is_broken = True
                cause.add_note(f"opening {self.log_file.path} again failed: {error}")
            raise
        self.is_active = False

    def seal(self) -> None:
        """What roll, close and recovery have in common at their end: forced entry and trims."""
        largest = self.max_timestamp_so_far()
        self.time_index.maybe_append(largest.timestamp_ms, largest.offset, skip_full_check=True)
        self.offset_index.trim()
        self.time_index.trim()
        self.transaction_index.trim()
        log = self.log_file.pin_for_write()
        if log.size() != self.size_bytes:
            log.truncate(self.size_bytes)
        self.mark_unflushed()

    def recover(
        self,
        on_batches: OnBatches | None = None,
        judge: Judge | None = None,
        *,
        is_durable: bool = False,
        keeps_indexes: bool = False,
    ) -> RecoveryResult:
        """Check every batch, cut at the first bad one, rebuild the indexes.

        ``on_batches`` is called per chunk with the good rows and the bytes, before the cut, so that
        the caller can update producer state and epochs. ``judge`` decides which bad batch is the
        end. Raises SegmentOffsetOverflow when an offset does not fit the segment. Afterwards the
        segment is closed and unflushed; with ``is_durable``, for one that no flush and no later
        start inspects, its files are synced. ``keeps_indexes``: their files, which may prove where
        the log ended, stay as they are until ``end_recovery``.
        """
        result = segment_recovery.recover(self, on_batches, judge, is_durable=is_durable)
        self.restore(result.valid_bytes, result.largest)
        if keeps_indexes:
            segment_recovery.show_entries(self, result)
        else:
            self.end_recovery(result, is_durable=is_durable)
        return result

    def end_recovery(self, result: RecoveryResult, *, is_durable: bool) -> None:
        """Write the indexes that ``recover`` kept."""
        self.offset_index.replace_entries(result.offset_entries)
        self.time_index.replace_entries(result.time_entries)
        self.seal()
        if is_durable:
            for file in self.files:
                file.datasync()
            self.mark_flushed(self.version)

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that holds an offset >= ``offset``.

        The segment becomes active: indexes are cut and at their maximum size again.
        """
        position = segment_reader.position_of(self, offset)
        self.become_active()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        if position is not None:
            self.size_bytes = position  # first: readers must not see bytes that are going
            self._cut(position)
        if self.size_bytes == 0:
            self._created_ms = self._environment.clock.wall_ms()
            self._first_timestamp_ms = None
        self._bytes_since_index_entry = 0
        self.max_timestamp = self.time_index.last_entry()
        self.last_modified_ms = self._environment.clock.wall_ms()
        self.mark_unflushed()

    def restore(self, size_bytes: int, largest: TimestampOffset) -> None:
        """Take over what recovery found: the valid size and the largest timestamp."""
        self.size_bytes = size_bytes
        self.max_timestamp = largest
        self._first_timestamp_ms = None
        self._bytes_since_index_entry = 0
        self.mark_unflushed()

    def mark_unflushed(self) -> None:
        """Contents may be in the page cache only: the next flush includes them."""
        self.version += 1

    def files_to_flush(self) -> tuple[SegmentFile, ...]:
        """Files whose ``datasync`` makes this segment durable; empty when nothing changed."""
        return self.files if self.version != self._flushed_version else ()

    def mark_flushed(self, version: int) -> None:
        """Changes up to version are durable; when those are all, its descriptors are released."""
        self._flushed_version = max(self._flushed_version, version)
        self.release_files()

    def _pin_files(self) -> None:
        """Pin every file, before anything changes: a lack of descriptors leaves all as it was.

        The ``.log`` comes last: that it is pinned says that all are.
        """
        for file in reversed(self.files):
            file.pin_for_write()

    def release_files(self) -> None:
        """Hand the descriptors to the cache unless something is unsynced; an empty log has none."""
        if not self.files_to_flush() or not self.size_bytes:
            for file in self.files:
                file.unpin()

    def change_suffix(self, new_suffix: str) -> list[str]:
        """Replace the suffix of all files; returns the names that were missing. Caller syncs."""
        missing: list[str] = []
        for kind, file in zip(SEGMENT_SUFFIXES, self.files, strict=False):
            old_name = file.name
            if not file.rename(segment_file_name(self.base_offset, kind, new_suffix)):
                missing.append(old_name)
        return missing

    def restore_names(self, cause: OSError) -> None:
        """Undo a renaming that was cut short; ``is_broken`` when that fails too."""
        try:
            self.change_suffix("")
        except OSError as error:
            self.is_broken = True
            cause.add_note(f"renaming {self.log_file.path} back failed: {error}")

    def close(self) -> None:
        """Clean close: like a roll, then every descriptor and cached entry is dropped."""
        self.on_become_inactive()
        self.close_handles()

    def close_handles(self) -> None:
        """Drop descriptors and entries without writing anything (failed directory, delete)."""
        self.is_active = False
        self.offset_index.release()
        self.time_index.release()
        self.transaction_index.release()
        self.log_file.release()

    def delete_files(self) -> list[str]:
        """Remove the files for good; returns the names that were missing."""
        self.close_handles()
        return [file.name for file in self.files if not file.unlink()]
