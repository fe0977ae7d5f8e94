"""Client and broker together: each side under its own client, which makes or decodes records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tests.bench import datasets, perf_tools
from tests.bench.fetch_rows import plant_log
from tests.bench.kafka_side import PERF_BATCH_BYTES
from tests.bench.load_client import Load, build_request
from tests.bench.produce_rows import BINARY, JSON_RECORDS, OS_CLASS, json_groups
from tests.bench.results import Goal, Result, Round, Sample
from tests.bench.round_topics import SOON, SOON_KAFKA, Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.bench import Bench
    from tests.bench.daemon_side import BenchDaemon
    from tests.bench.kafka_side import BenchBroker


@dataclass(frozen=True)
class _JsonRequests(Sequence[bytes]):
    """Requests that are made of their values whenever one is taken."""

    path: str
    groups: list[list[bytes]]

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, number: int) -> bytes:  # type: ignore[override]  # no slices
        return build_request("POST", self.path, datasets.json_body(self.groups[number]), BINARY)


def _produced(
    bench: Bench,
    ours: Callable[[BenchDaemon, str], Sample],
    theirs: Callable[[BenchBroker, str], Sample],
) -> list[Round]:
    """Both get the name of a new topic each round."""
    with bench.running_daemon(**SOON) as daemon, bench.running_broker(SOON_KAFKA) as broker:
        our_topics = Topics(daemon, "perf")

        def their_round(broker: BenchBroker, topics: Topics) -> Sample:
            return theirs(broker, topics.renew())

        kafka = None if broker is None else partial(their_round, broker, Topics(broker, "perf"))
        return bench.alternate(lambda: ours(daemon, our_topics.renew()), kafka)


def perf_produce(bench: Bench) -> Result:
    """Records of 1 KiB in batches of 128 KiB, made while the time runs."""
    records, size = bench.size(2_000_000, 50_000), datasets.RECORD_BYTES

    def in_megabytes(found: Sample) -> Sample:
        return replace(found, value=found.value * size / 1e6)

    def ours(daemon: BenchDaemon, topic: str) -> Sample:
        sizes = ("--record-size", str(size), "--batch-size", str(PERF_BATCH_BYTES))
        command = daemon.perf(
            "produce", topic, "--num-records", str(records), *sizes, "--acks", "1"
        )
        return in_megabytes(perf_tools.produced(command, daemon.pid, records))

    def theirs(broker: BenchBroker, topic: str) -> Sample:
        return in_megabytes(broker.produce(topic, records=records, record_size=size))

    return Result(
        name=bench.name,
        what="Client and broker together: produce 1 KiB records",
        unit="MB/s",
        durability=OS_CLASS,
        goal=Goal.times(1.5),
        rounds=_produced(bench, ours, theirs),
        client="kafkalog perf; kafka-producer-perf-test",
        notes=(
            "kafkalog: kafkalog.client, batches of 128 KiB, five in flight, 1 partition",
            "Kafka: batch.size=131072, linger.ms=5, 1 partition",
        ),
    )


def perf_json(bench: Bench) -> Result:
    """100-byte values, 1,000 records a request, put into base64 and JSON while the time runs."""
    records = bench.size(4_000_000, 400_000)
    groups = json_groups()
    payloads = bench.directory("payloads.txt")
    payloads.write_bytes(b"\n".join(value for group in groups for value in group))

    def ours(daemon: BenchDaemon, topic: str) -> Sample:
        requests = _JsonRequests(f"/topics/{topic}/partitions/0?acks=1", groups)
        found = daemon.load(requests, Load(records // JSON_RECORDS, connections=4))
        return found.sample(found.requests_per_second * JSON_RECORDS, 99)

    def theirs(broker: BenchBroker, topic: str) -> Sample:
        return broker.produce(topic, records=records, payload_file=str(payloads))

    return Result(
        name=bench.name,
        what="Client and broker together: produce records of 100 bytes, JSON of 1,000 a request",
        unit="records/s",
        durability=OS_CLASS,
        goal=Goal.times(2),
        rounds=_produced(bench, ours, theirs),
        client="load client that makes the JSON; kafka-producer-perf-test",
        notes=(
            "kafkalog: values in base64, 4 connections, 1 partition",
            "Kafka: --payload-file with the same values, batch.size=131072, 1 partition",
        ),
    )


def perf_consume(bench: Bench) -> Result:
    """Records of 1 KiB, decoded by both clients."""
    end = plant_log(bench)
    with bench.running_daemon() as daemon, bench.running_broker() as broker:

        def ours() -> Sample:
            command = daemon.perf("consume", "fetch", "--messages", str(end))
            return perf_tools.consumed(command, daemon.pid)

        kafka = None if broker is None else partial(broker.consume, "fetch", records=end)
        rounds = bench.alternate(ours, kafka)
    return Result(
        name=bench.name,
        what="Client and broker together: consume 1 KiB records",
        unit="MB/s",
        durability="from the page cache",
        goal=Goal("none"),
        rounds=rounds,
        client="kafkalog perf; kafka-consumer-perf-test",
        notes=("fetch.MB.sec of both tools, answers of 1 MiB, one consumer",),
    )


ROWS: dict[str, Callable[[Bench], Result]] = {
    "perf_produce": perf_produce,
    "perf_json": perf_json,
    "perf_consume": perf_consume,
}
