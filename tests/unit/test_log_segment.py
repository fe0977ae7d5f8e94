"""Goal: a segment appends all or nothing, reads whole checked batches, rolls, recovers, truncates.
Method: small hand-made batches on the simulated disk; files damaged byte by byte where it matters.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import CorruptBatch
from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment.segment_recovery import BadBatch, SegmentOffsetOverflow
from kafkalog.log.values import CompletedTransaction, TimestampOffset, WouldBlock
from tests.log_world import LogWorld, append, bytes_of, joined
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


def test_read_starts_at_the_batch_that_ends_at_or_behind_the_offset() -> None:
    """M04: inside a batch the whole batch comes; behind a gap the next one."""
    segment = LogWorld().new_segment()
    batches = [
        PlainBatch(0, (1, 2, 3), (b"a", b"b", b"c")),
        PlainBatch(3, (4,), (b"d",), last_offset_delta=4),
        one_record(20, 5),
    ]
    append(segment, *batches)
    assert bytes_of(segment.read(1, 10_000)) == joined(batches)
    assert bytes_of(segment.read(7, 10_000)) == joined(batches[1:])
    found = segment.read(8, 10_000)
    assert found is not None
    assert (found.base_offset, found.next_offset, found.batch_count) == (20, 21, 1)
    assert segment.read(21, 10_000) is None


def test_read_respects_bytes_and_offset() -> None:
    segment, batches = filled(LogWorld())
    size = len(batches[0].encode())
    assert bytes_of(segment.read(2, 2 * size)) == joined(batches[2:4])
    assert bytes_of(segment.read(2, 2 * size - 1)) == joined(batches[2:3])
    assert bytes_of(segment.read(2, 1)) == joined(batches[2:3])
    assert bytes_of(segment.read(2, 1, min_one_batch=False)) == b""
    assert bytes_of(segment.read(2, 10_000, max_offset=5)) == joined(batches[2:5])
    assert segment.read(2, 10_000, max_offset=2) is None


def test_batch_larger_than_any_chunk_is_read_whole() -> None:
    segment = LogWorld().new_segment()
    batches = [one_record(0), one_record(1, value=b"x" * 50_000), one_record(2)]
    append(segment, *batches)
    assert bytes_of(segment.read(1, 10)) == joined(batches[1:2])
    assert bytes_of(segment.read(2, 10)) == joined(batches[2:])
    assert bytes_of(segment.read(1, 10, min_one_batch=False)) == b""


def test_bad_batch_first_is_an_error_later_ends_the_answer() -> None:
    world = LogWorld()
    segment, batches = filled(world)
    size = len(batches[0].encode())
    world.flip(LOG, 5 * size + 100)
    assert bytes_of(segment.read(0, 10_000)) == joined(batches[:5])
    assert bytes_of(segment.read(6, 10_000)) == joined(batches[6:])
    with pytest.raises(CorruptBatch) as caught:
        segment.read(5, 10_000)
    assert caught.value.position == 5 * size
    assert caught.value.details["base_offset"] == 5
    assert caught.value.details["last_offset"] == 5


def test_damaged_size_is_never_read_as_an_end() -> None:
    world = LogWorld()
    segment, batches = filled(world)
    world.flip(LOG, 5 * len(batches[0].encode()) + 8)
    with pytest.raises(CorruptBatch):
        segment.read(5, 10_000)


def test_cold_reads_say_so() -> None:
    world = LogWorld()
    segment, batches = filled(world)
    segment.close()
    closed = world.reopened(segment)
    with pytest.raises(WouldBlock):
        closed.read(0, 10_000, may_block=False)
    assert bytes_of(closed.read(0, 10_000)) == joined(batches)
    assert bytes_of(closed.read(0, 10_000, may_block=False)) == joined(batches)


def test_opening_a_closed_segment_touches_no_file() -> None:
    """M14: descriptors and reads come with first use."""
    world = LogWorld()
    segment, _ = filled(world)
    segment.close()
    before = world.call_count
    closed = world.reopened(segment)
    assert world.call_count == before + 1  # the stat that stands for the listing
    assert closed.largest_timestamp_ms() == 1090
    assert closed.first_batch_timestamp_ms() == 1000
    assert closed.read_next_offset() == 10


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
    assert bytes_of(segment.read(0, 10_000)) == joined(batches + more)
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
    assert bytes_of(segment.read(0, 10_000)) == joined(batches)
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


def test_timestamp_queries_follow_log_order() -> None:
    """M05: timestamps 1000 3000 2000 3000 at offsets 0 to 3 (log-lifecycle 16)."""
    segment = LogWorld().new_segment()
    for offset, timestamp in enumerate((1000, 3000, 2000, 3000)):
        append(segment, one_record(offset, timestamp))
    assert segment.find_offset_by_timestamp(1500, 0) == TimestampOffset(3000, 1)
    assert segment.find_offset_by_timestamp(2500, 0) == TimestampOffset(3000, 1)
    assert segment.find_offset_by_timestamp(1500, 2) == TimestampOffset(2000, 2)
    assert segment.find_offset_by_timestamp(3001, 0) is None
    assert segment.find_max_timestamp_record() == TimestampOffset(3000, 1)


def test_clean_close_forces_the_last_time_entry() -> None:
    """M03 M05: index trimmed to nothing, time index to the one forced entry."""
    world = LogWorld()
    segment, _ = filled(world, 3)
    segment.close()
    assert world.size("00000000000000000000.index") == 0
    assert world.size("00000000000000000000.timeindex") == 12
    assert world.reopened(segment).max_timestamp_so_far() == TimestampOffset(1020, 2)


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
    assert result.bad_position == result.valid_bytes == good == world.size(LOG)
    assert result.next_offset == 9
    assert found.max_timestamp_so_far() == TimestampOffset(1080, 8)
    found.become_active()
    append(found, batches[9])
    assert bytes_of(found.read(0, 10_000)) == joined(batches)


def test_recovery_stops_at_offsets_that_fall() -> None:
    world = LogWorld()
    segment = world.new_segment()
    append(segment, one_record(0), one_record(5))
    append(segment, one_record(5), one_record(6))
    result = world.reopened(segment).recover()
    assert (result.bad_batch, result.next_offset) == (BadBatch.BAD_OFFSET, 6)


def test_recovery_names_offsets_that_do_not_fit() -> None:
    world = LogWorld()
    segment = world.new_segment()
    append(segment, one_record(0))
    far = one_record(2**31).encode()
    segment.log_file.acquire().pwrite(far, segment.size_bytes)
    with pytest.raises(SegmentOffsetOverflow):
        world.reopened(segment).recover()


def test_recovery_of_a_preallocated_tail_cuts_the_zeros() -> None:
    """M14: preallocate=true leaves zeros behind the last batch."""
    config = LogConfig(segment_index_bytes=4096, internal_segment_bytes=5000, preallocate=True)
    world = LogWorld(config)
    segment, batches = filled(world, 3)
    assert world.size(LOG) == 5000
    result = world.reopened(segment).recover()
    assert result.valid_bytes == world.size(LOG) == len(joined(batches))


def test_padded_time_index_does_not_make_a_segment_old() -> None:
    """M08, KAFKA-10207: the largest timestamp is found in the log instead."""
    world = LogWorld()
    segment, _ = filled(world)
    found = world.reopened(segment)  # as after a crash: both indexes still padded
    assert found.largest_timestamp_ms() == 1090
    assert bytes_of(found.read(9, 10)) is not None
    assert world.size("00000000000000000000.timeindex") > 12
    found.become_active()
    append(found, one_record(10, 2000))
    assert found.largest_timestamp_ms() == 2000
    found.close()
    closed = world.reopened(found)
    closed.offset_index.sanity_check()
    closed.time_index.sanity_check()
    assert closed.max_timestamp_so_far() == TimestampOffset(2000, 10)


def test_truncation_keeps_smaller_offsets_and_an_appendable_segment() -> None:
    """M14, KAFKA-6492: also down to an empty segment, whose index is not full then."""
    world = LogWorld(LogConfig(segment_index_bytes=4096, index_interval_bytes=0))
    segment, batches = filled(world)
    segment.on_become_inactive()
    assert segment.truncate_to(4) == len(joined(batches[4:]))
    assert [entry.offset for entry in segment.offset_index.entries()] == [1, 2, 3]
    assert bytes_of(segment.read(0, 10_000)) == joined(batches[:4])
    assert segment.truncate_to(0) == len(joined(batches[:4]))
    assert segment.size_bytes == 0
    assert segment.offset_index.file.acquire().size() == 4096
    assert not must_roll(segment, max_bytes=10_000)
    append(segment, *batches)
    assert bytes_of(segment.read(0, 10_000)) == joined(batches)


def test_only_aborted_transactions_are_noted() -> None:
    world = LogWorld()
    segment, _ = filled(world)
    segment.update_transaction_index(CompletedTransaction(1, 0, 2, is_aborted=False), 3)
    assert not segment.transaction_index.exists
    segment.update_transaction_index(CompletedTransaction(1, 3, 5, is_aborted=True), 6)
    assert len(segment.transaction_index.entries()) == 1
    assert len(segment.files_to_flush()) == 4


def test_deleted_segment_stays_readable_for_who_found_it() -> None:
    """M12: renamed, then removed; missing files are named, not errors."""
    world = LogWorld()
    segment, batches = filled(world)
    segment.close()
    found = world.reopened(segment)
    assert found.change_suffix(".deleted") == []
    assert all(name.endswith(".deleted") for name in world.names())
    assert bytes_of(found.read(0, 10_000)) == joined(batches)
    world.filesystem.unlink(f"{world.directory.path}/{LOG}.deleted")
    assert found.delete_files() == [f"{LOG}.deleted"]
    assert world.names() == []
