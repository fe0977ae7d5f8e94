"""Goal: members share their group's partitions as Kafka deals them out, never pass over a record,
and a poll misses no append.
Method: a manager on a simulated disk and clock; every wake-up of a poll.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from kafkalog import errors
from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.groups.consumers import (
    Consumer,
    ConsumerConfig,
    Delivery,
    Reset,
    assign_ranges,
)
from kafkalog.format.disk.group_offsets import CommittedOffset
from kafkalog.format.topic_names import TopicPartition
from kafkalog.format.topic_pattern import MalformedPattern, TopicPattern
from kafkalog.server.groups.poll import ConsumerPoll
from kafkalog.server.protocol.errors import error_of
from kafkalog.settings import load_settings
from tests.made_api import api_over
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.broker.groups.consumers import ConsumerGroups
    from kafkalog.server.groups.poll import PartitionPage


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
    sim = SimManager(config=CONFIG).start().with_topic("t", 4)
    for number in range(4):
        sim.produce("t", batch_of("a", "b", "c"), partition=number)
    return sim, sim.operations.groups.members


def joined(groups: ConsumerGroups, name: str, config: ConsumerConfig = EARLIEST) -> Consumer:
    """A member of g that reads t."""
    consumer = groups.create("g", name, config)
    groups.subscribe(consumer, ["t"], None)
    return consumer


def commit(sim: SimManager, offset: int, at: TopicPartition = T[0]) -> None:
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
    with pytest.raises(errors.IllegalConsumerState):
        a.position(T[3])
    groups.delete(b)
    groups.delete(b)
    assert a.partitions == T
    assert a.position(T[3]) == 2
    with pytest.raises(errors.UnknownConsumer):
        groups.find("g", "b")
    with pytest.raises(errors.ConsumerExists):
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
    _, groups = started()
    a = joined(groups, "a")
    for was_lost, expected in ((True, 0), (False, 3)):
        delivered(a, T[0], was_lost=was_lost)
        assert a.position(T[0]) == 3
        a.take_back_lost_answer()
        assert a.position(T[0]) == expected
        a.take_back_lost_answer()
        assert a.position(T[0]) == expected
    delivered(a, T[2], was_lost=True)
    a.confirm("another connection")
    a.confirm(None)  # its own: the client asks on, so it had the answer
    a.take_back_lost_answer()
    assert a.position(T[2]) == 3
    delivered(a, T[1], was_lost=True)
    a.seek({T[1]: 1})
    a.take_back_lost_answer()
    assert a.position(T[1]) == 1
    stale = Delivery({T[1]: (0, 3)}, lambda: False)
    a.deliver(stale)  # read before the seek, written after it
    assert a.position(T[1]) == 1


def test_a_position_that_is_not_known_yet_is_never_a_reset() -> None:
    sim, _ = started()
    commit(sim, 2)
    sim, groups = started(sim)
    a = joined(groups, "a", LATEST)
    assert a.partitions == T
    assert a.positions() == {}
    with pytest.raises(errors.NotReady):
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
    commit(sim, 1)
    a = joined(groups, "a")
    assert a.position(T[0]) == 1
    sim.delete_records("t", 2)
    assert a.position(T[0]) == 2
    a.seek({T[0]: 99})
    assert a.position(T[0]) == 2


def test_without_a_reset_the_error_says_what_is_wrong() -> None:
    """No commit is no offset out of range, and a commit below the log start is not above its end.

    As Java's consumer: NoOffsetForPartitionException, OffsetOutOfRangeException with the offset.
    """
    sim, groups = started()
    a = joined(groups, "a", ConsumerConfig(reset=Reset.NONE))
    with pytest.raises(errors.NoCommittedOffset, match="Group g has no commit of t-0, ") as none:
        a.position(T[0])
    assert none.value.details == {"group": "g", "topic": "t", "partition": 0}
    assert error_of(none.value).error_code == 40914
    groups.delete(a)
    commit(sim, 1)
    a = joined(groups, "a", ConsumerConfig(reset=Reset.NONE))
    assert a.position(T[0]) == 1
    sim.delete_records("t", 2)
    with pytest.raises(errors.OffsetBelowLogStart, match="offset 1 for partition t-0") as below:
        a.position(T[0])
    assert below.value.details == {"log_start_offset": 2, "log_end_offset": 3}
    a.seek({T[0]: 99})
    with pytest.raises(errors.OffsetAboveLogEnd, match="offset 99 for partition t-0"):
        a.position(T[0])


def test_topics_that_grow_and_go() -> None:
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
        with pytest.raises(errors.InvalidRequest):
            groups.subscribe(a, None, pattern)
    assert a.topics == ["u"]


def test_no_partition_starves() -> None:
    _, groups = started()
    a = joined(groups, "a")
    assert {a.poll_order()[0] for _ in range(4)} == set(T)
    assert all(sorted(a.poll_order()) == T for _ in range(4))


POLLED = [TopicPartition("t", number) for number in range(2)]
LONG_MS = 60_000
SETTINGS = load_settings(None, {}, {})


class PollWorld:
    """Topic t with two partitions, an Api over it, and a consumer that reads both."""

    def __init__(self, config: ConsumerConfig) -> None:
        self.sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start()
        self.sim.operations.topics.create("t", 2)
        self.groups = self.sim.operations.groups.members
        self.consumer: Consumer = self.groups.create("g", "c", config)
        self.groups.subscribe(self.consumer, ["t"], None)
        self.reads = 0
        # Once, with the partition that was read, as if the read had hopped to a pool.
        self.during_read: Callable[[int], object] | None = None

    def append(self, *values: str, partition: int = 0) -> None:
        self.sim.produce("t", batch_of(*values), partition=partition)

    async def run(
        self, timeout_ms: int, *, beside: Callable[[], object] | None = None
    ) -> list[Any]:
        """Poll; ``beside`` runs when it waits."""
        pool = ThreadPoolExecutor(1)
        api = api_over(self.sim, SETTINGS, pool)
        delayed = api.delayed_fetches
        whole = api.operations.fetch

        def fetch(*arguments: Any, **more: Any) -> Any:
            self.reads += 1
            found = whole(*arguments, **more)
            if self.during_read is not None:
                during, self.during_read = self.during_read, None
                during(arguments[1])
            return found

        api.operations.fetch = fetch  # type: ignore[method-assign] # counts, and runs what races
        polling = asyncio.create_task(ConsumerPoll(api, self.consumer, 1 << 20).run(timeout_ms))
        try:
            if beside is not None:
                for _ in range(10_000):
                    await asyncio.sleep(0)
                    if delayed.waiting_count:
                        break
                beside()
                delayed.wake(POLLED)
            pages: list[PartitionPage] = await asyncio.wait_for(polling, 20)
        finally:
            api.operations.fetch = whole  # type: ignore[method-assign]
            pool.shutdown()
        return [(page.at, page.position, page.next_offset) for page in pages]


def world(min_bytes: int = 1) -> PollWorld:
    return PollWorld(ConsumerConfig(reset=Reset.EARLIEST, min_bytes=min_bytes))


def test_an_append_during_the_read_is_seen() -> None:
    poll = world()
    poll.during_read = lambda number: poll.append("a", partition=number)
    assert len(asyncio.run(poll.run(LONG_MS))) == 1


def test_a_seek_during_the_read_is_seen() -> None:
    poll = world()
    poll.append("a", "b", "c")
    poll.consumer.seek({POLLED[0]: 3})
    poll.during_read = lambda _: poll.consumer.seek({POLLED[0]: 1})
    assert asyncio.run(poll.run(LONG_MS)) == [(POLLED[0], 1, 3)]
    poll.consumer.seek({POLLED[0]: 0})
    poll.during_read = lambda _: poll.consumer.seek({POLLED[0]: 2})
    assert asyncio.run(poll.run(LONG_MS)) == [(POLLED[0], 2, 3)]


def test_waiting_reads_nothing() -> None:
    poll = world(min_bytes=1_000_000)
    poll.append("a")
    poll.sim.manager.logs.table.remove(POLLED[1])
    poll.sim.manager.logs.table.add_fault(POLLED[1], errors.DiskFull("no room"), "/data/a/t-1")
    assert asyncio.run(poll.run(100)) == [(POLLED[0], 0, 1)]
    assert poll.reads <= 2


def test_a_partition_that_fails_is_told_when_there_is_nothing_else() -> None:
    poll = world()
    poll.append("a")
    poll.sim.manager.logs.table.remove(POLLED[1])
    poll.sim.manager.logs.table.add_fault(POLLED[1], errors.DiskFull("no room"), "/data/a/t-1")
    assert asyncio.run(poll.run(LONG_MS)) == [(POLLED[0], 0, 1)]
    poll.consumer.seek({POLLED[0]: 1})
    with pytest.raises(errors.DiskFull):
        asyncio.run(poll.run(LONG_MS))


def test_a_waiting_poll_goes_on_when_something_happens() -> None:
    poll = world()
    assert asyncio.run(poll.run(LONG_MS, beside=lambda: poll.append("a", partition=1))) == [
        (POLLED[1], 0, 1)
    ]
    poll.consumer.seek({POLLED[1]: 1})
    assert asyncio.run(poll.run(LONG_MS, beside=lambda: poll.consumer.seek({POLLED[1]: 0}))) == [
        (POLLED[1], 0, 1)
    ]


def parts(*pairs: tuple[str, int]) -> list[TopicPartition]:
    return [TopicPartition(*pair) for pair in pairs]


def test_ranges_are_those_of_kafka() -> None:
    both = {"C0": ["t0", "t1"], "C1": ["t0", "t1"]}
    assert assign_ranges(both, {"t0": 3, "t1": 3}) == {
        "C0": parts(("t0", 0), ("t0", 1), ("t1", 0), ("t1", 1)),
        "C1": parts(("t0", 2), ("t1", 2)),
    }
    uneven = {"b": ["t"], "a": ["t", "u"], "c": ["nope"]}
    assert assign_ranges(uneven, {"t": 1, "u": 2}) == {
        "a": parts(("t", 0), ("u", 0), ("u", 1)),
        "b": [],
        "c": [],
    }


TOPICS = st.sampled_from(["t", "u", "v"])


@given(
    st.dictionaries(st.text("abc", min_size=1), st.sets(TOPICS), max_size=6),
    st.dictionaries(TOPICS, st.integers(1, 9)),
)
def test_every_partition_has_one_reader(
    subscriptions: dict[str, set[str]], counts: dict[str, int]
) -> None:
    assigned = assign_ranges(subscriptions, counts)
    assert assigned.keys() == subscriptions.keys()
    dealt = [at for each in assigned.values() for at in each]
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert sorted(dealt) == [
        TopicPartition(topic, number) for topic in sorted(wanted & counts.keys())
        for number in range(counts[topic])
    ]  # fmt: skip
    for member, own in assigned.items():
        assert {at.topic for at in own} <= subscriptions[member]


def test_no_pattern_takes_long() -> None:
    assert [TopicPattern("ab*").matches(name) for name in ("abb", "abc", "cab")] == [
        True,
        False,
        False,
    ]
    for text in ("(a+)+b", "(a|a)*b", "(.*)*b", "a*a*a*a*a*a*a*a*b", "(a?){200}a{200}b"):
        assert not TopicPattern(text).matches("a" * 249)


@pytest.mark.parametrize(
    "text",
    ["", "(", "a)", "[a", "*", "a**", "a{2,1}", "(?!x)a", "(?=x)", r"\1", "a\\", "[z-a]", "a*+",
     "x" * 1001, "(" * 1001, "((a{99}){99}){99}", r"[\w-a]{1001}", "(?<=x)a", "\ud800"],
)  # fmt: skip
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(MalformedPattern):
        TopicPattern(text)
