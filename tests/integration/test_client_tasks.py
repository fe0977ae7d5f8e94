"""Goal: many tasks share one asynchronous client, and a cancelled send leaves no doubt behind.
Method: tasks at once on a live daemon; sends that run out of time at random moments.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from kafkalog.client import AsyncClient, ProducerIdentity, ProducerRecord

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon


def test_tasks_at_once(daemon: Daemon) -> None:
    """M01: no task gets another's answer; long polls do not hold up the rest."""
    daemon.create_topic("tasks", 4)

    async def reader(client: AsyncClient, partition: int) -> list[bytes | None]:
        found = []
        async for record in client.tail("tasks", partition, start="earliest", max_wait_ms=20_000):
            found.append(record.value)
            if len(found) == 25:
                break
        return found

    async def writer(client: AsyncClient, number: int) -> None:
        record = ProducerRecord(str(number))
        (receipt,) = await client.produce("tasks", [record], partition=number % 4, acks="1")
        fetched = await client.fetch("tasks", number % 4, receipt.base_offset)
        assert fetched.records[0].value == str(number).encode()

    async def main() -> list[list[bytes | None]]:
        async with AsyncClient(f"http://127.0.0.1:{daemon.port}") as client:
            readers = [asyncio.create_task(reader(client, partition)) for partition in range(4)]
            await asyncio.gather(*(writer(client, number) for number in range(100)))
            return await asyncio.gather(*readers)

    for partition, found in enumerate(asyncio.run(main())):
        wanted = {str(number).encode() for number in range(partition, 100, 4)}
        assert set(found) == wanted


def test_sends_that_run_out_of_time(daemon: Daemon) -> None:
    """M25: whatever was cut off is resent or was never sent; nothing is twice."""
    daemon.create_topic("cut-off")
    rng = random.Random(5)

    async def main() -> tuple[list[str], int]:
        certain, cut_off = [], 0
        async with AsyncClient(f"http://127.0.0.1:{daemon.port}") as client:
            producer = client.producer(ProducerIdentity(55, 0), acks="1")
            for number in range(60):
                value = f"v{number}"
                try:
                    async with asyncio.timeout(rng.random() * 0.01):
                        await producer.send("cut-off", [ProducerRecord(value)], partition=0)
                    certain.append(value)
                except TimeoutError:
                    cut_off += 1
                    if producer.unanswered:
                        await producer.resend("cut-off", 0)
                        certain.append(value)
            tail = client.tail("cut-off", 0, start="earliest", is_endless=False)
            stored = [(record.value or b"").decode() async for record in tail]
        assert stored == certain
        return stored, cut_off

    stored, cut_off = asyncio.run(main())
    assert len(stored) == len(set(stored))
    assert cut_off, "no send was cut off"
