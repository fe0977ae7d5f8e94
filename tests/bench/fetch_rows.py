"""Fetch from the page cache: raw batches and JSON pages, of logs planted under both servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench import datasets
from tests.bench.planting import plant_unclean
from tests.bench.results import Goal, Result, Sample

if TYPE_CHECKING:
    from tests.bench.bench import Bench

BINARY = "application/vnd.kafka.binary.v2+json"
_PAGE = 1 << 20


def fetch_raw(bench: Bench) -> Result:
    """Pages of 1 MiB, the default of both consumers, two connections."""
    total = bench.size(1 << 30, 200 << 20)
    source = bench.directory("source")
    source.mkdir()
    name = "00000000000000000000.log"
    end = datasets.write_log(
        source / name,
        total_bytes=total - (1 << 20),
        batch_records=125,
        value_bytes=datasets.RECORD_BYTES,
    )
    plant_unclean(bench, "fetch", source)
    passes = bench.size(4, 2)
    with bench.running_daemon() as daemon, bench.running_broker() as broker:
        path = f"/v1/topics/fetch/partitions/0/batches?max_bytes={_PAGE}&offset="
        requests = daemon.walk(path, "*/*", end)

        def ours() -> Sample:
            load, server = daemon.load(requests, count=len(requests) * passes, connections=2)
            return Sample(
                load.bytes_received / load.seconds / 1e6,
                load.client_cpu_share,
                server,
                {"p99_ms": load.percentile_ms(99)},
            )

        def theirs() -> Sample:
            assert broker is not None
            return broker.consume("fetch", records=end)

        rounds = bench.alternate(ours, theirs if broker is not None else None)
    return Result(
        name="fetch_raw",
        what="Fetch raw batches, 1 KiB records, 1 MiB a request",
        unit="MB/s",
        durability="from the page cache",
        goal=Goal(">= 5x and >= 1,000 MB/s", at_least=1000, ratio=5),
        rounds=rounds,
        notes=(
            "kafkalog: 2 connections; the client checks lengths only",
            "Kafka: kafka-consumer-perf-test, one consumer, which also decodes the records; its"
            " fetch.MB.sec, without the time to join its group",
        ),
    )


def fetch_json(bench: Bench) -> Result:
    """Pages of 1 MiB of 100-byte values, base64 in JSON, two connections."""
    total = bench.size(256 << 20, 64 << 20)
    source = bench.directory("source")
    source.mkdir()
    end = datasets.write_log(
        source / "00000000000000000000.log",
        total_bytes=total,
        batch_records=1000,
        value_bytes=datasets.SMALL_BYTES,
    )
    plant_unclean(bench, "fetch", source, with_kafka=False)
    with bench.running_daemon() as daemon:
        path = f"/topics/fetch/partitions/0/records?max_bytes={_PAGE}&offset="
        requests = daemon.walk(path, BINARY, end)

        def ours() -> Sample:
            load, server = daemon.load(requests, count=len(requests), connections=2)
            return Sample(
                end / load.seconds,
                load.client_cpu_share,
                server,
                {"p99_ms": load.percentile_ms(99)},
            )

        rounds = bench.alternate(ours, None)
    return Result(
        name="fetch_json",
        what="Fetch JSON, 100-byte records, 1 MiB a page",
        unit="records/s",
        durability="from the page cache",
        goal=Goal(">= 800,000/s", at_least=800_000),
        rounds=rounds,
        notes=("2 connections, values in base64",),
    )
