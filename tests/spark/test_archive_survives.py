"""Goal: a continuous archive loses and doubles no record, whatever dies or fails.
Method: the real command over HTTP into typed rows and dead letters, while records come and a
maintenance runs; kill -9 of the command, of its workers and of the daemon, and a store whose calls
fail, at random moments. Then table and dead letters hold every record of the log once.
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
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import load_catalog

from kafkalog.client import Client, ProducerRecord
from tests.bench.machine_use import process_tree
from tests.integration.daemon import ROOT, Daemon
from tests.spark.failing_store import VARIABLE
from tests.spark.test_sink_survives import command_of, kill

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.spark

KILLS = int(os.environ.get("KAFKALOG_ARCHIVE_KILLS", "20"))
SEED = int(os.environ.get("SEED", "1"))
VICTIMS = ("driver", "worker", "daemon", "store")
RECORDS = 60
SCHEMA = {
    "type": "object",
    "properties": {"device": {"type": "string"}, "reading": {"type": "number"}},
}


class Pipeline:
    """A topic of telemetry, and the command that archives it."""

    def __init__(self, directory: Path, daemon: Daemon, runner: Sequence[str]) -> None:
        self._daemon = daemon
        self._faults = directory / "faults"
        self._warehouse = directory / "lake"
        schema = directory / "telemetry.json"
        schema.write_text(json.dumps(SCHEMA))
        self._log = directory / "archive.log"
        table = ["--iceberg", "lake.telemetry", "--warehouse", str(self._warehouse)]
        table += ["--catalog-property", "py-io-impl=tests.spark.failing_store.FailingFileIO"]
        self._maintain = ["archive", "maintain", *table, "--min-files", "2", "--execute", "--yes"]
        self._run = ["archive", "run", "--url", f"http://127.0.0.1:{daemon.port}"]
        self._run += ["--topic", "telemetry", *table, *runner]
        self._run += ["--value-format", "json", "--schema", str(schema)]
        self._run += ["--target-bytes", "2000", "--max-commit-bytes", "4000"]
        # Without PYSPARK_PYTHON, which the session of the tests may have set.
        inherited = {name: os.environ[name] for name in os.environ if name != "PYSPARK_PYTHON"}
        self._environment = {**inherited, VARIABLE: str(self._faults)}
        self._sent = 0
        self.driver: subprocess.Popen[bytes] | None = None
        daemon.create_topic("telemetry", partitions=3)

    def produce(self) -> None:
        """Records, of which some are tombstones and some cannot be decoded."""
        numbers = range(self._sent, self._sent + RECORDS)
        self._sent += RECORDS
        with Client(f"http://127.0.0.1:{self._daemon.port}") as client:
            client.produce("telemetry", [_record(each) for each in numbers])

    def start(self) -> None:
        """The continuous archive, unless it runs."""
        if self.driver is not None and self.driver.poll() is None:
            return
        command = [sys.executable, "-m", "kafkalog", *self._run, "--continuous", "--max-lag", "1s"]
        with self._log.open("ab") as log:
            self.driver = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=ROOT, env=self._environment
            )

    def meet(self, victim: str, chance: random.Random) -> None:
        """Something bad happens."""
        assert self.driver is not None
        match victim:
            case "driver":
                for pid in (*_jvms(self.driver.pid), self.driver.pid):
                    kill(pid)
                self.driver.wait()
            case "worker":
                workers = [each for each in process_tree(self.driver.pid) if is_worker(each)]
                if workers:
                    kill(chance.choice(workers))
            case "daemon":
                self._daemon.kill()
                self._daemon.start()
            case "store":
                self._faults.write_text("0.3")
                time.sleep(chance.random())
                self._faults.unlink()

    def maintain(self) -> subprocess.Popen[bytes]:
        """Beside the archive."""
        command = [sys.executable, "-m", "kafkalog", *self._maintain]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, cwd=ROOT, env=self._environment
            )

    def finish(self) -> None:
        """The command ends by itself, and one more run archives the rest."""
        if self.driver is not None and self.driver.poll() is None:
            self.driver.send_signal(signal.SIGTERM)
            self.driver.wait(120)
        command = [sys.executable, "-m", "kafkalog", *self._run]
        ended = subprocess.run(
            command, capture_output=True, check=False, cwd=ROOT, env=self._environment, timeout=600
        )
        assert ended.returncode == 0, ended.stderr.decode() + self.log_tail()

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-5000:]

    def check_each_is_there_once(self) -> int:
        """The whole claim; the number of records."""
        wanted: dict[bool, Counter[tuple[int, int]]] = {True: Counter(), False: Counter()}
        with Client(f"http://127.0.0.1:{self._daemon.port}") as client:
            for partition in range(3):
                for record in client.tail(
                    "telemetry", partition, start="earliest", is_endless=False
                ):
                    is_sound = record.value is None or record.value.startswith(b'{"')
                    wanted[is_sound][partition, record.offset] += 1
        assert self._found("telemetry") == wanted[True]
        assert self._found("telemetry_dead_letters") == wanted[False]
        return wanted[True].total() + wanted[False].total()

    def _found(self, table: str) -> Counter[tuple[int, int]]:
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{self._warehouse}/catalog.db",
            "warehouse": f"file://{self._warehouse}",
        }
        with closing(load_catalog("default", **properties)) as catalog:
            rows: Any = catalog.load_table(f"lake.{table}").scan(
                selected_fields=("partition", "offset")
            )
            found = rows.to_arrow().to_pydict()
        return Counter(zip(found["partition"], found["offset"], strict=True))


def _record(number: int) -> ProducerRecord:
    if number % 41 == 40:
        return ProducerRecord("poison {", key=f"device-{number % 7}")
    if number % 37 == 36:
        return ProducerRecord(None, key=f"device-{number % 7}")
    value = {"device": f"device-{number % 7}", "reading": number / 8}
    return ProducerRecord(json.dumps(value), key=f"device-{number % 7}")


def is_worker(pid: int) -> bool:
    command = command_of(pid)
    return b"pyspark.daemon" in command or b"spawn_main" in command or b"forkserver" in command


def _jvms(pid: int) -> list[int]:
    return [each for each in process_tree(pid) if b"SparkSubmit" in command_of(each)]


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("runner", "share"), [(("--processes", "2"), 4), (("--spark",), 1)], ids=["processes", "spark"]
)
def test_kills_lose_and_double_nothing(tmp_path: Path, runner: tuple[str, ...], share: int) -> None:
    """Four fifths of the kills meet the processes of one machine, the others Spark."""
    chance = random.Random(SEED)
    kills: Counter[str] = Counter()
    with Daemon(tmp_path) as daemon:
        pipeline = Pipeline(tmp_path, daemon, runner)
        maintenance: subprocess.Popen[bytes] | None = None
        for turn in range(KILLS * share // 5):
            pipeline.produce()
            pipeline.start()
            time.sleep(chance.uniform(0.0, 3.0 if share > 1 else 15.0))
            if turn % 10 == 5 and (maintenance is None or maintenance.poll() is not None):
                maintenance = pipeline.maintain()
            victim = VICTIMS[turn % len(VICTIMS)]
            kills[victim] += 1
            pipeline.meet(victim, chance)
        if maintenance is not None:
            maintenance.wait(300)
        pipeline.finish()
        records = pipeline.check_each_is_there_once()
    print(f"seed {SEED}: {records} records, kills {dict(kills)}")
