"""Goal: the crash tests and the simulation find the defects that they are there for.
Method: plant one defect at a time and look for a failure within a bounded number of runs.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker import log_manager
from kafkalog.broker.directory.commands import AppendCommand, DeleteRecordsCommand, Step
from kafkalog.broker.directory.flusher import LogDirFlusher
from kafkalog.broker.directory.log_dir import LogDir
from kafkalog.broker.directory.writer import LogDirWriter
from kafkalog.broker.topics.registry import TopicRegistry
from kafkalog.broker.values import Acks
from kafkalog.errors import KafkalogError
from kafkalog.log import append
from kafkalog.log.local_log import LocalFlush, LocalLog
from kafkalog.log.segment.log_segment import LogSegment
from kafkalog.log.state.producer_state_manager import ProducerStateManager
from kafkalog.log.unified_log import UnifiedLog
from tests.crash import test_log_crashes, test_manager_crashes
from tests.crash.partition_run import Ledger, check, new_disk
from tests.sim.crash_enumeration import enumerate_crashes
from tests.sim.sim_faults import Effect
from tests.simulation.test_daemon_simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SEEDS = range(1, 301)


def stories_find_it() -> None:
    """The stories of one partition, coarsely."""
    for story in test_log_crashes.STORIES:
        work = test_log_crashes.workload(story)
        enumerate_crashes(Ledger, work, check, new_disk=new_disk, seeds=1, stride=2)


def simulation_finds_it() -> None:
    """At most a few hundred simulated daemons; most defects show within ten."""
    for seed in SEEDS:
        simulate(seed)


def failed_writes_find_it() -> None:
    """Short writes, one after the other."""
    test_log_crashes.test_a_failed_write_leaves_the_log_as_it_was(Effect.SHORT_WRITE, errno.ENOSPC)


def failed_syncs_find_it() -> None:
    """One lost fsync in one directory."""
    test_manager_crashes.test_a_failed_fsync_is_never_tried_again("datasync")


def ack_before_fsync(patch: pytest.MonkeyPatch) -> None:
    real = AppendCommand.run

    def run(self: AppendCommand, writer: Any) -> Step:
        self.acks, acks = Acks.LEADER, self.acks
        step = real(self, writer)
        self.acks = acks
        return step

    patch.setattr(AppendCommand, "run", run)


def directory_never_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LocalLog, "has_unsynced_names", property(lambda _: False))


def failed_fsync_tried_again(patch: pytest.MonkeyPatch) -> None:
    real = LogDirFlusher._outcome_of

    def outcome_of(self: LogDirFlusher, job: Any) -> Any:
        with suppress(OSError):
            job.run()
            return None
        plan = job.run.__self__
        plan._has_started = False
        return real(self, job)

    patch.setattr(LogDirFlusher, "_outcome_of", outcome_of)


def start_not_checkpointed(patch: pytest.MonkeyPatch) -> None:
    def run(self: DeleteRecordsCommand, writer: Any) -> Step:
        self.result = self.log.delete_records(self.offset)
        return Step.DONE

    patch.setattr(DeleteRecordsCommand, "run", run)


def offset_off_by_one(patch: pytest.MonkeyPatch) -> None:
    real = append.assign_offsets

    def assign_offsets(records: Any, end: int, epoch: int) -> Any:
        batches = real(records, end, epoch)
        if len(batches) > 1:
            last = batches[-1]
            batches[-1] = last._replace(
                base_offset=last.base_offset + 1, last_offset=last.last_offset + 1
            )
        return batches

    patch.setattr(append, "assign_offsets", assign_offsets)


def short_write_left(patch: pytest.MonkeyPatch) -> None:
    def cut_back(self: LogSegment, size_bytes: int, cause: OSError) -> None:
        self.size_bytes = self.log_file.pin_for_write().size()

    patch.setattr(LogSegment, "_cut_back", cut_back)


def marker_before_flush(patch: pytest.MonkeyPatch) -> None:
    real = log_manager.close_unit

    def close_unit(unit: Any, logs: Any, checkpoints: Any) -> bool:
        if unit.log_dir.is_online:
            with suppress(Exception):
                unit.log_dir.write_clean_shutdown_marker()
        return real(unit, logs, checkpoints)

    patch.setattr(log_manager, "close_unit", close_unit)


def registry_in_one_directory(patch: pytest.MonkeyPatch) -> None:
    real = TopicRegistry._write
    patch.setattr(
        TopicRegistry,
        "_write",
        lambda self, state, dirs, **others: real(self, state, list(dirs)[:1], **others),
    )


def watermark_passes_unsynced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        UnifiedLog,
        "_advance_high_watermark",
        lambda self: self.update_high_watermark(self.log_end_offset),
    )


def snapshot_at_close_not_synced(patch: pytest.MonkeyPatch) -> None:
    real = ProducerStateManager.take_snapshot

    def take_snapshot(self: ProducerStateManager, *, sync: bool) -> int | None:
        real(self, sync=False)
        self.note_synced(self.unsynced_paths)
        return None

    patch.setattr(ProducerStateManager, "take_snapshot", take_snapshot)


def flush_forgets_the_data(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LocalFlush, "run", lambda _: None)


def marker_left_in_place(patch: pytest.MonkeyPatch) -> None:
    def take(self: LogDir) -> bool:
        self.was_clean = self._filesystem.exists(f"{self.path}/.kafka_cleanshutdown")
        return self.was_clean

    patch.setattr(LogDir, "take_clean_shutdown_marker", take)


def recovery_point_raised_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    real = UnifiedLog.plan_flush

    def plan_flush(self: UnifiedLog, **kwargs: Any) -> Any:
        plan = real(self, **kwargs)
        if plan is not None:
            self.local.recovery_point = plan.end_offset
        return plan

    patch.setattr(UnifiedLog, "plan_flush", plan_flush)


def recovery_point_raised_by_a_failed_flush(patch: pytest.MonkeyPatch) -> None:
    real = LogDirWriter._finish_sync

    def finish_sync(self: LogDirWriter, done: Any) -> None:
        plan = getattr(self._syncs.get(done.key), "_plan", None)
        if plan is not None:
            done.key.local.recovery_point = plan.end_offset
        real(self, done)

    patch.setattr(LogDirWriter, "_finish_sync", finish_sync)


DEFECTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (ack_before_fsync, simulation_finds_it),
    (directory_never_synced, stories_find_it),
    (failed_fsync_tried_again, failed_syncs_find_it),
    (start_not_checkpointed, simulation_finds_it),
    (offset_off_by_one, stories_find_it),
    (short_write_left, failed_writes_find_it),
    (marker_before_flush, simulation_finds_it),
    (registry_in_one_directory, simulation_finds_it),
    (watermark_passes_unsynced, simulation_finds_it),
    (snapshot_at_close_not_synced, stories_find_it),
    (flush_forgets_the_data, stories_find_it),
    (marker_left_in_place, simulation_finds_it),
    (recovery_point_raised_before_the_sync, simulation_finds_it),
    (recovery_point_raised_by_a_failed_flush, simulation_finds_it),
]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("plant", "search"), DEFECTS, ids=lambda function: getattr(function, "__name__", None)
)
def test_a_planted_defect_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    search: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """M14 M15 M25: the tests above are worth something."""
    plant(monkeypatch)
    with pytest.raises((AssertionError, OSError, KafkalogError, pytest.fail.Exception)):
        search()
