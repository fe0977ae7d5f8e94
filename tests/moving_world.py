"""What the tests of moves share: a manager with a partition to move, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.values import MoveState
from kafkalog.format.topic_names import DirectoryState, TopicPartition, parse_directory_name
from kafkalog.log.values import Isolation
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from kafkalog.broker.values import MoveStatus

A, B = DIRS
T0 = TopicPartition("t", 0)


SLOW = BrokerConfig(log_dirs=DIRS, replica_alter_log_dirs_io_max_bytes_per_second=1_000)


def world(
    count: int = 5, config: BrokerConfig | None = None, segment_bytes: int = 400
) -> SimManager:
    """Topic t in /data/a, with segments of a few batches and two records a batch."""
    sim = SimManager(config=config).start()
    sim.operations.topics.create("t", 1, {"internal.segment.bytes": str(segment_bytes)})
    for number in range(count):
        assert sim.produce("t", batch_of(f"v{number}", "x" * 20)).error is None
    return sim


def contents(sim: SimManager) -> bytes:
    log = sim.manager.logs.log_of("t", 0)
    data, offset = b"", log.log_start_offset
    while True:
        found = log.read(offset, 1 << 20, Isolation.HIGH_WATERMARK)
        if not found.data:
            return data
        data += bytes(found.data)
        offset = found.next_offset


def states(sim: SimManager) -> dict[str, list[DirectoryState]]:
    """What the names of the partition directories in each log directory say."""
    return {
        path: sorted(
            (
                parse_directory_name(entry.name).state
                for entry in sim.disk.list_dir_stats(path)
                if entry.is_dir
            ),
            key=lambda state: state.value,
        )
        for path in DIRS
    }


def move(sim: SimManager, path: str = B) -> MoveStatus:
    """Begin it and wait for its end."""
    sim.operations.log_dirs.move("t", 0, path)
    return ended(sim)


def ended(sim: SimManager) -> MoveStatus:
    sim.threads.run_until(lambda: sim.operations.log_dirs.moves()[0].state is not MoveState.COPYING)
    return sim.operations.log_dirs.moves()[0]


def place(sim: SimManager) -> str:
    return sim.manager.logs.log_of("t", 0).parent_dir


def begun(count: int = 5) -> SimManager:
    """A move whose first slice is copied; the next one waits for the throttle."""
    sim = world(count, SLOW)
    assert sim.operations.log_dirs.move("t", 0, B).state is MoveState.COPYING
    sim.threads.run_until_idle()
    (status,) = sim.operations.log_dirs.moves()
    assert status.state is MoveState.COPYING
    assert 0 < status.copied_bytes < status.size_bytes
    assert status.offset_lag > 0
    assert states(sim) == {A: [DirectoryState.LIVE], B: [DirectoryState.FUTURE]}
    return sim
