"""A Spark cluster on this machine: a master and two workers, each with an address of its own.

For speculation: Spark never runs a second attempt of a task beside the first on the same host. So
`local[n]` does not speculate, and under `local-cluster`, whose workers share a host, a task that
stalls is waited for.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from tests.integration.daemon import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

_SPARK_HOME = Path(pyspark.__file__).parent
_MASTER_HOST = "127.0.0.1"
_WORKER_HOSTS = ("127.0.0.2", "127.0.0.3")
_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Registering worker"
_PATIENCE_SECONDS = 120.0

SETTINGS = {
    "spark.driver.host": _MASTER_HOST,
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    # An executor's directory is its own, not the driver's, where Python finds kafkalog.
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}
"""Of a driver that uses the cluster."""


class StandaloneCluster:
    """``with StandaloneCluster(directory) as cluster``: one core on each of two hosts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> StandaloneCluster:
        self._directory.mkdir(parents=True)
        try:
            self._start_all()
        except BaseException:
            self._stop_all()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop_all()

    def _start_all(self) -> None:
        master = self._start("master.Master", _MASTER_HOST)
        self._wait_until(lambda: _URL.search(master.read_text()) is not None)
        found = _URL.search(master.read_text())
        assert found is not None
        self.url = found[1]
        for host in _WORKER_HOSTS:
            work = str(self._directory / f"work-{host}")
            resources = ("--cores", "1", "--memory", "600m", "--work-dir", work)
            self._start("worker.Worker", host, *resources, self.url)
        self._wait_until(lambda: master.read_text().count(_REGISTERED) == len(_WORKER_HOSTS))

    def _start(self, role: str, host: str, *more: str) -> Path:
        """One of Spark's daemons, on any port; its log."""
        command = [str(_SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}"]
        command += ["--host", host, "--port", "0", "--webui-port", "0", *more]
        environment = {
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        path = self._directory / f"{role}-{host}.log"
        with path.open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command, stdout=log, stderr=log, env={**os.environ, **environment}, cwd=ROOT
                )
            )
        return path

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            ended = any(each.poll() is not None for each in self._processes)
            assert not ended, self._logs()
            assert time.monotonic() < deadline_s, self._logs()
            time.sleep(0.05)

    def _logs(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in self._directory.glob("*.log"))

    def _stop_all(self) -> None:
        """Workers first, which end their executors; none is left."""
        while self._processes:
            process = self._processes.pop()
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
