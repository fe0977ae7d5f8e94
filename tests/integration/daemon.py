"""A real daemon for tests: its own process, port and directories; HTTP by the standard library."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120.0
BINARY = "application/vnd.kafka.binary.v2+json"
TEXT = "application/vnd.kafka.text.v2+json"
V2 = "application/vnd.kafka.v2+json"


class ReservedPort:
    """A port that nobody gets but who binds it with SO_REUSEADDR, as the daemon does.

    Held by a socket that is bound and never listens, until the object goes: neither an outgoing
    connection nor another search for a free port can take it before the daemon, or between two
    lives of one. Without a daemon, connections to it are refused.
    """

    def __init__(self) -> None:
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
            self.number = int(holder.getsockname()[1])
            # Bare, because a socket that is found in a cycle warns that nobody closed it.
            self._descriptor = holder.detach()

    def __del__(self) -> None:
        os.close(self._descriptor)


class Answer:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Daemon:
    """``with Daemon(tmp_path) as daemon``: ready inside, stopped and waited for after."""

    starts = 0  # of all daemons of this process

    def __init__(
        self,
        root: Path,
        *,
        log_dirs: int = 1,
        environment: Mapping[str, str] | None = None,
        **overrides: str,
    ) -> None:
        """Overrides are settings with underscores for dots."""
        self.root = root
        self.environment = dict(environment or {})
        self._reserved = ReservedPort()
        self.port = self._reserved.number
        self.log_dirs = [root / f"dir{number}" for number in range(log_dirs)]
        self.overrides = {name.replace("_", "."): value for name, value in overrides.items()}
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = root / "daemon.log"
        self.log_start = 0  # characters of it that are of earlier modules

    def __enter__(self) -> Daemon:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process is not None:
            self.stop()

    def command(self) -> list[str]:
        values = {
            "log.dirs": ",".join(map(str, self.log_dirs)),
            "http.port": str(self.port),
            "log.format": "json",
            **self.overrides,
        }
        pairs = [part for item in values.items() for part in ("--override", "=".join(item))]
        return [sys.executable, "-m", "kafkalog", "server", *pairs]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *, wait: bool = True, stderr: int = subprocess.STDOUT) -> None:
        """Start the process; with wait, return when it is ready. Its stderr goes to its log."""
        assert self.process is None
        Daemon.starts += 1
        self.root.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdout=log,
                stderr=stderr,
                cwd=ROOT,
                env={**os.environ, **self.environment},
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Until /readyz answers 200; fails with the log's end when the process ends first."""
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the daemon ended: {self.log_tail()}")
            try:
                if self.request("GET", "/readyz").status == 200:
                    return
            except OSError:
                pass  # the port is not open yet
            time.sleep(0.02)
        raise AssertionError(f"the daemon was not ready in time: {self.log_tail()}")

    def stop(self, seconds: float = 30) -> int:
        """SIGTERM and wait; the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            raise AssertionError(f"no stop within {seconds} s: {self.log_tail()}") from None
        finally:
            self.process = None

    def ended(self, seconds: float = 60) -> int:
        """Wait for the end that it is about to come to; the exit status."""
        assert self.process is not None
        status = self.process.wait(seconds)
        self.process = None
        return status

    def refused_start(self, status: int = 1) -> str:
        """Its log behind a start that ends by itself, without a stack."""
        self.start(wait=False)
        assert self.ended() == status
        said = self.log_path.read_text()
        assert "Traceback" not in said, said
        return said

    def kill(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def rss_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def log_tail(self) -> str:
        return self.log_path.read_text(errors="replace")[-3000:]

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        """A connection to its port, opened by the first request."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30,
    ) -> Answer:
        """One request on a connection of its own; body may be bytes or a JSON value."""
        connection = self.connect(timeout)
        all_headers = dict(headers or {})
        data: bytes | None = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            all_headers.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, data, all_headers)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.headers), answer.read())
        finally:
            connection.close()

    def cluster(self) -> str:
        """Path of the one cluster in v3."""
        (entity,) = self.request("GET", "/v3/clusters").json["data"]
        return f"/v3/clusters/{entity['cluster_id']}"

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; config names with underscores."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        answer = self.request(
            "POST",
            "/admin/topics",
            {"topic_name": name, "partitions_count": partitions, "configs": named},
        )
        assert answer.status == 201, answer.body

    def produce_text(self, topic: str, *values: str, query: str = "") -> Any:
        """Append text values; the answer's JSON."""
        answer = self.request(
            "POST",
            f"/topics/{topic}{query}",
            {"records": [{"value": value} for value in values]},
            {"Content-Type": TEXT},
        )
        assert answer.status == 200, answer.body
        return answer.json

    def fetch_all(self, topic: str, partition: int = 0, offset: int | None = None) -> list[Any]:
        """Every record up to the high watermark, in binary form."""
        base = f"/topics/{topic}/partitions/{partition}"
        offsets = self.request("GET", f"{base}/offsets").json
        position = offsets["beginning_offset"] if offset is None else offset
        records: list[Any] = []
        while position < offsets["end_offset"]:
            answer = self.request(
                "GET",
                f"{base}/records?offset={position}&max_bytes=4000000",
                None,
                {"Accept": BINARY},
            )
            assert answer.status == 200, answer.body
            records += answer.json
            position = int(answer.headers["Kafka-Next-Offset"])
        return records


class GatedDaemon(Daemon):
    """One that waits where ``gated_daemon.py`` finds what its gate file names."""

    def __init__(self, root: Path, **given: Any) -> None:
        super().__init__(root, **given)
        self.gate = root / "gate"

    def command(self) -> list[str]:
        python, _, _, *rest = super().command()
        return [python, "-m", "tests.integration.gated_daemon", str(self.gate), *rest]
