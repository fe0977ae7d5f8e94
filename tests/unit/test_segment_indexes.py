"""Goal: offset, time and transaction index keep Kafka's rules for entries, files and damage.
Method: each index alone on the simulated disk, looked at through its entries and its file.
"""

from __future__ import annotations

import errno
import struct

import pytest

from kafkalog.errors import CorruptIndex
from kafkalog.format.disk.file_names import segment_file_name
from kafkalog.log.segment.offset_index import OffsetIndex
from kafkalog.log.segment.segment_file import SegmentFile
from kafkalog.log.segment.time_index import TimeIndex
from kafkalog.log.segment.transaction_index import TransactionIndex
from kafkalog.log.values import AbortedTransaction, OffsetPosition, TimestampOffset, WouldBlock
from tests.log_world import DIRECTORY, LogWorld

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
    assert index.lookup_upper_bound(OffsetPosition(110, 50), 41) == OffsetPosition(130, 140)
    assert index.lookup_upper_bound(OffsetPosition(110, 50), 91) is None
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


def test_failed_entry_leaves_the_index_as_it_was() -> None:
    world = LogWorld()
    index = offset_index(world)
    index.create()
    world.fail_writes_to(".index", errno.ENOSPC)
    with pytest.raises(OSError, match=f"Errno {errno.ENOSPC}"):
        index.append(110, 5)
    assert index.entries() == []
    world.heal()
    index.append(110, 5)
    assert index.entries() == [OffsetPosition(110, 5)]
