"""KafkalogWriter: ``df.write.format("kafkalog")``.

KafkalogStreamWriter: ``df.writeStream.format("kafkalog")``.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from kafkalog.spark.option_values import InvalidOption
from kafkalog.spark.sink.exactly_once import (
    Attempted,
    SinkBatch,
    abandon_batch,
    abort_batch,
    commit_batch,
)
from kafkalog.spark.sink.plan import attempts, sink_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from kafkalog.spark.sink.plan import TaskEnded


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


# Local properties that Spark sets for the tasks of a micro-batch. The query's id stays with its
# checkpoint, over restarts; a new checkpoint has a new one. Each start of a query has a run id, by
# which Spark names its group of jobs.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"


class KafkalogStreamWriter(DataSourceStreamArrowWriter):
    """Micro-batches. The driver makes another one for every commit: nothing is kept in it.

    overwrite   of the output mode complete: its rows are appended, as by Spark's Kafka sink

    Raises InvalidOption, UnusableSchema.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._plan = sink_plan(options, schema)
        if self._plan.options.named_batch is not None:
            raise InvalidOption("Options query and batchId are for df.write: a stream has its own")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskEnded:
        """In a task: append its records. Raises as ``write_at_least_once``."""
        if not self._plan.options.is_exactly_once:
            return self._plan.write(iterator)
        context = TaskContext.get()
        query, batch_id, run_id = (
            context.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID, RUN_ID)
        )
        batch = SinkBatch(query, int(batch_id), run_id)
        return self._plan.write_in(batch, iterator, context)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when every task has ended. Raises SinkFailed."""
        commit_batch(self._plan.options, attempts(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when one has failed for good. Raises SinkFailed."""
        abort_batch(self._plan.options, attempts(messages))
