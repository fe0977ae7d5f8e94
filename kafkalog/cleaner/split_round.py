"""SplitRound: one round over one log as pieces, a group of sources each, for several processes.

Theory. The second pass over a group asks the map only for the keys that occur in that group. So the
round's map need not be in one place: each group is read for its keys (``map_group``), the last
offset of each key is found over all groups (``merge_entries``, by parts of the hash), and each
group gets the map of its own keys (``filter_group``). What a group has to know of those before it
beside that is the state of transactions, which ``transaction_events`` replays. The pieces together
decide as one round with a map for all keys does, and write the same bytes.

A key that a group asks for and does not tell the offset of (it was read below the first dirty
offset, or in data that the first pass takes for aborted) has 0 in place of its offset + 1.

Everything here but LogSegments can be pickled. One thread a call, which blocks; sources are closed
segments and only read. Differs from a round: keys below the first dirty offset are read as well,
so a damaged batch there is an error where a round would copy it whole.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.cleaner.batch_decisions import LastBatches, control_flags, needless_batches
from kafkalog.cleaner.cleaned_group import CleanedGroup
from kafkalog.cleaner.cleaned_transactions import CleanedTransactionMetadata
from kafkalog.cleaner.cleaner_config import CleanerConfig
from kafkalog.cleaner.cleaner_stats import CleanerStats
from kafkalog.cleaner.log_chunks import chunks_of
from kafkalog.cleaner.offline_clean import LOAD_FACTOR, unthrottled
from kafkalog.cleaner.record_filter import RecordFilter, TombstoneRule
from kafkalog.cleaner.second_pass import SecondPass
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.cleaner.source_groups import aborted_from, source_ends, source_groups
from kafkalog.cleaner.transaction_events import RecordedTransactions, SourceEvents, replay
from kafkalog.format.batch_scan import BatchColumn
from kafkalog.format.file_names import CLEANED_SUFFIX
from kafkalog.kernels.key_merge import merge_rows
from kafkalog.log.log_segment import LogSegment
from kafkalog.log.segment_file import MovableDirectory
from kafkalog.log.sound_floor import sound_floor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkalog.cleaner.log_to_clean import LogToClean
    from kafkalog.cleaner.record_batches import Flags, RecordBatches
    from kafkalog.kernels.compile import Int64Table
    from kafkalog.log.environment import LogEnvironment
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.producer_state import LastRecord
    from kafkalog.log.values import AbortedTransaction

_OFFSET = 2  # of an entry: SkimpyOffsetMap.entries
_CONFIG = CleanerConfig()


@dataclass(frozen=True, slots=True)
class SplitSource:
    """A source of a round.

    directory     where its ``.log`` lies
    end_offset    base of the next segment: no offset in it reaches that
    map_position  where the first pass begins in it; its size when it lies below
    aborted       aborted transactions that the second pass adds here
    """

    directory: str
    base_offset: int
    size_bytes: int
    last_modified_ms: int
    has_transaction_index: bool
    end_offset: int
    map_position: int
    aborted: tuple[AbortedTransaction, ...]


@dataclass(frozen=True, slots=True)
class SplitGroup:
    """The sources of one cleaned segment; ``last_records`` are those that may lie in it."""

    sources: tuple[SplitSource, ...]
    last_records: Mapping[int, LastRecord]

    @property
    def base_offset(self) -> int:
        """Of the cleaned segment."""
        return self.sources[0].base_offset

    @property
    def end_offset(self) -> int:
        """Base of the segment behind the group."""
        return self.sources[-1].end_offset

    @property
    def size_bytes(self) -> int:
        """Of the ``.log`` files."""
        return sum(each.size_bytes for each in self.sources)


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """What every piece of a round has to know. ``end_offset``: first uncleanable offset."""

    config: LogConfig
    now_ms: int
    first_dirty_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class SplitRound:
    """A round in pieces; ``aborted`` is what the first pass starts with."""

    facts: RoundFacts
    groups: tuple[SplitGroup, ...]
    aborted: tuple[AbortedTransaction, ...]


class CleanedPiece(NamedTuple):
    """A segment that became of a group, under names that end in ``.cleaned``."""

    base_offset: int
    size_bytes: int
    last_modified_ms: int
    has_transaction_index: bool

    def segment(
        self, environment: LogEnvironment, directory: MovableDirectory, config: LogConfig
    ) -> LogSegment:
        """The closed segment, which has to lie in ``directory``."""
        return LogSegment(
            environment,
            directory,
            self.base_offset,
            config,
            size_bytes=self.size_bytes,
            last_modified_ms=self.last_modified_ms,
            has_transaction_index=self.has_transaction_index,
            suffix=CLEANED_SUFFIX,
        )


def plan_split(
    to_clean: LogToClean, now_ms: int, place_of: Callable[[str], str] = str
) -> SplitRound:
    """The pieces of the round, none when nothing is cleanable.

    ``place_of`` tells where the bytes of one of the log's files lie, if not there. Reads indexes
    and the tails of groups. Raises CorruptIndex and OSError.
    """
    log = to_clean.log
    start, end = to_clean.first_dirty_offset, to_clean.first_uncleanable_offset
    facts = RoundFacts(log.config, now_ms, start, end)
    if not to_clean.cleanable_bytes:
        return SplitRound(facts, (), ())
    first_dirty = log.segments.values_between(start, end)[0]
    last_records = log.producers.last_records()
    groups = (
        _group(to_clean, sources, first_dirty.base_offset, last_records, place_of)
        for sources in source_groups(to_clean, end)
    )
    return SplitRound(facts, tuple(groups), tuple(aborted_from(log, first_dirty, end)))


def _group(
    to_clean: LogToClean,
    sources: Sequence[LogSegment],
    first_dirty_base: int,
    last_records: Mapping[int, LastRecord],
    place_of: Callable[[str], str],
) -> SplitGroup:
    found = tuple(
        _source(to_clean, each, ends_at, place_of, is_dirty=each.base_offset >= first_dirty_base)
        for each, ends_at in zip(sources, source_ends(sources), strict=True)
    )
    first, end = found[0].base_offset, found[-1].end_offset
    some = {
        producer_id: each
        for producer_id, each in last_records.items()
        if each.data_offset is None or first <= each.data_offset < end
    }
    return SplitGroup(found, some)


def _source(
    to_clean: LogToClean,
    segment: LogSegment,
    ends_at: int,
    place_of: Callable[[str], str],
    *,
    is_dirty: bool,
) -> SplitSource:
    log = to_clean.log
    following = log.segments.higher(segment.base_offset)
    assert following is not None, "the active segment is not cleaned"
    start = to_clean.first_dirty_offset
    return SplitSource(
        place_of(segment.log_file.path).rpartition("/")[0],
        segment.base_offset,
        segment.size_bytes,
        segment.last_modified_ms,
        segment.transaction_index.exists,
        following.base_offset,
        sound_floor(segment, start).position if is_dirty else segment.size_bytes,
        tuple(aborted_from(log, segment, ends_at)),
    )


def _chunks(
    facts: RoundFacts,
    source: SplitSource,
    environment: LogEnvironment,
    start: int = 0,
    end: int | None = None,
) -> Iterator[RecordBatches]:
    """The batches of a source, from one position to another."""
    segment = LogSegment(
        environment,
        MovableDirectory(source.directory),
        source.base_offset,
        facts.config,
        size_bytes=source.size_bytes,
        last_modified_ms=source.last_modified_ms,
        has_transaction_index=source.has_transaction_index,
    )
    try:
        yield from chunks_of(
            segment,
            start,
            end_offset=source.end_offset,
            chunk_bytes=_CONFIG.io_buffer_bytes,
            max_decompressed_bytes=_CONFIG.max_decompressed_bytes,
            end_position=end,
        )
    finally:
        segment.close_handles()


# ---- the first pass


class _Keys:
    """Keys on their way out, in a map that is emptied whenever it is full."""

    def __init__(
        self, map_bytes: int, on_entries: Callable[[Int64Table], None], *, tells_offsets: bool
    ) -> None:
        self._map = SkimpyOffsetMap(map_bytes, LOAD_FACTOR)
        self._on_entries = on_entries
        self._tells_offsets = tells_offsets

    def put(self, batches: RecordBatches, skip: Flags, start_offset: int) -> None:
        """As SkimpyOffsetMap.index."""
        while self._map.index(batches, skip, start_offset):
            start_offset = max(start_offset, self._map.latest_offset + 1)
            self.flush()

    def flush(self) -> None:
        """Hand out what is there; a key may come again."""
        if self._map.size:
            entries = self._map.entries()
            if not self._tells_offsets:
                entries[:, _OFFSET] = 0
            self._on_entries(entries)
            self._map.clear()


def map_group(
    facts: RoundFacts,
    group: SplitGroup,
    unfinished: Sequence[AbortedTransaction],
    environment: LogEnvironment,
    *,
    map_bytes: int,
    on_entries: Callable[[Int64Table], None],
) -> tuple[SourceEvents, ...]:
    """The first pass over a group: its keys, in ``on_entries``, and its events, by source.

    unfinished  aborted transactions that may have data in the group: those that go on or begin
    map_bytes   memory for keys, and again for those that are only asked for; what does not fit is
                handed out before, so that a key may come more than once
    Raises CorruptBatch and OSError.
    """
    told = _Keys(map_bytes, on_entries, tells_offsets=True)
    asked = _Keys(map_bytes, on_entries, tells_offsets=False)
    below, mapped = RecordedTransactions(), RecordedTransactions()
    mapped.add_aborted(unfinished)
    events = []
    for source in group.sources:
        for batches in _chunks(facts, source, environment, 0, source.map_position):
            needless_batches(batches, below)
            asked.put(batches, control_flags(batches), 0)
        for batches in _chunks(facts, source, environment, source.map_position):
            needless, is_control = needless_batches(batches, mapped), control_flags(batches)
            told.put(batches, needless | is_control, facts.first_dirty_offset)
            is_clean = batches.rows.column(BatchColumn.BASE_OFFSET) < facts.first_dirty_offset
            is_asked = (needless | is_clean) & ~is_control
            if is_asked.any():
                asked.put(batches, ~is_asked, 0)
        not_mapped = below.take_events()
        table = np.concatenate([not_mapped, mapped.take_events()])
        events.append(SourceEvents(table, len(not_mapped)))
    told.flush()
    asked.flush()
    return tuple(events)


def guessed_states(round_: SplitRound) -> list[frozenset[AbortedTransaction]]:
    """What ``map_group`` most likely needs of each group: true while every marker is there."""
    coming = sorted(round_.aborted, key=attrgetter("first_offset"), reverse=True)
    begun: list[AbortedTransaction] = []
    is_dirty, states = False, []
    for group in round_.groups:
        while coming and coming[-1].first_offset < group.end_offset:
            begun.append(coming.pop())
        if is_dirty:
            begun = [each for each in begun if each.last_offset >= group.base_offset]
        states.append(frozenset(begun))
        is_dirty = is_dirty or group.end_offset > round_.facts.first_dirty_offset
    return states


def first_pass_states(
    round_: SplitRound, events: Iterable[Sequence[SourceEvents]]
) -> list[frozenset[AbortedTransaction]]:
    """What ``map_group`` needs of each group; ``events`` are those of all groups."""
    transactions, states = CleanedTransactionMetadata(), []
    transactions.add_aborted(round_.aborted)
    for group, of_sources in zip(round_.groups, events, strict=True):
        states.append(frozenset(transactions.unfinished_below(group.end_offset)))
        for each in of_sources:
            replay(each.table[each.mapped_from :], transactions)
        transactions.take_retained()  # they would be those of the whole partition
    return states


# ---- between the passes


def merge_entries(tables: Sequence[Int64Table]) -> list[Int64Table]:
    """The same keys of each group, each once and with its last offset in all of the groups.

    A key of which no group tells an offset goes: nothing supersedes it.
    """
    every = np.concatenate(tables)
    ends = np.cumsum([len(each) for each in tables])
    kept_ends = np.zeros(len(tables), np.int64)
    slots = np.zeros(_slot_count(len(every)), np.int64)
    firsts, owners = np.empty((2, len(every)), np.int64)
    left = merge_rows(every, ends, slots, firsts, owners, kept_ends)
    assert left >= 0, "the memory is for so many rows"
    return np.split(every[:left], kept_ends[:-1])


def _slot_count(rows: int) -> int:
    """Half of them are free at least, so that a search is short."""
    return 2 * rows + 1


# ---- the second pass


def second_pass_states(
    round_: SplitRound, events: Iterable[Sequence[SourceEvents]]
) -> list[CleanedTransactionMetadata]:
    """The transactions as they stand where each group begins."""
    transactions, states = CleanedTransactionMetadata(), []
    for group, of_sources in zip(round_.groups, events, strict=True):
        states.append(deepcopy(transactions))
        for source, each in zip(group.sources, of_sources, strict=True):
            transactions.add_aborted(source.aborted)
            replay(each.table, transactions)
        transactions.take_retained()
    return states


def filter_group(
    facts: RoundFacts,
    group: SplitGroup,
    transactions: CleanedTransactionMetadata,
    entries: Int64Table,
    environment: LogEnvironment,
    directory: str,
) -> tuple[tuple[CleanedPiece, ...], CleanerStats]:
    """The second pass over a group; what became of it lies in ``directory``, not synced.

    entries  of ``merge_entries``; the memory for its map is taken whatever their number
    Raises CorruptBatch, SegmentOffsetOverflow and OSError; nothing of it is there then.
    """
    stats, place = CleanerStats(), MovableDirectory(directory)
    output = CleanedGroup(environment, place, facts.config, group.base_offset)
    try:
        second = SecondPass(
            RecordFilter(SkimpyOffsetMap.of(entries, facts.end_offset - 1)),
            transactions,
            LastBatches(group.last_records),
            end_offset=facts.end_offset,
            now_ms=facts.now_ms,
            delete_retention_ms=facts.config.delete_retention_ms,
            output=output,
            stats=stats,
        )
        for source in group.sources:
            transactions.add_aborted(source.aborted)
            chunks = _chunks(facts, source, environment)
            second.filter_source(chunks, TombstoneRule.PER_BATCH, unthrottled)
        made = output.finish(group.sources[-1].last_modified_ms)
    except BaseException as error:
        output.discard(error)
        raise
    pieces = (
        CleanedPiece(
            each.base_offset,
            each.size_bytes,
            each.last_modified_ms,
            each.transaction_index.exists,
        )
        for each in made
    )
    return tuple(pieces), stats
