"""The writers that Spark calls: ``df.write`` and ``df.writeStream`` with format kafkalog.

Spark makes a writer where it plans a query, and pickles it to the tasks and to the driver: a writer
holds values only. Tasks answer with TaskEnded, which the driver gets in ``commit`` and ``abort``.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kafkalog.spark.option_values import InvalidOption
from kafkalog.spark.sink.exactly_once import (
    Attempted,
    SinkBatch,
    abandon_batch,
    abort_batch,
    commit_batch,
    write_exactly_once,
)
from kafkalog.spark.sink.options import sink_options, written_columns
from kafkalog.spark.sink.write import write_at_least_once
from kafkalog.spark.user_errors import for_users
from kafkalog.spark.workers import settle_worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kafkalog.spark.sink.options import SinkOptions

_LOGGER = logging.getLogger("kafkalog.spark")


class TaskEnded(WriterCommitMessage):
    """The message of a task to the driver; ``attempted`` None: it wrote at least once."""

    def __init__(self, attempted: Attempted | None) -> None:
        self.attempted = attempted


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """The checked options, and the columns that become records. Pickled with every task."""

    options: SinkOptions
    columns: tuple[str, ...]

    def write(self, batches: Iterator[pa.RecordBatch], batch: SinkBatch | None) -> TaskEnded:
        """In a task: append its records exactly once, as part of a batch; None: at least once."""
        attempted = None
        if batch is None:
            write_at_least_once(batches, self.options, self.columns)
        else:
            at = TaskContext.get().partitionId(), TaskContext.get().attemptNumber()
            attempted = write_exactly_once(batches, self.options, self.columns, batch, *at)
        settle_worker()
        return TaskEnded(attempted)


def sink_plan(options: Mapping[str, str], schema: StructType) -> SinkPlan:
    """Check options and columns. Raises InvalidOption, UnusableSchema."""
    checked = sink_options(options)
    if checked.ignored:
        _LOGGER.warning("Options of Kafka that have no effect here: %s", ", ".join(checked.ignored))
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return SinkPlan(checked, written_columns(fields, checked.topic))


def attempts(messages: Sequence[WriterCommitMessage | None]) -> list[Attempted]:
    """The results of the tasks that ended and write exactly once."""
    found = [each.attempted for each in messages if isinstance(each, TaskEnded)]
    return [each for each in found if each is not None]


class KafkalogWriter(DataSourceArrowWriter):
    """One ``save()``.

    Exactly once means all of its records or none. They are committed under a unique name, so
    a second ``save()`` writes them again. With options ``query`` and ``batchId``, as in a function
    of ``foreachBatch``, a repeated batch writes nothing.

    Raises InvalidOption, UnusableSchema.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidOption(
                "Save mode overwrite is not supported: records are appended to a log. Use append"
            )
        self._plan = sink_plan(options, schema)
        named = self._plan.options.named_batch
        self._is_named = named is not None
        self._batch = SinkBatch(str(uuid.uuid4()), 0) if named is None else SinkBatch(*named)

    @for_users()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskEnded:
        """In a task: append its records. Raises the errors of ``write_at_least_once``."""
        batch = self._batch if self._plan.options.is_exactly_once else None
        return self._plan.write(iterator, batch)

    @for_users()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when every task has ended. Raises SinkFailed."""
        commit_batch(self._plan.options, attempts(messages), is_last=not self._is_named)

    @for_users()
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when a task has failed for good. Raises SinkFailed."""
        if not self._plan.options.is_exactly_once:
            return
        if self._is_named:  # it may be run again
            abort_batch(self._plan.options, [Attempted(self._batch)])
        else:
            abandon_batch(self._plan.options, self._batch)


# Local properties that Spark sets for the tasks of a micro-batch. The query's id belongs to its
# checkpoint and is the same after a restart; a new checkpoint has a new id. Each start of a query
# has a run id, which is the name of its group of jobs.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"


class KafkalogStreamWriter(DataSourceStreamArrowWriter):
    """The micro-batches of a query. Spark makes a new one for every commit: it keeps no state.

    overwrite   output mode complete: the rows are appended, as by Spark's Kafka sink

    Raises InvalidOption, UnusableSchema.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._plan = sink_plan(options, schema)
        if self._plan.options.named_batch is not None:
            raise InvalidOption("Options query and batchId are for df.write: a stream has its own")

    @for_users()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskEnded:
        """In a task: append its records. Raises the errors of ``write_at_least_once``."""
        if not self._plan.options.is_exactly_once:
            return self._plan.write(iterator, None)
        context = TaskContext.get()
        query, batch_id, run_id = (
            context.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID, RUN_ID)
        )
        return self._plan.write(iterator, SinkBatch(query, int(batch_id), run_id))

    @for_users()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when every task has ended. Raises SinkFailed."""
        commit_batch(self._plan.options, attempts(messages))

    @for_users()
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when a task has failed for good. Raises SinkFailed."""
        abort_batch(self._plan.options, attempts(messages))
