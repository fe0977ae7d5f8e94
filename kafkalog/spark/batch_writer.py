"""KafkalogWriter: ``df.write.format("kafkalog")``."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter

from kafkalog.spark.exactly_once import SinkBatch, abandon_batch, commit_batch
from kafkalog.spark.option_values import InvalidOption
from kafkalog.spark.sink_plan import attempts, sink_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from kafkalog.spark.sink_plan import TaskEnded


class KafkalogWriter(DataSourceArrowWriter):
    """One ``save()``. Made where the query is planned, then pickled: to the tasks, to the driver.

    Exactly once means all of its records, or none: the name under which they are committed is its
    own, so a second ``save()`` writes them again.

    Raises InvalidOption, UnusableSchema.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidOption(
                "Save mode overwrite is not allowed: records are appended to a log. Use append"
            )
        self._plan = sink_plan(options, schema)
        self._batch = SinkBatch(str(uuid.uuid4()), 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskEnded:
        """In a task: append its records. Raises as ``write_at_least_once``."""
        if self._plan.options.is_exactly_once:
            return self._plan.write_in(self._batch, iterator, TaskContext.get())
        return self._plan.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when every task has ended. Raises SinkFailed."""
        commit_batch(self._plan.options, attempts(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when one has failed for good. Raises SinkFailed."""
        if self._plan.options.is_exactly_once:
            abandon_batch(self._plan.options, self._batch)
