"""Writing from Spark through the daemon, beside Spark's own Kafka sink through a broker.

The rows are made in the JVM by the same query on both sides. MB are of keys and values. A round is
one ``df.write`` of four tasks into a new topic of four partitions.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from tests.bench.results import Goal, Result, Sample
from tests.bench.round_topics import SOON, SOON_KAFKA, Topics
from tests.bench.spark_side import UNIX_SOCKETS_NOTE, WARM_UPS, SparkProcess, kafkas_session
from tests.bench.spark_topics import KEY_BYTES, PARTITIONS, VALUE_BYTES

if TYPE_CHECKING:
    from tests.bench.bench import Bench
    from tests.bench.daemon_side import BenchDaemon
    from tests.bench.kafka_side import BenchBroker
    from tests.bench.spark_side import Answer

# With Kafka's defaults (16 KiB, no wait) its side takes nearly twice as long.
_KAFKA = {"kafka.batch.size": "65536", "kafka.linger.ms": "20"}
_MARKERS_MAX = 1000
"""Of transactions in a topic: a few for each task and partition."""


def _written(
    bench: Bench, what: str, times: float, options: dict[str, str], durability: str
) -> Result:
    rows = bench.size(2_000_000, 100_000)

    def sample(answer: Answer) -> Sample:
        return Sample(rows * (KEY_BYTES + VALUE_BYTES) / answer["seconds"] / 1e6)

    with ExitStack() as stack:
        daemon = stack.enter_context(bench.running_daemon(**SOON))
        our_session = stack.enter_context(SparkProcess.of(bench, "spark", unix_sockets=True))
        our_topics = Topics(daemon, "written", PARTITIONS)
        address = {"url": f"http://127.0.0.1:{daemon.port}"}

        def ours() -> Sample:
            topic = our_topics.renew()
            asked = {**address, **options, "topic": topic}
            answer = our_session.ask("write", sink="kafkalog", options=asked, rows=rows)
            assert rows <= _records_in(daemon, topic) <= rows + _MARKERS_MAX
            return sample(answer)

        kafka = stack.enter_context(kafkas_session(bench, SOON_KAFKA))

        def theirs(session: SparkProcess, broker: BenchBroker, topics: Topics) -> Sample:
            address = {"kafka.bootstrap.servers": broker.bootstrap}
            asked = {**address, **_KAFKA, "topic": topics.renew()}
            return sample(session.ask("write", sink="kafka", options=asked, rows=rows))

        beside = kafka and partial(theirs, *kafka, Topics(kafka[1], "written", PARTITIONS))
        rounds = bench.alternate(ours, beside, warm_ups=WARM_UPS)
    return Result(
        name=bench.name,
        what=f"Spark: {what}, {rows / 1e6:.2g} M rows, {PARTITIONS} partitions",
        unit="MB/s",
        durability=durability,
        goal=Goal.times(times),
        rounds=rounds,
        notes=(
            UNIX_SOCKETS_NOTE,
            "both: rows of 11 and 205 letters made by Spark",
            "Kafka: kafka.batch.size=65536, kafka.linger.ms=20",
        ),
    )


def _records_in(daemon: BenchDaemon, topic: str) -> int:
    """All partitions together, markers of transactions included."""
    paths = [f"/topics/{topic}/partitions/{number}/offsets" for number in range(PARTITIONS)]
    return sum(int(daemon.request("GET", path).json["end_offset"]) for path in paths)


ROWS = {
    "spark_write": partial(
        _written,
        what="write, at least once",
        times=1.5,
        options={"acks": "1"},
        durability="page cache on both sides",
    ),
    # Kafka's sink has neither.
    "spark_write_exactly_once": partial(
        _written,
        what="write, exactly once",
        times=1.2,
        options={"exactlyOnce": "true"},
        durability="kafkalog: exactly once, fdatasync; Kafka: at least once, page cache",
    ),
}
