"""Goal: a segment that is written by chunks is the one that appends would have made.
Method: the same batches both ways, on the simulated disk; every file is compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.records.batch_scan import scan
from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment.cleaned_segment import CleanedSegment, remove_cleaned_files
from kafkalog.log.segment.segment_recovery import SegmentOffsetOverflow
from kafkalog.log.values import AbortedTransaction
from tests.log_world import DIRECTORY, LogWorld, append
from tests.naive.batches import PlainBatch, one_record

if TYPE_CHECKING:
    from kafkalog.log.segment.log_segment import LogSegment

MTIME_MS = 1_600_000_000_000
SUFFIXES = (".log", ".index", ".timeindex")


def begun(world: LogWorld, base_offset: int = 0) -> CleanedSegment:
    return CleanedSegment(world.environment, world.directory, base_offset, world.config)


def add(cleaned: CleanedSegment, *batches: PlainBatch) -> None:
    """All as one chunk."""
    data = b"".join(batch.encode() for batch in batches)
    cleaned.append(data, scan(data))


def files(world: LogWorld, base_offset: int, stage: str) -> list[bytes]:
    return [world.content(f"{base_offset:020d}{suffix}{stage}") for suffix in SUFFIXES]


@given(
    stamps=st.lists(st.integers(-1, 30), min_size=1, max_size=30),
    interval=st.sampled_from([0, 100, 400, 4096]),
    chunk=st.integers(1, 7),
)
def test_it_is_the_segment_of_appends(stamps: list[int], interval: int, chunk: int) -> None:
    """M20: the log and both indexes, whatever the chunks; sizes and timestamps of the object."""
    world = LogWorld(LogConfig(segment_index_bytes=4096, index_interval_bytes=interval))
    batches = [one_record(2 * number, stamp) for number, stamp in enumerate(stamps)]
    appended = world.new_segment()
    for batch in batches:
        append(appended, batch)
    appended.on_become_inactive()
    cleaned = begun(world)
    for start in range(0, len(batches), chunk):
        add(cleaned, *batches[start : start + chunk])
    segment = cleaned.finish(MTIME_MS)
    assert files(world, 0, ".cleaned") == files(world, 0, "")
    assert (segment.size_bytes, segment.last_modified_ms) == (appended.size_bytes, MTIME_MS)
    assert segment.max_timestamp_so_far() == appended.max_timestamp_so_far()
    assert segment.read_next_offset() == appended.read_next_offset()
    assert not segment.is_active


def test_modification_times_and_aborted_transactions() -> None:
    """M20: of the three files; the transaction index is there when it has an entry."""
    world = LogWorld()
    cleaned = begun(world)
    add(cleaned, one_record(0), one_record(1))
    entry = AbortedTransaction(producer_id=7, first_offset=0, last_offset=1, last_stable_offset=2)
    cleaned.add_aborted([entry])
    segment = cleaned.finish(MTIME_MS)
    for suffix in SUFFIXES:
        stat = world.filesystem.stat(f"{DIRECTORY}/{0:020d}{suffix}.cleaned")
        assert stat.mtime_ms == MTIME_MS
    assert segment.transaction_index.entries() == (entry,)


def test_nothing_left_is_an_empty_segment() -> None:
    """M20: no bytes, no entries."""
    world = LogWorld()
    segment: LogSegment = begun(world, 5).finish(MTIME_MS)
    assert files(world, 5, ".cleaned") == [b"", b"", b""]
    assert segment.read_next_offset() == 5


def test_left_overs_of_the_same_base_are_removed() -> None:
    """M20: neither their bytes nor their aborted transactions come back."""
    world = LogWorld()
    old = begun(world)
    add(old, one_record(0), one_record(1))
    old.add_aborted([AbortedTransaction(1, 0, 1, 2)])
    old.finish(MTIME_MS)
    new = begun(world)
    add(new, one_record(1))
    segment = new.finish(MTIME_MS)
    assert world.content(f"{0:020d}.log.cleaned") == one_record(1).encode()
    assert segment.transaction_index.entries() == ()
    new.delete()
    remove_cleaned_files(world.environment, world.directory, 0)
    assert world.names() == []


def test_offsets_beyond_the_range_are_refused_before_they_are_written() -> None:
    """M20: KAFKA-6264."""
    world = LogWorld()
    cleaned = begun(world)
    add(cleaned, one_record(2**31 - 1))
    with pytest.raises(SegmentOffsetOverflow):
        add(cleaned, one_record(2**31))
    assert cleaned.size_bytes == len(one_record(0).encode())


def test_an_index_that_is_too_small_stays_sparse() -> None:
    """M20: Kafka gives up; a look-up walks further here."""
    world = LogWorld(LogConfig(segment_index_bytes=48, index_interval_bytes=0))
    cleaned = begun(world)
    add(cleaned, *(one_record(offset, offset) for offset in range(20)))
    segment = cleaned.finish(MTIME_MS)
    assert segment.offset_index.entry_count() == 6
    assert segment.time_index.last_entry().timestamp_ms == 19
    assert segment.read_next_offset() == 20
