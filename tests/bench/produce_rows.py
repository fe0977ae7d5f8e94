"""Produce: raw batches, JSON in large requests, JSON one record a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench import datasets
from tests.bench.load_client import build_request
from tests.bench.machine_use import fdatasync_p50_ms
from tests.bench.results import Goal, Result, Sample
from tests.bench.round_topics import SOON, SOON_KAFKA, Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.bench import Bench
    from tests.bench.daemon_side import BenchDaemon

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
        their_topics = None if broker is None else Topics(broker, "raw")

        def ours() -> Sample:
            our_topics.renew()
            path = f"/v1/topics/{our_topics.current}/partitions/0/batches?acks=1"
            requests = [build_request("POST", path, body, RAW) for body in bodies]
            load, server = daemon.load(requests, count=records // per_request, connections=4)
            rate = load.requests_per_second * per_request * datasets.RECORD_BYTES / 1e6
            return Sample(rate, load.client_cpu_share, server, {"p99_ms": load.percentile_ms(99)})

        def theirs() -> Sample:
            assert broker is not None
            assert their_topics is not None
            their_topics.renew()
            found = broker.produce(
                their_topics.current, records=records, record_size=datasets.RECORD_BYTES
            )
            rate = found.value * datasets.RECORD_BYTES / 1e6
            return Sample(rate, found.client_cpu_share, found.server_cpu_share)

        rounds = bench.alternate(ours, theirs if broker is not None else None)
    return Result(
        name="produce_raw",
        what="Produce raw batches, 1 KiB records",
        unit="MB/s",
        durability=OS_CLASS,
        goal=Goal(">= 3x", ratio=3),
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
        their_topics = None if broker is None else Topics(broker, "json")

        def ours() -> Sample:
            our_topics.renew()
            path = f"/topics/{our_topics.current}/partitions/0?acks=1"
            requests = [build_request("POST", path, body, BINARY) for body in bodies]
            load, server = daemon.load(requests, count=records // _JSON_RECORDS, connections=4)
            return Sample(
                load.requests_per_second * _JSON_RECORDS,
                load.client_cpu_share,
                server,
                {"p99_ms": load.percentile_ms(99)},
            )

        def theirs() -> Sample:
            assert broker is not None
            assert their_topics is not None
            their_topics.renew()
            return broker.produce(their_topics.current, records=records, payload_file=str(payloads))

        rounds = bench.alternate(ours, theirs if broker is not None else None)
    return Result(
        name="produce_json",
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


def produce_json_single(bench: Bench) -> Result:
    """One record a request, 32 connections, acknowledged from the page cache."""
    return _single(bench, "produce_json_single", "1", "acks=1: page cache")


def produce_json_single_synced(bench: Bench) -> Result:
    """One record a request, 32 connections, acknowledged after fdatasync (group commit)."""
    return _single(bench, "produce_json_single_synced", "all", "acks=all: fdatasync")


def _single(bench: Bench, name: str, acks: str, durability: str) -> Result:
    count = bench.size(150_000, 8_000)
    requests = [
        build_request(
            "POST", f"/topics/single/partitions/0?acks={acks}", datasets.json_body([value]), BINARY
        )
        for value in datasets.values(64, datasets.SMALL_BYTES)
    ]
    sync_ms = fdatasync_p50_ms(bench.work)
    with bench.running_daemon() as daemon:
        daemon.create_topic("single")
        rounds = bench.alternate(_single_round(daemon, requests, count), None)
    return Result(
        name=name,
        what="Produce JSON, one record a request, 32 connections",
        unit="requests/s",
        durability=durability,
        goal=Goal(">= 10,000/s, p99 <= 10 ms", at_least=10_000, extra_at_most={"p99_ms": 10}),
        rounds=rounds,
        beside={"fdatasync_p50_ms": sync_ms},
    )


def _single_round(daemon: BenchDaemon, requests: list[bytes], count: int) -> Callable[[], Sample]:
    def one_round() -> Sample:
        load, server = daemon.load(requests, count=count, connections=32)
        return Sample(
            load.requests_per_second,
            load.client_cpu_share,
            server,
            {"p50_ms": load.percentile_ms(50), "p99_ms": load.percentile_ms(99)},
        )

    return one_round
