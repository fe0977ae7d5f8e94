"""Goal: append, roll, read, flush plan, watermarks, look-ups, deletion, truncation and loading of
one partition follow Kafka.
Method: logs on a simulated disk and clock.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import (
    ExpectedOffsetMismatch,
    OffsetAboveHighWatermark,
    OffsetAboveLogEnd,
    OffsetBelowLogStart,
    OutOfOrderSequence,
    RecordSetTooLarge,
)
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.records.record_batch import read_header
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.local_log import LogSegments
from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment import segment_reader
from kafkalog.log.unified_log import UnifiedLog
from kafkalog.log.values import AppendOrigin, CompletedTransaction, Isolation
from tests.log_world import LogWorld, append, bytes_of, filled, joined
from tests.naive.batches import one_record
from tests.partition_world import DIRECTORY, NOW_MS, PartitionWorld, batch, checked

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log.local_log import LocalLog


def world_of(**config: int) -> PartitionWorld:
    return PartitionWorld(LogConfig(**config))  # type: ignore[arg-type] # integers only


def test_an_adopted_log_keeps_its_leader_epoch() -> None:
    """M25: the next append goes on under the newest epoch; the cache is not cut back to 0."""
    world = world_of()
    world.log.append(checked(batch([b"a"])), leader_epoch=5, synced=False)
    world.reopen(clean=True)
    world.append(batch([b"b"]))
    assert [(entry.epoch, entry.start_offset) for entry in world.log.epochs.entries] == [(5, 0)]
    found = world.log.read(1, 1000, Isolation.LOG_END)
    assert read_header(found.data).leader_epoch == 5


def test_a_set_is_a_retry_as_a_whole_or_refused() -> None:
    """M25: stored and new batches in one set: nothing is dropped behind a duplicate."""
    world = world_of()
    first, second = (batch([b"v"], producer=(7, 0, sequence)) for sequence in (0, 1))
    world.append(first)
    with pytest.raises(OutOfOrderSequence, match="1 of 2 batches"):
        world.append(first + second)
    assert world.log.log_end_offset == 1
    assert world.append(second).first_offset == 1
    again = world.append(first + second)
    assert again.duplicate
    assert (again.first_offset, again.last_offset, again.record_count) == (0, 1, 2)
    assert world.log.log_end_offset == 2


def test_event_time_roll() -> None:
    """1000 ms is not more than segment.ms, 1001 is; an old timestamp does not roll."""
    world = world_of(segment_ms=1000)
    for timestamp in (1000, 2000, 2001, 500):
        world.append(batch([b"v"], timestamps=timestamp))
    assert world.bases() == [0, 2]


def test_lookup_by_timestamp() -> None:
    """The first record at or after, in log order; -3 takes the first of equals (KAFKA-16310)."""
    world = world_of()
    assert world.log.offset_for_timestamp(-3, Isolation.HIGH_WATERMARK) is None
    for timestamp in (1000, 3000, 2000, 3000):
        world.append(batch([b"v"], timestamps=timestamp))
    for asked, expected in ((1500, 1), (2500, 1), (3001, None), (-3, 1), (-1, 4), (-2, 0)):
        found = world.log.offset_for_timestamp(asked, Isolation.HIGH_WATERMARK)
        assert (found.offset if found else None) == expected
    batch_of_three = batch([b"a", b"b", b"c"], timestamps=[4000, 9000, 5000])
    world.append(batch_of_three)
    newest = world.log.offset_for_timestamp(-3, Isolation.HIGH_WATERMARK)
    assert newest is not None
    assert newest.offset == 5


def test_closed_log_files() -> None:
    """Index trimmed to 0 bytes, time index to 12, a snapshot at the log end without producers."""
    world = world_of()
    world.append(batch([b"v"]))
    world.flush()
    world.log.close()
    sizes = {stat.name: stat.size for stat in world.filesystem.list_dir_stats(DIRECTORY)}
    assert sizes["00000000000000000000.index"] == 0
    assert sizes["00000000000000000000.timeindex"] == 12
    assert sizes["00000000000000000001.snapshot"] == 10


def test_synced_batches_are_hidden_until_flushed() -> None:
    """The high watermark stops before the first unflushed acks=all batch."""
    world = world_of()
    world.append(batch([b"a"]))
    assert world.log.high_watermark == 1
    world.append(batch([b"b"]), synced=True)
    world.append(batch([b"c"]))
    assert world.log.high_watermark == 1
    plan = world.log.plan_flush()
    assert plan is not None
    world.append(batch([b"d"]), synced=True)
    plan.run()
    world.log.mark_flushed(plan)
    assert (world.log.high_watermark, world.log.recovery_point) == (3, 3)
    world.flush()
    assert world.log.high_watermark == 4


def test_duplicates_gaps_and_restart() -> None:
    """M05: one of the last five batches answers with its first offsets; a gap is refused."""
    world = world_of()
    for sequence in range(6):
        world.append(batch([b"v"], producer=(7, 0, sequence)))
    again = world.append(batch([b"v"], producer=(7, 0, 3)))
    assert again.duplicate
    assert (again.first_offset, world.log.log_end_offset) == (3, 6)
    for sequence in (0, 8):
        with pytest.raises(OutOfOrderSequence):
            world.append(batch([b"v"], producer=(7, 0, sequence)))
    for clean in (False, True):
        world.reopen(clean=clean)
        assert world.append(batch([b"v"], producer=(7, 0, 5))).duplicate
    assert world.append(batch([b"v"], producer=(7, 0, 6))).first_offset == 6


def test_duplicate_may_roll_and_writes_nothing() -> None:
    """Roll comes before the duplicate check (log-lifecycle 18.1)."""
    one = batch([b"v"], producer=(7, 0, 0))
    world = world_of(internal_segment_bytes=len(one))
    world.append(one)
    assert world.append(one).duplicate
    assert world.bases() == [0, 1]
    assert world.log.size_bytes == len(one)


def test_refused_appends_change_nothing() -> None:
    world = world_of(internal_segment_bytes=100)
    with pytest.raises(RecordSetTooLarge):
        world.append(batch([bytes(200)]))
    assert world.log.size_bytes == 0
    with pytest.raises(ExpectedOffsetMismatch):
        world.log.append(checked(batch([b"v"])), synced=False, expected_offset=3)


def test_bounds_and_delete_records() -> None:
    world = world_of()
    world.append(batch([b"a", b"b", b"c"]))
    with pytest.raises(OffsetAboveHighWatermark):
        world.log.delete_records(4)
    assert world.log.delete_records(1) == 1
    assert world.log.delete_records(0) == 1
    with pytest.raises(OffsetBelowLogStart):
        world.log.read(0, 100, Isolation.HIGH_WATERMARK)
    with pytest.raises(OffsetAboveLogEnd):
        world.log.read(4, 100, Isolation.HIGH_WATERMARK)
    assert world.log.read(1, 1000, Isolation.HIGH_WATERMARK).base_offset == 0
    assert not world.log.read(3, 1000, Isolation.HIGH_WATERMARK).data
    assert world.log.delete_records(-1) == 3
    world.reopen(clean=True)
    assert world.log.log_start_offset == 3


def test_transactions_and_last_stable_offset() -> None:
    world = world_of()
    world.append(batch([b"a"], producer=(7, 0, 0), is_transactional=True))
    world.append(batch([b"b"]))
    assert world.log.last_stable_offset == 0
    marker = build_end_transaction_marker(7, 0, 0, ControlRecordType.ABORT, timestamp_ms=NOW_MS)
    world.append(marker, origin=AppendOrigin.COORDINATOR)
    for clean in (None, True, False):
        if clean is not None:
            world.reopen(clean=clean)
        assert world.log.last_stable_offset == 3
        found = world.log.read(0, 1000, Isolation.LAST_STABLE)
        aborted = [
            (each.producer_id, each.first_offset, each.last_offset) for each in found.aborted
        ]
        assert aborted == [(7, 0, 2)]
    check_invariants(world.log)


def test_the_last_stable_offset_is_live() -> None:
    world = world_of()
    world.append(batch([b"a", b"b"], producer=(7, 0, 0), is_transactional=True))
    world.append(batch([b"c"], producer=(7, 0, 2), is_transactional=True))
    world.log.delete_records(1)
    assert world.log.last_stable_offset == 1
    assert not world.log.read(1, 1000, Isolation.LAST_STABLE).data
    check_invariants(world.log)
    world.reopen(clean=True)
    assert world.log.last_stable_offset == 1
    marker = build_end_transaction_marker(7, 0, 0, ControlRecordType.ABORT, timestamp_ms=NOW_MS)
    world.append(marker, origin=AppendOrigin.COORDINATOR)
    assert world.log.last_stable_offset == 4


class MetLog(UnifiedLog):
    """Lets a writer in right before the n-th look at it."""

    looks_before = 0
    writer: Callable[[], object] | None = None

    def __getattribute__(self, name: str) -> Any:  # of any attribute
        writer = MetLog.writer
        if writer is not None:
            MetLog.looks_before -= 1
            if MetLog.looks_before < 0:
                MetLog.writer = None
                writer()
        return super().__getattribute__(name)


def test_the_last_stable_offset_passes_no_open_transaction() -> None:
    looks, has_met = 0, True
    while has_met:
        world = world_of()
        world.log.__class__ = MetLog
        MetLog.looks_before = looks
        MetLog.writer = partial(
            world.append, batch([b"a"], producer=(7, 0, 0), is_transactional=True)
        )
        stable = world.log.last_stable_offset
        has_met, MetLog.writer = MetLog.writer is None, None
        assert (stable, world.log.high_watermark) == (0, int(has_met))
        looks += 1
    assert looks > 2


def test_truncate() -> None:
    world = world_of(internal_segment_bytes=200)
    for sequence in range(6):
        world.append(batch([bytes(30)], producer=(7, 0, sequence)))
    world.log.truncate_to(3)
    assert world.log.log_end_offset == 3
    assert world.append(batch([b"n"], producer=(7, 0, 3))).first_offset == 3
    world.log.truncate_fully_and_start_at(10)
    assert (world.log.log_start_offset, world.log.log_end_offset) == (10, 10)
    check_invariants(world.log)


def bases(log: LocalLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_kafka_6388_a_roll_onto_its_own_empty_base_replaces_the_segment() -> None:
    """M06, KAFKA-6388: an index without slots makes every append roll, and nothing breaks."""
    world = LogWorld(LogConfig(segment_index_bytes=4))
    log = world.new_log()
    first = log.active_segment
    log.roll()
    assert bases(log) == [0]
    assert log.active_segment is not first
    assert "00000000000000000000.log.deleted" in world.names()
    append(log, one_record(0))
    world.run_tasks()
    assert [name for name in world.names() if name.endswith(".deleted")] == []
    assert bytes_of(log.read(0, 1000)) == one_record(0).encode()


def test_empty_segment_before_a_far_offset_is_left_alone() -> None:
    """M06, KAFKA-12889: offsets 2^31 apart; the empty segment can be deleted like any other."""
    world = LogWorld()
    log = world.new_log()
    log.roll(2**31)
    append(log, one_record(2**31))
    assert bases(log) == [0, 2**31]
    assert bytes_of(log.read(0, 1000)) == one_record(2**31).encode()
    log.delete_segments(log.segments.values[:-1])
    assert bases(log) == [2**31]


def test_roll_removes_left_over_files_of_the_new_name() -> None:
    world = LogWorld()
    log, _ = filled(world, 1)
    world.filesystem.open_write(f"{world.directory.path}/00000000000000000004.log").pwrite(b"x", 0)
    log.roll()
    assert world.size("00000000000000000004.log") == 0


def test_read_goes_on_in_the_next_segment_but_never_spans_two() -> None:
    """M04: file by name, then the entry, then the scan."""
    log, batches = filled(LogWorld())
    assert bytes_of(log.read(2, 10_000)) == joined(batches[2:4])
    assert bytes_of(log.read(4, 10_000)) == joined(batches[4:8])
    assert bytes_of(log.read(6, 10_000, max_offset=7)) == joined(batches[6:7])
    assert log.read(6, 10_000, max_offset=6) is None
    assert log.read(12, 10_000) is None
    log.roll(50)
    assert log.read(12, 10_000) is None


def test_aborted_transactions_are_collected_across_segments() -> None:
    log, _ = filled(LogWorld())
    for segment, first in zip(log.segments, (0, 4, 8), strict=True):
        completed = CompletedTransaction(7, first, first + 2, is_aborted=True)
        segment.update_transaction_index(completed, first + 3)
    assert [found.first_offset for found in log.collect_aborted(3, 100)] == [4, 8]
    assert [found.first_offset for found in log.collect_aborted(0, 6)] == [0, 4]


def test_flush_plan_covers_what_is_dirty_and_nothing_else() -> None:
    """M14: a roll's flush leaves the active segment out; the recovery point never goes back."""
    world = LogWorld()
    log, _ = filled(world)
    plan = log.plan_flush(include_active=False)
    assert plan is not None
    assert plan.end_offset == 8
    assert len(plan.files) == 6
    assert plan.directory is not None
    plan.run()
    log.mark_flushed(plan)
    assert log.recovery_point == 8
    assert log.plan_flush(include_active=False) is None
    assert not log.segments.first.log_file.is_pinned
    plan = log.plan_flush()
    assert plan is not None
    assert {file.name for file in plan.files} == {
        "00000000000000000008.log",
        "00000000000000000008.index",
        "00000000000000000008.timeindex",
    }
    plan.run()
    log.mark_flushed(plan)
    assert (log.recovery_point, log.log_end_offset) == (12, 12)
    assert log.plan_flush() is None
    append(log, one_record(12))
    assert log.plan_flush() is not None


def test_flush_overtaken_by_deletion_is_no_error() -> None:
    """KAFKA-15391: the files and then the directory are gone."""
    world = LogWorld()
    log, _ = filled(world)
    plan = log.plan_flush()
    assert plan is not None
    log.delete_all_segments()
    log.rename_dir(f"{world.directory.path}-delete")
    plan.run()


def test_deletion_renames_now_and_removes_later() -> None:
    """M12: synchronously .deleted, gone after file.delete.delay.ms; missing files are no error."""
    world = LogWorld()
    log, batches = filled(world)
    reader = log.segments.first
    world.filesystem.unlink(f"{world.directory.path}/00000000000000000004.timeindex")
    log.delete_segments(log.segments.values[:2])
    assert bases(log) == [8]
    deleted = [name for name in world.names() if name.endswith(".deleted")]
    assert len(deleted) == 5
    assert bytes_of(segment_reader.read(reader, 0, 10_000)) == joined(batches[:4])
    world.run_tasks()
    assert [name for name in world.names() if name.endswith(".deleted")] == []


def test_deletion_task_follows_a_renamed_directory() -> None:
    """M12, KAFKA-19571: the partition directory moved between the renaming and the task."""
    world = LogWorld()
    log, _ = filled(world)
    log.delete_segments(log.segments.values[:1])
    log.rename_dir(f"{world.directory.path}.x-delete")
    world.run_tasks()
    assert [name for name in world.names() if name.endswith(".deleted")] == []


def test_neighbours_in_the_set_of_segments() -> None:
    world = LogWorld()
    segments = [world.new_segment(base) for base in (0, 11, 23)]
    found = LogSegments(reversed(segments))
    assert found.values == tuple(segments)
    assert found.floor(22) is segments[1]
    assert found.floor(-1) is None
    assert found.lower(11) is segments[0]
    assert found.higher(11) is segments[2]
    assert found.higher(23) is None
    assert found.values_between(12, 23) == (segments[1],)
    assert found.values_between(12, 24) == tuple(segments[1:])
    assert found.higher_values(0) == tuple(segments[1:])
    assert (found.first, found.active) == (segments[0], segments[2])
    found.remove(segments[:1])
    assert not found.contains(0)
    assert len(found) == 2
