"""Goal: whatever bytes rot, no batch is served that was not written so, and the others are served.
Method: a killed log of equal batches, any overwritten stretch of it, any recovery point; a consumer
that steps over what is refused reads the recovered log from both ends of the trouble.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cache

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kafkalog.errors import CorruptBatch
from kafkalog.log.log_config import LogConfig
from kafkalog.log.values import Isolation
from tests.partition_world import DIRECTORY, PartitionWorld, batch, records_of

CONFIG = LogConfig(internal_segment_bytes=500, index_interval_bytes=150)
COUNT = 18
BATCH_BYTES = len(batch([b"value-00"]))
ENTRY_BATCHES = CONFIG.index_interval_bytes // BATCH_BYTES + 1


@cache
def written() -> dict[str, bytes]:
    """The files of a log of COUNT one-record batches."""
    world = PartitionWorld(CONFIG)
    for number in range(COUNT):
        world.append(batch([b"value-%02d" % number]))
    return {name: world.filesystem.read_file(f"{DIRECTORY}/{name}") for name in world.names()}


def recovered(damage: dict[str, bytes], recovery_point: int) -> PartitionWorld:
    """A log of these files, loaded after a crash as the daemon does."""
    world = PartitionWorld(CONFIG, corruption="keep")
    world.log.close_handles()
    for name in world.names():
        world.filesystem.unlink(f"{DIRECTORY}/{name}")
    for name, data in {**written(), **damage}.items():
        world.filesystem.open_write(f"{DIRECTORY}/{name}").pwrite(data, 0)
    world.open(clean=False, recovery_point=recovery_point)
    return world


def consumed(world: PartitionWorld) -> list[int]:
    """Offsets served; each record must be the one that was written there."""
    served: list[int] = []
    position = 0
    while position < world.log.log_end_offset:
        try:
            answer = world.log.read(position, 1 << 20, Isolation.LOG_END)
        except CorruptBatch as error:
            last_offset = error.details["last_offset"]
            assert isinstance(last_offset, int)
            position = max(last_offset, position) + 1
            continue
        for record in records_of(answer.data):
            assert record.value == b"value-%02d" % record.offset
            served.append(record.offset)
        assert answer.next_offset > position, f"a reader hangs at {position}"
        position = answer.next_offset
    return served


@settings(max_examples=150)
@given(
    st.integers(0, (COUNT - 1) * BATCH_BYTES - 1),
    st.binary(min_size=1, max_size=12) | st.integers(1, 200).map(bytes),
    st.integers(0, COUNT),
    st.booleans(),
)
def test_rot_costs_at_most_what_it_hit(
    start: int, data: bytes, recovery_point: int, again: bool
) -> None:
    """M08: nothing is deleted, and what was durable and not hit is served."""
    position, damage = start, {}
    changed: list[int] = []
    for name in sorted(name for name in written() if name.endswith(".log")):
        whole = written()[name]
        if position < len(whole):
            data = data[: len(whole) - position]
            damage[name] = whole[:position] + data + whole[position + len(data) :]
            pairs = zip(whole[position:], data, strict=False)
            changed = [start + at for at, (old, new) in enumerate(pairs) if old != new]
            break
        position -= len(whole)
    assume(bool(changed))
    first, last = changed[0] // BATCH_BYTES, changed[-1] // BATCH_BYTES
    world = recovered(damage, recovery_point)
    for _ in range(1 + again):
        lost = set(range(COUNT)) - set(consumed(world))
        assert not [name for name in world.names() if name.endswith(".deleted")]
        bases = world.bases()
        assert lost <= set(range(first, COUNT)), "in front of it"
        if recovery_point > first:
            is_scanned = bisect_right(bases, recovery_point) <= bisect_right(bases, first)
            # Below the recovery point nothing is looked at: a reader goes on at an index entry.
            reach = last if is_scanned else last + 2 * ENTRY_BATCHES
            assert lost <= set(range(first, reach + 1)), "behind it"
        world.log.close_handles()
        world.open(clean=False, recovery_point=recovery_point)
