"""Goal: every step of the pipeline counts the same records.
Method: its steps over a daemon and the session of the tests, with few devices; one that is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.client import Client
from kafkalog.jobs import pipeline
from kafkalog.jobs.on_spark import SparkRunner
from kafkalog.jobs.pipeline import Step, disagreements
from tests.integration.daemon import Daemon

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DEVICES = 3
NOW_MS = 1_800_000_000_000


def test_all_counts_agree(tmp_path: Path, spark: SparkSession) -> None:
    """As ``kafkalog spark pipeline``, but for the daemon and the session."""
    runner, out = SparkRunner(spark), str(tmp_path)
    with Daemon(tmp_path, log_cleaner_enable="false") as daemon:
        url = f"http://127.0.0.1:{daemon.port}"
        with Client(url) as client:
            steps = [
                pipeline.load(client, DEVICES),
                pipeline.stream_to_parquet(spark, url, out, DEVICES),
                pipeline.archive_to_iceberg(url, out, runner, DEVICES),
                pipeline.check_archived(client, DEVICES),
            ]
    log_dir = str(daemon.log_dirs[0])
    steps.append(pipeline.compact(log_dir, out, runner, DEVICES, NOW_MS))
    steps.append(pipeline.audit([log_dir, f"{out}/compacted"], runner))
    assert disagreements(steps) == []
    assert [each.found for each in steps] == [4321, 4321, 4321, 4321, 3, 0]


def test_a_step_that_disagrees_is_named() -> None:
    """With both numbers."""
    steps = [Step("load", 3, 3, ""), Step("audit", 1, 0, "errors found")]
    assert disagreements(steps) == ["audit: 1, not 0"]
