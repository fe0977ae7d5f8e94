"""Goal: what a round does beside choosing records: bounds, throttle, snapshots, damaged indexes.
Method: small logs on a simulated disk; the twin and the oracle judge the choice elsewhere.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafkalog.cleaner.config import CleanerConfig
from kafkalog.errors import CorruptBatch, LogDirOffline
from kafkalog.format.records.record_batch import HEADER_BYTES, Codec
from kafkalog.log.inspect.invariants import check_invariants
from tests.cleaner_world import (
    COMPACT,
    DIRECTORY,
    CleanerWorld,
    OnWriterLike,
    one,
    record,
    segments_of,
)
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
    """M20: it lies outside the CRC, so only the batches beside it tell. The reason names the batch
    that is wrong, not the one behind it.
    """
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
