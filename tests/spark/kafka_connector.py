"""A Spark that has its own Kafka source beside ours."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.spark.session import running_spark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.oracle.kafka import Kafka


@contextmanager
def spark_with_connector(kafka: Kafka, directory: Path) -> Iterator[SparkSession]:
    """A session that knows format("kafka"). A JVM gets its jars when it starts."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        pytest.fail("A Spark without Kafka's jars runs in this process: use make spark-parity")
    with running_spark(directory, {"spark.jars": kafka.connector()}) as session:
        yield session
