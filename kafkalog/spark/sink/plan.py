"""What both writers have in common: what they checked, what tasks tell the driver, its answer."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from kafkalog.spark.sink.exactly_once import Attempted, TaskAttempt, write_exactly_once
from kafkalog.spark.sink.options import sink_options, written_columns
from kafkalog.spark.sink.sink_task import Written, write_at_least_once
from kafkalog.spark.workers import settle_worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark import TaskContext
    from pyspark.sql.types import StructType

    from kafkalog.spark.sink.exactly_once import SinkBatch
    from kafkalog.spark.sink.options import SinkOptions

_LOGGER = logging.getLogger("kafkalog.spark")


class TaskEnded(WriterCommitMessage):
    """From a task to the driver: what it wrote."""

    def __init__(self, outcome: Written | Attempted) -> None:
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """Pickled with every task. ``columns``: those that become records."""

    options: SinkOptions
    columns: tuple[str, ...]

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskEnded:
        """In a task, at least once."""
        written = write_at_least_once(batches, self.options, self.columns)
        settle_worker()
        return TaskEnded(written)

    def write_in(
        self, batch: SinkBatch, batches: Iterator[pa.RecordBatch], context: TaskContext
    ) -> TaskEnded:
        """In a task, exactly once."""
        task = TaskAttempt(context.partitionId(), context.attemptNumber())
        written = write_exactly_once(batches, self.options, self.columns, batch, task)
        settle_worker()
        return TaskEnded(written)


def attempts(messages: Sequence[WriterCommitMessage | None]) -> list[Attempted]:
    """What the tasks that ended wrote; nothing of those that write at least once."""
    ended = [each.outcome for each in messages if isinstance(each, TaskEnded)]
    return [outcome for outcome in ended if isinstance(outcome, Attempted)]


def sink_plan(options: Mapping[str, str], schema: StructType) -> SinkPlan:
    """Raises InvalidOption, UnusableSchema."""
    checked = sink_options(options)
    if checked.ignored:
        _LOGGER.warning("Options of Kafka that have no effect here: %s", ", ".join(checked.ignored))
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return SinkPlan(checked, written_columns(fields, checked.topic))
