"""Cleaner: one round of compaction of one log, from its map to the swaps of its segments.

Theory. The first pass reads the dirty range and notes in the map at which offset each key was
written last; it ends where the map is full, at worst in the middle of a batch, and what it covered
becomes the round's range. The second pass reads every segment that begins in the range, clean ones
too, drops what the map knows a later record of, and tombstones and markers whose time has come, and
writes what stays into ``.cleaned`` segments, a group of sources into one. Each group is swapped in
by itself: a round that ends early has cleaned what it has swapped, and its map is built anew.

One thread at a time, which blocks; the log's writer goes on meanwhile. Closed segments do not
change and are read without a lock; whoever wants to cut or delete some has the cleaning stopped
first (``check_done`` raises LogCleaningAborted, asked before each segment and chunk). What has to
run on the writer goes there through ``on_writer``: the look at the producers, the swap's renames.

Crash rule: ``.cleaned`` files count for nothing; see SegmentSwap for the rest. After any error
the log is as it was before the group at hand, without ``.cleaned`` files, or the group is swapped
and the rest of its renames is done first by the next round (``LocalLog.pending_swap``).
Source: Kafka's Cleaner (4.1), log-lifecycle 12.3 to 12.8.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.cleaner.batch_decisions import LastBatches, control_flags, needless_batches
from kafkalog.cleaner.cleaned_group import CleanedGroup
from kafkalog.cleaner.cleaned_transactions import CleanedTransactionMetadata
from kafkalog.cleaner.cleaner_config import TombstoneHorizon
from kafkalog.cleaner.cleaner_stats import CleanerStats
from kafkalog.cleaner.log_chunks import chunks_of
from kafkalog.cleaner.overflow_split import split_overflowed_segment
from kafkalog.cleaner.record_filter import RecordFilter, TombstoneRule
from kafkalog.cleaner.second_pass import SecondPass
from kafkalog.cleaner.source_groups import aborted_from, source_ends, source_groups
from kafkalog.cleaner.swapping import end_pending_swap, swap_in
from kafkalog.errors import LogCleaningAborted
from kafkalog.log.segment_recovery import SegmentOffsetOverflow
from kafkalog.log.sound_floor import sound_floor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.cleaner.cleaner_config import CleanerConfig
    from kafkalog.cleaner.log_to_clean import LogToClean
    from kafkalog.cleaner.record_batches import RecordBatches
    from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
    from kafkalog.cleaner.swapping import OnWriter
    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog


class CleaningResult(NamedTuple):
    """``end_offset``: the next round's first dirty offset."""

    end_offset: int
    stats: CleanerStats


@dataclass(slots=True)
class _Round:
    """One round and its state."""

    to_clean: LogToClean
    now_ms: int
    on_writer: OnWriter
    check_done: Callable[[], None]
    is_dry_run: bool
    legacy_horizon_ms: int  # modification times up to this one are old
    transactions: CleanedTransactionMetadata = field(default_factory=CleanedTransactionMetadata)
    stats: CleanerStats = field(default_factory=CleanerStats)

    @property
    def log(self) -> UnifiedLog:
        """The log that is cleaned."""
        return self.to_clean.log


class Cleaner:
    """See the module. Kept from round to round: its map and buffers are used again."""

    def __init__(
        self,
        offset_map: SkimpyOffsetMap,
        config: CleanerConfig,
        throttle: Callable[[int], None],
    ) -> None:
        """``throttle`` is told how many bytes were just read or written, and may block."""
        # constant after construction
        self.offset_map = offset_map
        self.config = config
        self._throttle = throttle
        self._filter = RecordFilter(offset_map)

    def clean(
        self,
        to_clean: LogToClean,
        now_ms: int,
        *,
        on_writer: OnWriter,
        check_done: Callable[[], None],
        dry_run: bool = False,
    ) -> CleaningResult:
        """One round; blocks for reads, writes and syncs.

        ``now_ms`` is what delete horizons are held against and made from. ``dry_run``: both passes,
        but nothing is written: the figures say what would go. Raises LogCleaningAborted (asked for,
        or a segment had to be split first: try again), CorruptBatch, CorruptIndex, StorageFault of
        the directory's guard; the sources of the group at hand are untouched then.
        """
        log = to_clean.log
        clock = log.environment.clock
        round_ = _Round(
            to_clean, now_ms, on_writer, check_done, dry_run, _legacy_horizon_ms(to_clean)
        )
        stats = round_.stats
        stats.started_ns = stats.mapped_ns = clock.monotonic_ns()
        with log.environment.io_guard():
            if not dry_run:
                end_pending_swap(
                    log, on_writer, operations_max=self.config.directory_operations_max
                )
            end_offset = to_clean.first_dirty_offset
            if to_clean.cleanable_bytes:
                self._map(round_)
                stats.mapped_ns = clock.monotonic_ns()
                end_offset = self.offset_map.latest_offset + 1
                for group in source_groups(to_clean, end_offset):
                    try:
                        self._clean_group(round_, group)
                    except SegmentOffsetOverflow as overflow:
                        self._split(round_, group)
                        raise LogCleaningAborted(str(overflow)) from overflow
        stats.ended_ns = clock.monotonic_ns()
        return CleaningResult(end_offset, stats)

    # ---- the first pass

    def _map(self, round_: _Round) -> None:
        """Put the keys of the dirty range into the map, as far as it takes them."""
        start, end = round_.to_clean.first_dirty_offset, round_.to_clean.first_uncleanable_offset
        dirty = round_.log.segments.values_between(start, end)
        offset_map, stats = self.offset_map, round_.stats
        aborted = aborted_from(round_.log, dirty[0], end)
        transactions = CleanedTransactionMetadata()
        transactions.add_aborted(aborted)
        # What is taken for aborted data here and not in the second pass is missing in the map, and
        # its bits would say that it is the newest: every record has to be looked up then.
        is_misled = any(each.last_offset < start for each in aborted)
        offset_map.clear(start, start if is_misled else end)
        ends = [*(each.base_offset for each in dirty[1:]), end]
        for segment, segment_end in zip(dirty, ends, strict=True):
            round_.check_done()
            for batches in self._chunks(round_, segment, sound_floor(segment, start).position):
                skipped = needless_batches(batches, transactions) | control_flags(batches)
                is_full = offset_map.index(batches, skipped, start)
                stats.map_bytes_read += batches.rows.consumed_bytes
                stats.map_messages_read = offset_map.records_read
                if is_full:
                    break
            else:
                offset_map.note_latest(segment_end - 1)  # offsets may be missing at its end
                continue
            break
        stats.map_size = offset_map.size
        stats.buffer_utilization = offset_map.utilization

    def _chunks(
        self, round_: _Round, segment: LogSegment, position: int
    ) -> Iterator[RecordBatches]:
        """The batches of a segment; asks and throttles before each chunk is worked on."""
        following = round_.log.segments.higher(segment.base_offset)
        assert following is not None, "the active segment is not cleaned"
        for batches in chunks_of(
            segment,
            position,
            end_offset=following.base_offset,
            chunk_bytes=self.config.io_buffer_bytes,
            max_decompressed_bytes=self.config.max_decompressed_bytes,
        ):
            round_.check_done()
            self._throttle(batches.rows.consumed_bytes)
            yield batches

    # ---- the second pass

    def _clean_group(self, round_: _Round, sources: list[LogSegment]) -> None:
        """Write what stays of the sources, and put it in their place."""
        log = round_.log
        base_offset = sources[0].base_offset
        output = (
            None
            if round_.is_dry_run
            else CleanedGroup(log.environment, log.local.directory, log.config, base_offset)
        )
        try:
            second = SecondPass(
                self._filter,
                round_.transactions,
                LastBatches(round_.on_writer(log.producers.last_records)),
                end_offset=round_.to_clean.first_uncleanable_offset,
                now_ms=round_.now_ms,
                delete_retention_ms=log.config.delete_retention_ms,
                output=output,
                stats=round_.stats,
            )
            for source, end in zip(sources, source_ends(sources), strict=True):
                round_.check_done()
                round_.transactions.add_aborted(aborted_from(log, source, end))
                rule = self._tombstone_rule(source, round_.legacy_horizon_ms)
                second.filter_source(self._chunks(round_, source, 0), rule, self._throttle)
            if output is not None:
                clock = log.environment.clock
                began_ns = clock.monotonic_ns()
                new = output.finish(sources[-1].last_modified_ms)
                limit = self.config.directory_operations_max
                swap_in(log, new, sources, round_.on_writer, operations_max=limit)
                round_.stats.swap_ns += clock.monotonic_ns() - began_ns
        except BaseException as error:
            if output is not None:
                output.discard(error)
            raise

    def _split(self, round_: _Round, sources: list[LogSegment]) -> None:
        """A source holds offsets that do not fit it: cut it up, and the next round can go on."""
        limit = self.config.directory_operations_max
        for source in sources:
            split_overflowed_segment(round_.log, source, round_.on_writer, operations_max=limit)

    def _tombstone_rule(self, source: LogSegment, legacy_horizon_ms: int) -> TombstoneRule:
        """For the records and markers of one source."""
        if self.config.tombstone_horizon is TombstoneHorizon.BATCH:
            return TombstoneRule.PER_BATCH
        is_young = source.last_modified_ms > legacy_horizon_ms
        return TombstoneRule.KEEP if is_young else TombstoneRule.DROP


def _legacy_horizon_ms(to_clean: LogToClean) -> int:
    """Of ``TombstoneHorizon.SEGMENT``; 0 while no segment is clean: everything is young then."""
    log = to_clean.log
    last_clean = log.segments.lower(to_clean.first_dirty_offset)
    if last_clean is None:
        return 0
    return last_clean.last_modified_ms - log.config.delete_retention_ms
