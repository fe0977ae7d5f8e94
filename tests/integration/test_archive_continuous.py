"""Goal: a continuous archive makes few files, lets no record wait longer than it says, goes on
after faults that pass and after any kill, and ends with one that no retry mends.
Method: the loop in simulated time over growing logs on a disk; all else happens in its pauses.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from kafkalog.client.errors import ConnectFailed, NotAuthenticated
from kafkalog.errors import UnknownTopic
from kafkalog.jobs.archive.archive import ArchiveOptions
from kafkalog.jobs.archive.archive_table import TableChanged, UnusableTable
from kafkalog.jobs.archive.continuous import Continuous, Pace
from kafkalog.jobs.archive.progress import ArchivedPartition
from kafkalog.jobs.tasks import InProcess
from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.logs.values import Access
from tests.archive_world import (
    GrowingLogs,
    PlainPlace,
    Stopped,
    StoppingTable,
    archived_files,
    offsets_in,
)
from tests.sim.sim_clock import SimClock

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence
    from pathlib import Path

    from kafkalog.jobs.archive.archive_table import ArchivedFile, ArchiveTable, Position

PACE = Pace(max_lag_seconds=60.0, min_commit_bytes=2_000)


@dataclass
class NotingTable(StoppingTable):
    """Notes when commits are made; fails as told."""

    stop_at: str = ""
    commits: list[float] = field(default_factory=list)
    seconds: Callable[[], float] = float
    fail: Callable[[], None] = lambda: None

    def commit(
        self, files: Sequence[ArchivedFile], position: Position, dead: Sequence[ArchivedFile] = ()
    ) -> None:
        self.fail()
        super().commit(files, position, dead)
        self.commits.append(self.seconds())


@dataclass
class World:
    """A loop in simulated time; ``events`` happen at their seconds, the last one is its end."""

    root: Path
    logs: GrowingLogs
    events: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    clock: SimClock = field(default_factory=SimClock)
    commits: list[float] = field(default_factory=list)
    stop_at: str = ""
    fail: Callable[[], None] = lambda: None
    on_open: Callable[[], None] = lambda: None
    options: ArchiveOptions = field(default_factory=ArchiveOptions)
    lines: list[MutableMapping[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began_ns = self.clock.monotonic_ns()

    def seconds(self) -> float:
        return (self.clock.monotonic_ns() - self.began_ns) / 1e9

    def is_stopped(self) -> bool:
        while self.events and self.seconds() >= self.events[0][0]:
            self.events.pop(0)[1]()
        return not self.events

    def open_table(self) -> ArchiveTable:
        table = PlainPlace(self.root).open()
        return NotingTable(table, self.stop_at, self.commits, self.seconds, self.fail)

    def open_logs(self) -> Any:
        self.on_open()
        return open_logs(Access(paths=(str(self.logs.log_dir),), read_committed=True))

    def loop(self, pace: Pace = PACE) -> list[ArchivedPartition]:
        loop = Continuous(
            self.open_logs,
            self.open_table,
            self.options,
            pace,
            InProcess(self.clock),
            clock=self.clock,
            is_stopped=self.is_stopped,
        )
        with capture_logs() as lines:
            try:
                return loop.run()
            finally:
                self.lines += lines

    def told(self, event: str) -> list[MutableMapping[str, Any]]:
        return [each for each in self.lines if each["event"] == event]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two partitions with ten records each."""
    logs = GrowingLogs(tmp_path / "logs")
    for partition in range(2):
        logs.append(partition, 10)
    return World(tmp_path, logs)


def append_at(world: World, *seconds: float, records: int = 1, partition: int = 0) -> None:
    world.events += [(each, partial(world.logs.append, partition, records)) for each in seconds]


def end_at(world: World, seconds: float) -> None:
    world.events.append((seconds, lambda: None))
    world.events.sort(key=lambda each: each[0])


def is_whole(world: World) -> bool:
    return offsets_in(PlainPlace(world.root)) == world.logs.offsets


def test_what_is_there_does_not_wait_and_what_comes_waits_for_others(world: World) -> None:
    """A record of second 100 is in the table 60 seconds later, with the 19 that came meanwhile."""
    append_at(world, *(100 + each for each in range(20)))
    end_at(world, 300)
    rows = world.loop()
    assert is_whole(world)
    first, second = world.commits
    assert first == 0
    assert 150 < second <= 160
    files = archived_files(str(world.root / "table"))
    assert [each.rows for each in files] == [10, 20, 10]
    assert [(each.from_offset, each.next_offset, each.rows, each.files) for each in rows] == [
        (0, 30, 30, 2),
        (0, 10, 10, 1),
    ]


def test_the_rows_of_two_runs_are_added() -> None:
    first = ArchivedPartition("orders", 0, 5, 20, 10, 2, 300, 5, "a fault")
    second = ArchivedPartition("orders", 0, 20, 24, 3, 1, 90, 1)
    assert first.then(second) == ("orders", 0, 5, 24, 13, 3, 390, 6, None)


@pytest.mark.parametrize("seed", range(5))
def test_no_record_waits_longer_than_the_lag(world: World, seed: int) -> None:
    chance = random.Random(seed)
    times = sorted(chance.uniform(1, 900) for _ in range(40))
    append_at(world, *times)
    end_at(world, 1_100)
    world.loop()
    assert is_whole(world)
    for each in times:
        assert min(at for at in world.commits if at >= each) <= each + 60
    assert len(world.commits) <= 1 + 900 / 50


def test_what_is_worth_a_file_does_not_wait(world: World) -> None:
    append_at(world, 100, records=200)
    end_at(world, 200)
    world.loop()
    assert is_whole(world)
    assert 100 <= world.commits[1] <= 106


def test_it_ends_after_the_commit_of_what_is_ready(world: World) -> None:
    """A signal in a run of many pieces: what has ended is committed, the rest is left."""
    for _ in range(8):
        world.logs.append(0, 10)
    world.options = ArchiveOptions(target_bytes=1, max_commit_bytes=1 << 30)
    asked = iter(range(100))
    world.is_stopped = lambda: next(asked) >= 4  # type: ignore[method-assign]
    rows = world.loop()
    assert [each.next_offset for each in rows if each.rows] == [30]
    assert offsets_in(PlainPlace(world.root)) == [(0, at) for at in range(30)]
    assert list((world.root / "table").rglob("*.pending")) == []


@pytest.mark.parametrize("stop_at", ["plan", "before commit", "after commit"])
def test_it_is_killed_at_each_step_and_loses_and_doubles_nothing(
    world: World, stop_at: str
) -> None:
    for killed in range(3):
        append_at(world, 10, 30, partition=killed % 2)
        end_at(world, 200)
        world.stop_at, world.began_ns = stop_at, world.clock.monotonic_ns()
        with pytest.raises(Stopped):
            world.loop()
        world.events = []
        world.logs.append(1, 3)
    world.stop_at = ""
    end_at(world, world.seconds() + 1)
    world.loop()
    assert is_whole(world)


FAULTS: dict[str, Callable[[], Exception]] = {
    "daemon": lambda: ConnectFailed("It refused the connection.", retriable=True),
    "store": lambda: OSError(5, "The store failed: 503"),
    "another job": lambda: TableChanged("Another job archived into t meanwhile"),
    "catalog": lambda: UnusableTable("OperationalError: database is locked", passes=True),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("place", ["fail", "on_open"])
def test_it_waits_for_what_passes_says_so_once_and_goes_on(
    world: World, fault: str, place: str
) -> None:
    """Ten minutes without: a dozen tries, two lines in the log."""
    tries: list[float] = []

    def away() -> None:
        tries.append(world.seconds())
        if world.seconds() < 600:
            raise FAULTS[fault]()

    setattr(world, place, away)
    append_at(world, 100, 500)
    end_at(world, 800)
    world.loop()
    assert is_whole(world)
    assert len([each for each in tries if each < 600]) <= 25
    assert len(world.told("archive_waits")) == 1
    assert len(world.told("archive_goes_on")) == 1
    assert world.commits[0] <= 661


@pytest.mark.parametrize(
    "error",
    [
        NotAuthenticated("The credentials are wrong."),
        UnusableTable("lake.orders has no column offset: give another table"),
        PermissionError(13, "Permission denied"),
    ],
)
def test_a_fault_that_no_retry_mends_ends_it(world: World, error: Exception) -> None:
    def fail() -> None:
        raise error

    world.on_open = fail
    end_at(world, 60)
    with pytest.raises(type(error)) as raised:
        world.loop()
    assert raised.value is error
    assert world.seconds() < 1


def test_a_topic_that_is_not_there_ends_it(world: World) -> None:
    world.options = ArchiveOptions(topics=frozenset({"oders"}))
    end_at(world, 60)
    with pytest.raises(UnknownTopic, match="oders"):
        world.loop()


def test_a_damaged_partition_is_told_once_and_tried_again(world: World) -> None:
    """It holds up no other one, and goes on when it is repaired."""
    world.logs.append(1, 10)
    world.logs.append(1, 10)
    path = sorted((world.logs.log_dir / "orders-1").glob("*.log"))[1]

    def flip() -> None:
        data = bytearray(path.read_bytes())
        data[70] ^= 1
        path.write_bytes(data)

    flip()
    world.options = ArchiveOptions(target_bytes=1)  # a piece for each segment
    append_at(world, *range(100, 4_000, 200))
    end_at(world, 4_000)
    rows = world.loop()
    assert [each.problem is None for each in rows] == [True, False]
    assert [each.next_offset for each in rows] == [30, 10]
    (line,) = world.told("partition_quarantined")
    assert line["partition"] == "orders-1"
    flip()
    world.events, world.lines = [], []
    end_at(world, world.seconds() + 1)
    world.loop()
    assert is_whole(world)


def test_a_partition_that_is_repaired_meanwhile_goes_on(world: World) -> None:
    world.logs.append(1, 10)
    segment = min((world.logs.log_dir / "orders-1").glob("*.log"))
    data = segment.read_bytes()
    segment.write_bytes(data[:70] + bytes([data[70] ^ 1]) + data[71:])
    world.events.append((300, partial(segment.write_bytes, data)))
    end_at(world, 3_000)
    (one, other) = world.loop()
    assert (one.problem, other.problem) == (None, None)
    assert is_whole(world)
    assert len(world.told("partition_is_archived_again")) == 1


def test_a_loop_that_finds_nothing_asks_rarely(world: World) -> None:
    """An hour: one look every five seconds, no commit."""
    looks: list[float] = []
    opened = world.open_logs

    def counted() -> Any:
        logs = opened()
        all_bounds = logs.all_bounds

        def noted(some: Any) -> Any:
            looks.append(world.seconds())
            return all_bounds(some)

        logs.all_bounds = noted
        return logs

    world.open_logs = counted  # type: ignore[method-assign]
    end_at(world, 3_600)
    world.loop()
    assert len(world.commits) == 1
    assert len(looks) <= 3_600 / 5 + 2


def test_stopped_in_a_pause_it_ends_soon(world: World) -> None:
    end_at(world, 31)
    with suppress(Stopped):
        world.loop(Pace(max_lag_seconds=3_600))
    assert world.seconds() <= 31.5
