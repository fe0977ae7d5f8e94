"""Reading a segment: from an offset or a timestamp to whole batches.

Works on any thread, on what the segment published when the call began; never changes a file.
Theory of a fetch: the index floor gives a position at most ``index.interval.bytes`` and one batch
before the target, so one read of the bytes asked for plus that distance normally suffices; one
kernel call walks the headers in it, checks that their offsets are in order (the base offset lies
outside the CRC) and the CRC of what will be returned. One copy: the answer is a view of the chunk.
An index entry that leads to no batch, or to a later one, shows there: the read goes round it, over
the batches from an earlier entry on (``verified_floor``).
Bytes that are no batch are never passed by: a read gets to the end of a segment, or to offsets
after the one asked for, only over a batch whose CRC vouches for its size.
Source: Kafka's LogSegment.read, FileRecords.searchForOffset and searchForTimestamp. Differs from
Kafka: the answer never ends with a part of a batch, and never holds one whose CRC is wrong or whose
offsets cannot be true.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.errors import CorruptBatch, CorruptIndex, UnsupportedMessageFormat
from kafkalog.format.integers import INT64_MAX, FormatError
from kafkalog.format.records.batch_scan import (
    BatchChoice,
    BatchColumn,
    BatchRows,
    ScanStop,
    choose,
    scan,
)
from kafkalog.format.records.record import read_records
from kafkalog.format.records.record_batch import HEADER_BYTES, LENGTH_AT, is_crc_valid
from kafkalog.log.segment.index_repair import (
    agrees,
    floor_entry,
    floor_timestamp,
    next_verified_batch,
    place_past,
    verified_floor,
)
from kafkalog.log.segment.segment_file import (
    HEADER,
    LARGEST_UNDOUBTED_BYTES,
    has_message_at,
    read_chunk,
    scan_chunks,
)
from kafkalog.log.segment.segment_recovery import remember_entries
from kafkalog.log.values import OffsetPosition, TimestampOffset, WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.env.filesystem import File
    from kafkalog.format.records.batch_scan import ScannedChunk
    from kafkalog.log.segment.checked_batches import CheckedBatches
    from kafkalog.log.segment.indexes import SegmentFiles
    from kafkalog.log.values import FetchSpan

    Numbers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    Mask = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

READ_SLACK_BYTES = 32 * 1024  # beyond the index distance, for two batches of a usual producer


class SegmentRead(NamedTuple):
    """Whole batches, back to back in ``data``, which starts at ``position`` of the ``.log``."""

    data: memoryview
    position: int
    base_offset: int  # of the first batch; the offset asked for when data is empty
    next_offset: int  # after the last batch; the offset asked for when data is empty
    batch_count: int


@dataclass(slots=True)
class _Walk:
    """Where a read has got to in a segment: there a batch must begin, or the segment ends."""

    segment: SegmentFiles
    file: File
    may_block: bool
    end: int  # the published size when the read began
    end_offset: int
    floor: OffsetPosition  # the entry that it began at
    position: int
    known_offset: int  # an index says that the first batch ends with it; -1: nothing says so
    walked_offset: int  # last offset of the batch walked over last
    previous_position: int = -1  # of that batch; -1: none was walked over
    is_lost: bool = False  # no batch leads on from here

    @classmethod
    def begin(
        cls, segment: SegmentFiles, start_offset: int, end: int, end_offset: int, *, may_block: bool
    ) -> _Walk:
        """Before the batch asked for, so that its predecessor is seen; CorruptIndex."""
        floor = segment.offset_index.lookup(start_offset - 1, may_block=may_block)
        return cls(
            segment,
            segment.log_file.acquire(may_block=may_block),
            may_block,
            end,
            end_offset,
            floor,
            position=floor.position,
            known_offset=floor.offset if floor.position else -1,
            walked_offset=segment.base_offset - 1,
        )

    def goes_round_floor(self, start_offset: int) -> bool:
        """Whether the index misled and the log is sound; the walk goes on from a believed place.

        WouldBlock when it may not read more than a fetch does.
        """
        floor = self.floor
        if floor.position == 0:
            return False
        if not self.may_block:
            raise WouldBlock(self.segment.log_file.path)
        place = place_past(
            self.segment, floor, start_offset, end=self.end, end_offset=self.end_offset
        )
        if place is None:
            return False
        self.position, self.previous_position, self.walked_offset = place
        self.known_offset = -1
        return True

    def advance(self, choice: BatchChoice) -> None:
        """After the batches that were walked over."""
        if choice.previous_position is not None:
            self.previous_position = self.position + choice.previous_position
            self.walked_offset, self.known_offset = choice.previous_last_offset, -1
        self.position += choice.end

    def refuse(self, stop: ScanStop) -> None:
        """CorruptBatch: no batch begins here. Returns only when the segment was cut meanwhile."""
        if self.segment.size_bytes < self.end:
            return
        if stop is ScanStop.LEGACY:
            if not self.may_block:
                raise WouldBlock(self.segment.log_file.path)
            refuse_message(self.segment, self.position, self.end_offset)
        self.is_lost = True
        raise _corrupt(self.segment, self.position, stop)

    def require_true_gap(self, next_position: int, next_offset: int) -> None:
        """CorruptBatch unless no batch was passed by between the one walked over last and the next.

        Size and last offset of the former say so, and its CRC says whether they are what was
        written. Before a segment's first batch there is nothing to ask.
        """
        position = self.previous_position
        if position < 0:
            return
        size = next_position - position
        batch = read_chunk(self.file, position, size, may_block=self.may_block)
        if len(batch) == size and is_crc_valid(batch):
            base_offset, _, delta, _ = HEADER.unpack_from(batch)
            if base_offset + delta == self.walked_offset:
                return
        self.position, self.is_lost = next_position, True
        last_offset = next_offset - 1 if next_offset < INT64_MAX else None
        raise _corrupt(
            self.segment, position, ScanStop.BAD_CRC, self.walked_offset + 1, last_offset
        )

    def go_on_after_rot(self, start_offset: int, error: CorruptBatch) -> None:
        """Go on at the next sound batch, if the offset lies there; else say what was lost.

        What is lost begins at the batch walked over last when its CRC is wrong, for its size may
        have led anywhere. WouldBlock when it may not read more than a fetch does.
        """
        if not self.is_lost:
            raise error
        if not self.may_block:
            raise WouldBlock(self.segment.log_file.path)
        self.is_lost = False
        floor = verified_floor(self.segment, start_offset - 1)
        if floor.position < self.floor.position:
            self._begin_at(floor)
            return
        position, first_offset = self.position, max(self.walked_offset, self.known_offset) + 1
        before = self.previous_position
        if before >= 0:
            batch = read_chunk(self.file, before, position - before, may_block=True)
            if not is_crc_valid(batch):
                delta = HEADER.unpack_from(batch)[2]
                position, first_offset = before, self.walked_offset - max(delta, 0)
        place = next_verified_batch(
            self.segment, position, first_offset, end=self.end, end_offset=self.end_offset
        )
        if place is not None and place.base_offset <= start_offset and place.position < self.end:
            self.position, self.previous_position = place.position, -1
            self.walked_offset, self.known_offset = place.base_offset - 1, -1
            return
        last_offset = self.end_offset - 1 if self.end_offset < INT64_MAX else None
        if place is not None:
            last_offset = place.base_offset - 1
        reason = str(error.message).rpartition(": ")[2]
        raise CorruptBatch(
            f"Corrupt record batch: {reason}",
            file=self.segment.log_file.path,
            position=position,
            base_offset=first_offset,
            last_offset=last_offset,
        ) from error

    def _begin_at(self, floor: OffsetPosition) -> None:
        """Begin again at an earlier entry."""
        self.floor, self.position, self.previous_position = floor, floor.position, -1
        self.known_offset = floor.offset if floor.position else -1
        self.walked_offset = self.segment.base_offset - 1

    def is_contradicted(self, size: int) -> bool:
        """Whether so large a batch here would reach over one that the index knows."""
        if size <= LARGEST_UNDOUBTED_BYTES:
            return False
        entry = self.segment.offset_index.entry_after(self.position)
        return entry is not None and entry.position < self.position + size


def read(
    segment: SegmentFiles,
    start_offset: int,
    max_bytes: int,
    *,
    max_offset: int = INT64_MAX,
    end_offset: int = INT64_MAX,
    min_one_batch: bool = True,
    may_block: bool = True,
    checked: CheckedBatches | None = None,
    remembers: bool = False,
) -> SegmentRead | None:
    """Whole batches from the first one whose last offset is >= start_offset.

    At most max_bytes, except that min_one_batch lets the first batch be larger; no batch that
    starts at or after max_offset. None when the segment holds no such batch; empty data when the
    first one is larger than max_bytes and min_one_batch is False. The CRC of every returned batch
    holds and their offsets are in order and below end_offset, where the next segment begins:
    CorruptBatch when the first one is bad or cannot be found for bad bytes before it, a later bad
    one ends the answer before it. WouldBlock when may_block is False and the disk would be needed.
    ``checked`` forgets what came from the disk or is bad, and learns of the answer's batches if it
    ``remembers``.
    """
    end = segment.size_bytes
    if end <= 0:
        return None
    try:
        walk = _Walk.begin(segment, start_offset, end, end_offset, may_block=may_block)
    except CorruptIndex:
        remember_entries(segment)
        walk = _Walk.begin(segment, start_offset, end, end_offset, may_block=may_block)
    is_round = False
    while True:  # ends: after rot the walk has come further
        try:
            if checked is not None and may_block and not _is_cached(walk, max_bytes):
                checked.forget(walk.file)  # what comes from the disk now, or is read ahead, is new
            found = _read_on(walk, start_offset, max_bytes, max_offset, min_one_batch=min_one_batch)
            if checked is not None and remembers and found is not None:
                checked.note_read(walk.file, found.data, found.position, found.batch_count)
            return found
        except CorruptBatch as error:
            if checked is not None:
                checked.forget(walk.file)
            is_first, is_round = not is_round, True
            if not (is_first and walk.goes_round_floor(start_offset)):
                walk.go_on_after_rot(start_offset, error)


def read_again(span: FetchSpan) -> memoryview:
    """Whole batches that were checked before, checked once more: they may come from the disk.

    CorruptBatch where they are others now, or cut.
    """
    data = read_chunk(span.file, span.position, span.size_bytes, may_block=True)
    rows = scan(data)
    if rows.consumed_bytes == span.size_bytes:
        bases = rows.column(BatchColumn.BASE_OFFSET)
        nexts = rows.column(BatchColumn.LAST_OFFSET) + 1
        ends_alike = (bases[0], nexts[-1]) == (span.base_offset, span.next_offset)
        if ends_alike and np.all(bases[1:] >= nexts[:-1]):
            return data
    raise CorruptBatch(
        "Corrupt record batch: it was changed after it had been checked",
        file=span.file.path,
        position=span.position + rows.consumed_bytes,
        base_offset=span.base_offset,
        last_offset=span.next_offset - 1,
    )


def _is_cached(walk: _Walk, max_bytes: int) -> bool:
    """Whether what the walk reads first is in the page cache: it blocked for its index only."""
    wanted = max_bytes + walk.segment.index_interval_bytes + READ_SLACK_BYTES
    size = min(wanted, walk.end - walk.position)
    return size > 0 and walk.file.cached_descriptor(walk.position, size) is not None


def _read_on(
    walk: _Walk, start_offset: int, max_bytes: int, max_offset: int, *, min_one_batch: bool
) -> SegmentRead | None:
    """From where the walk is; see ``read``."""
    end, end_offset, may_block = walk.end, walk.end_offset, walk.may_block
    wanted = max_bytes + walk.segment.index_interval_bytes + READ_SLACK_BYTES
    while walk.position < end:
        asked = min(wanted, end - walk.position)
        data = read_chunk(walk.file, walk.position, asked, may_block=may_block)
        choice = choose(
            data,
            start_offset,
            max_offset=max_offset,
            end_offset=end_offset,
            max_bytes=max_bytes,
            previous_last_offset=walk.walked_offset,
            floor_offset=walk.known_offset,
            is_segment_end=walk.position + len(data) >= end,
        )
        if choice.start is not None and (choice.batch_count or choice.stop is not ScanStop.PARTIAL):
            answer = _answer(walk, data, choice, start_offset, max_offset)
            # Only now: the size of a batch is believed when its CRC holds.
            if answer is None or min_one_batch or len(answer.data) <= max_bytes:
                return answer
            return SegmentRead(memoryview(b""), answer.position, start_offset, start_offset, 0)
        walk.advance(choice)
        is_stuck = choice.start is None and not choice.end
        is_unsound = choice.stop not in (ScanStop.END, ScanStop.PARTIAL)
        if is_stuck or is_unsound or len(data) < asked:
            walk.refuse(choice.stop)
            return None
        if choice.start is None:
            continue
        size = choice.first_size_bytes
        if walk.position + size > end or walk.is_contradicted(size):
            walk.refuse(choice.stop)
            return None
        wanted = max(wanted, size + HEADER_BYTES)  # and the header of what follows
    if walk.position > end or walk.previous_position < 0:
        walk.refuse(ScanStop.PARTIAL)
        return None
    walk.require_true_gap(end, end_offset)
    return None


def _answer(
    walk: _Walk, data: memoryview, choice: BatchChoice, start_offset: int, max_offset: int
) -> SegmentRead | None:
    """The batches chosen from ``data``, which lies where the walk is."""
    start, position = choice.start, walk.position
    assert start is not None
    if choice.first_base_offset > start_offset:
        walk.advance(choice)
        walk.require_true_gap(position + start, choice.first_base_offset)
    if choice.batch_count == 0:
        if choice.stop in (ScanStop.BAD_CRC, ScanStop.BAD_OFFSET):
            first, last = choice.first_base_offset, choice.first_last_offset
            raise _corrupt(walk.segment, position + start, choice.stop, first, last)
        assert choice.first_base_offset >= max_offset, "nothing else keeps a whole batch back"
        return None
    return SegmentRead(
        data=data[start : choice.end],
        position=position + start,
        base_offset=choice.first_base_offset,
        next_offset=choice.last_offset + 1,
        batch_count=choice.batch_count,
    )


def _first_row_ending_at(rows: BatchRows, offset: int) -> int | None:
    """First row whose last offset is >= offset."""
    reaches = rows.column(BatchColumn.LAST_OFFSET) >= offset
    return int(reaches.argmax()) if reaches.any() else None


def _corrupt(
    segment: SegmentFiles,
    position: int,
    stop: ScanStop,
    base_offset: int | None = None,
    last_offset: int | None = None,
) -> CorruptBatch:
    """The error for a batch that cannot be answered."""
    return CorruptBatch(
        f"Corrupt record batch: {stop.name.lower().replace('_', ' ')}",
        file=segment.log_file.path,
        position=position,
        base_offset=base_offset,
        last_offset=last_offset,
    )


def _no_batch(
    segment: SegmentFiles,
    position: int,
    stop: ScanStop,
    first_offset: int,
    end_offset: int,
    *,
    may_block: bool,
) -> CorruptBatch:
    """The error for a place from where no batch leads on; its offsets reach to where one does."""
    if not may_block:
        raise WouldBlock(segment.log_file.path)
    if stop is ScanStop.LEGACY:
        refuse_message(segment, position, end_offset)
    place = next_verified_batch(
        segment, position, first_offset, end=segment.size_bytes, end_offset=end_offset
    )
    next_offset = end_offset if place is None else place.base_offset
    last_offset = next_offset - 1 if next_offset < INT64_MAX else None
    return _corrupt(segment, position, stop, first_offset, last_offset)


def refuse_message(segment: SegmentFiles, position: int, end_offset: int) -> None:
    """UnsupportedMessageFormat when a message of format v0 or v1 lies between v2 batches there.

    The loader looks at the beginning of segments alone.
    """
    file = segment.log_file.acquire()
    if has_message_at(file, position):
        offset = int.from_bytes(file.pread(LENGTH_AT, position), "big", signed=True)
        last_offset = end_offset - 1 if end_offset < INT64_MAX else offset
        directory = segment.log_file.path.rpartition("/")[0]
        raise UnsupportedMessageFormat(directory, offset, last_offset)


def first_batch_timestamp_ms(segment: SegmentFiles, *, may_block: bool) -> int | None:
    """Maximum timestamp in the header of the first batch; None when the segment is empty."""
    if segment.size_bytes < HEADER.size:
        return None
    file = segment.log_file.acquire(may_block=may_block)
    data = read_chunk(file, 0, HEADER.size, may_block=may_block)
    if len(data) < HEADER.size:
        return None
    timestamp_ms: int = HEADER.unpack_from(data)[3]
    return timestamp_ms


def position_of(segment: SegmentFiles, offset: int) -> int | None:
    """Where the first batch starts whose last offset is >= offset; None when there is none."""
    position = verified_floor(segment, offset).position
    for chunk in scan_chunks(segment.log_file, position, segment.size_bytes, check_crc=False):
        hit = _first_row_ending_at(chunk.rows, offset)
        if hit is not None:
            return chunk.position + int(chunk.rows.column(BatchColumn.POSITION)[hit])
    return None


def find_offset_by_timestamp(
    segment: SegmentFiles, timestamp_ms: int, starting_offset: int, *, may_block: bool = True
) -> TimestampOffset | None:
    """First record in log order at or after both arguments; None when there is none here."""
    floor_offset = floor_timestamp(segment, timestamp_ms, may_block=may_block).offset
    return _find_record(
        segment,
        max(floor_offset, starting_offset),
        lambda max_timestamps: max_timestamps >= timestamp_ms,
        lambda timestamps, offsets: (timestamps >= timestamp_ms) & (offsets >= starting_offset),
        may_block=may_block,
    )


def find_max_timestamp_record(
    segment: SegmentFiles, largest: TimestampOffset, *, may_block: bool
) -> TimestampOffset | None:
    """First record that carries the ``largest`` timestamp of the segment; None without any."""
    return _find_record(
        segment,
        largest.offset,
        lambda max_timestamps: max_timestamps == largest.timestamp_ms,
        lambda timestamps, _: timestamps == largest.timestamp_ms,
        may_block=may_block,
    )


def _chunks_from(
    segment: SegmentFiles, from_offset: int, end: int, *, may_block: bool
) -> tuple[int, Iterator[ScannedChunk]]:
    """Chunks from the floor of an offset on and where they begin; round an entry that is wrong."""
    floor = floor_entry(segment, from_offset, may_block=may_block)
    chunk_bytes = segment.index_interval_bytes + READ_SLACK_BYTES
    chunks = scan_chunks(
        segment.log_file,
        floor.position,
        end,
        check_crc=True,
        may_block=may_block,
        chunk_bytes=chunk_bytes,
    )
    first = next(chunks, None)
    if floor.position and (first is None or not agrees(first.rows, first.data, floor)):
        if not may_block:
            raise WouldBlock(segment.log_file.path)
        place = place_past(segment, floor, from_offset, end=end, end_offset=INT64_MAX)
        if place is not None:
            start = place.position
            return start, scan_chunks(
                segment.log_file, start, end, check_crc=True, chunk_bytes=chunk_bytes
            )
    return floor.position, chunks if first is None else chain((first,), chunks)


def _find_record(
    segment: SegmentFiles,
    from_offset: int,
    batch_may_match: Callable[[Numbers], Mask],
    record_matches: Callable[[Numbers, Numbers], Mask],
    *,
    may_block: bool,
) -> TimestampOffset | None:
    """First record that matches, in batches chosen by maximum timestamp, from an offset on."""
    end, walked_offset = segment.size_bytes, segment.base_offset - 1
    position, chunks = _chunks_from(segment, from_offset, end, may_block=may_block)
    if position > end and segment.offset_index.is_active:
        return None  # an index entry is there a moment before its batch
    for chunk in chunks:
        rows = chunk.rows
        rows = rows.before(rows.first_disorder(walked_offset, looks_ahead=True))
        chosen = np.flatnonzero(batch_may_match(rows.column(BatchColumn.MAX_TIMESTAMP)))
        for row in chosen.tolist():
            start = int(rows.column(BatchColumn.POSITION)[row])
            batch = chunk.data[start : start + int(rows.column(BatchColumn.SIZE)[row])]
            try:
                records = read_records(batch)
            except FormatError as error:
                raise CorruptBatch(
                    f"Corrupt record batch: {error.reason}",
                    file=segment.log_file.path,
                    position=chunk.position + start,
                    base_offset=int(rows.column(BatchColumn.BASE_OFFSET)[row]),
                    last_offset=int(rows.column(BatchColumn.LAST_OFFSET)[row]),
                ) from error
            hits = np.flatnonzero(record_matches(records.timestamps, records.offsets))
            if len(hits):
                first = int(hits[0])
                return TimestampOffset(int(records.timestamps[first]), int(records.offsets[first]))
        if rows.count:
            walked_offset = int(rows.column(BatchColumn.LAST_OFFSET)[-1])
        position = chunk.position + rows.consumed_bytes
        if rows.stop not in (ScanStop.END, ScanStop.PARTIAL):
            raise _no_batch(
                segment, position, rows.stop, walked_offset + 1, INT64_MAX, may_block=may_block
            )
    if position != end <= segment.size_bytes:
        stop, first_offset = ScanStop.PARTIAL, walked_offset + 1
        raise _no_batch(segment, position, stop, first_offset, INT64_MAX, may_block=may_block)
    return None
