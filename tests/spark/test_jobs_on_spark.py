"""Goal: jobs give the same on Spark as in processes.
Method: the same tasks and directories through both runners, in a real session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.jobs.audit import audit_directories
from kafkalog.jobs.compact import compact_directories
from kafkalog.jobs.fleet import find_partitions
from kafkalog.jobs.on_spark import SparkRunner
from kafkalog.jobs.stats import (
    count_records,
    key_rows,
    partition_rows,
    size_rows,
    time_rows,
)
from kafkalog.jobs.tasks import InProcess, Job, TaskFailed, run_job
from kafkalog.jobs.whatif import forecast
from tests.fleet_world import contents, plant_mixed
from tests.integration.job_work import NumberTask, squares_in_process, work
from tests.naive.cleaning_logs import TIME

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kafkalog.jobs.tasks import Runner

pytestmark = pytest.mark.spark


def test_results_come_in_the_order_of_the_tasks(spark: SparkSession) -> None:
    """Every task once, in order, whatever pack it was in."""
    tasks = [NumberTask(number) for number in (*range(200), 10_000)]
    results = run_job(Job("square", tasks, work, list), SparkRunner(spark))
    assert [square for square, _ in results] == squares_in_process(tasks)
    assert run_job(Job("square", tasks[:0], work, list), SparkRunner(spark)) == []


def test_a_failure_names_its_task(spark: SparkSession) -> None:
    """M27. The same error as in a process, and the job is abandoned."""
    abandoned: list[bool] = []
    for deed, said in (("corrupt", "number 2: A batch fails"), ("defect", "number 2: ZeroDiv")):
        abandoned.clear()
        tasks = [NumberTask(1), NumberTask(2, deed)]
        job = Job("square", tasks, work, list, lambda: abandoned.append(True))
        with pytest.raises(TaskFailed, match=said):
            run_job(job, SparkRunner(spark))
        assert abandoned == [True]


def test_a_worker_that_dies_ends_the_job(spark: SparkSession) -> None:
    """What Spark itself gives up is told in a sentence."""
    tasks = [NumberTask(1), NumberTask(2, "die")]
    with pytest.raises(TaskFailed, match=r"The job failed on Spark: .*memory for a task"):
        run_job(Job("square", tasks, work, list), SparkRunner(spark))
    assert run_job(Job("square", tasks[:1], work, len), SparkRunner(spark)) == 1


@pytest.mark.gate
def test_compact_gives_the_same_files(spark: SparkSession, tmp_path: Path) -> None:
    """M27. Byte for byte what the processes make."""
    plant_mixed(tmp_path / "a", "orders", 4)
    partitions = find_partitions([str(tmp_path / "a")], SystemFilesystem())
    rows = [
        compact_directories(partitions, str(tmp_path / name), runner, now_ms=TIME)
        for name, runner in (("here", InProcess()), ("there", SparkRunner(spark)))
    ]
    assert rows[0] == rows[1]
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


def test_audit_whatif_and_stats_give_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    """M27. What a job tells does not depend on where it runs."""
    plant_mixed(tmp_path / "a", "orders", 4)
    partitions = find_partitions([str(tmp_path / "a")], SystemFilesystem())
    runners: tuple[Runner, ...] = (InProcess(), SparkRunner(spark))
    counted = [
        count_records(partitions, each, width_ms=60_000, target_bytes=5_000) for each in runners
    ]
    for rows in (partition_rows, size_rows, time_rows, lambda stats: key_rows(stats, 10)):
        assert rows(counted[0]) == rows(counted[1])
    told = [
        forecast(partitions, each, now_ms=TIME, horizon_ms=10**9, with_compaction=True)
        for each in runners
    ]
    assert told[0] == told[1]
    log = max((tmp_path / "a" / "orders-2").glob("*.log"), key=lambda path: path.stat().st_size)
    log.write_bytes(b"damage" + log.read_bytes()[6:])
    found = [audit_directories(partitions, each, target_bytes=5_000) for each in runners]
    assert found[0].totals["errors"]
    assert found[0] == found[1]
