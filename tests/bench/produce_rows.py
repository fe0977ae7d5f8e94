"""Produce by the load client: raw batches beside Kafka's protocol, JSON beside Strimzi's Bridge."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tests.bench import datasets, kafka_wire
from tests.bench.load_client import Load, build_request, run_load
from tests.bench.machine_use import fdatasync_p50_ms
from tests.bench.results import LOAD_CLIENT, Goal, Result, Round, Sample
from tests.bench.round_topics import SOON, SOON_KAFKA, Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.bench import Bench
    from tests.bench.bridge_side import BenchBridge
    from tests.bench.kafka_side import BenchBroker

BINARY = "application/vnd.kafka.binary.v2+json"
OS_CLASS = "acks=1: page cache on both sides"
JSON_RECORDS = 1000
_RAW = "application/vnd.kafkalog.record-batches"
_OWN_OS_CLASS, _SYNCED_CLASS = "acks=1: page cache", "acks=all: fdatasync"
_BATCH_RECORDS = 125  # of 1 KiB: they fill Kafka's batch.size of 128 KiB
_BRIDGE_SHARE = 10  # the Bridge gets so many fewer requests, for the sake of time


def _raw_requests(topic: str, batches: list[bytes], acks: str = "1") -> list[bytes]:
    path = f"/v1/topics/{topic}/partitions/0/batches?acks={acks}"
    return [build_request("POST", path, batch, _RAW) for batch in batches]


def _raw_rounds(bench: Bench, batches: list[bytes], load: Load, worth: float) -> list[Round]:
    """The same batches over HTTP and over Kafka's protocol. ``worth``: of one request."""
    with bench.running_daemon(**SOON) as daemon, bench.running_broker(SOON_KAFKA) as broker:
        our_topics = Topics(daemon, "raw")

        def ours() -> Sample:
            found = daemon.load(_raw_requests(our_topics.renew(), batches), load)
            return found.sample(found.requests_per_second * worth, 50, 99)

        def theirs(broker: BenchBroker, topics: Topics) -> Sample:
            topic = topics.renew()
            requests = [kafka_wire.produce_request(topic, batch) for batch in batches]
            found = run_load(broker, requests, load, kafka_wire.produced_length)
            return found.sample(found.requests_per_second * worth, 50, 99)

        kafka = None if broker is None else partial(theirs, broker, Topics(broker, "raw"))
        return bench.alternate(ours, kafka)


def produce_raw(bench: Bench) -> Result:
    """1 KiB records, a batch of 128 KiB a request, four connections, five requests in flight."""
    batches = [datasets.batch_of(_BATCH_RECORDS, datasets.RECORD_BYTES, seed=n) for n in range(32)]
    load = Load(bench.size(16_000, 1_600), connections=4, in_flight=5)
    megabytes = _BATCH_RECORDS * datasets.RECORD_BYTES / 1e6
    return Result(
        name=bench.name,
        what="Produce raw, one batch of 128 KiB a request, 1 KiB records",
        unit="MB/s",
        durability=OS_CLASS,
        goal=Goal.times(1.2),
        rounds=_raw_rounds(bench, batches, load, megabytes),
        client=LOAD_CLIENT,
        notes=("4 connections, 5 requests in flight on each, 1 partition", "Kafka: Produce v3"),
    )


def _small_batches() -> list[bytes]:
    return [datasets.batch_of(1, datasets.SMALL_BYTES, seed=n) for n in range(64)]


def produce_single(bench: Bench) -> Result:
    """A record of 100 bytes in its batch a request, 32 connections."""
    load = Load(bench.size(150_000, 8_000), connections=32)
    return Result(
        name=bench.name,
        what="Produce raw, one record of 100 bytes a request, 32 connections",
        unit="requests/s",
        durability=OS_CLASS,
        goal=Goal.times(1),
        rounds=_raw_rounds(bench, _small_batches(), load, 1),
        client=LOAD_CLIENT,
        notes=("1 partition", "Kafka: Produce v3"),
    )


def produce_single_synced(bench: Bench) -> Result:
    """As `produce_single`, answered after the sync; in the same round without it."""
    load = Load(bench.size(75_000, 4_000), connections=32)
    sync_ms = fdatasync_p50_ms(bench.work)
    with bench.running_daemon(**SOON) as daemon:
        topics = Topics(daemon, "raw")

        def ours() -> Sample:
            topic = topics.renew()
            unsynced, synced = (
                daemon.load(_raw_requests(topic, _small_batches(), acks), load)
                for acks in ("1", "all")
            )
            rate, beside = synced.requests_per_second, unsynced.requests_per_second
            found = synced.sample(rate, 50, 99)
            return replace(
                found, extra={**found.extra, "unsynced_per_s": beside, "of_unsynced": rate / beside}
            )

        rounds = bench.alternate(ours, None)
    return Result(
        name=bench.name,
        what="Produce raw, one record of 100 bytes a request, 32 connections",
        unit="requests/s",
        durability=_SYNCED_CLASS,
        goal=Goal(">= 0.7 of unsynced", extra_at_least={"of_unsynced": 0.7}),
        rounds=rounds,
        client=LOAD_CLIENT,
        beside={"fdatasync_p50_ms": sync_ms},
    )


def _json(
    bench: Bench,
    bodies: list[bytes],
    load: Load,
    *,
    what: str,
    records: int,
    goal: Goal,
    of_bridge: float,
    acks: str = "1",
) -> Result:
    """Bodies of so many records to kafkalog and, unless they are to be synced, to the Bridge.

    of_bridge  the goal's ratio, where the Bridge runs
    """
    sync_ms = fdatasync_p50_ms(bench.work)
    beside = bench.running_bridge(SOON_KAFKA) if acks == "1" else nullcontext()
    with bench.running_daemon(**SOON) as daemon, beside as bridge:
        our_topics = Topics(daemon, "json")

        def requests_to(path: str) -> list[bytes]:
            return [build_request("POST", path, body, BINARY) for body in bodies]

        def ours() -> Sample:
            path = f"/topics/{our_topics.renew()}/partitions/0?acks={acks}"
            found = daemon.load(requests_to(path), load)
            return found.sample(found.requests_per_second * records, 50, 99)

        def theirs(bridge: BenchBridge, topics: Topics) -> Sample:
            path = f"/topics/{topics.renew()}/partitions/0"
            less = replace(load, count=load.count // _BRIDGE_SHARE)
            found = run_load(bridge, requests_to(path), less)
            return found.sample(found.requests_per_second * records, 50, 99)

        kafka = None if bridge is None else partial(theirs, bridge, Topics(bridge.broker, "json"))
        rounds = bench.alternate(ours, kafka)
    durability = _OWN_OS_CLASS if acks == "1" else _SYNCED_CLASS
    if bridge is not None:
        goal = replace(goal, text=f">= {of_bridge:g}x the Bridge, {goal.text}", ratio=of_bridge)
        durability = f"{OS_CLASS}; Kafka behind Strimzi's Bridge"
    return Result(
        name=bench.name,
        what=what,
        unit="records/s" if records > 1 else "requests/s",
        durability=durability,
        goal=goal,
        rounds=rounds,
        client=LOAD_CLIENT,
        notes=("values in base64, 1 partition",),
        beside={"fdatasync_p50_ms": sync_ms},
    )


def json_groups() -> list[list[bytes]]:
    """The values of eight requests."""
    seeds = range(1, 9)
    return [datasets.values(JSON_RECORDS, datasets.SMALL_BYTES, seed) for seed in seeds]


def produce_json(bench: Bench) -> Result:
    """100-byte values, 1,000 records a request, four connections."""
    return _json(
        bench,
        [datasets.json_body(values) for values in json_groups()],
        Load(bench.size(4_000, 400), connections=4),
        what="Produce JSON, 1,000 records of 100 bytes a request",
        records=JSON_RECORDS,
        goal=Goal(">= 500,000/s", at_least=500_000),
        of_bridge=30,
    )


def _json_single(bench: Bench, acks: str) -> Result:
    """One record a request, 32 connections."""
    return _json(
        bench,
        [datasets.json_body([value]) for value in datasets.values(64, datasets.SMALL_BYTES)],
        Load(bench.size(150_000, 8_000), connections=32),
        what="Produce JSON, one record a request, 32 connections",
        records=1,
        goal=Goal(">= 10,000/s, p99 <= 10 ms", at_least=10_000, extra_at_most={"p99_ms": 10}),
        of_bridge=10,
        acks=acks,
    )


ROWS: dict[str, Callable[[Bench], Result]] = {
    "produce_raw": produce_raw,
    "produce_single": produce_single,
    "produce_single_synced": produce_single_synced,
    "produce_json": produce_json,
    "produce_json_single": partial(_json_single, acks="1"),
    "produce_json_single_synced": partial(_json_single, acks="all"),
}
