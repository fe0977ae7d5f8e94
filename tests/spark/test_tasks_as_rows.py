"""Goal: a task of Spark has its own part of a job and no other, a fault that passes is tried again
by Spark, and a plan, a log and a page of Spark have no secret.
Method: a real Spark with an event log; tasks that count, fail, and read a secret where they run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kafkalog.jobs import on_spark
from kafkalog.jobs.on_spark import SparkRunner
from kafkalog.jobs.tasks import TaskFailed, run_job
from tests.integration.daemon import ROOT
from tests.integration.job_work import NumberTask, work

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_each_pack_is_a_task_of_spark(spark: SparkSession) -> None:
    """As many as there are packs, in waves, and the closure does not grow with the tasks."""
    tasks = [NumberTask(1) for _ in range(12)]
    runner = SparkRunner(spark)
    ended = list(runner.stream(tasks, partition_of, wave_bytes=4))
    assert sorted(each.number for each in ended) == list(range(12))
    assert sorted(each.done.result or 0 for each in ended) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def partition_of(task: NumberTask) -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())


def test_a_fault_ends_the_job_before_later_waves(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_spark, "_WAVES_MAX", 1)
    monkeypatch.setattr(on_spark, "TARGET_BYTES", 1)
    monkeypatch.setattr(on_spark, "TASKS_MIN", 1)
    tasks = [NumberTask(1, "corrupt"), *(NumberTask(1, "note", str(tmp_path / "begun")),) * 5]
    with pytest.raises(TaskFailed, match="number 1: A batch fails"):
        run_job("square", tasks, work, list, SparkRunner(spark))
    assert not (tmp_path / "begun").exists()


SECRET = "a-word-that-nobody-may-see"


def test_plans_and_event_logs_have_no_secret(tmp_path: Path) -> None:
    """Where a secret is, is no secret; the tasks read it. The secret itself is refused before there
    is a plan, and stands in no page of Spark.
    """
    (tmp_path / "token").write_text(SECRET)
    command = [sys.executable, "-m", "tests.spark.secretive_job", str(tmp_path)]
    environment = {**os.environ, "KAFKALOG_TOKEN": SECRET}
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    length = len(f"Bearer {SECRET}")
    found = json.loads((tmp_path / "found").read_text())
    assert found == {"file": [length, 2 * length], "variable": [length, 2 * length]}
    refused, planned = json.loads((tmp_path / "told").read_text())
    assert len(refused) == 5
    assert all("use tokenFile" in each and "tokenEnv" in each for each in refused.values())
    assert set(planned.values()) == {""}
    events = [each for each in (tmp_path / "events").rglob("*") if each.is_file()]
    shown = [(tmp_path / name).read_text() for name in ("plans", "pages", "told")]
    shown += [ran.stdout, ran.stderr]
    shown += [each.read_text(errors="replace") for each in events]
    assert any("SparkListenerJobStart" in each for each in shown)
    assert "Physical Plan" in shown[0]
    assert "spark.app.name" in shown[1]
    assert not any(SECRET in each for each in shown)
