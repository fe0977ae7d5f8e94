"""Spark's processes in a benchmark: one session a side with the same settings, told what to do.

Each is a process of its own (`spark_work`) with a JVM of its own, kept for all rounds, so that what
is measured is warm. The Kafka side has Spark's own connector on its class path and is otherwise the
same. Without Spark the process does jobs in its one thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tests.bench.results import ROOT
from tests.bench.spark_profile import SparkProfile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.bench import Bench
    from tests.bench.kafka_side import BenchBroker

CORES = 2
"""Slots of each session, which are also the machine's processors that a round uses."""

WARM_UPS = 5
"""Rounds that are not counted: the JVM compiles, and workers import. Behind two of them compilers
took a quarter of the processors' time still."""

_END_SECONDS = 60.0
_SETTINGS = {
    "spark.master": f"local[{CORES}]",
    "spark.app.name": "bench",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.session.timeZone": "UTC",
}
_UNIX_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"}
"""For small tasks, as docs/reference/spark.md says. Large scans are no faster with them, and over
HTTP slower."""
SESSION_NOTE = f"both: warm sessions with local[{CORES}], default options"
UNIX_SOCKETS_NOTE = f"{SESSION_NOTE} but Unix sockets to Python's workers"
Answer = dict[str, float]


class SparkProcess:
    """``with SparkProcess(directory) as process``: its session is ready with its first answer.

    directory  for what Spark writes, and the process's log
    jars       Spark's setting of that name
    profile    a file that is made of what its threads used in the rounds that count

    ``unix_sockets``: to Python's workers; Kafka's source and sink have none.
    """

    def __init__(
        self,
        directory: Path,
        *,
        jars: str = "",
        with_spark: bool = True,
        unix_sockets: bool = False,
        profile: Path | None = None,
    ) -> None:
        directory.mkdir(parents=True)
        self._log = directory / "spark.log"
        settings = None
        if with_spark:
            settings = {
                **_SETTINGS,
                **(_UNIX_SOCKETS if unix_sockets else {}),
                "spark.jars": jars,
                "spark.local.dir": str(directory / "local"),
                "spark.sql.warehouse.dir": str(directory / "warehouse"),
            }
        # The workers shall be this Python; else they are the system's, which knows no kafkalog.
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.spark_work", json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env={**os.environ, **python, "SPARK_LOCAL_IP": "127.0.0.1"},
            )
        self._profile = SparkProfile(self._process.pid)
        self._profile_path = profile
        self._asked = 0
        self._wall_seconds = 0.0

    @property
    def pid(self) -> int:
        """Of the driver; its JVM and the workers are below it."""
        return self._process.pid

    @classmethod
    def of(cls, bench: Bench, place: str, **options: Any) -> Self:
        """In a directory of the benchmark, with a profile if the run has such."""
        profile = None
        if bench.profiles is not None:
            profile = bench.profiles / f"{bench.name}-{place}.txt"
        return cls(bench.directory(place), profile=profile, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """The end of its input ends it, and its JVM."""
        try:
            self._process.communicate(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def ask(self, work: str, **arguments: object) -> Answer:
        """Have it do one of `spark_work.WORKS`; its answer: seconds, and what there was to do."""
        self._asked += 1
        if self._profile_path is None or self._asked <= WARM_UPS:
            return self._answered(work, arguments)
        started = time.perf_counter()
        self._profile.begin()
        answer = self._answered(work, arguments)
        self._profile.end()
        self._wall_seconds += time.perf_counter() - started
        self._profile_path.write_text(self._profile.text(self._wall_seconds))
        return answer

    def _answered(self, work: str, arguments: dict[str, object]) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # it ended before: the log has why
            self._process.stdin.write(json.dumps({"work": work, **arguments}) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(_END_SECONDS)  # its traceback follows the end of its answers
            raise AssertionError(f"{work} ended its process: {self._log_tail()}")
        answer: Answer = json.loads(line)
        return answer

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


@contextmanager
def kafkas_session(
    bench: Bench, extra: str = ""
) -> Iterator[tuple[SparkProcess, BenchBroker] | None]:
    """Spark with its own connector, and the broker that it asks; None in a run without Kafka."""
    if bench.connector is None:
        yield None
        return
    with (
        bench.running_broker(extra) as broker,
        SparkProcess.of(bench, "spark-kafka", jars=bench.connector) as session,
    ):
        assert broker is not None, "the connector is looked for beside Kafka alone"
        yield session, broker


class Reader(NamedTuple):
    process: SparkProcess
    format: str
    options: dict[str, str]

    def ask(self, work: str, **arguments: object) -> Answer:
        """Work that reads the topic."""
        return self.process.ask(work, source=self.format, options=self.options, **arguments)
