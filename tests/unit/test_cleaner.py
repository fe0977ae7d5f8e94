"""Goal: what a round does beside choosing records: bounds, throttle, snapshots, damaged indexes,
and segments that are those which appends would have made.
Method: logs on a simulated disk and clock.
"""

from __future__ import annotations

import errno
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from kafkalog.cleaner.config import CleanerConfig
from kafkalog.cleaner.log_cleaner import Throttler
from kafkalog.errors import CorruptBatch, LogDirOffline
from kafkalog.format.records.batch_scan import scan
from kafkalog.format.records.record_batch import HEADER_BYTES, Codec
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment.index_repair import next_offset
from kafkalog.log.segment.segment_recovery import SegmentOffsetOverflow
from kafkalog.log.segment.segment_swap import CleanedSegment, remove_cleaned_files
from kafkalog.log.values import AbortedTransaction
from tests.cleaner_world import (
    COMPACT,
    DIRECTORY,
    CleanerWorld,
    OnWriterLike,
    one,
    record,
    segments_of,
)
from tests.log_world import DIRECTORY as LOG_DIRECTORY, LogWorld, append
from tests.naive.batches import PlainBatch, one_record
from tests.naive.stored_batches import stored_batch
from tests.sim.sim_faults import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_larger_than_the_buffer(codec: Codec) -> None:
    """M20 M23: a batch of more than 1 MiB is read whole, whatever the buffer, in both passes."""
    large = b"x" * (1_200_000)
    batches = [
        stored_batch([record(0, b"a", large), record(1, b"b", b"1")], codec=codec),
        stored_batch([record(2, b"c", large)], codec=codec),
        one(3, b"b", b"2"),
    ]
    world = CleanerWorld(segments_of(batches), cleaner_config=CleanerConfig(io_buffer_bytes=100))
    result = world.round()
    assert [each.offset for each in world.records()] == [0, 2, 3]
    assert result.stats.messages_read == 4


def test_large_keys_are_told_apart_by_their_last_byte() -> None:
    """M19: keys of 100,000 bytes."""
    keys = [b"k" * 100_000 + bytes([number]) for number in range(4)]
    batches = [one(offset, keys[offset % 4]) for offset in range(8)]
    world = CleanerWorld(segments_of(batches))
    world.round()
    assert [each.offset for each in world.records()] == [4, 5, 6, 7]


def test_the_throttle_hears_of_every_byte() -> None:
    """M23: reads of both passes and what was written."""
    world = CleanerWorld(segments_of([one(0, b"a"), one(1, b"a")], [one(2, b"b")]))
    stats = world.round().stats
    assert world.throttled_bytes == stats.map_bytes_read + stats.bytes_read + stats.bytes_written
    assert stats.map_bytes_read == stats.bytes_read > stats.bytes_written > 0
    assert stats.started_ns <= stats.mapped_ns <= stats.ended_ns


def test_snapshots_of_merged_bases_go() -> None:
    """M20 M25: renamed with the swap, deleted after the delay; that of the group's base stays."""
    world = CleanerWorld(segments_of([one(0, b"a")], [one(1, b"b")], [one(2, b"c")]))
    assert {1, 2} & set(world.log.producers.snapshot_offsets)
    world.round()
    assert not {1, 2} & set(world.log.producers.snapshot_offsets)
    world.clock.advance_ms(COMPACT.file_delete_delay_ms)
    names = world.disk.list_dir(DIRECTORY)
    assert [name for name in names if name.endswith(".deleted")] == []


def test_a_command_renames_no_more_than_it_may() -> None:
    """M20: a group of many small segments takes many turns of the writer."""
    sources = [[one(number, b"k%d" % number)] for number in range(30)]
    world = CleanerWorld(
        segments_of(*sources), cleaner_config=CleanerConfig(directory_operations_max=4)
    )
    most = before = 0

    def count(_: int) -> None:
        nonlocal most, before
        done = sum(each.kind == "rename" for each in world.disk.operations)
        most, before = max(most, done - before), done

    writer = OnWriterLike(count)
    world.round(on_writer=writer)
    assert writer.calls > 20
    assert most <= 5  # one of them is the cleaner's own
    assert [each.offset for each in world.records()] == list(range(30))


def test_a_damaged_index_is_made_anew() -> None:
    """M20: sizes for the groups, and the place where reading begins, come from the batches."""
    world = CleanerWorld(segments_of([one(0, b"a"), one(1, b"a"), one(2, b"b")], [one(3, b"b")]))
    first = world.log.segments.first
    for index in (first.offset_index, first.time_index):
        world.disk.open_write(index.file.path).pwrite(b"\xff" * 7, 0)
        index.release()
    world.round()
    assert [each.offset for each in world.records()] == [1, 3]
    check_invariants(world.log)


def test_damage_that_stays_is_not_rewritten() -> None:
    """M20: a clean part with rot keeps its bytes when nothing of it has to change."""
    world = CleanerWorld(segments_of([one(0, b"a"), one(1, b"b")], [one(2, b"c")]))
    world.round()
    segment = world.log.segments.first
    position = segment.log_file.acquire().size() - 2
    file = world.disk.open_write(segment.log_file.path)
    file.pwrite(bytes([file.pread(1, position)[0] ^ 1]), position)
    before = world.batches()
    world.round(3)
    assert world.batches() == before
    with pytest.raises(CorruptBatch, match="CRC"):
        world.round(0)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_rotten_length_or_magic_ends_a_clean_before_it_changes_anything(number: int) -> None:
    """M20: every bit of them; the rotten batch and all behind it stay, to be read or repaired."""
    batches = [one(offset, b"ab"[offset % 2 :]) for offset in (0, 1, 2)]
    world = CleanerWorld(segments_of(batches, [one(3, b"a")]))
    path = world.log.segments.first.log_file.path
    before = world.disk.read_file(path)
    start = sum(map(len, batches[:number]))
    for bit in (*range(64, 96), *range(128, 136)):
        rotten = bytearray(before)
        rotten[start + bit // 8] ^= 0x80 >> bit % 8
        world.disk.open_write(path).pwrite(bytes(rotten), 0)
        with pytest.raises(CorruptBatch):
            world.round()
        assert world.disk.read_file(path) == rotten
    world.disk.open_write(path).pwrite(before, 0)
    world.round()
    assert [each.offset for each in world.records()][-1] == 3


@pytest.mark.parametrize("base_offset", [0, 2, 3, 700])
@pytest.mark.parametrize("is_chunk_full", [True, False])
def test_a_wrong_base_offset_is_named_where_it_lies(base_offset: int, is_chunk_full: bool) -> None:
    """M20: it lies outside the CRC, so only the batches beside it tell."""
    batches = [one(offset, b"a") for offset in (0, 1, 2)]
    size = len(batches[0])
    buffer_bytes = 4_096 if is_chunk_full else size + HEADER_BYTES
    config = CleanerConfig(io_buffer_bytes=buffer_bytes)
    world = CleanerWorld(segments_of(batches, [one(3, b"b")]), cleaner_config=config)
    file = world.disk.open_write(world.log.segments.first.log_file.path)
    file.pwrite(base_offset.to_bytes(8, "big"), size)
    with pytest.raises(CorruptBatch, match="its offsets contradict the batches beside it") as found:
        world.round()
    assert (found.value.position, found.value.details["base_offset"]) == (size, base_offset)


def test_the_guard_of_the_directory_judges_errors() -> None:
    """M15 M20: an I/O error of the cleaner's own work is the directory's, as the guard says."""
    world = CleanerWorld(segments_of([one(0, b"a"), one(1, b"a")]))
    world.log.environment = replace(world.log.environment, io_guard=guard)
    world.disk.faults.add(Fault(error=errno.EIO, kinds=frozenset({"write"})))
    with pytest.raises(LogDirOffline):
        world.round()
    assert world.staged_names() == []


@contextmanager
def guard() -> Iterator[None]:
    """As the manager's: every OSError takes the directory offline."""
    try:
        yield
    except OSError as error:
        raise LogDirOffline("offline") from error


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
    assert next_offset(segment) == next_offset(appended)
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
        stat = world.filesystem.stat(f"{LOG_DIRECTORY}/{0:020d}{suffix}.cleaned")
        assert stat.mtime_ms == MTIME_MS
    assert segment.transaction_index.entries() == (entry,)


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
    assert next_offset(segment) == 20


MS = 1_000_000
SECOND = 1_000 * MS


def make(bytes_per_second: float, now_ns: int = 5 * SECOND) -> Throttler:
    """One that begins at now_ns."""
    return Throttler(threading.Lock(), bytes_per_second, now_ns)


@pytest.mark.parametrize(
    ("seen", "go_on_ms"),
    [
        ([(1_000, 0)], 1_000),  # the first one is paid for already
        ([(500, 0), (500, 500)], 1_000),
        ([(500, 0), (500, 590)], 1_000),  # a late one makes up for up to 100 ms
        ([(500, 0), (500, 700)], 1_100),
        ([(1_000, 400), (1, 500)], 1_301),  # another thread: one rate for all
        ([(100, 400)], 400),  # below the rate
    ],
)
def test_every_chunk_is_paid_for_at_the_rate(seen: list[tuple[int, int]], go_on_ms: int) -> None:
    """Bytes at milliseconds, at 1,000 bytes a second: when who saw the last of them goes on."""
    throttler = make(1_000)
    *_, last = [throttler.observe(size, 5 * SECOND + at * MS) for size, at in seen]
    now = 5 * SECOND + seen[-1][1] * MS
    assert max(last, now) == 5 * SECOND + go_on_ms * MS


def test_the_rate_may_change_under_way() -> None:
    throttler = make(1e-300)
    assert throttler.observe(1_000, 5 * SECOND + 400 * MS) > 1_000_000 * SECOND
    throttler.change_rate(10_000, 6 * SECOND)
    assert throttler.go_on_ns == 6 * SECOND
    assert throttler.observe(10_000, 6 * SECOND + 400 * MS) == 7 * SECOND + 300 * MS
