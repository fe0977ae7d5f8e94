"""How far a stream is behind, from the progress reports of Spark.

Spark's Kafka source reports it as metrics of the source. A Python source of Spark 4.3 cannot, but
reports the end of the logs beside the end of its batch. Pure; any thread.
"""

from __future__ import annotations

import json
from typing import Protocol

from kafkalog.spark.offsets import WrongCheckpoint, offsets_of


class Progress(Protocol):
    """A ``StreamingQueryProgress`` of PySpark."""

    @property
    def json(self) -> str:
        """The report as text."""


def lag_metrics(progress: Progress) -> dict[str, float]:
    """The lag of the sources of a query after a batch, by the Kafka source's names for metrics.

    lagRecords                                offsets behind, of all partitions together
    min-, max-, avgOffsetsBehindLatest        of a partition

    Offsets may be more than records: of compacted topics, and with transactions. Empty if no source
    of the query is kafkalog's or Kafka's, or before its first batch.
    """
    lags = [
        lag
        for source in json.loads(progress.json)["sources"]
        for lag in _lags(source.get("endOffset"), source.get("latestOffset"))
    ]
    if not lags:
        return {}
    return {
        "lagRecords": sum(lags),
        "minOffsetsBehindLatest": min(lags),
        "maxOffsetsBehindLatest": max(lags),
        "avgOffsetsBehindLatest": sum(lags) / len(lags),
    }


def _lags(end: object, latest: object) -> list[int]:
    """The lag of each partition; none for offsets of another source."""
    if not isinstance(end, dict) or not isinstance(latest, dict):
        return []
    try:
        read, last = offsets_of(end), offsets_of(latest)
    except WrongCheckpoint:
        return []
    return [max(offset - read.get(at, 0), 0) for at, offset in last.items()]
