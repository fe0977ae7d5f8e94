"""kafkalog for Spark: a data source and a sink over log directories or daemons.

Spark calls `source`, `stream_reader` and `sink/writers`; only these import pyspark. `options` and
`option_values` read what a user set, `offsets` and `planning` decide which offsets are read in
which task, `reading` is what a task does. `logs/` reads directories, object stores and daemons.
Kernels and pyarrow are imported when a task reads, so that planning a query does not wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register ``format("kafkalog")`` in a session that cannot import `pyspark_kafkalog`."""
    from kafkalog.spark.source import KafkalogDataSource

    spark.dataSource.register(KafkalogDataSource)
