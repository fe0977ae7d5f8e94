"""Goal: an archive of a running daemon misses nothing, doubles nothing and lets retention go on.
Method: the real command over HTTP, killed at any moment, while records come and the daemon dies.
"""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from kafkalog.client import Client, ProducerRecord
from kafkalog.env.clock import SystemClock
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.jobs.archive.archive import ArchiveOptions, Run
from kafkalog.jobs.archive.parquet_table import ParquetTable
from kafkalog.jobs.tasks import InProcess
from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.logs.values import Access
from tests.archive_world import archived_files
from tests.integration.daemon import ROOT, Daemon
from tests.integration.http_world import until
from tests.integration.test_cli_over_http import run_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

IN_STEPS = ("--target-bytes", "1", "--max-commit-bytes", "500")
"""Several commits in a run."""

HELD = {"retention.ms": "1", "archive.hold": "true", "segment.ms": "1"}


@pytest.fixture
def archived(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon with a topic of three partitions, every record of which is due at once."""
    with Daemon(
        tmp_path, log_initial_task_delay_ms="86400000", log_cleaner_enable="false"
    ) as daemon:
        with client_of(daemon) as client:
            client.create_topic("orders", partitions=3, configs=HELD)
        yield daemon


def client_of(daemon: Daemon) -> Client:
    return Client(f"http://127.0.0.1:{daemon.port}")


def produce(daemon: Daemon, count: int, first: int = 0) -> None:
    """Records whose value is their number, by key over the partitions."""
    records = [ProducerRecord(str(each), key=f"k{each}") for each in range(first, first + count)]
    with client_of(daemon) as client:
        client.produce("orders", records)


def words(daemon: Daemon, table: Path) -> list[str]:
    url = f"http://127.0.0.1:{daemon.port}"
    return ["archive", "run", "--url", url, "--parquet", str(table), "--processes", "1"]


def run(daemon: Daemon, table: Path) -> Any:
    result = run_plain(*words(daemon, table), "--output", "json")
    assert result.returncode == 0, result.stderr.decode()
    return json.loads(result.stdout)


def numbers_in(table: Path) -> Counter[int]:
    files = archived_files(str(table))
    found = [pq.read_table(each.path, columns=["value"]).column(0).to_pylist() for each in files]
    return Counter(int(each) for values in found for each in values)


def test_retention_follows_the_archive(archived: Daemon, tmp_path: Path) -> None:
    table = tmp_path / "table"
    produce(archived, 60)
    with client_of(archived) as client:
        assert client.run_retention()["segments"] == 0
        ran = run(archived, table)
        assert ran["totals"]["rows"] == 60
        offsets = {each["partition"]: each["next_offset"] for each in ran["rows"]}
        entries = client.archived_offsets("orders")
        assert {each["partition"]: each["archived_offset"] for each in entries} == offsets
        assert client.run_retention()["segments"] >= 3
        starts = [client.describe_log("orders", each)["log_start_offset"] for each in range(3)]
        assert starts == [offsets[each] for each in range(3)]
    produce(archived, 40, first=60)
    assert run(archived, table)["totals"]["rows"] == 40
    assert run(archived, table)["totals"]["partitions"] == 0
    assert numbers_in(table) == Counter(range(100))


def test_a_daemon_that_cannot_be_reached(archived: Daemon, tmp_path: Path) -> None:
    produce(archived, 3)
    archived.kill()
    result = run_plain(*words(archived, tmp_path / "table"))
    assert result.returncode == 1
    assert b"Traceback" not in result.stderr
    archived.start()
    assert run(archived, tmp_path / "table")["totals"]["rows"] == 3


def requests_to(daemon: Daemon) -> int:
    """That it has answered so far."""
    page = daemon.request("GET", "/metrics").body.decode()
    found = re.findall(r"^kafkalog_http_requests_total\{.*\} (\S+)$", page, re.MULTILINE)
    return int(sum(map(float, found)))


def test_a_plan_asks_for_all_partitions_together(archived: Daemon, tmp_path: Path) -> None:
    """A hundred partitions with records, and again without new ones."""
    with client_of(archived) as client:
        client.create_topic("wide", partitions=100)
        for each in range(100):
            client.produce("wide", [ProducerRecord("1")], partition=each)
    access = Access(urls=(f"http://127.0.0.1:{archived.port}",), read_committed=True)
    with (
        closing(ParquetTable(str(tmp_path / "table"), SystemFilesystem())) as table,
        closing(open_logs(access)) as logs,
    ):
        for planned in (100, 0):
            before = requests_to(archived)
            run = Run(logs, table, ArchiveOptions(), SystemClock())
            run.plan()
            assert requests_to(archived) - before <= 10
            run.check(with_unchanged=False)
            assert len(list(run.progress.pieces())) == planned
            run.perform(InProcess())


def test_a_plan_leaves_younger_records_to_a_later_run(archived: Daemon, tmp_path: Path) -> None:
    """All times of a hundred partitions are looked up together."""
    records = [ProducerRecord(str(each), timestamp_ms=1_000 * each) for each in range(10)]
    with client_of(archived) as client:
        client.create_topic("wide", partitions=100)
        for each in range(0, 100, 2):
            client.produce("wide", records, partition=each)
    access = Access(urls=(f"http://127.0.0.1:{archived.port}",))
    options = ArchiveOptions(before_ms=4_000)
    with (
        closing(ParquetTable(str(tmp_path / "table"), SystemFilesystem())) as table,
        closing(open_logs(access)) as logs,
    ):
        before = requests_to(archived)
        run = Run(logs, table, options, SystemClock())
        run.plan()
        assert requests_to(archived) - before <= 11
        run.check()
        ranges = [each.range for each in run.progress.pieces()]
    assert [each.partition for each in ranges] == list(range(0, 100, 2))
    assert {each.to_offset for each in ranges} == {4}


@contextmanager
def following(daemon: Daemon, table: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a process of its own."""
    job = subprocess.Popen(
        [sys.executable, "-m", "kafkalog", *words(daemon, table), "--continuous", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield job
    finally:
        job.kill()
        job.communicate()


def wait_for(daemon: Daemon, records: int) -> None:
    """So many are archived, as the daemon knows it."""
    with client_of(daemon) as client:

        def is_archived() -> bool:
            entries = client.archived_offsets("orders")
            return sum(int(each["archived_offset"]) for each in entries) == records

        until(is_archived, seconds=240, pace_seconds=0.2)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_what_comes_is_archived_until_the_signal(archived: Daemon, tmp_path: Path) -> None:
    """Also what came while the daemon was away; the sums of all runs are the output."""
    table = tmp_path / "table"
    with following(archived, table, "--max-lag", "1s", "--output", "json") as job:
        for number in range(3):
            produce(archived, 20, first=20 * number)
            wait_for(archived, 20 * (number + 1))
        archived.kill()
        archived.start()
        produce(archived, 20, first=60)
        wait_for(archived, 80)
        job.send_signal(signal.SIGTERM)
        output, errors = job.communicate(timeout=60)
    assert job.returncode == 0, errors.decode()
    totals = json.loads(output)["totals"]
    assert (totals["rows"], totals["quarantined"]) == (80, 0)
    assert numbers_in(table) == Counter(range(80))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--url", "http://127.0.0.1:1", "--parquet", "t", "--max-lag", "1m"],
        ["--url", "http://127.0.0.1:1", "--parquet", "t", "--min-commit-bytes", "1"],
        ["--url", "http://127.0.0.1:1", "--parquet", "t", "--continuous", "--min-age", "1m"],
        ["--url", "http://127.0.0.1:1", "--parquet", "t", "--continuous", "--max-lag", "0s"],
        ["--parquet", "t"],
        ["--parquet", "t", "--url", "http://127.0.0.1:1", "--dirs", "d"],
        ["--url", "http://127.0.0.1:1"],
        ["--url", "http://127.0.0.1:1", "--parquet", "t", "--iceberg", "a.b"],
        ["--url", "http://127.0.0.1:1", "--iceberg", "a"],
        ["--url", "http://127.0.0.1:1", "--iceberg", "a.b", "--catalog-property", "uri"],
        ["--dirs", "d", "--parquet", "t", "--min-age", "1"],
        ["--dirs", "d", "--parquet", "s3://t/lake"],
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: list[str]) -> None:
    result = run_plain("archive", "run", *arguments)
    assert result.returncode == 2, result.stderr
    assert not Path(ROOT, "t").exists()
    assert not Path(ROOT, "s3:").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_at_any_moment(archived: Daemon, tmp_path: Path) -> None:
    """No record lost or doubled, and none deleted before it was archived."""
    table, chance = tmp_path / "table", random.Random(11)
    for number in range(10):
        produce(archived, 50, first=50 * number)
        job = subprocess.Popen(
            [sys.executable, "-m", "kafkalog", *words(archived, table), *IN_STEPS],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            job.wait(timeout=chance.uniform(1.0, 5.0))
        except subprocess.TimeoutExpired:
            job.send_signal(signal.SIGKILL)
            job.wait()
        if number % 4 == 3:
            archived.kill()
            archived.start()
        with client_of(archived) as client:
            client.run_retention()
    run(archived, table)
    assert numbers_in(table) == Counter(range(500))
