"""Goal: an independent client of the REST proxies works, in the mode for each of them.
Method: kafka-bridge-client (PyPI) against a live daemon, unchanged.
"""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import pytest
from kafka_bridge_client import KafkaBridgeConsumer, KafkaBridgeProducer, Message

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

SETTINGS = {"offsets_topic_num_partitions": "3", "http_trusted_proxies": "127.0.0.0/8"}


async def read(daemon: Daemon, topic: str, proxy: str, *, group: str) -> list[Any]:
    """One life of a consumer that never deletes its old instance: poll, then commit what came."""
    consumer = KafkaBridgeConsumer(
        topic,
        bootstrap_server=f"http://127.0.0.1:{daemon.port}/",
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_name="c1",
        sleep_interval_seconds=0,
        proxy=proxy,
    )
    async with consumer:
        records: list[Any] = await consumer.poll_records(max_bytes=1_000_000, timeout=200)
        await consumer.commit()
    return records


@pytest.mark.parametrize("proxy", ["strimzi", "confluent"])
def test_produce_read_commit_and_come_back(daemon: Daemon, proxy: str) -> None:
    """Each mode gets the statuses and bodies that it insists on, and goes on where it was."""
    topic = f"bridged-{proxy}"
    daemon.create_topic(topic)
    producer = KafkaBridgeProducer(f"http://127.0.0.1:{daemon.port}", timeout=10)
    assert producer.send(topic, Message(key="k", value="text"))
    assert producer.sends(topic, [Message(key=None, value=b"\0\xff")], binary=True)
    first = asyncio.run(read(daemon, topic, proxy, group=proxy))
    values = [base64.b64decode(each["value"]) for each in first]
    assert values == [b'"text"', b"\0\xff"]
    second = asyncio.run(read(daemon, topic, proxy, group=proxy))
    assert [each["offset"] for each in second] == ([1] if proxy == "strimzi" else [])


def test_a_topic_that_is_not_there(daemon: Daemon) -> None:
    """A consumer may subscribe before its topic exists, and reads it from its first record."""

    async def wait_for_it() -> list[Any]:
        consumer = KafkaBridgeConsumer(
            "later",
            bootstrap_server=f"http://127.0.0.1:{daemon.port}/",
            group_id="early",
            auto_offset_reset="earliest",
            enable_auto_commit=True,
            consumer_name="c1",
            sleep_interval_seconds=0,
        )
        async with consumer:
            assert await consumer.poll_records(max_bytes=1000, timeout=0) == []
            await asyncio.to_thread(daemon.create_topic, "later")
            await asyncio.to_thread(daemon.produce_text, "later", "first")
            records: list[Any] = await consumer.poll_records(max_bytes=1000, timeout=0)
            return records

    assert [each["offset"] for each in asyncio.run(wait_for_it())] == [0]
