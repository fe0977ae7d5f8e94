"""KafkalogStreamWriter: ``df.writeStream.format("kafkalog")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from kafkalog.spark.sink_plan import WrittenMessage, sink_plan
from kafkalog.spark.sink_task import write_at_least_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType


class KafkalogStreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch: the driver makes another one for its commit, so nothing is kept in it.

    overwrite   of the output mode complete: its rows are appended, as by Spark's Kafka sink

    Raises InvalidOption, UnusableSchema.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._plan = sink_plan(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenMessage:
        """In a task: append its records. Raises as ``write_at_least_once``."""
        plan = self._plan
        return WrittenMessage(write_at_least_once(iterator, plan.options, plan.columns))
