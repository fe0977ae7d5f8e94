"""Goal: after a crash no producer id and no epoch is given twice, and every fence stands.
Method: cut the power at every disk call of ids and bumps, in all modes; ask again in two lives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.transactions.producer_ids import BLOCK_IDS
from kafkalog.errors import InvalidProducerEpoch
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from tests.crash.after_a_start import anywhere, crashes_after_a_start, durable
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_manager import SimManager

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.crash_enumeration import CrashPoint
    from tests.sim.sim_filesystem import SimFilesystem

    Story = Callable[[SimManager, "Told"], None]

EPOCH_MAX = 32_767


@dataclass
class Told:
    """What clients were told: the newest epoch of each id, and which epochs are fenced since."""

    epochs: dict[int, int] = field(default_factory=dict)
    fenced: dict[int, int] = field(default_factory=dict)  # id -> the newest that is refused

    def note(self, identity: tuple[int, int]) -> None:
        """An answer: an id that is new, or a newer epoch of one that is known."""
        producer_id, epoch = identity
        assert epoch > self.epochs.get(producer_id, -1), "given twice"
        self.epochs[producer_id] = epoch
        if epoch > 0:
            self.fenced[producer_id] = epoch - 1


def batch(producer_id: int, epoch: int) -> bytes:
    columns = RecordColumns.of([None], ["x"], 1_700_000_000_000)
    return build_batch(columns, producer_id=producer_id, producer_epoch=epoch, base_sequence=0)


def disk_with_a_topic() -> SimFilesystem:
    sim = SimManager().start().with_topic("t", 2, {})
    return durable(sim)


def bumps(sim: SimManager, told: Told) -> None:
    """An id, its next epoch, one whose epochs are used up, the next epoch of its successor."""
    producers = sim.operations.producers
    first = producers.allocate()
    told.note(first)
    told.note(producers.bump(first.producer_id))
    other = producers.allocate()
    told.note(other)
    assert sim.produce("t", batch(other.producer_id, EPOCH_MAX)).error is None
    successor = producers.bump(other.producer_id)
    told.note(successor)
    told.fenced[other.producer_id] = EPOCH_MAX
    told.note(producers.bump(successor.producer_id))


def blocks(sim: SimManager, told: Told) -> None:
    for _ in range(BLOCK_IDS + 1):
        told.note(sim.operations.producers.allocate())


def check(disk: SimFilesystem, told: Told, point: CrashPoint) -> None:
    """Two more lives after the crash: what was told stands, what is given is new."""
    mine = Told(dict(told.epochs))
    for _ in range(2):
        sim = SimManager(disk, seed=2).start()
        for producer_id, epoch in told.fenced.items():
            refused = sim.produce("t", batch(producer_id, epoch), partition=1)
            assert isinstance(refused.error, InvalidProducerEpoch)
        mine.note(sim.operations.producers.allocate())
        for producer_id in list(told.epochs)[:1]:
            mine.note(sim.operations.producers.bump(producer_id))
        sim.threads.kill_all()
        disk = sim.disk.crash(CrashMode.DROP_ALL, 0)


@pytest.mark.parametrize(
    ("story", "stride", "least"),
    [(bumps, 17, 10), (blocks, 9, 10), anywhere(bumps, 1, 150), anywhere(blocks, 1, 150)],
)
def test_nothing_is_given_twice_after_a_crash(story: Story, stride: int, least: int) -> None:
    """M14 M25: at some calls or at every one."""
    assert crashes_after_a_start(Told, story, check, disk_with_a_topic, stride=stride) > least
