"""The same queries to Spark's Kafka source and to ours; what they find, as values to compare.

Found is plain JSON, so that what Kafka's source found can be frozen (`frozen_parity`). Of rows it
holds a digest by partition: their number, the sum of xxhash64 over all columns (the order of rows
does not count), and how many have no key, no value and no headers, because Spark's hash passes
over nulls and empty arrays. Of a batch query also the first and the last row of each task that has
one: in a batch query Kafka's source has tasks for empty partitions, too, and ours has not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as f

from tests.oracle.real_directories import TIME

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

Digest = dict[str, list[int]]
Task = list[str | int]
Found = dict[str, Any]

_ALL = {"subscribe": "compacted,late,many,plain,trimmed,txn"}
_COMMITTED = {"kafka.isolation.level": "read_committed"}
_LATE_STARTS = {"startingOffsetsByTimestampStrategy": "latest"}
_LOST = {"subscribe": "trimmed", "startingOffsets": '{"trimmed":{"0":10}}'}

QUERIES: dict[str, dict[str, str]] = {
    "all": _ALL,
    "committed": _ALL | _COMMITTED,
    "a pattern": {"subscribePattern": "t.*|many"},
    "partitions": {"assign": '{"many":[10,0,2],"plain":[0]}'},
    "offsets": {
        "subscribe": "plain,trimmed,txn",
        "startingOffsets": '{"plain":{"0":101},"trimmed":{"0":60},"txn":{"0":-2}}',
        "endingOffsets": '{"plain":{"0":-1},"trimmed":{"0":61},"txn":{"0":77}}',
    },
    "times": {
        **_ALL,
        **_LATE_STARTS,
        "startingTimestamp": str(TIME + 300_000),
        "endingTimestamp": str(TIME + 600_000),
    },
    "times of partitions": {
        "subscribe": "plain,trimmed",
        **_LATE_STARTS,
        "startingOffsetsByTimestamp": json.dumps(
            {"plain": {"0": TIME + 400_000}, "trimmed": {"0": TIME + 900_000}}
        ),
        "endingOffsetsByTimestamp": json.dumps(
            {"plain": {"0": TIME + 990_000}, "trimmed": {"0": 2 * TIME}}
        ),
    },
    "23 tasks at least": _ALL | {"minPartitions": "23"},
    # Numbers, because in a batch query Kafka's source does not count up to names of offsets.
    "50 records a task": {
        "subscribe": "plain,trimmed",
        "startingOffsets": '{"plain":{"0":0},"trimmed":{"0":57}}',
        "endingOffsets": '{"plain":{"0":335},"trimmed":{"0":200}}',
        "maxRecordsPerPartition": "50",
    },
    "what is left of a loss": _LOST | {"failOnDataLoss": "false"},
}
"""Options of batch queries, by what they show."""

REFUSED: dict[str, dict[str, str]] = {
    "a loss": _LOST,
    "no start": {"subscribe": "plain", "startingOffsets": "latest"},
    "an end before the start": {
        "subscribe": "plain",
        "startingOffsets": '{"plain":{"0":9}}',
        "endingOffsets": '{"plain":{"0":5}}',
    },
    "no offset of a partition": {
        "subscribe": "plain,trimmed",
        "startingOffsets": '{"plain":{"0":9}}',
    },
    "a time behind every record": {"subscribe": "plain", "startingTimestamp": str(3 * TIME)},
    "no such topic": {"subscribe": "plane"},
    "two subscriptions": {"subscribe": "plain", "subscribePattern": "p.*"},
    "none": {},
    "a deserializer": {"subscribe": "plain", "kafka.value.deserializer": "String"},
}
"""Options of batch queries that end with an error."""

STREAMS: dict[str, dict[str, str]] = {
    "limited": _ALL | {"maxOffsetsPerTrigger": "300"},
    "committed": _ALL | _COMMITTED | {"maxOffsetsPerTrigger": "800"},
    "from a time": {
        **_ALL,
        **_LATE_STARTS,
        "startingTimestamp": str(TIME + 500_000),
        "maxOffsetsPerTrigger": "600",
    },
}
"""Options of streams; from the earliest offset on, unless they say otherwise."""

BREAKS_IN = 2
"""The batch in which a stream is broken off, to go on elsewhere."""


@dataclass(frozen=True)
class Source:
    """A format, and where it finds the topics."""

    format: str
    where: Mapping[str, str]

    @classmethod
    def kafka(cls, bootstrap: str) -> Source:
        return cls("kafka", {"kafka.bootstrap.servers": bootstrap})

    @classmethod
    def directory(cls, logs: Path) -> Source:
        return cls("kafkalog", {"path": str(logs)})

    @classmethod
    def daemon(cls, port: int) -> Source:
        return cls("kafkalog", {"url": f"http://127.0.0.1:{port}"})

    def table(self, spark: SparkSession, **options: str) -> DataFrame:
        return spark.read.format(self.format).options(**self.where, **options).load()

    def stream(self, spark: SparkSession, **options: str) -> DataFrame:
        return spark.readStream.format(self.format).options(**self.where, **options).load()


def schemas(spark: SparkSession, source: Source) -> Found:
    """As text, without headers and with them."""
    return {
        headers: source.table(spark, includeHeaders=headers, **_ALL).schema.simpleString()
        for headers in ("false", "true")
    }


def batch(spark: SparkSession, source: Source, query: str) -> Found:
    """The rows of one of QUERIES, and which of them were read together."""
    rows, tasks = _looked_through(source.table(spark, includeHeaders="true", **QUERIES[query]))
    return {"rows": rows, "tasks": tasks}


def is_refused(spark: SparkSession, source: Source, query: str) -> bool:
    """Whether one of REFUSED ends with an error, when it is made or when it runs."""
    try:
        digest(source.table(spark, includeHeaders="true", **REFUSED[query]))
    except (PySparkException, Py4JJavaError):  # the latter: what only Java has a name for
        return True
    return False


def digest(frame: DataFrame) -> Digest:
    """By partition, see the module."""
    return _looked_through(frame)[0]


def _looked_through(frame: DataFrame) -> tuple[Digest, list[Task]]:
    # Spark refuses a sum of longs that overflows.
    row_hash = f.xxhash64(*frame.columns).cast("decimal(38,0)")
    by_task = (
        frame.groupBy(f.spark_partition_id(), "topic", "partition")
        .agg(
            f.min("offset"),
            f.max("offset"),
            f.count("*"),
            f.sum(row_hash),
            *(f.count_if(f.isnull(name)) for name in ("key", "value", "headers")),
        )
        .collect()
    )
    rows: Digest = {}
    tasks: list[Task] = []
    for _, topic, partition, first, last, *sums in by_task:
        name = f"{topic}-{partition}"
        tasks.append([name, first, last])
        before = rows.get(name, [0] * len(sums))
        rows[name] = [total + int(more) for total, more in zip(before, sums, strict=True)]
    return dict(sorted(rows.items())), sorted(tasks)


@dataclass
class Stream:
    """A streaming query with one checkpoint, which any source may continue."""

    spark: SparkSession
    checkpoint: Path
    name: str  # of STREAMS
    batches: dict[int, Digest] = field(default_factory=dict)

    def run(self, source: Source, breaks_in: int | None = None) -> None:
        """To the end, or up to the middle of a batch: planned, and not committed."""
        is_broken = False

        def take(frame: DataFrame, number: int) -> None:
            nonlocal is_broken
            if number == breaks_in:
                is_broken = True
                raise RuntimeError("broken off")
            assert number not in self.batches, "a batch ran twice"
            self.batches[number] = digest(frame)

        options = STREAMS[self.name] | {"includeHeaders": "true", "startingOffsets": "earliest"}
        query = (
            source.stream(self.spark, **options)
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException:
            if not is_broken:
                raise
        finally:
            query.stop()
        assert is_broken == (breaks_in is not None)

    def found(self) -> Found:
        """Where each batch ended, from the offset log, and its rows.

        Without names that have no partitions, our topic ids: the Kafka source has none.
        """
        files = (self.checkpoint / "offsets").glob("[0-9]*")
        in_order = sorted(files, key=lambda file: int(file.name))
        documents = [json.loads(file.read_text().splitlines()[2]) for file in in_order]
        ends = [{name: offsets for name, offsets in each.items() if offsets} for each in documents]
        return {"ends": ends, "batches": [self.batches[number] for number in sorted(self.batches)]}


def whole_stream(spark: SparkSession, source: Source, name: str, checkpoint: Path) -> Found:
    stream = Stream(spark, checkpoint, name)
    stream.run(source)
    return stream.found()
