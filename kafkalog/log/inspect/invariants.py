"""check_invariants: what must hold of one live log between two commands.

Reads everything and changes nothing; for tests, the simulator and ``verify``. Writer thread, or any
thread while nothing is written. A broken invariant is an AssertionError that names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.format.records.batch_scan import BatchColumn, ScanStop
from kafkalog.log.segment.index_repair import floor_entry
from kafkalog.log.segment.segment_file import scan_chunks
from kafkalog.log.values import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from kafkalog.log.segment.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog


def check_invariants(log: UnifiedLog) -> None:
    """I5 to I8, I10 and I11 as far as one log alone can show them."""
    start, end = log.log_start_offset, log.log_end_offset
    assert start <= log.recovery_point <= end, f"I6: {start} <= {log.recovery_point} <= {end}"
    assert start <= log.high_watermark <= end, f"I6: {start} <= {log.high_watermark} <= {end}"
    assert start <= log.last_stable_offset <= log.high_watermark, "I6: stable outside of the log"
    assert log.segments.first.base_offset <= start, "I6: the start lies below the first segment"
    segments = log.segments.values
    assert segments, "I7: a log has at least one segment"
    assert segments[-1].is_active, "I7: the highest segment is active"
    assert not any(segment.is_active for segment in segments[:-1]), "I7: only that one is"
    following = segments[0].base_offset
    for segment in segments:
        assert segment.base_offset >= following, f"I7: {segment} overlaps the one before"
        if not log.config.is_compacted and segment.base_offset > start:
            assert segment.base_offset == following, f"I5: a gap in front of {segment}"
        following = _check_segment(segment, is_contiguous=not log.config.is_compacted)
    assert following == end, f"I1: ends at {following}, not {end}"
    starts = [entry.start_offset for entry in log.epochs.entries]
    epochs = [entry.epoch for entry in log.epochs.entries]
    assert starts == sorted(set(starts)), "epoch start offsets rise"
    assert epochs == sorted(set(epochs)), "epochs rise"
    assert log.producers.end_offset == log.log_end_offset, "I25: producers are at the log end"


def _check_segment(segment: LogSegment, *, is_contiguous: bool) -> int:
    """Batches and indexes of one segment; the offset after its last batch."""
    next_offset, max_timestamp = segment.base_offset, -1
    last_offsets: dict[int, int] = {}  # position -> last offset
    end = 0
    for chunk in scan_chunks(segment.log_file, 0, segment.size_bytes, check_crc=True):
        rows = chunk.rows
        assert rows.stop in (ScanStop.END, ScanStop.PARTIAL), f"I8: {rows.stop.name} in {segment}"
        for position, base, last, timestamp in zip(
            (rows.column(BatchColumn.POSITION) + chunk.position).tolist(),
            rows.column(BatchColumn.BASE_OFFSET).tolist(),
            rows.column(BatchColumn.LAST_OFFSET).tolist(),
            rows.column(BatchColumn.MAX_TIMESTAMP).tolist(),
            strict=True,
        ):
            assert base >= next_offset, f"I5: offset {base} after {next_offset} in {segment}"
            assert not is_contiguous or base == next_offset, f"I5: a gap before {base}"
            next_offset = last + 1
            last_offsets[position] = last
            max_timestamp = max(max_timestamp, timestamp)
        end = chunk.position + rows.consumed_bytes
    assert end == segment.size_bytes, f"I8: {segment} ends in the middle of a batch"
    assert next_offset - 1 - segment.base_offset <= MAX_RELATIVE_OFFSET, "I7: offset too far"
    # I10 and I11: every entry points at a batch, entries rise, the largest timestamp is true.
    floor_entry(segment, segment.base_offset)  # entries of a damaged index are found again
    for last_offset in last_offsets.values():
        found = segment.offset_index.lookup(last_offset)
        assert found.offset <= last_offset, "I10: a look-up lands behind its target"
        if found.position:
            assert last_offsets.get(found.position) == found.offset, "I10: no batch at an entry"
    largest = segment.max_timestamp_so_far()
    assert largest.timestamp_ms == max_timestamp, f"I11: largest timestamp {largest}"
    return next_offset
