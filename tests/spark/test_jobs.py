"""Goal: jobs give the same on Spark as in processes, every step of the pipeline counts the same
records, and a machine without Java is told what is missing.
Method: a real Spark beside a pool of processes; sessions as the handbook makes them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kafkalog.client import Client
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.jobs import pipeline
from kafkalog.jobs.audit import audit_directories
from kafkalog.jobs.compact import compact_directories
from kafkalog.jobs.fleet import find_partitions
from kafkalog.jobs.on_spark import SparkRunner
from kafkalog.jobs.pipeline import Step, disagreements
from kafkalog.jobs.stats import count_records, key_rows, partition_rows, size_rows, time_rows
from kafkalog.jobs.tasks import InProcess, TaskFailed, run_job
from kafkalog.jobs.whatif import forecast
from tests.fleet_world import contents, keyed_segments, plant_mixed, plant_partition
from tests.integration.daemon import ROOT, Daemon
from tests.integration.job_work import NumberTask, squares_in_process, work
from tests.naive.cleaning_logs import TIME

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kafkalog.jobs.tasks import Runner


pytestmark = pytest.mark.spark


def test_results_come_in_the_order_of_the_tasks(spark: SparkSession) -> None:
    tasks = [NumberTask(number) for number in (*range(200), 10_000)]
    results = run_job("square", tasks, work, list, SparkRunner(spark))
    assert [square for square, _ in results] == squares_in_process(tasks)
    assert run_job("square", tasks[:0], work, list, SparkRunner(spark)) == []


def test_a_failure_names_its_task(spark: SparkSession) -> None:
    """M27. The same error as in a process, and the job is abandoned."""
    abandoned: list[bool] = []
    for deed, said in (("corrupt", "number 2: A batch fails"), ("defect", "number 2: ZeroDiv")):
        abandoned.clear()
        tasks = [NumberTask(1), NumberTask(2, deed)]
        with pytest.raises(TaskFailed, match=said):
            run_job(
                "square",
                tasks,
                work,
                list,
                SparkRunner(spark),
                abandon=lambda: abandoned.append(True),
            )
        assert abandoned == [True]


def test_a_worker_that_dies_ends_the_job(spark: SparkSession) -> None:
    """What Spark itself gives up is told in a sentence."""
    tasks = [NumberTask(1), NumberTask(2, "die")]
    with pytest.raises(TaskFailed, match=r"The job failed on Spark: .*memory for a task"):
        run_job("square", tasks, work, list, SparkRunner(spark))
    assert run_job("square", tasks[:1], work, len, SparkRunner(spark)) == 1


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
    steps = [Step("load", 3, 3, ""), Step("audit", 1, 0, "errors found")]
    assert disagreements(steps) == ["audit: 1, not 0"]


SCRIPTS_NEED = ("bash", "dirname", "env", "ps", "python3")
TIMEOUT_SECONDS = 90


@pytest.fixture(params=["none on PATH", "JAVA_HOME leads nowhere"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Of a process that finds no Java."""
    found = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    if request.param == "none on PATH":
        programs = tmp_path / "bin"
        programs.mkdir()
        for name in SCRIPTS_NEED:
            path = shutil.which(name)
            if path is not None:
                (programs / name).symlink_to(path)
        return found | {"PATH": str(programs)}
    return found | {"JAVA_HOME": str(tmp_path / "nowhere")}


def failure_of(environment: dict[str, str], *words: str) -> str:
    command = [sys.executable, *words]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    return done.stderr


def test_a_job_says_what_to_install(tmp_path: Path, environment: dict[str, str]) -> None:
    """One sentence with Java's version, and that Spark is not needed."""
    plant_partition(tmp_path / "a" / "t-0", keyed_segments(1, 1))
    message = failure_of(
        environment, "-m", "kafkalog.cli.jobs.submit", "audit", "--dirs", str(tmp_path / "a")
    )
    assert "it needs Java 17 (openjdk-17-jre-headless), on PATH or by JAVA_HOME" in message
    assert "--no-spark: the same job runs in processes" in message
    assert "Traceback" not in message


def test_the_pipeline_says_what_to_install(tmp_path: Path, environment: dict[str, str]) -> None:
    """Before anything is made."""
    out = tmp_path / "out"
    message = failure_of(environment, "-m", "kafkalog", "spark", "pipeline", "--out", str(out))
    assert "it needs Java 17" in message
    assert "--no-spark" not in message
    assert not out.exists()


def test_a_session_says_what_the_handbook_explains(environment: dict[str, str]) -> None:
    """docs/reference/spark.md has the words that a user without Java sees, which are Spark's."""
    session = "from pyspark.sql import SparkSession; SparkSession.builder.getOrCreate()"
    message = failure_of(environment, "-c", session)
    (row,) = (
        line
        for line in (ROOT / "docs" / "reference" / "spark.md")
        .read_text(encoding="utf-8")
        .splitlines()
        if "Spark found no Java 17" in line
    )
    explained = row.split("|")[1].split("`")[1::2]
    assert any(words in message for words in explained)
