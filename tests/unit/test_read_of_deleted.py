"""Goal: a reader in the middle of a segment that retention deletes gets whole batches to the end of
    its answer, or is told where the log starts now.
Method: the whole deletion, the removal of the files included, at each disk call that a read makes.
"""

from __future__ import annotations

import pytest

from kafkalog.errors import OffsetBelowLogStart
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.retention import execute
from kafkalog.log.values import Isolation, WouldBlock
from tests.partition_world import NOW_MS, PartitionWorld, batch, records_of

RECORDS = 30
# The index has no entry: a read walks from the segment's start, a slice of the file at a time.
CONFIG = LogConfig(internal_segment_bytes=60_000, index_interval_bytes=1 << 20, retention_bytes=0)


def written() -> PartitionWorld:
    """Segments of batches of about a kilobyte, all cold."""
    world = PartitionWorld(CONFIG)
    for number in range(4 * RECORDS):
        world.append(batch([b"%06d" % number + b"v" * 900]))
    assert len(world.log.segments) >= 2
    world.reopen(clean=True)
    return world


def delete_everything(world: PartitionWorld) -> None:
    """A pass that takes every segment, and its delete-file tasks."""
    planned = execute.plan_of(world.log, NOW_MS)
    base = execute.begin(world.log, planned)
    world.flush()
    execute.raise_start(world.log, NOW_MS, base)
    assert execute.finish(world.log)
    world.clock.advance_ms(CONFIG.file_delete_delay_ms)
    assert not [name for name in world.names() if name.endswith(".deleted")]


class Interrupted:
    """One read, in the middle of which everything is deleted: at its ``nth`` disk call."""

    def __init__(self, world: PartitionWorld, nth: int) -> None:
        self.world = world
        self.left = nth
        self.calls = 0

    def on_call(self) -> None:
        """Each call of the disk."""
        self.calls += 1
        self.left -= 1
        if self.left == 0:
            self.world.filesystem.on_call = None
            delete_everything(self.world)

    def read(self, offset: int, max_bytes: int, *, may_block: bool) -> list[bytes | None]:
        """Values of the answer; it holds whole batches from ``offset`` on."""
        self.world.filesystem.on_call = self.on_call
        try:
            answer = self.world.log.read(
                offset, max_bytes, Isolation.HIGH_WATERMARK, may_block=may_block
            )
        finally:
            self.world.filesystem.on_call = None
        records = records_of(answer.data)
        assert [record.offset for record in records] == [*range(offset, answer.next_offset)]
        return [record.value for record in records]


def warm(world: PartitionWorld) -> None:
    """What makes a read need neither an open nor an index from disk."""
    for offset in range(world.log.log_end_offset):
        world.log.read(offset, 1, Isolation.HIGH_WATERMARK)


@pytest.mark.parametrize("is_hot", [False, True], ids=["cold", "hot"])
@pytest.mark.parametrize("max_bytes", [1, 5_000, 1 << 20])
@pytest.mark.parametrize("offset", [0, 25, 50])
def test_a_reader_of_what_is_being_deleted(offset: int, max_bytes: int, *, is_hot: bool) -> None:
    """M09 M12: the answer that it would have had, or OffsetBelowLogStart, at every moment."""
    world = written()
    if is_hot:
        warm(world)
    whole = Interrupted(world, 0)
    expected = whole.read(offset, max_bytes, may_block=not is_hot)
    assert expected
    answered = 0
    for nth in range(1, whole.calls + 1):
        world = written()
        if is_hot:
            warm(world)
        reader = Interrupted(world, nth)
        try:
            assert reader.read(offset, max_bytes, may_block=not is_hot) == expected
            answered += 1
        except OffsetBelowLogStart:
            assert not is_hot, "who holds the file reads on"
        except WouldBlock:  # the event loop asks a reader thread, which finds what is true now
            with pytest.raises(OffsetBelowLogStart):
                reader.read(offset, max_bytes, may_block=True)
        assert world.log.log_start_offset == 4 * RECORDS
        check_invariants(world.log)
    assert answered, "with the file open the rest is read"
