"""KafkalogWriter: ``df.write.format("kafkalog")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter

from kafkalog.spark.option_values import InvalidOption
from kafkalog.spark.sink_plan import WrittenMessage, sink_plan
from kafkalog.spark.sink_task import write_at_least_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType


class KafkalogWriter(DataSourceArrowWriter):
    """One ``save()``. Made where the query is planned, then pickled: to the tasks, to the driver.

    Raises InvalidOption, UnusableSchema.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidOption(
                "Save mode overwrite is not allowed: records are appended to a log. Use append"
            )
        self._plan = sink_plan(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenMessage:
        """In a task: append its records. Raises as ``write_at_least_once``."""
        plan = self._plan
        return WrittenMessage(write_at_least_once(iterator, plan.options, plan.columns))
