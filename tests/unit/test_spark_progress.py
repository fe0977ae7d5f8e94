"""Goal: the lag of a stream is that of Spark's Kafka source, from any report of its progress.
Method: reports as Spark 4.3 writes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from kafkalog.spark.progress import lag_metrics


@dataclass
class Report:
    sources: list[dict[str, Any]]

    @property
    def json(self) -> str:
        return json.dumps({"sources": self.sources})


def test_the_lag_of_all_sources() -> None:
    """Ids of topics are no offsets; a partition that appeared is unread from its start."""
    ours = {
        "endOffset": {"a": {"0": 60, "1": 140}, "a@dW2j": {}},
        "latestOffset": {"a": {"0": 90, "1": 140, "2": 6}, "a@dW2j": {}},
    }
    rate = {"endOffset": 7, "latestOffset": 9}
    files = {"endOffset": {"logOffset": 3}, "latestOffset": {"logOffset": 4}}
    assert lag_metrics(Report([rate, ours, files])) == {
        "lagRecords": 36,
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 30,
        "avgOffsetsBehindLatest": pytest.approx(12),
    }


def test_nothing_is_known_yet() -> None:
    assert lag_metrics(Report([{"endOffset": None, "latestOffset": None}])) == {}
    assert lag_metrics(Report([])) == {}
