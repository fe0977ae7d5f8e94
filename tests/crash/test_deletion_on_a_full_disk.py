"""Goal: a topic that is made again in the life in which its deletion met a full disk is a new one.
Method: each disk call of the deletion fails in turn; what the next lives find is compared with what
the clients of the new topic were told.
"""

from __future__ import annotations

import errno

import pytest

from kafkalog.broker.directory.commands import AppendCommand
from kafkalog.broker.values import Acks
from kafkalog.errors import UnknownTopic
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Effect, Fault
from tests.sim.sim_manager import records_of
from tests.simulation.daemon_run import DIRS, DaemonRun, new_disk

FULL = frozenset(
    {"write", "create", "truncate", "rename", "sync", "datasync", "sync_dir", "make_dir"}
)


def old_topic() -> DaemonRun:
    """Six partitions with records, a moved start that is checkpointed, and a producer."""
    run = DaemonRun(new_disk(DIRS[:2]), dirs=DIRS[:2], racy=False)
    run.start()
    run.create_topic("t", 6)
    for partition in range(6):
        for _ in range(6):
            run.produce("t", partition, Acks.ALL, client=1)
        run.run_until_idle()
        run.delete_records("t", partition, 4)
    run.run_until_idle()
    return run


def deleted_on_a_full_disk(nth: int) -> tuple[DaemonRun, bool]:
    """The deletion whose ``nth`` call fails, and whether one did; then there is space again."""
    run = old_topic()
    fault = run.disk.faults.add(Fault(Effect.RAISE, errno.ENOSPC, FULL, nth=nth))
    run.delete_topic("t")
    run.run_until_idle()
    has_failed = fault.seen >= nth
    run.disk.faults.clear()
    run.life.clock.advance_ms(300)
    if run.topics["t"].exists:  # the registry was refused: nothing was deleted
        run.delete_topic("t")
    return run, has_failed


@pytest.mark.parametrize("mode", [None, CrashMode.DROP_ALL, CrashMode.KEEP_ALL])
def test_a_topic_made_again_is_a_new_one(mode: CrashMode | None) -> None:
    """M14 M15: offsets from 0, its own records, in this life and after a kill or a power cut."""
    nth, has_failed = 0, True
    while has_failed:
        nth += 1
        run, has_failed = deleted_on_a_full_disk(nth)
        run.topics["t"].partitions.clear()
        run.create_topic("t", 6)
        assert run.topics["t"].exists
        for partition in range(6):
            for _ in range(2):
                run.produce("t", partition, Acks.ALL, client=1)
            run.run_until_idle()
            run.fetch_all("t", partition)
            run.check_offsets("t", partition)
            assert run.topics["t"].partition(partition).durable_end == 2, nth
        run.check_life()
        if mode is None:
            run.kill()
        else:
            run.crash(mode)
        run.start()
        try:
            run.check_restart(is_kill=mode is None)
        except AssertionError as error:
            error.add_note(f"the deletion's call {nth} failed")
            raise
    assert nth > 15, "calls of a deletion"


def test_a_late_append_to_the_deleted_topic_is_refused() -> None:
    """M15: also for partitions that the deletion did not come to before it met the full disk."""
    nth, has_failed = 0, True
    while has_failed:
        nth += 1
        run = old_topic()
        logs = [run.life.operations.partition_log("t", partition) for partition in range(6)]
        fault = run.disk.faults.add(Fault(Effect.RAISE, errno.ENOSPC, FULL, nth=nth))
        run.delete_topic("t")
        has_failed = fault.seen >= nth
        run.disk.faults.clear()
        run.life.clock.advance_ms(300)
        if run.topics["t"].exists:
            continue
        for log in logs:
            batch = build_batch(RecordColumns.of([None], ["late"], 1))
            late = AppendCommand(log, records_of(batch, log), Acks.LEADER, None, None)
            run.life.manager.logs.unit_of(log).writer.submit(late)
            run.run_until_idle()
            assert isinstance(late.error, UnknownTopic), (nth, log.topic_partition)
