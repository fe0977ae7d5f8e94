"""kafkalog for Spark: a data source, sinks and jobs over log directories or daemons.

The modules, in the order one reads them: `logs` (where records are: the values that all others
share), `partition_files`, `checkpoints`, `directory_logs`, `directory_reads`, `daemon_logs`,
`daemon_reads` (the two places), `record_batches` (Arrow); the source: `option_values`,
`access_options`, `options`, `offsets`, `filters`, `offset_reader`, `planning`, `reading`. Nothing
of these imports pyspark, and nothing heavy is imported before it is needed: a planner never loads a
kernel. `source` and `stream_reader` are what Spark calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``format("kafkalog")`` known to a session that cannot find `pyspark_kafkalog` itself."""
    from kafkalog.spark.source import KafkalogDataSource

    spark.dataSource.register(KafkalogDataSource)
