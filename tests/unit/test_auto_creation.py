"""Goal: records for a topic that another request is creating wait for it and are appended.
Method: a creation that is held before its partitions are there; appends beside it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import KafkalogError, NotReady, UnknownTopic
from kafkalog.format.topic_names import TopicPartition
from kafkalog.server.api import Phase
from kafkalog.server.produce import append
from kafkalog.server.produce.append import PartitionBatch, PartitionTarget, prepare_for
from kafkalog.settings import load_settings
from tests.fast_world import Inline
from tests.made_api import api_over
from tests.sim.sim_manager import SimManager

if TYPE_CHECKING:
    from kafkalog.broker.catalog import OpenTopic
    from kafkalog.server.api import Api

SETTINGS = load_settings(None, {}, {})
AT = TopicPartition("new", 0)


async def prepared(target: PartitionTarget) -> tuple[int, list[PartitionBatch]]:
    return target.partition_count, []


class HeldCreation:
    """The topic is registered, and its one partition is not there yet."""

    def __init__(self, sim: SimManager) -> None:
        sim.with_topic("new", 1)
        self.logs = sim.manager.logs
        self._log = self.logs.log_of("new", 0)
        self.logs.begin_making("new")
        self.logs.table.remove(AT)

    def end(self) -> None:
        self.logs.table.add(self._log)
        self.logs.end_making()

    def fail(self, sim: SimManager) -> None:
        """As a creation does that no directory takes."""
        sim.manager.topics.delete("new")
        self.logs.end_making()


async def begun(api: Api, partition: int | None = None) -> asyncio.Task[OpenTopic | None]:
    """A produce that has looked at the topic."""

    async def produce() -> OpenTopic | None:
        return (await prepare_for(api, "new", partition, prepared))[2]

    task = asyncio.create_task(produce())
    for _ in range(5):
        await asyncio.sleep(0)
    return task


def test_it_waits_until_the_partitions_are_there() -> None:
    async def run() -> None:
        sim = SimManager().start()
        creation = HeldCreation(sim)
        tasks = [await begun(api_over(sim, SETTINGS, Inline())) for _ in range(8)]
        assert not any(task.done() for task in tasks)
        creation.end()
        for task in tasks:
            opened = await task
            assert opened is not None
            assert opened.log_of(0).log_end_offset == 0

    asyncio.run(run())


def test_a_creation_that_fails_leaves_it_to_the_next() -> None:
    """With nothing to append nothing is created."""

    async def run() -> None:
        sim = SimManager().start()
        creation = HeldCreation(sim)
        task = await begun(api_over(sim, SETTINGS, Inline()))
        creation.fail(sim)
        assert await task is None
        with pytest.raises(UnknownTopic):
            sim.operations.open_topic("new")

    asyncio.run(run())


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "CREATION_WAIT_SECONDS", 0.01)

    async def run() -> None:
        sim = SimManager().start()
        creation = HeldCreation(sim)
        opened = await (await begun(api_over(sim, SETTINGS, Inline())))
        assert opened is not None
        with pytest.raises(NotReady, match="being created"):
            opened.log_of(0)
        creation.end()
        assert opened.log_of(0).log_end_offset == 0

    asyncio.run(run())


def test_partitions_that_are_there_do_not_wait_for_a_growth() -> None:
    async def run() -> None:
        sim = SimManager().start().with_topic("new", 1)
        sim.manager.logs.begin_making("new")
        opened = await (await begun(api_over(sim, SETTINGS, Inline())))
        assert opened is not None
        assert opened.log_of(0).log_end_offset == 0

    asyncio.run(run())


def test_a_named_partition_waits_for_itself_alone() -> None:
    """Others may be out of service, or not there yet."""

    async def run() -> None:
        sim = SimManager().start().with_topic("new", 2)
        api = api_over(sim, SETTINGS, Inline())
        sim.manager.logs.begin_making("new")
        sim.manager.logs.table.remove(TopicPartition("new", 1))
        assert await (await begun(api, 0)) is not None
        late = await begun(api, 1)
        assert not late.done()
        assert api.delayed_fetches.waiting_count == 1, "it takes no place of requests in work"
        sim.manager.logs.end_making()
        assert await late is not None
        assert api.delayed_fetches.waiting_count == 0

    asyncio.run(run())


def test_a_stop_ends_the_wait() -> None:
    async def run() -> None:
        sim = SimManager().start()
        creation = HeldCreation(sim)
        api = api_over(sim, SETTINGS, Inline())
        task = await begun(api)
        api.state.phase = Phase.STOPPING
        api.delayed_fetches.wake_all()
        opened = await task
        assert opened is not None
        with pytest.raises(NotReady):
            opened.log_of(0)
        creation.end()

    asyncio.run(run())


def test_a_partition_out_of_service_is_not_waited_for() -> None:
    async def run() -> None:
        sim = SimManager().start().with_topic("new", 1)
        sim.manager.logs.table.remove(AT)
        opened = await (await begun(api_over(sim, SETTINGS, Inline())))
        assert opened is not None
        with pytest.raises(KafkalogError):
            opened.log_of(0)

    asyncio.run(run())
