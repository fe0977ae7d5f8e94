"""Produce: raw batches, JSON in large requests, JSON one record a request."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tests.bench import datasets
from tests.bench.load_client import build_request
from tests.bench.machine_use import fdatasync_p50_ms
from tests.bench.results import Goal, Result, Sample
from tests.bench.round_topics import SOON, SOON_KAFKA, Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.bench import Bench
    from tests.bench.kafka_side import BenchBroker

RAW = "application/vnd.kafkalog.record-batches"
BINARY = "application/vnd.kafka.binary.v2+json"
OS_CLASS = "acks=1: page cache on both sides"
_RAW_BATCH_RECORDS = 125  # 125 records of 1 KiB fill Kafka's batch.size of 128 KiB
_RAW_BATCHES = 8
_JSON_RECORDS = 1000


def produce_raw(bench: Bench) -> Result:
    """1 KiB records in batches of 128 KiB, eight batches a request, four connections."""
    records = bench.size(2_000_000, 200_000)
    per_request = _RAW_BATCH_RECORDS * _RAW_BATCHES
    bodies = datasets.raw_bodies(_RAW_BATCH_RECORDS, _RAW_BATCHES)
    with bench.running_daemon(**SOON) as daemon, bench.running_broker(SOON_KAFKA) as broker:
        our_topics = Topics(daemon, "raw")

        def ours() -> Sample:
            path = f"/v1/topics/{our_topics.renew()}/partitions/0/batches?acks=1"
            requests = [build_request("POST", path, body, RAW) for body in bodies]
            load = daemon.load(requests, count=records // per_request, connections=4)
            rate = load.requests_per_second * per_request * datasets.RECORD_BYTES / 1e6
            return load.sample(rate, 99)

        def theirs(broker: BenchBroker, topics: Topics) -> Sample:
            size = datasets.RECORD_BYTES
            found = broker.produce(topics.renew(), records=records, record_size=size)
            return replace(found, value=found.value * size / 1e6)

        kafka = None if broker is None else partial(theirs, broker, Topics(broker, "raw"))
        rounds = bench.alternate(ours, kafka)
    return Result(
        name=bench.name,
        what="Produce raw batches, 1 KiB records",
        unit="MB/s",
        durability=OS_CLASS,
        goal=Goal.times(3),
        rounds=rounds,
        notes=(
            "kafkalog: 8 batches of 125 records a request, 4 connections, 1 partition",
            "Kafka: kafka-producer-perf-test, batch.size=131072, linger.ms=5, 1 partition",
        ),
    )


def produce_json(bench: Bench) -> Result:
    """100-byte values, 1,000 records a request, base64 in JSON; Kafka gets the same values."""
    records = bench.size(4_000_000, 400_000)
    all_values = datasets.values(8 * _JSON_RECORDS, datasets.SMALL_BYTES)
    bodies = [
        datasets.json_body(all_values[at : at + _JSON_RECORDS])
        for at in range(0, len(all_values), _JSON_RECORDS)
    ]
    payloads = bench.directory("payloads.txt")
    payloads.write_bytes(b"\n".join(all_values))
    with bench.running_daemon(**SOON) as daemon, bench.running_broker(SOON_KAFKA) as broker:
        our_topics = Topics(daemon, "json")

        def ours() -> Sample:
            path = f"/topics/{our_topics.renew()}/partitions/0?acks=1"
            requests = [build_request("POST", path, body, BINARY) for body in bodies]
            load = daemon.load(requests, count=records // _JSON_RECORDS, connections=4)
            return load.sample(load.requests_per_second * _JSON_RECORDS, 99)

        def theirs(broker: BenchBroker, topics: Topics) -> Sample:
            return broker.produce(topics.renew(), records=records, payload_file=str(payloads))

        kafka = None if broker is None else partial(theirs, broker, Topics(broker, "json"))
        rounds = bench.alternate(ours, kafka)
    return Result(
        name=bench.name,
        what="Produce JSON, 1,000 records of 100 bytes a request",
        unit="records/s",
        durability=OS_CLASS,
        goal=Goal(">= 2x and >= 500,000/s", at_least=500_000, ratio=2),
        rounds=rounds,
        notes=(
            "kafkalog: values in base64, 4 connections, 1 partition",
            "Kafka: kafka-producer-perf-test --payload-file with the same values, 1 partition",
        ),
    )


def _single(bench: Bench, acks: str, durability: str) -> Result:
    """One record a request, 32 connections."""
    count = bench.size(150_000, 8_000)
    path = f"/topics/single/partitions/0?acks={acks}"
    requests = [
        build_request("POST", path, datasets.json_body([value]), BINARY)
        for value in datasets.values(64, datasets.SMALL_BYTES)
    ]
    sync_ms = fdatasync_p50_ms(bench.work)
    with bench.running_daemon() as daemon:
        daemon.create_topic("single")

        def ours() -> Sample:
            load = daemon.load(requests, count=count, connections=32)
            return load.sample(load.requests_per_second, 50, 99)

        rounds = bench.alternate(ours, None)
    return Result(
        name=bench.name,
        what="Produce JSON, one record a request, 32 connections",
        unit="requests/s",
        durability=durability,
        goal=Goal(">= 10,000/s, p99 <= 10 ms", at_least=10_000, extra_at_most={"p99_ms": 10}),
        rounds=rounds,
        beside={"fdatasync_p50_ms": sync_ms},
    )


ROWS: dict[str, Callable[[Bench], Result]] = {
    "produce_raw": produce_raw,
    "produce_json": produce_json,
    "produce_json_single": partial(_single, acks="1", durability="acks=1: page cache"),
    "produce_json_single_synced": partial(_single, acks="all", durability="acks=all: fdatasync"),
}
