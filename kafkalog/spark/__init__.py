"""kafkalog for Spark: a data source and a sink over log directories or daemons.

Spark calls `source`, `stream_reader` and `sink/writers`; only these import pyspark. `options` and
`option_values` read what a user set, `offsets` and `planning` decide which offsets are read in
which task, `reading` is what a task does. `logs/` reads directories, object stores and daemons.
Kernels and pyarrow are imported when a task reads, so that planning a query does not wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def register(spark: SparkSession, **options: str) -> None:
    """Register ``format("kafkalog")`` in a session, for example with an address for all queries.

    options   those of each query or table of the session that gives neither url nor path
    """
    from kafkalog.spark.source import KafkalogDataSource

    source: type = KafkalogDataSource
    if options:
        of_session = {name.lower(): value for name, value in options.items()}
        source = type(source.__name__, (source,), {"session_options": of_session})
    spark.dataSource.register(source)


def with_table_options(frame: DataFrame, **options: str) -> DataFrame:
    """The frame that `saveAsTable` makes a table with these options of: Spark itself keeps none."""
    from kafkalog.spark.tables import metadata_of

    lower = {name.lower(): value for name, value in options.items()}
    return frame.withMetadata(frame.columns[0], metadata_of(lower))
