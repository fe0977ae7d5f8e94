"""Cleaner: one round of compaction of one log, from its map to the swaps of its segments.

Theory. The first pass reads the dirty range and notes in the map at which offset each key was
written last. It ends where the map is full, at worst in the middle of a batch; what it covered
becomes the round's range. The second pass reads every segment that begins in the
range, clean ones too, and writes what stays into ``.cleaned`` segments (``CleanedGroup``), a group
of sources into one. It decides on a chunk in this order: transactions (``needless_batches``),
batches as a whole (``batch_orders``), records (``RecordFilter``). It drops records of which the map
knows a later one, and tombstones and markers whose time has come. Columns in, columns out: one
Python statement a batch only for batches of transactions, control batches and batches of producers
whose newest batch is a marker. Each group is swapped in by itself: a round that ends early has
cleaned what it has swapped, and its map is built again.

A group becomes one segment of the base of its first source. Another one begins only where positions
would not fit, so that output which grew (another codec, another level) never makes a log
uncleanable (KAFKA-20036).

One thread at a time, which blocks; the log's writer goes on meanwhile. Closed segments do not
change and are read without a lock. A caller that wants to cut or delete some has the cleaning
stopped first (``check_done``, asked before each segment and chunk, raises LogCleaningAborted). What
has to run on the writer is passed to ``on_writer``: reading the producers, the swap's renames.

Old cleaners could leave a segment whose offsets do not fit it (KAFKA-6264); the loader splits it
when it meets one, and so does a round. Its batches are copied as they are into segments that begin
where the range ends, each with the aborted transactions that end in it, and these take its place
whole or not at all.

Crash rule: ``.cleaned`` files count for nothing; see SegmentSwap for the rest. After any error the
log is as it was before the group at hand, without ``.cleaned`` files, or the group is swapped and
the rest of its renames, which a full disk or a lack of descriptors kept back, is remembered with
the log (``LocalLog.pending_swap``). That has to end before the next swap begins, because old files
still have names that a load would take for current ones. Source: Kafka's Cleaner,
UnifiedLog.replaceSegments and LocalLog.splitOverflowedSegment (4.1; the last does not copy the
transaction index).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import numpy as np
import structlog

from kafkalog.cleaner.config import TombstoneHorizon
from kafkalog.cleaner.plan import aborted_from, source_groups
from kafkalog.cleaner.record_batches import chunks_of
from kafkalog.cleaner.record_filter import BatchRetention, RecordFilter, TombstoneRule
from kafkalog.cleaner.stats import CleanerStats
from kafkalog.cleaner.transactions import CleanedTransactionMetadata
from kafkalog.errors import (
    CorruptBatch,
    DecompressedTooLarge,
    LogCleaningAborted,
    UnsupportedCompression,
)
from kafkalog.format.integers import INT64_MAX, FormatError
from kafkalog.format.records.batch_scan import BatchColumn, BatchRows, ScanStop
from kafkalog.format.records.control_record import read_batch_control_type
from kafkalog.format.records.record_batch import Codec, pack_attributes
from kafkalog.log import kafka_messages
from kafkalog.log.segment.index_repair import verified_floor
from kafkalog.log.segment.segment_file import scan_chunks
from kafkalog.log.segment.segment_recovery import SegmentOffsetOverflow
from kafkalog.log.segment.segment_split import plan_split
from kafkalog.log.segment.segment_swap import CleanedSegment, SegmentSwap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkalog.cleaner.config import CleanerConfig
    from kafkalog.cleaner.plan import LogToClean
    from kafkalog.cleaner.record_batches import Flags, RecordBatches
    from kafkalog.cleaner.record_filter import FilteredChunk
    from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
    from kafkalog.kernels.compile import Int64s
    from kafkalog.log.environment import LogEnvironment
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.segment.log_segment import LogSegment
    from kafkalog.log.segment.segment_file import MovableDirectory
    from kafkalog.log.segment.segment_split import Piece
    from kafkalog.log.state.producer_state import LastRecord
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import AbortedTransaction


_log = structlog.get_logger("kafka.log.LogCleaner")
_TRANSACTIONAL = pack_attributes(Codec.NONE, transactional=True)
_CONTROL = pack_attributes(Codec.NONE, control=True)
_DELETE_HORIZON = pack_attributes(Codec.NONE, delete_horizon=True)


def control_flags(batches: RecordBatches) -> Flags:
    """Which of the batches are control batches."""
    flags: Flags = batches.rows.column(BatchColumn.ATTRIBUTES) & _CONTROL != 0
    return flags


def needless_batches(batches: RecordBatches, transactions: CleanedTransactionMetadata) -> Flags:
    """Batches that nothing needs for the sake of transactions: aborted data, dataless markers.

    What is said of a batch here lets it go unread, so its CRC has to hold: CorruptBatch for a
    control batch or aborted data that is damaged.
    """
    rows = batches.rows
    needless: Flags = np.zeros(rows.count, np.bool_)
    attributes = rows.column(BatchColumn.ATTRIBUTES)
    concerned = np.flatnonzero(attributes & (_TRANSACTIONAL | _CONTROL))
    if not len(concerned):
        return needless
    table = rows.table[concerned][:, _TRANSACTION_COLUMNS].tolist()
    for row, (bits, producer_id, last_offset) in zip(concerned.tolist(), table, strict=True):
        if bits & _CONTROL:
            batches.verify(row)
            try:
                control_type = read_batch_control_type(batches.batch(row))
            except (FormatError, DecompressedTooLarge, UnsupportedCompression) as error:
                raise batches.corrupt(row, str(error)) from error
            needless[row] = transactions.on_control_batch(producer_id, last_offset, control_type)
        else:
            needless[row] = transactions.on_batch(producer_id, last_offset)
            if needless[row]:
                batches.verify(row)
    return needless


_TRANSACTION_COLUMNS = [
    int(BatchColumn.ATTRIBUTES),
    int(BatchColumn.PRODUCER_ID),
    int(BatchColumn.LAST_OFFSET),
]


class LastBatches:
    """Batches that hold the newest state of an active producer, and are to stay, if only empty.

    The one of its last data; of a producer without data the markers of its epoch.
    """

    def __init__(self, last_records: Mapping[int, LastRecord]) -> None:
        data = sorted(
            (each.data_offset, producer_id)
            for producer_id, each in last_records.items()
            if each.data_offset is not None
        )
        table = np.array(data, np.int64).reshape(-1, 2)
        self._offsets, self._producers = table[:, 0], table[:, 1]
        self._epochs = {
            producer_id: each.producer_epoch
            for producer_id, each in last_records.items()
            if each.data_offset is None
        }

    def flags(self, batches: RecordBatches) -> Flags:
        """Which of the batches they are."""
        rows = batches.rows
        producers = rows.column(BatchColumn.PRODUCER_ID)
        last_offsets = rows.column(BatchColumn.LAST_OFFSET)
        found: Flags = np.zeros(rows.count, np.bool_)
        if len(self._offsets):
            places = np.searchsorted(self._offsets, last_offsets)
            places[places == len(self._offsets)] = 0
            is_last = self._offsets[places] == last_offsets
            found = is_last & (self._producers[places] == producers)
        if self._epochs:
            epochs = rows.column(BatchColumn.PRODUCER_EPOCH)
            for row in np.flatnonzero(control_flags(batches) & (producers >= 0)).tolist():
                found[row] |= self._epochs.get(int(producers[row])) == epochs[row]
        return found


class BatchOrders(NamedTuple):
    """What the filter needs to know of each batch of a chunk; see RecordFilter.filter."""

    retention: Int64s
    discard_records: Flags
    marks_empty_transaction: Flags


def batch_orders(
    batches: RecordBatches,
    needless: Flags,
    last_batches: LastBatches,
    *,
    end_offset: int,
    now_ms: int,
    tombstone_rule: TombstoneRule,
) -> BatchOrders:
    """The orders at now_ms. The batch that ends at end_offset, the round's end, stays, if empty.

    A needless marker goes when its delete horizon has passed, or with ``TombstoneRule.DROP``.
    """
    rows = batches.rows
    discards = marks_empty_transaction = needless
    if needless.any():
        is_control = control_flags(batches)
        may_remove = _may_remove_markers(batches, now_ms, tombstone_rule)
        discards = needless & (~is_control | may_remove)
        marks_empty_transaction = needless & is_control
    stays = last_batches.flags(batches) | (rows.column(BatchColumn.LAST_OFFSET) + 1 == end_offset)
    emptied = np.where(discards, int(BatchRetention.DELETE), int(BatchRetention.DELETE_EMPTY))
    retention = np.where(stays, int(BatchRetention.RETAIN_EMPTY), emptied)
    return BatchOrders(retention, discards, marks_empty_transaction)


def _may_remove_markers(
    batches: RecordBatches, now_ms: int, tombstone_rule: TombstoneRule
) -> Flags:
    """Which of the batches could be removed if they are needless markers.

    The rule of `kernels.compaction.record_filter._drops_tombstones`, for markers.
    """
    rows = batches.rows
    if tombstone_rule is not TombstoneRule.PER_BATCH:
        return np.full(rows.count, tombstone_rule is TombstoneRule.DROP)
    has_horizon = rows.column(BatchColumn.ATTRIBUTES) & _DELETE_HORIZON != 0
    may_remove: Flags = has_horizon & (rows.column(BatchColumn.BASE_TIMESTAMP) <= now_ms)
    return may_remove


@dataclass(eq=False)
class CleanedGroup:
    """See the module. Makes the first file at once."""

    _environment: LogEnvironment
    _directory: MovableDirectory
    _config: LogConfig
    _base_offset: int

    def __post_init__(self) -> None:
        self._segments: list[CleanedSegment] = []
        self._begin_segment(self._base_offset)

    def append(self, chunk: FilteredChunk) -> None:
        """What stays of a chunk; to be discarded after SegmentOffsetOverflow and OSError."""
        size = len(chunk.data)
        if not size:
            return
        if not self._segments[-1].has_room_for(size):
            self._begin_segment(int(chunk.table[0, BatchColumn.BASE_OFFSET]))
        self._segments[-1].append(chunk.data, BatchRows(chunk.table, ScanStop.END, size, size))

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Transactions whose abort markers were met and stay."""
        self._segments[-1].add_aborted(transactions)

    def finish(self, last_modified_ms: int) -> list[LogSegment]:
        """The closed ``.cleaned`` segments, not synced."""
        return [each.finish(last_modified_ms) for each in self._segments]

    def discard(self, cause: BaseException) -> None:
        """Delete what was written; what cannot be deleted is left to the next attempt or load."""
        try:
            for each in self._segments:
                each.delete()
        except OSError as error:
            cause.add_note(f"removing .cleaned files of {self._directory.path} failed: {error}")

    def _begin_segment(self, base_offset: int) -> None:
        self._segments.append(
            CleanedSegment(self._environment, self._directory, base_offset, self._config)
        )


T = TypeVar("T")


class OnWriter(Protocol):
    """Runs a call on the writer thread of the log's directory; returns or raises what it does.

    It may refuse by LogCleaningAborted instead: a clean that was aborted meanwhile swaps nothing.
    """

    def __call__(self, call: Callable[[], T], /) -> T:
        """See the class."""


def end_pending_swap(log: UnifiedLog, on_writer: OnWriter, *, operations_max: int) -> None:
    """What an earlier round could not do of a swap; nothing when there is none."""
    complete = log.local.pending_swap
    if complete is not None:
        _delete_snapshots(log, complete(on_writer), on_writer, operations_max)


def _delete_snapshots(
    log: UnifiedLog, gone: Sequence[LogSegment], on_writer: OnWriter, operations_max: int
) -> None:
    """A swap is done: the snapshots of bases that are no more go too."""
    merged = [each for each in gone if not log.segments.contains(each.base_offset)]
    for start in range(0, len(merged), operations_max):
        some = tuple(merged[start : start + operations_max])
        on_writer(partial(log.delete_snapshots_of, some))


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

    @property
    def log_name(self) -> str:
        """As Kafka's lines name it."""
        return str(self.log.topic_partition)

    def say(self, text: str, level: str = "info", **fields: object) -> None:
        """A line of Kafka's about the round; a dry run has none."""
        if not self.is_dry_run:
            getattr(_log, level)(text, partition=self.log_name, **fields)

    def end_of(self, segment: LogSegment) -> int:
        """Where the next segment begins."""
        following = self.log.segments.higher(segment.base_offset)
        assert following is not None, "the active segment is not cleaned"
        return following.base_offset


class Cleaner:
    """See the module. Kept from round to round: its map and buffers are used again."""

    def __init__(
        self,
        offset_map: SkimpyOffsetMap,
        config: CleanerConfig,
        throttle: Callable[[int], None],
        chunk_bytes: Callable[[], int] | None = None,
    ) -> None:
        """``throttle`` gets how many bytes were just read or written, and may block.

        ``chunk_bytes`` says how many to read next, if not as many as the buffer takes.
        """
        # constant after construction
        self.offset_map = offset_map
        self.config = config
        self._throttle = throttle
        self._chunk_bytes = chunk_bytes or (lambda: config.io_buffer_bytes)
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
        round_.say(kafka_messages.cleaning_begins(round_.log_name))
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
                _say_horizons(round_)
                for group in source_groups(to_clean, end_offset):
                    try:
                        self._clean_group(round_, group)
                    except SegmentOffsetOverflow as overflow:
                        for source in group:
                            self._split(round_, source)
                        raise LogCleaningAborted(str(overflow)) from overflow
        stats.ended_ns = clock.monotonic_ns()
        return CleaningResult(end_offset, stats)

    # ---- the first pass

    def _map(self, round_: _Round) -> None:
        """Put the keys of the dirty range into the map, as far as it takes them."""
        start, end = round_.to_clean.first_dirty_offset, round_.to_clean.first_uncleanable_offset
        dirty = round_.log.segments.values_between(start, end)
        round_.say(kafka_messages.map_begins(round_.log_name, len(dirty), start, end))
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
            for batches in self._chunks(round_, segment, verified_floor(segment, start).position):
                skipped = needless_batches(batches, transactions) | control_flags(batches)
                is_full = offset_map.index(batches, skipped, start)
                stats.map_bytes_read += batches.rows.consumed_bytes
                stats.map_messages_read = offset_map.records_read
                if is_full:
                    break
            else:
                offset_map.note_latest(segment_end - 1)  # offsets may be missing at its end
                continue
            mapped = dirty.index(segment)
            round_.say(kafka_messages.map_is_full(mapped, segment.base_offset), "debug")
            break
        stats.map_size = offset_map.size
        stats.buffer_utilization = offset_map.utilization
        round_.say(kafka_messages.map_complete(round_.log_name))

    def _chunks(
        self, round_: _Round, segment: LogSegment, position: int
    ) -> Iterator[RecordBatches]:
        """The batches of a segment; asks and throttles before each chunk is worked on."""
        for batches in chunks_of(
            segment,
            position,
            end_offset=round_.end_of(segment),
            chunk_bytes=self._chunk_bytes,
            max_decompressed_bytes=self.config.max_decompressed_bytes,
        ):
            round_.check_done()
            self._throttle(batches.rows.consumed_bytes)
            yield batches

    # ---- the second pass

    def _clean_group(self, round_: _Round, sources: list[LogSegment]) -> None:
        """Write what stays of the sources, and put it in their place."""
        log, output = round_.log, None
        if not round_.is_dry_run:
            base_offset = sources[0].base_offset
            output = CleanedGroup(log.environment, log.local.directory, log.config, base_offset)
        try:
            last_batches = LastBatches(round_.on_writer(log.producers.last_records))
            for source in sources:
                round_.check_done()
                round_.say(
                    kafka_messages.segment_cleaned(
                        source.description(may_read=False),
                        round_.log_name,
                        sources[0].base_offset,
                        delete_horizon_ms=round_.legacy_horizon_ms,
                        modified_ms=source.last_modified_ms,
                    )
                )
                aborted = aborted_from(log, source, round_.end_of(source))
                round_.transactions.add_aborted(aborted)
                self._filter_source(round_, source, last_batches, output)
            if output is not None:
                clock = log.environment.clock
                began_ns = clock.monotonic_ns()
                new = output.finish(sources[-1].last_modified_ms)
                _say_swap(round_, new, sources)
                self._swap_in(round_, new, sources)
                round_.stats.swap_ns += clock.monotonic_ns() - began_ns
        except BaseException as error:
            if output is not None:
                output.discard(error)
            raise

    def _filter_source(
        self,
        round_: _Round,
        source: LogSegment,
        last_batches: LastBatches,
        output: CleanedGroup | None,
    ) -> None:
        """Append what stays of one source; ``output`` None: a dry run.

        Raises CorruptBatch, SegmentOffsetOverflow, LogCleaningAborted and OSError.
        """
        rule = self._tombstone_rule(source, round_.legacy_horizon_ms)
        stats = round_.stats
        expired, waiting = stats.expired_tombstones, stats.waiting_batches
        for batches in self._chunks(round_, source, 0):
            orders = batch_orders(
                batches,
                needless_batches(batches, round_.transactions),
                last_batches,
                end_offset=round_.to_clean.first_uncleanable_offset,
                now_ms=round_.now_ms,
                tombstone_rule=rule,
            )
            kept = self._filter.filter(
                batches,
                *orders,
                now_ms=round_.now_ms,
                delete_retention_ms=round_.log.config.delete_retention_ms,
                tombstone_rule=rule,
            )
            stats.add(kept.statistics)
            retained = round_.transactions.take_retained()
            if output is not None:
                output.append(kept)
                output.add_aborted(retained)
                self._throttle(len(kept.data))
        round_.say(
            f"Cleaned {source.description(may_read=False)} in log {round_.log_name}",
            "debug",
            dropped_tombstones=stats.expired_tombstones - expired,
            kept_batches_with_tombstones_or_markers=stats.waiting_batches - waiting,
        )

    def _swap_in(
        self, round_: _Round, new: Sequence[LogSegment], old: Sequence[LogSegment]
    ) -> None:
        """The closed ``.cleaned`` segments take the place of old.

        An error before the publication leaves the log as it was and none of the new files; one
        after it a swap that ``end_pending_swap`` ends.
        """
        log, limit = round_.log, self.config.directory_operations_max
        assert log.local.pending_swap is None, "one swap after the other"
        swap = SegmentSwap(log.environment, log.local, new, old, renames_max=limit)
        _delete_snapshots(log, swap.run(round_.on_writer), round_.on_writer, limit)

    def _split(self, round_: _Round, segment: LogSegment) -> None:
        """Cut up a source whose offsets do not fit it: the next round can go on.

        CorruptBatch when it is damaged: nothing after the damage could be taken along.
        """
        pieces = plan_split(segment)
        bases = [piece.base_offset for piece in pieces]
        if bases == [segment.base_offset] or not segment.size_bytes:
            return
        end = pieces[-1].end if pieces else 0
        if end < segment.size_bytes:
            reason = "Corrupt record batch in a segment whose offsets do not fit it"
            raise CorruptBatch(reason, file=segment.log_file.path, position=end)
        log, made = round_.log, list[CleanedSegment]()
        try:
            for piece, end_offset in zip(pieces, [*bases[1:], INT64_MAX], strict=True):
                target = CleanedSegment(
                    log.environment, log.local.directory, piece.base_offset, log.config
                )
                made.append(target)
                _copy(segment, piece, end_offset, target)
            new = [each.finish(segment.last_modified_ms) for each in made]
            self._swap_in(round_, new, (segment,))
        except BaseException:
            for each in made:
                each.delete()
            raise

    def _tombstone_rule(self, source: LogSegment, legacy_horizon_ms: int) -> TombstoneRule:
        """For the records and markers of one source."""
        if self.config.tombstone_horizon is TombstoneHorizon.BATCH:
            return TombstoneRule.PER_BATCH
        is_young = source.last_modified_ms > legacy_horizon_ms
        return TombstoneRule.KEEP if is_young else TombstoneRule.DROP


def _copy(segment: LogSegment, piece: Piece, end_offset: int, target: CleanedSegment) -> None:
    """The batches of a piece as they are, and the transactions aborted below end_offset."""
    for chunk in scan_chunks(segment.log_file, piece.start, piece.end, check_crc=False):
        target.append(chunk.data[: chunk.rows.consumed_bytes], chunk.rows)
    target.add_aborted(
        each
        for each in segment.transaction_index.entries()
        if piece.base_offset <= each.last_offset < end_offset
    )


def _say_swap(round_: _Round, new: Sequence[LogSegment], sources: Sequence[LogSegment]) -> None:
    """Before the new segments take the place of their sources."""
    for each, several in product(new, kafka_messages.groups_of_one_line(sources)):
        names = [source.description(may_read=False) for source in several]
        cleaned = each.description(may_read=False)
        round_.say(kafka_messages.swapping(cleaned, names, round_.log.description()))


def _say_horizons(round_: _Round) -> None:
    """Before the second pass."""
    last = round_.log.segments.lower(round_.to_clean.first_uncleanable_offset)
    cleanable_ms = 0 if last is None else last.last_modified_ms
    name, delete_ms = round_.log_name, round_.legacy_horizon_ms
    round_.say(kafka_messages.copy_begins(name, cleanable_ms, delete_ms))


def _legacy_horizon_ms(to_clean: LogToClean) -> int:
    """Of ``TombstoneHorizon.SEGMENT``; 0 while no segment is clean: everything is young then."""
    log = to_clean.log
    last_clean = log.segments.lower(to_clean.first_dirty_offset)
    if last_clean is None:
        return 0
    return last_clean.last_modified_ms - log.config.delete_retention_ms
