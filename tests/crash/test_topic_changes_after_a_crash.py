"""Goal: a change of a topic or of the broker is whole after a crash: the old state or the new one,
also when its disk was full.
Method: a simulated disk that stops, or refuses, at each call.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.directory.commands import AppendCommand
from kafkalog.broker.directory.log_dir import REGISTRY_FILE
from kafkalog.broker.topics.registry import decode_registry
from kafkalog.broker.values import Acks, ConfigChange
from kafkalog.errors import UnknownTopic
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.topic_names import parse_directory_name
from tests.crash.after_a_start import anywhere, crashes_after_a_start, durable
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Effect, Fault
from tests.sim.sim_manager import DIRS, SimManager, batch_of, records_of
from tests.simulation.daemon_run import DIRS as RUN_DIRS, DaemonRun, new_disk

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.crash_enumeration import CrashPoint
    from tests.sim.sim_filesystem import SimFilesystem

    Change = Callable[[SimManager], object]
    Seen = tuple[dict[str, str], dict[str, str], int]


def alter(sim: SimManager) -> None:
    changes = [ConfigChange("flush.messages", "7"), ConfigChange("retention.ms", None)]
    sim.operations.topics.alter_configs("t", changes)


def alter_broker(sim: SimManager) -> None:
    changes = [
        ConfigChange("log.flush.interval.ms", "70"),
        ConfigChange("log.retention.bytes", "9"),
    ]
    sim.operations.alter_broker_configs(changes)


def grow(sim: SimManager) -> None:
    sim.operations.topics.create_partitions("t", 4)


def several(sim: SimManager) -> None:
    alter_broker(sim)
    grow(sim)
    alter(sim)


@dataclass
class Told:
    is_done: bool = False


def seen(sim: SimManager) -> Seen:
    """Overrides, broker configs and partition count in force."""
    topic = sim.operations.topics.describe("t")
    return (
        dict(topic.overrides),
        dict(sim.manager.registry.state.broker_configs),
        topic.partition_count,
    )


def disk_with_a_topic() -> SimFilesystem:
    sim = SimManager().start().with_topic("t", 2, {"retention.ms": "5"})
    sim.produce("t", batch_of("a"), partition=1)
    return durable(sim)


def check(allowed: list[Seen]) -> Callable[[SimFilesystem, Told, CrashPoint], None]:
    def look(disk: SimFilesystem, told: Told, point: CrashPoint) -> None:
        first = SimManager(disk, seed=2).start()
        found = seen(first)
        assert found in allowed
        if told.is_done:
            assert found == allowed[-1]
        check_whole(first)
        produced = first.produce("t", batch_of("b"), partition=found[2] - 1)
        assert produced.error is None
        first.threads.kill_all()
        again = SimManager(first.disk.crash(CrashMode.DROP_ALL, 0), seed=3).start()
        assert seen(again) == found
        check_whole(again)
        assert again.manager.logs.log_of("t", 1).log_end_offset >= 1
        assert again.manager.logs.log_of("t", found[2] - 1).log_end_offset >= 1
        again.threads.kill_all()

    return look


def check_whole(sim: SimManager) -> None:
    """All directories agree, every partition is there once and has the config in force."""
    overrides, broker, count = seen(sim)
    files = {sim.disk.read_file(f"{path}/{REGISTRY_FILE}") for path in DIRS}
    assert len(files) == 1
    state = decode_registry(files.pop())
    assert (dict(state.topics["t"].overrides), dict(state.broker_configs)) == (overrides, broker)
    config = sim.manager.logs.rules.topic_config(overrides, broker)
    assert [sim.manager.logs.log_of("t", number).config for number in range(count)] == [
        config
    ] * count
    assert len(sim.manager.logs.table) == count
    names = [
        parsed
        for path in DIRS
        for entry in sim.disk.list_dir_stats(path)
        if entry.is_dir and (parsed := parse_directory_name(entry.name))
    ]
    live = sorted(each.topic_partition.partition for each in names if each.state.name == "LIVE")
    assert live == list(range(count))
    assert not [each for each in names if each.state.name == "STRAY"]


@pytest.mark.parametrize(
    ("change", "stride", "least"),
    [
        (alter, 3, 10),
        (alter_broker, 3, 10),
        (grow, 17, 10),
        *(anywhere(change, 1, 40) for change in (alter, alter_broker, grow, several)),
    ],
)
def test_a_change_is_whole_after_a_crash(change: Change, stride: int, least: int) -> None:
    """M13 M14: at some calls or at every one, in every mode; what was answered is in force."""

    def story(sim: SimManager, told: Told) -> None:
        change(sim)
        told.is_done = True

    allowed = allowed_states(change)
    checked = crashes_after_a_start(Told, story, check(allowed), disk_with_a_topic, stride=stride)
    assert checked > least


def allowed_states(change: Change) -> list[Seen]:
    steps = [alter_broker, grow, alter] if change is several else [change]
    sim = SimManager(disk_with_a_topic(), seed=1).start()
    states = [seen(sim)]
    for step in steps:
        step(sim)
        states.append(seen(sim))
    return states


FULL = frozenset(
    {"write", "create", "truncate", "rename", "sync", "datasync", "sync_dir", "make_dir"}
)


def old_topic() -> DaemonRun:
    """Six partitions with records, a moved start that is checkpointed, and a producer."""
    run = DaemonRun(new_disk(RUN_DIRS[:2]), dirs=RUN_DIRS[:2], racy=False)
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
