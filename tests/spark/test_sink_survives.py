"""Goal: an exactly-once stream loses and doubles no record, whatever fails or dies.
Method: a driver of its own process over files of numbers; tasks fail, or kill -9 meets the driver,
its workers and the daemon at random points; then every number is there once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafkalog.client import Client
from tests.bench.machine_use import process_tree
from tests.integration.daemon import ROOT, Daemon
from tests.integration.http_world import until
from tests.spark.standalone_cluster import SETTINGS, StandaloneCluster

pytestmark = pytest.mark.spark

KILLS = int(os.environ.get("KAFKALOG_SINK_KILLS", "50"))
SEED = int(os.environ.get("SEED", "1"))
ROWS, WIDTH = 1000, 1000
PATIENCE_SECONDS = 300.0
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "1s",
}
"""Soon: when half of the tasks have ended and another takes half as long again."""


class Stream:
    """A topic, an input that grows, and the driver between them."""

    def __init__(self, directory: Path, daemon: Daemon, **plan: Any) -> None:
        self._directory = directory / "stream"
        (self._directory / "input").mkdir(parents=True)
        self._daemon = daemon
        self.url = f"http://127.0.0.1:{daemon.port}"
        options = {"url": self.url, "topic": "t", "exactlyOnce": "true", "batchBytes": "1k"}
        self._plan = {"directory": str(self._directory), "options": options, "rows": ROWS, **plan}
        self._log = directory / "driver.log"
        self.driver: subprocess.Popen[bytes] | None = None
        self.count = 0
        daemon.create_topic("t", partitions=2)

    def add(self) -> None:
        """A file more: a micro-batch of its own."""
        rows = range(self.count, self.count + ROWS)
        self.count += ROWS
        made = self._directory / "made"
        made.write_text("".join(f"{number:0{WIDTH}d}\n" for number in rows))
        made.rename(self._directory / "input" / f"{self.count:08d}.txt")

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.spark.sink_driver", json.dumps(self._plan)]
        with self._log.open("ab") as log:
            self.driver = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)

    def batches(self) -> int:
        """Micro-batches that the driver knows to be committed; Spark keeps the last hundred."""
        commits = self._directory / "checkpoint" / "commits"
        if not commits.exists():
            return 0
        numbers = [int(each) for each in os.listdir(commits) if each.isdigit()]
        return max(numbers, default=-1) + 1

    def finish(self) -> None:
        """Until everything is written; a driver that ends before is started again."""
        (self._directory / "stop").touch()
        for _ in range(5):
            if self.driver is None:
                self.start()
            assert self.driver is not None
            if self._status_in_the_end(self.driver) == 0:
                self.driver = None
                return
            self.driver = None
        raise AssertionError(self.log_tail())

    def _status_in_the_end(self, driver: subprocess.Popen[bytes]) -> int:
        """Of a driver; it may have much to do, but not stand still."""
        while True:
            before = self.batches()
            try:
                return driver.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                if self.batches() == before:
                    self.kill_driver()
                    raise AssertionError(self.log_tail()) from None

    def attempts(self) -> list[int]:
        found = self._directory.glob("attempt-*")
        return sorted(int(file.name.removeprefix("attempt-")) for file in found)

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-5000:]

    def found(self) -> Counter[int]:
        """How often readers of committed records find each number."""
        with Client(self.url) as client:
            return Counter(
                int(record.value or b"")
                for partition in (0, 1)
                for record in client.tail(
                    "t", partition, start="earliest", is_endless=False, isolation="read_committed"
                )
            )

    def check_each_is_there_once(self) -> None:
        """The whole claim."""
        found = self.found()
        lost = sorted(set(range(self.count)) - found.keys())
        doubled = sorted(number for number, times in found.items() if times > 1)
        assert (lost, doubled) == ([], [])
        assert found.total() == self.count

    def kill_workers(self, chance: random.Random) -> None:
        assert self.driver is not None
        workers = [
            pid for pid in process_tree(self.driver.pid) if b"pyspark.daemon" in command_of(pid)
        ]
        if workers:
            kill(chance.choice(workers))

    def kill_driver(self) -> None:
        """Python and the JVM; what runs in its workers goes on until it finds out."""
        assert self.driver is not None
        jvms = [pid for pid in process_tree(self.driver.pid) if b"SparkSubmit" in command_of(pid)]
        for pid in (*jvms, self.driver.pid):
            kill(pid)
        self.driver.wait()
        self.driver = None


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.mark.slow
def test_a_task_that_fails_is_tried_again(tmp_path: Path) -> None:
    """The first attempt fails when Spark has most of its rows; the second is shown."""
    with Daemon(tmp_path) as daemon:
        stream = Stream(tmp_path, daemon, master="local[2,4]", first_attempt="fails")
        stream.add()
        stream.finish()
        assert stream.attempts() == [0, 1]
        stream.check_each_is_there_once()


@pytest.mark.slow
def test_a_task_that_stalls_is_overtaken(tmp_path: Path) -> None:
    """Spark speculates: a second attempt runs beside the first, ends before it and is shown."""
    with Daemon(tmp_path) as daemon, StandaloneCluster(tmp_path / "cluster") as cluster:
        stream = Stream(
            tmp_path,
            daemon,
            master=cluster.url,
            settings=SETTINGS | SPECULATION,
            first_attempt="stalls",
        )
        stream.add()
        stream.finish()
        assert stream.attempts() == [0, 1]
        stream.check_each_is_there_once()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    """kill -9 of the driver, a worker or the daemon, a third each, while batches go through."""
    chance = random.Random(SEED)
    with Daemon(tmp_path) as daemon:
        stream = Stream(tmp_path, daemon, master="local[2,4]")
        kills: Counter[str] = Counter()
        for turn in range(KILLS):
            before = stream.batches()
            for _ in range(2):
                stream.add()
            if stream.driver is None or stream.driver.poll() is not None:
                stream.start()

            def is_under_way(before: int = before) -> bool:
                assert stream.driver is not None
                return stream.batches() > before or stream.driver.poll() is not None

            until(is_under_way, "no batch", seconds=PATIENCE_SECONDS, pace_seconds=0.02)
            time.sleep(chance.random())
            victim = ("driver", "worker", "daemon")[turn % 3]
            kills[victim] += 1
            if victim == "driver":
                stream.kill_driver()
            elif victim == "worker":
                stream.kill_workers(chance)
            else:
                daemon.kill()
                daemon.start()
        stream.finish()
        stream.check_each_is_there_once()
        print(f"seed {SEED}: {stream.count} records, kills {dict(kills)}")
