"""Goal: a backup is whole and true of one moment, whatever changes while it is taken.
Method: clients, retention, swaps and deletions on simulated threads at every switch point.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.background import OperationState
from kafkalog.broker.backup.backup import Backup
from kafkalog.broker.directory.log_dir import REGISTRY_FILE
from kafkalog.broker.topics.registry import decode_registry
from kafkalog.broker.values import Acks
from kafkalog.errors import (
    KafkalogError,
)
from kafkalog.format.disk.file_names import CLEANED_SUFFIX, segment_file_name
from kafkalog.log.segment.log_segment import LogSegment
from kafkalog.log.segment.segment_swap import SegmentSwap
from kafkalog.log.values import AppendedBatch
from tests.backup_world import (
    BACKUP,
    NEW_DIRS,
    NOW_MS,
    back_up,
    batch,
    check_restored,
    check_sound,
    fill,
    log_of,
    make_places,
    new_disk,
    restore,
    snapshot,
    started,
    with_data,
)
from tests.crash.partition_run import contents
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.sim_manager import SimManager, records_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log.unified_log import UnifiedLog

SUCCEEDED, FAILED = OperationState.SUCCEEDED, OperationState.FAILED


def _client(sim: SimManager, seed: int) -> Callable[[], None]:
    """Appends to all partitions, some of them rolling."""

    def run() -> None:
        for number in range(6):
            for partition in range(3):
                data = batch(f"orders-{partition}-x{seed}-{number}")
                log = log_of(sim, "orders", partition)
                if number % 2:
                    sim.manager.unit_of(log).writer.call(log.roll)
                _produce(sim, log, data)

    return run


def _produce(sim: SimManager, log: UnifiedLog, data: bytes) -> None:
    """Append and wait, on a simulated thread."""
    done = sim.threads.signal()
    records = records_of(data, log)
    sim.operations.submit_produce(log, records, Acks.ALL, on_done=lambda _: done.set())
    done.wait()


class Backing:
    """A backup on a simulated thread of its own."""

    def __init__(self, sim: SimManager, *, may_link: bool) -> None:
        self.outcome: list[KafkalogError | None] = []
        self._operation = sim.manager.background.begin("backup", {}, lambda _: None)
        self._backup = Backup(sim.manager, BACKUP, (), may_link=may_link)
        self._backup.prepare()

    def run(self) -> None:
        """To the end; the outcome is noted."""
        try:
            self._backup.run(self._operation)
        except KafkalogError as error:
            self.outcome.append(error)
        else:
            self.outcome.append(None)


def run_together(sim: SimManager, *bodies: Callable[[], None]) -> None:
    """As threads that change places at every call of the disk."""
    sim.disk.on_call = sim.threads.switch_point
    threads = [sim.threads.start(f"test-{number}", body) for number, body in enumerate(bodies)]
    sim.threads.run_until(lambda: not any(thread.is_alive() for thread in threads))
    sim.disk.on_call = None


@pytest.mark.parametrize("seed", range(12))
def test_everything_moves_meanwhile(seed: int) -> None:
    """Appends, rolls, delete-records, retention, topics that come and go; at any moment."""
    sim = with_data(new_disk(), seed)
    before = snapshot(sim)
    backup = Backing(sim, may_link=seed % 2 == 0)

    def trim() -> None:
        for offset in (2, 5, 8):
            log = log_of(sim, "orders")
            sim.operations.submit_delete_records("orders", 0, offset, None)
            sim.manager.retention.retain(log)
            sim.scheduler.run_due()

    def administer() -> None:
        sim.operations.topics.create("later", 1)
        if seed % 3 == 0:
            sim.operations.topics.delete("users")
        if seed % 3 == 1:
            sim.operations.topics.delete("users")
            sim.operations.topics.create("users", 2)

    run_together(sim, backup.run, _client(sim, seed), trim, administer)
    assert backup.outcome == [None]
    after = snapshot(sim)
    disk = sim.kill()
    restore(disk)
    check_restored(disk)
    copy = started(disk, NEW_DIRS)
    check_sound(copy)
    found = snapshot(copy)
    assert "later-0" not in found
    has_users = decode_registry(disk.read_file(f"{NEW_DIRS[0]}/{REGISTRY_FILE}")).topics.keys()
    assert ("users" in has_users) == ("users-0" in found)
    if "users-0" in found:
        assert found["users-0"] == before["users-0"]
    for name in ("orders-0", "orders-1", "orders-2"):
        start, end, batches = found[name]
        assert before[name][1] <= end <= after[name][1]
        assert before[name][0] <= start <= after[name][0]
        known = {each[0]: each for each in (*before[name][2], *after[name][2])}
        assert batches == [known[each[0]] for each in batches]
        assert sum(each[1] - each[0] + 1 for each in batches) >= end - start


class CallingDisk(SimFilesystem):
    """Calls back before the first link of a file."""

    def __init__(self) -> None:
        super().__init__()
        self.file = ""
        self.call: Callable[[], object] = lambda: None

    def link(self, source: str, target: str) -> None:
        if self.file and source.endswith(self.file):
            self.file = ""
            self.call()
        super().link(source, target)


def calling_disk() -> CallingDisk:
    disk = CallingDisk()
    make_places(disk)
    return disk


def cleaned_segment(sim: SimManager) -> tuple[SegmentSwap, list[tuple[int, int, bytes]]]:
    """A swap of all closed segments of orders-0 for one, and all batches afterwards."""
    log = log_of(sim, "orders")
    log.losses.end_gapless()  # as a clean does before it swaps
    unit, old, before = sim.manager.unit_of(log), log.segments.non_active, contents(log)
    end_offset = log.segments.active.base_offset
    kept = [each for each in before if each[0] % 2 and each[0] < end_offset]
    new = LogSegment.create(
        unit.environment, log.local.directory, 0, log.config, suffix=CLEANED_SUFFIX
    )
    for base, last, data in kept:
        new.append([data], [AppendedBatch(base, last, len(data), NOW_MS)])
    new.on_become_inactive()
    swap = SegmentSwap(unit.environment, log.local, [new], old, renames_max=1)
    return swap, [*kept, *(each for each in before if each[0] >= end_offset)]


FIRST = f"orders-0/{segment_file_name(0, '')}"


@pytest.mark.parametrize("file", [f"{FIRST}.log", f"{FIRST}.timeindex"])
def test_a_segment_of_the_same_name_is_not_taken_for_the_captured_one(file: str) -> None:
    """Cleaned at the last moment, the names are there and the content is another."""
    disk = calling_disk()
    sim = with_data(disk)
    log = log_of(sim, "orders")
    unit = sim.manager.unit_of(log)
    swap, cleaned = cleaned_segment(sim)
    disk.file, disk.call = file, lambda: swap.run(unit.writer.call)
    assert back_up(sim).state is SUCCEEDED
    assert disk.file == ""
    assert contents(log) == cleaned
    left = sim.kill()
    restore(left)
    check_restored(left)
    assert snapshot(started(left, NEW_DIRS))["orders-0"] == (0, 10, cleaned)


@pytest.mark.parametrize("suffix", [".log", ".index"])
def test_what_retention_takes_at_the_last_moment_is_not_there(suffix: str) -> None:
    """The backup begins at a later segment, with the files of none before it."""
    disk = calling_disk()
    sim = with_data(disk)
    log = log_of(sim, "orders")
    before = snapshot(sim)["orders-0"]

    def retain() -> None:
        assert sim.delete_records("orders", 5).result == 5
        sim.manager.retention.retain(log)

    disk.file, disk.call = f"{FIRST}{suffix}", retain
    assert back_up(sim).state is SUCCEEDED
    left = sim.kill()
    restore(left)
    check_restored(left)
    start, end, batches = snapshot(started(left, NEW_DIRS))["orders-0"]
    assert (start, end) == (3, 10)
    assert batches == [each for each in before[2] if each[0] >= 3]


def test_the_active_segment_of_a_first_try_is_whole_in_the_second() -> None:
    """It was copied as far as it was; when it has been rolled since, that is not all of it."""
    disk = calling_disk()
    sim = with_data(disk)

    def roll_and_vanish() -> None:
        fill(sim, "orders", 0, 4, first=10)
        raise FileNotFoundError(errno.ENOENT, "no such file")

    disk.file, disk.call = f"{FIRST}.log", roll_and_vanish
    assert back_up(sim).state is SUCCEEDED
    after = snapshot(sim)["orders-0"]
    left = sim.kill()
    restore(left)
    check_restored(left)
    assert snapshot(started(left, NEW_DIRS))["orders-0"] == after


def test_a_topic_that_is_deleted_at_the_last_moment_leaves() -> None:
    """With its files and its entry in the registry; one made anew under its name does not come."""
    disk = calling_disk()
    sim = with_data(disk)

    def delete() -> None:
        sim.operations.topics.delete("orders")
        sim.operations.topics.create("orders", 3)

    disk.file, disk.call = f"{FIRST}.log", delete
    operation = back_up(sim)
    assert operation.state is SUCCEEDED
    assert operation.result["deleted_topics"] == ["orders"]
    left = sim.kill()
    restore(left)
    copy = started(left, NEW_DIRS)
    assert copy.operations.topic_names() == ["users"]
    assert not any("orders" in name for path in NEW_DIRS for name in left.list_dir(path))


@pytest.mark.parametrize("seed", range(24))
def test_segments_are_cleaned_meanwhile(seed: int) -> None:
    """Before, in the middle of and after the swap: the old segments or the new, never a mixture."""
    sim = with_data(new_disk(), seed)
    unit = sim.manager.unit_of(log_of(sim, "orders"))
    before = snapshot(sim)["orders-0"]
    backup = Backing(sim, may_link=seed % 2 == 0)
    swap, cleaned = cleaned_segment(sim)

    def clean() -> None:
        swap.run(unit.writer.call)

    run_together(sim, backup.run, clean)
    assert backup.outcome == [None]
    disk = sim.kill()
    restore(disk)
    check_restored(disk)
    found = snapshot(started(disk, NEW_DIRS))["orders-0"]
    assert found in (before, (before[0], before[1], cleaned))
