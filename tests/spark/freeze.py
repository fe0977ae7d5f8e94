"""Make `frozen/` anew: `make spark-freeze`.

A real Kafka writes the logs, and Spark's own source reads them from a broker: what it found is
what ours has to find. Needs what the tests marked spark_kafka need.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from tests.oracle.kafka import Kafka
from tests.spark import frozen_parity
from tests.spark.kafka_connector import spark_with_connector
from tests.spark.kafka_logs import SHAPES, shapes_in, under_a_broker, written_by_kafka
from tests.spark.parity import (
    BREAKS_IN,
    QUERIES,
    REFUSED,
    STREAMS,
    Found,
    Source,
    Stream,
    batch,
    is_refused,
    schemas,
    whole_stream,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def all_found(spark: SparkSession, source: Source, home: Path) -> Found:
    """Schemas, every batch query, also those that fail, and every stream."""
    return {
        "schemas": schemas(spark, source),
        "batches": {query: batch(spark, source, query) for query in QUERIES},
        "refused": {query: is_refused(spark, source, query) for query in REFUSED},
        "streams": {name: whole_stream(spark, source, name, home / name) for name in STREAMS},
    }


def main() -> None:
    """Some minutes, most of them Java's."""
    kafka = Kafka.ready()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        logs = written_by_kafka(kafka, home)
        assert shapes_in(logs) == SHAPES
        with (
            under_a_broker(kafka, logs, home / "reading") as broker,
            spark_with_connector(kafka, home / "spark") as spark,
        ):
            source = Source.kafka(broker.bootstrap)
            found = all_found(spark, source, home)
            jars = (Path(jar).stem for jar in kafka.connector().split(","))
            found["made with"] = [f"pyspark-{pyspark.__version__}", *sorted(jars)]
            broken = Stream(spark, home / "broken", "limited")
            broken.run(source, breaks_in=BREAKS_IN)
        frozen_parity.keep(logs, found, home / "broken")


if __name__ == "__main__":
    main()
