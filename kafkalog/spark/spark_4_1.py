"""Stand-ins for `pyspark.sql.streaming.datasource`, which Spark 4.1 does not have.

From Spark 4.2 on, Spark gives a limit to Python sources. Names are PySpark's. Spark 4.1 never calls
what they are for: see `stream_reader.UnlimitedStreamReader`.
"""

from __future__ import annotations

from dataclasses import dataclass


class ReadLimit:
    """How much a micro-batch may read."""


@dataclass
class ReadAllAvailable(ReadLimit):
    """All that is there."""


@dataclass
class ReadMinRows(ReadLimit):
    """No batch with fewer rows."""

    min_rows: int


@dataclass
class ReadMaxRows(ReadLimit):
    """No batch with more rows."""

    max_rows: int


class SupportsTriggerAvailableNow:
    """A source that fixes the end of a query with Trigger.AvailableNow itself."""
