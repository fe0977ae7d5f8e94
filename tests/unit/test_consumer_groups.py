"""Goal: members share their group's partitions and never pass over a record.
Method: a manager on the simulated disk and clock, its consumers driven as the routes drive them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.groups.consumers import Consumer, ConsumerConfig, Delivery, Reset
from kafkalog.errors import (
    ConsumerExists,
    IllegalConsumerState,
    InvalidRequest,
    NotReady,
    OffsetAboveLogEnd,
    UnknownConsumer,
)
from kafkalog.format.disk.group_offsets import CommittedOffset
from kafkalog.format.topic_names import TopicPartition
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from kafkalog.broker.groups.consumers import ConsumerGroups

CONFIG = BrokerConfig(log_dirs=DIRS, offsets_topic_num_partitions=2)
EARLIEST = ConsumerConfig(reset=Reset.EARLIEST)
LATEST = ConsumerConfig()
T = [TopicPartition("t", number) for number in range(4)]
MINUTE_MS = 60_000


def started(sim: SimManager | None = None) -> tuple[SimManager, ConsumerGroups]:
    """Topic t with four partitions of three records; with sim, its next run, nothing loaded."""
    if sim is not None:
        sim = SimManager(sim.stop(), config=CONFIG).start()
        return sim, sim.operations.groups.members
    sim = SimManager(config=CONFIG).start()
    sim.operations.topics.create("t", 4)
    for number in range(4):
        sim.produce("t", batch_of("a", "b", "c"), partition=number)
    return sim, sim.operations.groups.members


def joined(groups: ConsumerGroups, name: str, config: ConsumerConfig = EARLIEST) -> Consumer:
    """A member of g that reads t."""
    consumer = groups.create("g", name, config)
    groups.subscribe(consumer, ["t"], None)
    return consumer


def commit(sim: SimManager, offset: int, at: TopicPartition = T[0]) -> None:
    """For g, and wait."""
    offsets = sim.manager.group_offsets
    offsets.create_topic()
    answers: list[object] = []
    offsets.submit("g", {at: CommittedOffset(offset, "", sim.clock.wall_ms())}, answers.append)
    sim.threads.run_until(lambda: bool(answers))
    assert answers == [None]


def delivered(consumer: Consumer, at: TopicPartition, *, was_lost: bool = False) -> None:
    """An answer with the rest of the partition."""
    consumer.deliver(Delivery({at: (consumer.position(at), 3)}, lambda: was_lost))


def test_members_come_and_go() -> None:
    """Each partition has one reader at every moment, who begins where the group is."""
    sim, groups = started()
    a = joined(groups, "a")
    assert a.partitions == T
    delivered(a, T[0])
    delivered(a, T[3])
    commit(sim, 2, T[3])
    b = joined(groups, "b")
    assert (a.partitions, b.partitions) == (T[:2], T[2:])
    assert (a.position(T[0]), a.position(T[1])) == (3, 0)
    assert (b.position(T[2]), b.position(T[3])) == (0, 2)
    with pytest.raises(IllegalConsumerState):
        a.position(T[3])
    groups.delete(b)
    groups.delete(b)
    assert a.partitions == T
    assert a.position(T[3]) == 2
    with pytest.raises(UnknownConsumer):
        groups.find("g", "b")
    with pytest.raises(ConsumerExists):
        groups.create("g", "a", EARLIEST)


def test_idle_members_leave() -> None:
    """After consumer.instance.timeout.ms without a request, and not before."""
    sim, groups = started()
    start_ms = sim.clock.wall_ms()
    a, b = joined(groups, "a"), joined(groups, "b")
    sim.clock.advance_ms(4 * MINUTE_MS)
    assert groups.find("g", "a") is a
    assert groups.used_ms("g") == sim.clock.wall_ms()
    sim.clock.advance_ms(MINUTE_MS)
    assert groups.find("g", "a").partitions == T
    assert b.is_gone
    sim.clock.advance_ms(5 * MINUTE_MS)
    assert groups.names() == []
    assert groups.used_ms("g") == start_ms + 10 * MINUTE_MS
    assert groups.used_ms("never") == 0


def test_a_lost_answer_is_taken_back_once() -> None:
    """Goal: records that did not arrive are delivered again, unless the client went elsewhere.

    Method: answers that were lost or not, with a seek in between.
    """
    _, groups = started()
    a = joined(groups, "a")
    for was_lost, expected in ((True, 0), (False, 3)):
        delivered(a, T[0], was_lost=was_lost)
        assert a.position(T[0]) == 3
        a.settle()
        assert a.position(T[0]) == expected
        a.settle()
        assert a.position(T[0]) == expected
    delivered(a, T[2], was_lost=True)
    a.confirm("another connection")
    a.confirm(None)  # its own: the client asks on, so it had the answer
    a.settle()
    assert a.position(T[2]) == 3
    delivered(a, T[1], was_lost=True)
    a.seek({T[1]: 1})
    a.settle()
    assert a.position(T[1]) == 1
    stale = Delivery({T[1]: (0, 3)}, lambda: False)
    a.deliver(stale)  # read before the seek, written after it
    assert a.position(T[1]) == 1


def test_a_position_that_is_not_known_yet_is_never_a_reset() -> None:
    """A consumer that comes before its group is loaded waits; it does not begin at the edge."""
    sim, _ = started()
    commit(sim, 2)
    sim, groups = started(sim)
    a = joined(groups, "a", LATEST)
    assert a.partitions == T
    assert a.positions() == {}
    with pytest.raises(NotReady):
        a.position(T[0])
    sim.clock.advance_ms(1)
    assert a.position(T[0]) == 2
    assert a.position(T[1]) == 3


def test_where_a_consumer_begins() -> None:
    """The commit, else the reset; a position outside the log is reset as well."""
    sim, groups = started()
    for reset, without in ((Reset.EARLIEST, 0), (Reset.LATEST, 3)):
        consumer = joined(groups, reset.value, ConsumerConfig(reset=reset))
        assert consumer.position(T[0]) == without
        groups.delete(consumer)
    with pytest.raises(OffsetAboveLogEnd):
        joined(groups, "none", ConsumerConfig(reset=Reset.NONE)).position(T[0])
    groups.delete(groups.find("g", "none"))
    commit(sim, 1)
    a = joined(groups, "a")
    assert a.position(T[0]) == 1
    sim.delete_records("t", 2)
    assert a.position(T[0]) == 2
    a.seek({T[0]: 99})
    assert a.position(T[0]) == 2


def test_topics_that_grow_and_go() -> None:
    """A pattern follows what exists, and what is gone is neither read nor committed."""
    sim, groups = started()
    a = groups.create("g", None, EARLIEST)
    groups.subscribe(a, None, "[tu]")
    by_hand = groups.create("g", "hand", EARLIEST)
    by_hand.assign_by_hand([T[0]])
    sim.operations.topics.create("u", 1)
    sim.operations.topics.create_partitions("t", 5)
    assert groups.find("g", a.name).partitions == [
        *T,
        TopicPartition("t", 4),
        TopicPartition("u", 0),
    ]
    sim.operations.topics.delete("t")
    assert groups.find("g", a.name).partitions == [TopicPartition("u", 0)]
    assert groups.find("g", "hand").positions() == {}
    for pattern in ("(", "a{2,1}"):
        with pytest.raises(InvalidRequest):
            groups.subscribe(a, None, pattern)
    assert a.topics == ["u"]


def test_no_partition_starves() -> None:
    """A partition that always has records does not keep the others from their turn."""
    _, groups = started()
    a = joined(groups, "a")
    assert {a.poll_order()[0] for _ in range(4)} == set(T)
    assert all(sorted(a.poll_order()) == T for _ in range(4))
