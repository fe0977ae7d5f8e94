"""Goal: a poll misses no append and takes no processor time while there is nothing to read.
Method: a poll on a real event loop over a manager on the simulated disk, its reads counted.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.groups.consumers import ConsumerConfig, Reset
from kafkalog.errors import DiskFull
from kafkalog.format.topic_names import TopicPartition
from kafkalog.server.consumers.poll import ConsumerPoll
from kafkalog.settings import load_settings
from tests.made_api import api_over
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.broker.groups.consumers import Consumer
    from kafkalog.server.consumers.poll import PartitionPage

T = [TopicPartition("t", number) for number in range(2)]
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
                delayed.wake(T)
            pages: list[PartitionPage] = await asyncio.wait_for(polling, 20)
        finally:
            api.operations.fetch = whole  # type: ignore[method-assign]
            pool.shutdown()
        return [(page.at, page.position, page.next_offset) for page in pages]


def world(min_bytes: int = 1) -> PollWorld:
    return PollWorld(ConsumerConfig(reset=Reset.EARLIEST, min_bytes=min_bytes))


def test_an_append_during_the_read_is_seen() -> None:
    """What is appended while the poll reads elsewhere does not wait for the next append."""
    poll = world()
    poll.during_read = lambda number: poll.append("a", partition=number)
    assert len(asyncio.run(poll.run(LONG_MS))) == 1


def test_a_seek_during_the_read_is_seen() -> None:
    """A consumer that is told to read from elsewhere does so at once."""
    poll = world()
    poll.append("a", "b", "c")
    poll.consumer.seek({T[0]: 3})
    poll.during_read = lambda _: poll.consumer.seek({T[0]: 1})
    assert asyncio.run(poll.run(LONG_MS)) == [(T[0], 1, 3)]
    poll.consumer.seek({T[0]: 0})
    poll.during_read = lambda _: poll.consumer.seek({T[0]: 2})
    assert asyncio.run(poll.run(LONG_MS)) == [(T[0], 2, 3)]


def test_waiting_reads_nothing() -> None:
    """A poll looks again only when something happened."""
    poll = world(min_bytes=1_000_000)
    poll.append("a")
    poll.sim.manager.table.remove(T[1])
    poll.sim.manager.table.add_fault(T[1], DiskFull("no room"), "/data/a/t-1")
    assert asyncio.run(poll.run(100)) == [(T[0], 0, 1)]
    assert poll.reads <= 2


def test_a_partition_that_fails_is_told_when_there_is_nothing_else() -> None:
    """Its error is the answer, and not before the others are empty."""
    poll = world()
    poll.append("a")
    poll.sim.manager.table.remove(T[1])
    poll.sim.manager.table.add_fault(T[1], DiskFull("no room"), "/data/a/t-1")
    assert asyncio.run(poll.run(LONG_MS)) == [(T[0], 0, 1)]
    poll.consumer.seek({T[0]: 1})
    with pytest.raises(DiskFull):
        asyncio.run(poll.run(LONG_MS))


def test_a_waiting_poll_goes_on_when_something_happens() -> None:
    """An append, a seek and a rebalance reach a poll that waits."""
    poll = world()
    assert asyncio.run(poll.run(LONG_MS, beside=lambda: poll.append("a", partition=1))) == [
        (T[1], 0, 1)
    ]
    poll.consumer.seek({T[1]: 1})
    assert asyncio.run(poll.run(LONG_MS, beside=lambda: poll.consumer.seek({T[1]: 0}))) == [
        (T[1], 0, 1)
    ]
