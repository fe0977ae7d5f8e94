"""Recovery of a segment: find the last good batch, and the index entries that its batches lead to.

Runs in the loader, before others see the segment; ``remember_entries`` alone is for any thread and
changes no file. One walk: per chunk one kernel call checks the batches and one more applies the
index cadence (``IndexCadence``), so no Python runs per batch. Nothing is cut before the walk is
over. A crash in the middle is harmless: there is no clean-shutdown mark, so it runs again. Of a
segment below the recovery point, which no later start scans, an empty time index says so: see
``recover``.

Messages of format v0 and v1 are batches like any other here; readers refuse such a segment.

Source: Kafka's LogSegment.recover and LogLoader. Differs from Kafka: a batch that starts at or
below the last offset before it counts as the first bad one, where Kafka notices it only when it
meets an index entry and then drops the whole segment. Which bad batches are a torn tail and which
are rot is the loader's decision: its ``Judge`` is asked where the walk meets one. With a judge the
batches are also compared with what follows them, so that the rotten one of two is the bad one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.errors import CorruptIndex
from kafkalog.format.records.batch_scan import BatchColumn, BatchRows, ScanStop, has_messages, scan
from kafkalog.format.records.record_batch import HEADER_BYTES, MAGIC_V2, base_offset_at
from kafkalog.log.segment.indexes import IndexCadence
from kafkalog.log.segment.segment_file import read_chunk, scan_chunks
from kafkalog.log.values import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, TimestampOffset

if TYPE_CHECKING:
    from kafkalog.format.records.batch_scan import ScannedChunk
    from kafkalog.log.segment.indexes import IndexEntries, SegmentFiles


OnBatches = Callable[[BatchRows, memoryview], None]

# Half of what a processor's second cache holds: the CRC finds there what the read has just copied.
RECOVERY_CHUNK_BYTES = 512 * 1024


class SegmentOffsetOverflow(Exception):
    """An offset lies more than 2^31 - 1 above the segment's base."""

    def __init__(self, base_offset: int, offset: int) -> None:
        super().__init__(f"offset {offset} is more than 2^31 - 1 above the base of its segment")
        self.base_offset = base_offset


class BadBatch(enum.Enum):
    """Why recovery stopped before the end of the file."""

    PARTIAL = "partial"  # shorter than its header says, or than a header
    BAD_SIZE = "bad size"
    LEGACY = "legacy"  # of magic 0 or 1, and no message of format v0 or v1 whose CRC is right
    BAD_MAGIC = "bad magic"
    SHORT_BATCH = "short batch"
    BAD_CRC = "bad crc"
    BAD_OFFSET = "bad offset"  # not above the offset before it, or below the segment's base


@dataclass(frozen=True, slots=True)
class BadSpot:
    """The first byte of a segment that is no good batch."""

    position: int
    why: BadBatch
    expected_offset: int  # the least that a batch here may start at


@dataclass(frozen=True, slots=True)
class StepOver:
    """How the walk goes on after a bad batch that stays; size 0: it was repaired, look again."""

    size_bytes: int
    next_offset: int  # after it


@dataclass(frozen=True, slots=True)
class Judge:
    """Who is asked at a bad batch; ``verdict`` None: the segment is to be cut there.

    Asked before anything is cut; what it raises leaves the segment's batches as they are.
    ``doubt`` is asked of a sound batch that leaves a gap and has nothing after it, with its first
    and last offset: True makes it a bad one.
    """

    verdict: Callable[[BadSpot], StepOver | None]
    end_offset: int  # where the next segment begins, INT64_MAX without one
    keeps_rot: bool  # else Kafka's rule: a batch is held against those before it only
    doubt: Callable[[BadSpot, int, int], bool] | None = None


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """What recovery of one segment found and did."""

    valid_bytes: int
    truncated_bytes: int
    bad_batch: BadBatch | None  # the first one, where the valid bytes end; None: all were good
    next_offset: int  # last good offset + 1; the base offset when none is left
    largest: TimestampOffset  # and the last offset of its batch; (-1, base offset) without any
    offset_entries: IndexEntries
    time_entries: IndexEntries


def recover(
    segment: SegmentFiles,
    on_batches: OnBatches | None,
    judge: Judge | None = None,
    *,
    is_durable: bool = False,
) -> RecoveryResult:
    """Check the batches and cut the ``.log``, durably; ``LogSegment.recover`` does the rest.

    Without ``judge`` the first bad batch is the end. A batch that was stepped over has its index
    entries; ``on_batches`` does not get it. ``is_durable``: from the first change until the
    aborted transactions are on disk the time index is empty there, and a time index without
    entries makes the next unclean load repeat it all.
    """
    if is_durable:
        segment.time_index.file.pin_for_write(create=True).truncate(0)
        segment.time_index.file.datasync()
    segment.transaction_index.reset()  # on_batches finds the aborted transactions again
    log = segment.log_file.pin_for_write()
    result = _walk(segment, log.size(), on_batches, judge)
    if is_durable and segment.transaction_index.exists:
        segment.transaction_index.file.datasync()
        segment.transaction_index.file.sync_name()
    if result.truncated_bytes:
        # It may end at the recovery point: once a segment follows, no load scans it again.
        log.truncate(result.valid_bytes)
        log.datasync()
    return result


def rebuild_indexes(segment: SegmentFiles) -> None:
    """Write both indexes again from the ``.log`` of a segment that is being opened for writing."""
    walk = _walk(segment, segment.size_bytes, None)
    segment.offset_index.replace_entries(walk.offset_entries)
    segment.time_index.replace_entries(walk.time_entries)
    segment.max_timestamp = walk.largest


def remember_entries(segment: SegmentFiles) -> None:
    """Find the entries of damaged closed indexes again, in memory only.

    The files stay as they are: they are the writer's. CorruptIndex when the offsets do not fit an
    index: only an unclean load splits such a segment.
    """
    try:
        walk = _walk(segment, segment.size_bytes, None)
    except SegmentOffsetOverflow as error:
        path = segment.offset_index.file.path
        raise CorruptIndex(str(error), file=path, position=0) from error
    show_entries(segment, walk)


def show_entries(segment: SegmentFiles, found: RecoveryResult) -> None:
    """Let look-ups of the closed indexes see what was found, whatever their files hold.

    The forced last time entry is part of it.
    """
    times = found.time_entries.first(found.time_entries.count)
    last = times.values[-1] if times.count else NO_TIMESTAMP
    if found.largest.timestamp_ms > last:
        times.append(found.largest.offset - segment.base_offset, found.largest.timestamp_ms)
    segment.offset_index.keep_in_cache(found.offset_entries)
    segment.time_index.keep_in_cache(times)
    segment.max_timestamp = found.largest


def _walk(
    segment: SegmentFiles, size_bytes: int, on_batches: OnBatches | None, judge: Judge | None = None
) -> RecoveryResult:
    """Walk the good batches from the start of the segment, and those that ``judge`` lets pass."""
    steps = _Steps(segment, size_bytes, judge)
    bad = steps.take(on_batches)
    while bad is not None:
        over = None if judge is None else judge.verdict(bad)
        if over is None:
            break
        if over.size_bytes:
            steps.step_over(over)
        bad = steps.take(on_batches)
    offsets, times = steps.cadence.entries(segment)
    return RecoveryResult(
        valid_bytes=steps.position,
        truncated_bytes=size_bytes - steps.position,
        bad_batch=None if bad is None else bad.why,
        next_offset=steps.next_offset,
        largest=steps.cadence.largest or TimestampOffset(NO_TIMESTAMP, segment.base_offset),
        offset_entries=offsets,
        time_entries=times,
    )


class _Steps:
    """How far a walk has come: ``position`` is after its last batch."""

    def __init__(self, segment: SegmentFiles, size_bytes: int, judge: Judge | None) -> None:
        self.cadence = IndexCadence(segment.index_interval_bytes)
        self.position = 0
        self.next_offset = segment.base_offset
        self._segment = segment
        self._size_bytes = size_bytes
        self._judge = judge

    def take(self, on_batches: OnBatches | None) -> BadSpot | None:
        """Good batches up to a bad one, or up to the end."""
        stop = ScanStop.END
        for chunk in scan_chunks(
            self._segment.log_file,
            self.position,
            self._size_bytes,
            check_crc=True,
            chunk_bytes=RECOVERY_CHUNK_BYTES,
            with_messages=True,
        ):
            rows = self._in_order(chunk)
            if rows.count:
                self._add(rows, chunk.position)
                if on_batches is not None:
                    on_batches(rows, chunk.data)
            if rows.count < chunk.rows.count:
                return self._bad(BadBatch.BAD_OFFSET)
            stop = chunk.rows.stop
        if self.position == self._size_bytes:
            return None
        # Bytes after a walk that ended well can only be too few for another header.
        return self._bad(BadBatch.PARTIAL if stop is ScanStop.END else BadBatch[stop.name])

    def _in_order(self, chunk: ScannedChunk) -> BatchRows:
        """The rows of a chunk before the first one that is out of order."""
        rows, previous_last = chunk.rows, self.next_offset - 1
        if self._judge is None or not self._judge.keeps_rot:
            return rows.before(rows.first_disorder(previous_last))
        after = chunk.position + rows.consumed_bytes
        head = self._segment.log_file.acquire().pread(HEADER_BYTES, after)
        follower = base_offset_at(head)
        disorder = rows.first_disorder(
            previous_last,
            end_offset=self._judge.end_offset,
            follower_base_offset=follower,
            looks_ahead=True,
        )
        if disorder is None and follower < 0 and self._is_doubted(rows, chunk.position):
            disorder = rows.count - 1
        return rows.before(disorder)

    def _is_doubted(self, rows: BatchRows, chunk_position: int) -> bool:
        """Whether the last row leaves a gap that it cannot have left; nothing is after it."""
        doubt = None if self._judge is None else self._judge.doubt
        if doubt is None or not rows.count or rows.column(BatchColumn.MAGIC)[-1] < MAGIC_V2:
            return False
        position, _, base_offset, last_offset = rows.table[-1, :4].tolist()
        expected = self.next_offset
        if rows.count > 1:
            expected = int(rows.column(BatchColumn.LAST_OFFSET)[-2]) + 1
        if base_offset == expected:
            return False
        spot = BadSpot(chunk_position + position, BadBatch.BAD_OFFSET, expected)
        return doubt(spot, base_offset, last_offset)

    def _bad(self, why: BadBatch) -> BadSpot:
        return BadSpot(self.position, why, self.next_offset)

    def step_over(self, over: StepOver) -> None:
        """Index the whole batch at ``position`` under the offsets that its neighbours leave it.

        Its timestamp is not believed: no look-up by time would find a record here.
        """
        file = self._segment.log_file.acquire()
        data = read_chunk(file, self.position, over.size_bytes, may_block=True)
        rows = scan(data, check_crc=False)
        assert rows.count == 1, "a batch that is stepped over has a header that can be read"
        rows.column(BatchColumn.LAST_OFFSET)[:] = over.next_offset - 1
        rows.column(BatchColumn.MAX_TIMESTAMP)[:] = NO_TIMESTAMP
        self._add(rows, self.position)

    def _add(self, rows: BatchRows, chunk_position: int) -> None:
        self.next_offset = int(rows.column(BatchColumn.LAST_OFFSET)[-1]) + 1
        if self.next_offset - 1 - self._segment.base_offset > MAX_RELATIVE_OFFSET:
            raise SegmentOffsetOverflow(self._segment.base_offset, self.next_offset - 1)
        if has_messages(rows):
            self._segment.holds_messages = True
        self.cadence.add(rows, chunk_position)
        self.position = chunk_position + rows.consumed_bytes
