"""What a crash left in a partition directory: finish it or throw it away.

Runs in the loader, before any segment object of the log exists. Every step may be cut short by
another crash and is done again by the next load: files are deleted before others are renamed, and
renames never replace data that is still needed.
Source: Kafka's LogLoader, removeTempFilesAndCollectSwapFiles and the swap part of load.

Differs from Kafka: a ``.swap`` log that fails its check is dropped while its originals are there.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from kafkalog.errors import CorruptBatch, CorruptIndex
from kafkalog.format.disk.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    METADATA_CHECKPOINT_DELETED_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SegmentFileName,
    parse_segment_file,
    segment_file_name,
)
from kafkalog.format.integers import INT64_MAX, FormatError
from kafkalog.format.records.batch_scan import ScanStop
from kafkalog.format.records.record_batch import HEADER_BYTES, MAGIC_AT, MAGIC_V2
from kafkalog.log.segment.index_repair import next_offset
from kafkalog.log.segment.indexes import TransactionIndex
from kafkalog.log.segment.log_segment import LogSegment
from kafkalog.log.segment.segment_file import SegmentFile, has_message_at, scan_chunks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.env.filesystem import FileStat
    from kafkalog.format.offset_ranges import LostRange
    from kafkalog.log.environment import LogEnvironment
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.segment.segment_file import MovableDirectory
    from kafkalog.log.values import AbortedTransaction

_TEMPORARY_FILES = frozenset(
    f"{name}{TEMPORARY_SUFFIX}" for name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
)

_log = structlog.get_logger(__name__)


@dataclass(eq=False)
class LoaderFiles:
    """The files of one partition directory during a load."""

    _environment: LogEnvironment
    _directory: MovableDirectory
    _config: LogConfig

    def __post_init__(self) -> None:
        self._has_changed = False
        self._bases: list[int] | None = None  # of all segments, rising, once asked for
        self.orphans: set[int] = set()  # bases of indexes whose log is gone and was not deleted
        self.stats: dict[str, FileStat] = {}
        self.names: dict[str, SegmentFileName] = {}
        self._list()

    def reconcile(self) -> None:
        """Steps 1 to 4 and indexes of deleted logs; afterwards no stage suffix is left."""
        for file_name in _TEMPORARY_FILES & self.stats.keys():
            self._delete(file_name)  # a process ended in the middle of replacing the file
        self._remove_indexes_of_deleted()
        self._remove_deleted()
        self._remove_unfinished()
        self._finish_swaps()
        if self._has_changed:
            self._list()
        logs = {name.offset for name in self.names.values() if name.suffix == LOG_SUFFIX}
        self.orphans |= {
            name.offset
            for name in self.names.values()
            if name.suffix in INDEX_SUFFIXES and name.offset not in logs
        }
        if self._has_changed:
            self._sync_names()

    def reconcile_orphans(
        self, lost: Iterable[LostRange], accepted: Iterable[tuple[int, int]]
    ) -> None:
        """Indexes without a log stay while they prove a loss; a loss without one gets an empty one.

        So the next start finds it again, whatever it was proven by. Kafka removes such a file. A
        transaction index stays when the loss was accepted, too: it tells of records before it.
        """
        gone = tuple(accepted)
        self._has_changed = False
        kept = set()
        for first, last in lost:
            if not self.has_file(first, OFFSET_INDEX_SUFFIX):
                self.create_empty(first, OFFSET_INDEX_SUFFIX)
                self._has_changed = True
            kept |= {offset for offset in self.orphans if first <= offset <= last}
        useless = self.orphans - kept
        for file_name, name in tuple(self.names.items()) if useless else ():
            if name.suffix not in INDEX_SUFFIXES or name.offset not in useless:
                continue
            is_accepted = any(first <= name.offset <= last for first, last in gone)
            if name.suffix != TRANSACTION_INDEX_SUFFIX or not is_accepted:
                self._delete_orphan(file_name)
        if self._has_changed:
            self._sync_names()

    def aborted_in_lost(self) -> tuple[AbortedTransaction, ...]:
        """Transactions whose abort was in a lost segment, as far as its index is left."""
        found: list[AbortedTransaction] = []
        environment, directory = self._environment, self._directory
        for base in sorted(self.orphans):
            name = segment_file_name(base, TRANSACTION_INDEX_SUFFIX)
            if name in self.stats:
                file = SegmentFile(environment, directory, name)
                index = TransactionIndex(file, base, environment.index_cache, exists=True)
                try:
                    found.extend(index.entries())
                except CorruptIndex as error:
                    _log.warning("transaction_index_ignored", reason=error.message)
                index.release()
        return tuple(found)

    def _delete_orphan(self, file_name: str) -> None:
        _log.warning("index_without_log_deleted", path=self.path(file_name))
        self._delete(file_name)

    def path(self, file_name: str) -> str:
        """Absolute."""
        return f"{self._directory.path}/{file_name}"

    def offsets_of(self, suffix: str) -> list[int]:
        """Offsets of the files of one kind without a stage suffix, rising."""
        return sorted(
            name.offset for name in self.names.values() if name.suffix == suffix and not name.stage
        )

    def end_of(self, base_offset: int) -> int:
        """Base offset of the next segment that begins with a batch; INT64_MAX without one.

        One that does not may be what a withdrawn roll left: it ends nothing.
        """
        for base in self.bases_after(base_offset):
            file = self._environment.filesystem.open_read(
                self.path(segment_file_name(base, LOG_SUFFIX))
            )
            head = file.pread(HEADER_BYTES, 0)
            is_message = has_message_at(file, 0)
            file.close()
            if is_message or (len(head) == HEADER_BYTES and head[MAGIC_AT] == MAGIC_V2):
                return base
        return INT64_MAX

    def bases_after(self, base_offset: int) -> list[int]:
        """Base offsets of the segments that follow, be they empty; rising."""
        if self._bases is None:
            self._bases = self.offsets_of(LOG_SUFFIX)
        return self._bases[bisect_right(self._bases, base_offset) :]

    def segment(self, base_offset: int, stage: str = "") -> LogSegment:
        """The closed segment object of files that are listed."""
        log = self.stats[str(SegmentFileName(base_offset, LOG_SUFFIX, stage))]
        transaction_index = str(SegmentFileName(base_offset, INDEX_SUFFIXES[-1], stage))
        return LogSegment(
            self._environment,
            self._directory,
            base_offset,
            self._config,
            size_bytes=log.size,
            last_modified_ms=log.mtime_ms,
            has_transaction_index=transaction_index in self.stats,
            suffix=stage,
        )

    def has_file(self, base_offset: int, suffix: str) -> bool:
        """Whether the segment has a file of this kind."""
        return str(SegmentFileName(base_offset, suffix, "")) in self.stats

    def size_of(self, base_offset: int, suffix: str) -> int:
        """Bytes of the segment's file of this kind; 0 without one."""
        stat = self.stats.get(str(SegmentFileName(base_offset, suffix, "")))
        return 0 if stat is None else stat.size

    def complete_indexes(self, segment: LogSegment, *, is_trimmed: bool) -> None:
        """Make a time index that is missing; write those again that a full disk left untrimmed.

        They have zeros after their entries. Synced, as no later start may check them again. The
        transaction index stays as it is: it was found again before the others were begun.
        """
        if not self.has_file(segment.base_offset, TIME_INDEX_SUFFIX):
            self.create_empty(segment.base_offset, TIME_INDEX_SUFFIX)
        elif not is_trimmed and self._has_untrimmed_indexes(segment):
            _log.warning("segment_index_rebuilt", path=segment.log_file.path)
            segment.become_active()
            segment.on_become_inactive()
            for file in segment.files:
                file.datasync()
            segment.mark_flushed(segment.version)

    def _has_untrimmed_indexes(self, segment: LogSegment) -> bool:
        """Whether an index of a closed segment is as large as an active one and damaged."""
        base, offsets, times = segment.base_offset, segment.offset_index, segment.time_index
        try:
            if self.size_of(base, OFFSET_INDEX_SUFFIX) >= offsets.max_entries * offsets.entry_bytes:
                offsets.sanity_check()
            if self.size_of(base, TIME_INDEX_SUFFIX) >= times.max_entries * times.entry_bytes:
                times.sanity_check()
        except CorruptIndex:
            return True
        return False

    def create_empty(self, base_offset: int, suffix: str) -> None:
        """Make a file that a segment lacks."""
        name = str(SegmentFileName(base_offset, suffix, ""))
        self._environment.filesystem.open_write(self.path(name)).close()

    def _list(self) -> None:
        """Read the directory; names that only look like a segment's are left alone."""
        listing = self._environment.filesystem.list_dir_stats(self._directory.path)
        self.stats = {stat.name: stat for stat in listing if stat.is_file}
        self.names = {}
        for file_name in self.stats:
            try:
                name = parse_segment_file(file_name)
            except FormatError:
                continue
            if name is not None:
                self.names[file_name] = name

    def _delete(self, file_name: str) -> None:
        self._environment.filesystem.unlink(self.path(file_name))
        self.stats.pop(file_name, None)
        self.names.pop(file_name, None)
        self._has_changed = True

    def remove_segment(self, base_offset: int) -> None:
        """Delete all files of a segment, durably."""
        for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
            if self.has_file(base_offset, suffix):
                self._delete(str(SegmentFileName(base_offset, suffix, "")))
        self._sync_names()

    def _sync_names(self) -> None:
        """What was renamed and deleted so far is durable."""
        self._environment.filesystem.sync_dir(self._directory.path)

    def _remove_indexes_of_deleted(self) -> None:
        """What a deletion has not renamed yet, durably before its other files go.

        An index alone would look like what is left of a lost segment.
        """
        names = self.names.values()
        deleting = {name.offset for name in names if name.stage == DELETED_SUFFIX}
        deleting -= {name.offset for name in names if name.suffix == LOG_SUFFIX and not name.stage}
        for file_name, name in tuple(self.names.items()):
            if name.suffix in INDEX_SUFFIXES and not name.stage and name.offset in deleting:
                self._delete_orphan(file_name)
        if self._has_changed:
            self._sync_names()

    def _remove_deleted(self) -> None:
        """Step 1: deletions that a crash left pending."""
        for file_name in tuple(self.stats):
            is_metadata = file_name.endswith(METADATA_CHECKPOINT_DELETED_SUFFIX)
            if file_name.endswith(DELETED_SUFFIX) and not is_metadata:
                self._delete(file_name)

    def _remove_unfinished(self) -> None:
        """Step 2: all ``.cleaned``, and every ``.swap`` at or above the lowest of them."""
        cleaned = [file for file, name in self.names.items() if name.stage == CLEANED_SUFFIX]
        lowest = min((self.names[file].offset for file in cleaned), default=None)
        for file_name, name in tuple(self.names.items()):
            is_partial = lowest is not None and name.offset >= lowest
            if name.stage == SWAP_SUFFIX and is_partial:
                self._delete(file_name)
                self._sync_names()  # it counts as finished as soon as no ``.cleaned`` is left
        for file_name in cleaned:
            self._delete(file_name)

    def _finish_swaps(self) -> None:
        """Steps 3 and 4: originals inside the swapped range go, swaps get their final names."""
        ranges: list[tuple[int, int]] = []
        for name in sorted(self.names.values(), key=lambda each: each.offset):
            if name.stage == SWAP_SUFFIX and name.suffix == LOG_SUFFIX:
                end = self._checked_end(name.offset)
                if end is not None:
                    ranges.append((name.offset, end))
        if ranges:
            low, high = ranges[0][0], max(end for _, end in ranges)
            for file_name, name in tuple(self.names.items()):
                if name.stage != SWAP_SUFFIX and low <= name.offset < high:
                    self._delete(file_name)
            self._sync_names()  # no new ``.log`` beside an old index, no original once all is final
        swaps = [(name, file) for file, name in self.names.items() if name.stage == SWAP_SUFFIX]
        for name, file_name in sorted(swaps, key=lambda each: each[0].offset):
            final = self.path(str(SegmentFileName(name.offset, name.suffix, "")))
            self._environment.filesystem.rename(self.path(file_name), final)
            self._has_changed = True
            if name.suffix == LOG_SUFFIX:
                self._sync_names()  # rising: what is left of the range holds no final file

    def _checked_end(self, base_offset: int) -> int | None:
        """Next offset of a ``.swap`` log; None when it was damaged and its originals stay.

        CorruptBatch when it is damaged and there is no original any more.
        """
        segment = self.segment(base_offset, SWAP_SUFFIX)
        position = 0
        for chunk in scan_chunks(
            segment.log_file, 0, segment.size_bytes, check_crc=True, with_messages=True
        ):
            position = chunk.position + chunk.rows.consumed_bytes
            if chunk.rows.stop not in (ScanStop.END, ScanStop.PARTIAL):
                break
        if position == segment.size_bytes:
            end = next_offset(segment)
            segment.close_handles()
            return end
        segment.close_handles()
        if not self.has_file(base_offset, LOG_SUFFIX):
            raise CorruptBatch(
                "a swapped segment is damaged and its original is gone",
                file=segment.log_file.path,
                position=position,
            )
        _log.error("damaged_swap_dropped", path=segment.log_file.path, position=position)
        for file_name, name in tuple(self.names.items()):
            if name.stage == SWAP_SUFFIX and name.offset == base_offset:
                self._delete(file_name)
        return None


def has_sane_transactions(segment: LogSegment) -> bool:
    """Whether the transaction index can be believed."""
    try:
        segment.transaction_index.sanity_check()
    except CorruptIndex:
        return False
    return True
