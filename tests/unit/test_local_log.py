"""Goal: roll, read, flush plan, deletion and truncation keep the rules of a log.
Method: a log of small segments on the simulated disk; its files are looked at after every step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.log.local_log import LogSegments
from kafkalog.log.log_config import LogConfig
from kafkalog.log.values import CompletedTransaction
from tests.log_world import LogWorld, append, bytes_of, joined
from tests.naive.batches import PlainBatch, one_record

if TYPE_CHECKING:
    from kafkalog.log.local_log import LocalLog


def filled(world: LogWorld, segments: int = 3, each: int = 4) -> tuple[LocalLog, list[PlainBatch]]:
    """Segments at 0, 4, 8 ...; the last one is active."""
    log = world.new_log()
    batches = [one_record(offset, 1000 + offset) for offset in range(segments * each)]
    for batch in batches:
        if batch.base_offset and batch.base_offset % each == 0:
            log.roll()
        append(log, batch)
    return log, batches


def bases(log: LocalLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_roll_closes_the_old_segment() -> None:
    """M03 M06: trimmed indexes behind, preallocated ones in front, log end at the new base."""
    world = LogWorld()
    log, _ = filled(world)
    assert bases(log) == [0, 4, 8]
    assert world.size("00000000000000000004.index") == 0
    assert world.size("00000000000000000004.timeindex") == 12
    assert world.size("00000000000000000008.index") == 4096
    log.roll(20)
    assert log.log_end_offset == log.active_segment.base_offset == 20


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
    log.delete_segments(log.segments.non_active)
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
    assert (log.recovery_point, log.unflushed_offsets) == (12, 0)
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
    assert bytes_of(reader.read(0, 10_000)) == joined(batches[:4])
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


@pytest.mark.parametrize("offset", [0, 3, 4, 5, 8, 11, 12])
def test_truncation_keeps_what_is_below(offset: int) -> None:
    """M14, KAFKA-6492: and the log goes on from there."""
    log, batches = filled(LogWorld())
    log.recovery_point = 12
    log.truncate_to(offset)
    assert log.log_end_offset == log.recovery_point == offset
    assert log.active_segment.is_active
    for batch in batches[offset:]:
        append(log, batch)
    position = 0
    while (found := log.read(position, 10_000)) is not None:
        assert bytes(found.data) == joined(batches[position : found.next_offset])
        position = found.next_offset
    assert position == 12


def test_full_truncation_starts_again_anywhere() -> None:
    log, _ = filled(LogWorld())
    assert len(log.truncate_fully_and_start_at(8)) == 3
    assert (bases(log), log.log_end_offset) == ([8], 8)
    append(log, one_record(8))
    assert bytes_of(log.read(0, 1000)) == one_record(8).encode()


def test_close_and_delete() -> None:
    """M03: everything trimmed; then nothing is left."""
    world = LogWorld()
    log, _ = filled(world)
    log.close()
    assert world.size("00000000000000000008.index") == 0
    assert world.size("00000000000000000008.timeindex") == 12
    log.delete_all_segments()
    assert world.names() == []


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
    assert (found.first, found.active, found.non_active) == (
        segments[0],
        segments[2],
        tuple(segments[:2]),
    )
    found.remove(segments[:1])
    assert not found.contains(0)
    assert len(found) == 2
