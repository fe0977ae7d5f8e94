"""Goal: a crash anywhere in a move leaves one serving copy that holds all that was acknowledged.
Method: cut the power at every disk call of a move under load, restart, let the move go on, cut
again and restart again; a directory that fails instead leaves the other one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.values import MoveState
from kafkalog.errors import KafkalogError
from kafkalog.format.topic_names import DirectoryState, parse_directory_name
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.values import Isolation
from tests.crash.after_a_start import anywhere, crashes_after_a_start, durable, workload
from tests.partition_world import records_of
from tests.sim.crash_enumeration import CrashPoint
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import SimulatedCrash
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem

A, B = DIRS


@dataclass
class Acknowledged:
    """Offsets of values whose produce was answered, and the log start that was."""

    values: dict[int, str] = field(default_factory=dict)
    log_start_offset: int = 0


def produce(sim: SimManager, value: str, acknowledged: Acknowledged) -> bool:
    """Append one record; an answer without error is a promise. 503 while the names change."""
    try:
        command = sim.produce("t", batch_of(value))
    except KafkalogError:
        return False
    if command.error is not None:
        return False
    acknowledged.values[command.result.first_offset] = value  # type: ignore[attr-defined]
    return True


def disk_with_records() -> SimFilesystem:
    sim = SimManager().start()
    sim.operations.topics.create(
        "t", 1, {"internal.segment.bytes": "250", "segment.index.bytes": "1000"}
    )
    for number in range(4):
        sim.produce("t", batch_of(f"before {number}"))
    return durable(sim)


def moves(sim: SimManager, acknowledged: Acknowledged) -> None:
    """Move the partition, append and delete records meanwhile, append behind it."""
    acknowledged.values = {number: f"before {number}" for number in range(4)}
    sim.operations.log_dirs.move("t", 0, B)
    for number in range(3):
        produce(sim, f"while {number}", acknowledged)
    if sim.delete_records("t", 2).error is None:
        acknowledged.log_start_offset = 2
    sim.threads.run_until(lambda: sim.operations.log_dirs.moves()[0].state is not MoveState.COPYING)
    produce(sim, "behind", acknowledged)
    sim.threads.run_until_idle()


def values_of(sim: SimManager) -> dict[int, str]:
    """Offset -> value of everything live."""
    log = sim.manager.logs.log_of("t", 0)
    values, offset = dict[int, str](), log.log_start_offset
    while data := log.read(offset, 1 << 20, Isolation.HIGH_WATERMARK).data:
        for record in records_of(data):
            values[record.offset] = (record.value or b"").decode()
        offset = max(values) + 1
    return values


def live(disk: SimFilesystem) -> list[str]:
    """Log directories with a directory of the partition's own name."""
    return [
        path
        for path in DIRS
        for entry in disk.list_dir_stats(path)
        if entry.is_dir and parse_directory_name(entry.name).state is DirectoryState.LIVE
    ]


def check(disk: SimFilesystem, acknowledged: Acknowledged, point: CrashPoint) -> None:
    acknowledged = replace(acknowledged, values=dict(acknowledged.values))  # one for all modes
    first = SimManager(disk, seed=2).start()
    holds_all(first, acknowledged)
    first.threads.run_until(
        lambda: all(
            each.state is not MoveState.COPYING for each in first.operations.log_dirs.moves()
        )
    )
    assert [each.state for each in first.operations.log_dirs.moves()] in ([], [MoveState.DONE])
    holds_all(first, acknowledged)
    assert produce(first, "second life", acknowledged)
    first.threads.kill_all()
    again = SimManager(first.disk.crash(CrashMode.DROP_ALL, 0), seed=3).start()
    holds_all(again, acknowledged)
    again.threads.kill_all()


def holds_all(sim: SimManager, acknowledged: Acknowledged) -> None:
    log = sim.manager.logs.log_of("t", 0)
    check_invariants(log)
    assert len(live(sim.disk)) == 1
    assert log.log_start_offset >= acknowledged.log_start_offset
    found = values_of(sim)
    for offset, value in acknowledged.values.items():
        if offset >= log.log_start_offset:
            assert found.get(offset) == value, f"offset {offset}"


@pytest.mark.parametrize(("stride", "seeds", "least"), [(5, 1, 40), anywhere(1, 2, 400)])
def test_a_crash_in_a_move_loses_nothing(stride: int, seeds: int, least: int) -> None:
    """As the file's, at every fifth disk call or at every one."""
    checked = crashes_after_a_start(
        Acknowledged, moves, check, disk_with_records, stride=stride, seeds=seeds
    )
    assert checked > least


def test_a_crash_around_the_two_renamings_loses_nothing() -> None:
    """Between its two renamings a partition has no directory of its name, and is found."""
    whole = disk_with_records()
    before = len(whole.operations)
    work = workload(moves)
    work(whole, Acknowledged())
    calls = [(each.kind, each.path) for each in whole.operations[before:]]
    first = calls.index(("rename", f"{A}/t-0"))
    without_a_name = 0
    for call in range(first, first + 8):
        disk, acknowledged = disk_with_records(), Acknowledged()
        disk.stop_at(before + call)
        with pytest.raises(SimulatedCrash):
            work(disk, acknowledged)
        for mode in (CrashMode.DROP_ALL, CrashMode.KEEP_ALL, CrashMode.SUBSET):
            left = disk.crash(mode, 0)
            without_a_name += not live(left)
            check(left, acknowledged, CrashPoint(call, False, mode, 0))
    assert without_a_name > 3
