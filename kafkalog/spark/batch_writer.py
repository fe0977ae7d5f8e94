"""KafkalogWriter: ``df.write.format("kafkalog")``."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter

from kafkalog.spark.exactly_once import (
    Attempted,
    SinkBatch,
    abandon_batch,
    abort_batch,
    commit_batch,
)
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
    own, so a second ``save()`` writes them again. With the options ``query`` and ``batchId``, as in
    a function of ``foreachBatch``, the same batch once more writes nothing.

    Raises InvalidOption, UnusableSchema.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidOption(
                "Save mode overwrite is not allowed: records are appended to a log. Use append"
            )
        self._plan = sink_plan(options, schema)
        named = self._plan.options.named_batch
        self._is_named = named is not None
        self._batch = SinkBatch(str(uuid.uuid4()), 0) if named is None else SinkBatch(*named)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskEnded:
        """In a task: append its records. Raises as ``write_at_least_once``."""
        if self._plan.options.is_exactly_once:
            return self._plan.write_in(self._batch, iterator, TaskContext.get())
        return self._plan.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when every task has ended. Raises SinkFailed."""
        commit_batch(self._plan.options, attempts(messages), is_last=not self._is_named)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when one has failed for good. Raises SinkFailed."""
        if not self._plan.options.is_exactly_once:
            return
        if self._is_named:  # it may be run again
            abort_batch(self._plan.options, [Attempted(self._batch)])
        else:
            abandon_batch(self._plan.options, self._batch)
