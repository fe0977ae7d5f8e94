"""What both writers have in common: the options and columns they checked, and their message."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from kafkalog.spark.column_rules import written_columns
from kafkalog.spark.sink_options import sink_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from kafkalog.spark.sink_options import SinkOptions
    from kafkalog.spark.sink_task import Written

_LOGGER = logging.getLogger("kafkalog.spark")


class WrittenMessage(WriterCommitMessage):
    """From a task to the driver."""

    def __init__(self, written: Written) -> None:
        self.written = written


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """Pickled with every task. ``columns``: those that become records."""

    options: SinkOptions
    columns: tuple[str, ...]


def sink_plan(options: Mapping[str, str], schema: StructType) -> SinkPlan:
    """Raises InvalidOption, UnusableSchema."""
    checked = sink_options(options)
    if checked.ignored:
        _LOGGER.warning("Options of Kafka that have no effect here: %s", ", ".join(checked.ignored))
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return SinkPlan(checked, written_columns(fields, checked.topic))
