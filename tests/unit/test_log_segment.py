"""Goal: a segment appends all or nothing, reads whole checked batches, rolls, recovers, truncates;
its indexes have Kafka's bytes and rules.
Method: segments on a simulated disk, entries that Kafka wrote, damage.
"""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from kafkalog.errors import CorruptIndex
from kafkalog.format.disk import index_entries
from kafkalog.format.disk.file_names import segment_file_name
from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment import segment_reader
from kafkalog.log.segment.indexes import OffsetIndex, TimeIndex, TransactionIndex
from kafkalog.log.segment.segment_file import SegmentFile
from kafkalog.log.values import (
    AbortedTransaction,
    CompletedTransaction,
    OffsetPosition,
    TimestampOffset,
    WouldBlock,
)
from tests.log_world import DIRECTORY, LogWorld, append, bytes_of, joined
from tests.naive.batches import PlainBatch, one_record
from tests.sim.sim_faults import Fault

if TYPE_CHECKING:
    from kafkalog.log.segment.log_segment import LogSegment


LOG = "00000000000000000000.log"


def filled(world: LogWorld, count: int = 10) -> tuple[LogSegment, list[PlainBatch]]:
    """A segment of single-record batches, 172 bytes each, timestamps 1000, 1010, ..."""
    segment = world.new_segment()
    batches = [one_record(offset, 1000 + 10 * offset) for offset in range(count)]
    for batch in batches:
        append(segment, batch)
    return segment, batches


def must_roll(
    segment: LogSegment,
    *,
    max_bytes: int = 1000,
    timestamp_ms: int = 1000,
    last_offset: int = 10,
    now_ms: int = 0,
) -> bool:
    """Whether a set of 100 bytes needs a new segment; segments live for a second."""
    return not segment.room(max_bytes, 1000, now_ms).holds(100, timestamp_ms, last_offset)


def test_cold_reads_say_so() -> None:
    world = LogWorld()
    segment, batches = filled(world)
    segment.close()
    closed = world.reopened(segment)
    with pytest.raises(WouldBlock):
        segment_reader.read(closed, 0, 10_000, may_block=False)
    assert bytes_of(segment_reader.read(closed, 0, 10_000)) == joined(batches)
    assert bytes_of(segment_reader.read(closed, 0, 10_000, may_block=False)) == joined(batches)


@pytest.mark.parametrize("target", [".log", ".index", ".timeindex"])
def test_failed_append_leaves_nothing_behind(target: str) -> None:
    """Disk full in the log, at an offset entry, at a time entry: file and memory as before."""
    world = LogWorld(LogConfig(segment_index_bytes=4096, index_interval_bytes=0))
    segment, batches = filled(world, 3)
    entries = segment.offset_index.entries()
    world.fail_writes_to(target, errno.ENOSPC)
    with pytest.raises(OSError, match=f"Errno {errno.ENOSPC}"):
        append(segment, one_record(3, 5000), one_record(4, 6000))
    world.heal()
    assert not segment.is_broken
    assert world.size(LOG) == segment.size_bytes == len(joined(batches))
    assert segment.offset_index.entries() == entries
    assert segment.max_timestamp_so_far() == TimestampOffset(1020, 2)
    more = [one_record(3, 5000), one_record(4, 6000)]
    append(segment, *more)
    assert bytes_of(segment_reader.read(segment, 0, 10_000)) == joined(batches + more)
    assert [entry.offset for entry in segment.offset_index.entries()] == [1, 2, 3, 4]


def test_segment_that_cannot_be_cut_back_is_broken() -> None:
    """M15: the first error is raised, the flag takes the directory offline."""
    world = LogWorld()
    segment, batches = filled(world, 3)
    world.fail_writes_to(".log", errno.EIO)
    world.filesystem.faults.add(Fault(kinds=frozenset({"truncate"}), path_contains=".log"))
    with pytest.raises(OSError, match=f"Errno {errno.EIO}") as caught:
        append(segment, one_record(3))
    assert segment.is_broken
    assert "cutting" in caught.value.__notes__[0]
    assert bytes_of(segment_reader.read(segment, 0, 10_000)) == joined(batches)
    world.heal()
    assert world.reopened(segment).recover().next_offset == 3


def test_roll_rules() -> None:
    """M06: size fits exactly, time strictly, event time and not the wall clock, offsets."""
    world = LogWorld()
    segment, _ = filled(world, 1)
    size = segment.size_bytes
    assert not must_roll(segment, max_bytes=size + 100)
    assert must_roll(segment, max_bytes=size + 99)
    assert not must_roll(segment, timestamp_ms=2000)
    assert must_roll(segment, timestamp_ms=2001)
    assert not must_roll(segment, timestamp_ms=5, now_ms=2**50)
    assert not must_roll(segment, last_offset=2**31 - 1)
    assert must_roll(segment, last_offset=2**31)


def test_segment_without_timestamps_rolls_by_wall_time() -> None:
    """M06: an empty one never rolls by time."""
    world = LogWorld()
    segment = world.new_segment()
    now = world.clock.wall_ms()
    assert not must_roll(segment, timestamp_ms=-1, now_ms=now + 1001)
    append(segment, one_record(0, -1))
    assert must_roll(segment, timestamp_ms=-1, now_ms=now + 1001)
    assert not must_roll(segment, timestamp_ms=-1, now_ms=now + 1000)


def test_jitter_is_drawn_once_and_bounded() -> None:
    """M06: log.roll.jitter.ms makes the roll earlier, never later."""
    world = LogWorld(LogConfig(segment_index_bytes=4096, segment_jitter_ms=500))
    segment, _ = filled(world, 1)
    assert must_roll(segment, timestamp_ms=2001)
    assert not must_roll(segment, timestamp_ms=1500)


def test_empty_segment_with_no_index_slots_wants_to_roll() -> None:
    """M06, KAFKA-6388: the time index of four bytes has no slot and is full from the start."""
    world = LogWorld(LogConfig(segment_index_bytes=4))
    assert must_roll(world.new_segment())


def test_recovery_rebuilds_what_appending_wrote() -> None:
    """M14: byte-equal indexes, no byte lost."""
    world = LogWorld(LogConfig(segment_index_bytes=4096, index_interval_bytes=300))
    segment, _ = filled(world, 40)
    segment.on_become_inactive()
    names = ("00000000000000000000.index", "00000000000000000000.timeindex")
    before = [world.content(name) for name in names]
    for name in names:
        world.filesystem.unlink(f"{world.directory.path}/{name}")
    found = world.reopened(segment)
    seen: list[int] = []
    result = found.recover(lambda rows, _: seen.append(rows.count))
    assert (result.truncated_bytes, result.bad_batch, result.next_offset) == (0, None, 40)
    assert sum(seen) == 40
    assert [world.content(name) for name in names] == before


@pytest.mark.parametrize(("cut", "flipped"), [(1, None), (169, None), (0, 150), (0, 8), (0, 16)])
def test_recovery_cuts_at_the_first_bad_batch(cut: int, flipped: int | None) -> None:
    """M14: torn tail, wrong CRC, wrong size, wrong magic in the last batch."""
    world = LogWorld()
    segment, batches = filled(world)
    good = len(joined(batches[:9]))
    if flipped is not None:
        world.flip(LOG, good + flipped)
    segment.log_file.acquire().truncate(segment.size_bytes - cut)
    found = world.reopened(segment)
    result = found.recover()
    assert result.valid_bytes == good == world.size(LOG)
    assert result.bad_batch is not None
    assert result.next_offset == 9
    assert found.max_timestamp_so_far() == TimestampOffset(1080, 8)
    found.become_active()
    append(found, batches[9])
    assert bytes_of(segment_reader.read(found, 0, 10_000)) == joined(batches)


def test_recovery_of_a_preallocated_tail_cuts_the_zeros() -> None:
    """M14: preallocate=true leaves zeros behind the last batch."""
    config = LogConfig(segment_index_bytes=4096, internal_segment_bytes=5000, preallocate=True)
    world = LogWorld(config)
    segment, batches = filled(world, 3)
    assert world.size(LOG) == 5000
    result = world.reopened(segment).recover()
    assert result.valid_bytes == world.size(LOG) == len(joined(batches))


def test_truncation_keeps_smaller_offsets_and_an_appendable_segment() -> None:
    """M14, KAFKA-6492: also down to an empty segment, whose index is not full then."""
    world = LogWorld(LogConfig(segment_index_bytes=4096, index_interval_bytes=0))
    segment, batches = filled(world)
    segment.on_become_inactive()
    segment.truncate_to(4)
    assert segment.size_bytes == len(joined(batches[:4]))
    assert [entry.offset for entry in segment.offset_index.entries()] == [1, 2, 3]
    assert bytes_of(segment_reader.read(segment, 0, 10_000)) == joined(batches[:4])
    segment.truncate_to(0)
    assert segment.size_bytes == 0
    assert segment.offset_index.file.acquire().size() == 4096
    assert not must_roll(segment, max_bytes=10_000)
    append(segment, *batches)
    assert bytes_of(segment_reader.read(segment, 0, 10_000)) == joined(batches)


def test_only_aborted_transactions_are_noted() -> None:
    world = LogWorld()
    segment, _ = filled(world)
    segment.update_transaction_index(CompletedTransaction(1, 0, 2, is_aborted=False), 3)
    assert not segment.transaction_index.exists
    segment.update_transaction_index(CompletedTransaction(1, 3, 5, is_aborted=True), 6)
    assert len(segment.transaction_index.entries()) == 1
    assert len(segment.files_to_flush()) == 4


BASE = 100


def file_of(world: LogWorld, suffix: str) -> SegmentFile:
    return SegmentFile(world.environment, world.directory, segment_file_name(BASE, suffix))


def offset_index(world: LogWorld, max_bytes: int = 100) -> OffsetIndex:
    return OffsetIndex(file_of(world, ".index"), BASE, max_bytes, world.environment.index_cache)


def time_index(world: LogWorld, max_bytes: int = 100) -> TimeIndex:
    return TimeIndex(file_of(world, ".timeindex"), BASE, max_bytes, world.environment.index_cache)


def transaction_index(world: LogWorld, *, exists: bool = False) -> TransactionIndex:
    cache = world.environment.index_cache
    return TransactionIndex(file_of(world, ".txnindex"), BASE, cache, exists=exists)


def test_new_index_is_preallocated_and_trimmed_when_closed() -> None:
    """M03: the maximum rounded down to whole entries, then exactly the entries."""
    world = LogWorld()
    offsets, times = offset_index(world), time_index(world)
    offsets.create()
    times.create()
    assert (offsets.file.acquire().size(), times.file.acquire().size()) == (96, 96)
    offsets.append(110, 7)
    times.maybe_append(5, 110, skip_full_check=False)
    offsets.trim()
    times.trim()
    assert offsets.file.acquire().pread(100, 0) == struct.pack(">ii", 10, 7)
    assert times.file.acquire().pread(100, 0) == struct.pack(">qi", 5, 10)


def test_lookup_is_the_greatest_entry_at_or_below() -> None:
    """M04: else the start of the segment; far targets do not overflow."""
    index = offset_index(LogWorld())
    index.create()
    for offset, position in ((110, 50), (120, 90), (130, 140)):
        index.append(offset, position)
    assert index.lookup(109) == OffsetPosition(BASE, 0)
    assert index.lookup(110) == OffsetPosition(110, 50)
    assert index.lookup(129) == OffsetPosition(120, 90)
    assert index.lookup(2**63 - 1) == OffsetPosition(130, 140)
    assert index.entry_after(90) == OffsetPosition(130, 140)
    assert index.entry_after(140) is None
    assert index.last_entry() == OffsetPosition(130, 140)


def test_truncation_drops_the_equal_entry_and_zeroes_the_rest() -> None:
    index = offset_index(LogWorld())
    index.create()
    for offset, position in ((110, 50), (120, 90)):
        index.append(offset, position)
    index.truncate_to(120)
    assert index.entries() == [OffsetPosition(110, 50)]
    raw = index.file.acquire().pread(96, 0)
    assert raw == struct.pack(">ii", 10, 50) + bytes(88)


def test_full_means_all_slots_for_offsets_and_all_but_one_for_times() -> None:
    """M06: one slot of the time index is kept for the forced entry."""
    world = LogWorld()
    offsets, times = offset_index(world, 16), time_index(world, 24)
    offsets.create()
    times.create()
    assert (offsets.is_full, times.is_full) == (False, False)
    offsets.append(101, 1)
    times.maybe_append(1, 101, skip_full_check=False)
    assert (offsets.is_full, times.is_full) == (False, True)
    offsets.append(102, 2)
    assert (offsets.is_full, times.is_full) == (True, True)
    times.maybe_append(2, 102, skip_full_check=True)
    assert times.entries() == [TimestampOffset(1, 101), TimestampOffset(2, 102)]


def test_time_index_skips_what_has_not_grown() -> None:
    """M05: equal, smaller and absent timestamps get no entry."""
    index = time_index(LogWorld())
    index.create()
    for timestamp, offset in ((-1, 100), (5, 101), (5, 102), (4, 103), (6, 104)):
        index.maybe_append(timestamp, offset, skip_full_check=False)
    assert index.entries() == [TimestampOffset(5, 101), TimestampOffset(6, 104)]
    assert index.lookup(4) == TimestampOffset(-1, BASE)
    assert index.lookup(5) == TimestampOffset(5, 101)
    index.truncate_to(104)
    assert index.last_entry() == TimestampOffset(5, 101)


def test_closed_index_is_loaded_once_and_not_without_blocking() -> None:
    world = LogWorld()
    index = offset_index(world)
    index.create()
    index.append(110, 50)
    index.trim()
    found = offset_index(world)
    with pytest.raises(WouldBlock):
        found.lookup(110, may_block=False)
    assert found.lookup(110) == OffsetPosition(110, 50)
    assert found.lookup(110, may_block=False) == OffsetPosition(110, 50)
    found.resize_to_max()
    found.append(120, 60)
    assert found.entries() == [OffsetPosition(110, 50), OffsetPosition(120, 60)]
    assert world.size("00000000000000000100.index") == 96


@pytest.mark.parametrize("raw", [bytes(96), struct.pack(">iiii", 1, 5, 1, 6), b"12345"])
def test_damaged_offset_index_is_refused(raw: bytes) -> None:
    """Zero padding, entries that do not rise, torn length: never believed."""
    world = LogWorld()
    world.filesystem.open_write(f"{DIRECTORY}/00000000000000000100.index").pwrite(raw, 0)
    with pytest.raises(CorruptIndex) as caught:
        offset_index(world).lookup(100)
    assert caught.value.file.endswith(".index")


def test_padded_time_index_is_refused() -> None:
    """KAFKA-10207: zero padding is not a timestamp of 0."""
    world = LogWorld()
    raw = struct.pack(">qi", 1000, 0) + bytes(24)
    world.filesystem.open_write(f"{DIRECTORY}/00000000000000000100.timeindex").pwrite(raw, 0)
    with pytest.raises(CorruptIndex) as caught:
        time_index(world).last_entry()
    assert caught.value.position == 12


def test_transaction_index_is_made_at_the_first_abort() -> None:
    """The golden entry of the format; search stops when the stable offset passed the bound."""
    world = LogWorld()
    index = transaction_index(world)
    assert index.entries() == ()
    assert not index.file.exists()
    index.append(AbortedTransaction(7, 115, 116, 117))
    index.append(AbortedTransaction(8, 110, 130, 131))
    raw = index.file.acquire().pread(100, 0)
    assert raw[:34].hex() == "0000" + "0000000000000007" + f"{115:016x}{116:016x}{117:016x}"
    first, second = transaction_index(world, exists=True).entries()
    assert (first.producer_id, second.last_offset) == (7, 130)
    found = index.search(116, 117)
    assert (found.aborted, found.is_complete) == ([first], True)
    found = index.search(117, 200)
    assert (found.aborted, found.is_complete) == ([second], False)
    index.truncate_to(130)
    assert index.entries() == (first,)
    index.trim()
    assert index.entries(may_block=False) == (first,)


def test_transaction_index_refuses_other_versions_and_offsets() -> None:
    world = LogWorld()
    path = f"{DIRECTORY}/00000000000000000100.txnindex"
    world.filesystem.open_write(path).pwrite(struct.pack(">hqqqq", 1, 7, 101, 102, 103), 0)
    with pytest.raises(CorruptIndex):
        transaction_index(world, exists=True).sanity_check()
    world.filesystem.open_write(path).pwrite(struct.pack(">hqqqq", 0, 7, 1, 2, 3), 0)
    with pytest.raises(CorruptIndex):
        transaction_index(world, exists=True).sanity_check()


INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def test_layouts() -> None:
    """M26: the published entries; the aborted transaction of pid 7 from 15, its marker at 16."""
    assert index_entries.OFFSET_ENTRY.pack(28, 4169).hex() == "0000001c00001049"
    assert index_entries.TIME_ENTRY.pack(1638100314372, 28).hex() == "0000017d666329040000001c"
    golden = "00000000000000000007000000000000000f00000000000000100000000000000011"
    assert index_entries.pack_aborted_entry(7, 15, 16, 17).hex() == golden


@given(st.lists(st.tuples(INT64, INT64, INT64, INT64), max_size=50), st.binary(max_size=33))
def test_aborted_entries_round_trip_and_a_rest_is_ignored(
    rows: list[tuple[int, int, int, int]], rest: bytes
) -> None:
    data = b"".join(index_entries.pack_aborted_entry(*row) for row in rows)
    unpacked = index_entries.unpack_aborted_entries(data + rest)
    assert unpacked.tolist() == [list(row) for row in rows]
    assert unpacked.flags.c_contiguous
