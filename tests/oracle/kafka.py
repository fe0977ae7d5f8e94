"""Real Kafka for tests: the kit's subcommands as methods, brokers that are always cleaned up.

Owns how tests reach Java: environment, ports, time limits, and what a missing Kafka means (skip,
or failure with KAFKALOG_ORACLE=required). `tests/oracle/conftest.py` offers it as fixtures:
`kafka` (no broker needed), `broker` (one for the session, make a topic of your own), `new_broker`
(a factory of brokers for tests that stop, kill or replant them).
"""

from __future__ import annotations

import base64
import json
import os
import random
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KIT = Path(__file__).resolve().parent / "kit" / "oracle.sh"
SETUP_SECONDS = 900
COMMAND_SECONDS = 180  # above the kit's own limits of 120 s a tool and 60 s a start


class KafkaToolError(AssertionError):
    """A subcommand of the kit ended with another status than 0."""


@dataclass(frozen=True)
class Output:
    stdout: str
    stderr: str
    status: int

    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.stdout.splitlines()]


class Kafka:
    """The kit. One instance a session: `ready` runs its set-up once."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        # Java prints in the locale's encoding; the kit's tools shall print UTF-8 everywhere.
        self.environment = {**os.environ, "LC_ALL": "C.UTF-8", **(environment or {})}

    @classmethod
    def ready(cls) -> Kafka:
        """Set the kit up; skip the test when that fails, or fail it where Kafka is required."""
        kafka = cls()
        try:
            kafka.run("setup", timeout_seconds=SETUP_SECONDS)
        except (KafkaToolError, OSError, subprocess.TimeoutExpired) as error:
            reason = f"Apache Kafka is not available: {error}"
            if os.environ.get("KAFKALOG_ORACLE") == "required":
                pytest.fail(reason)
            pytest.skip(reason)
        return kafka

    def connector(self) -> str:
        """Spark's own Kafka source and sink, as its setting spark.jars names them."""
        return self.run("connector", timeout_seconds=SETUP_SECONDS).stdout.strip()

    def iceberg(self) -> str:
        """Iceberg for Spark 4.1 and the driver of its SQLite catalogs, likewise."""
        return self.run("iceberg", timeout_seconds=SETUP_SECONDS).stdout.strip()

    def run(
        self,
        *arguments: str | Path,
        stdin: str | None = None,
        check: bool = True,
        timeout_seconds: int = COMMAND_SECONDS,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Output:
        """Run one subcommand; KafkaToolError with both outputs when it fails and check is set."""
        finished = subprocess.run(
            ["bash", str(KIT), *map(str, arguments)],
            input=(stdin or "").encode(),
            capture_output=True,
            timeout=timeout_seconds,
            check=False,
            cwd=cwd,
            env={**self.environment, **(environment or {})},
        )
        # Decoded by hand: text mode would turn every \r\n of a payload into \n.
        output = Output(
            finished.stdout.decode("utf-8", "surrogateescape"),
            finished.stderr.decode("utf-8", "surrogateescape"),
            finished.returncode,
        )
        if check and output.status != 0:
            raise KafkaToolError(
                f"{' '.join(map(str, arguments))}: status {output.status}\n"
                f"{output.stdout[-2000:]}\n{output.stderr[-4000:]}"
            )
        return output

    def dump(self, *arguments: str | Path, cwd: Path | None = None) -> Output:
        """DumpLogSegments. It may create missing index files: give it a copy."""
        return self.run("dump", *arguments, cwd=cwd, check=False)

    def scan(self, directory: Path, from_offset: int = 0) -> list[str]:
        """Records of a partition directory as JSON lines, read by Kafka's own classes."""
        return self.run("scan", directory, "--from", str(from_offset)).lines()

    def load(self, source: Path, target: Path, *options: str) -> Any:
        """Kafka's log loader on a copy; the JSON result."""
        return json.loads(self.run("load", source, target, *options).stdout)

    def compact(self, source: Path, target: Path, *options: str) -> Any:
        """One round of Kafka's cleaner on a copy; the JSON result."""
        return json.loads(self.run("compact", source, target, *options).stdout)


def record(
    key: bytes | None = None,
    value: bytes | None = None,
    *,
    headers: Iterable[tuple[str, bytes | None]] = (),
    timestamp_ms: int | None = None,
) -> dict[str, Any]:
    """One record for Broker.produce."""
    line: dict[str, Any] = {"key": _base64(key), "value": _base64(value)}
    encoded = [[name, _base64(content)] for name, content in headers]
    if encoded:
        line["headers"] = encoded
    if timestamp_ms is not None:
        line["timestamp"] = timestamp_ms
    return line


def action(name: str, **fields: int) -> dict[str, Any]:
    """flush, begin, commit, abort or sleep (ms=...) for Broker.produce."""
    return {"op": name, **fields}


def files_in(*directories: Path) -> str:
    """Logs, indexes and snapshots of partitions, as Kafka.dump takes them."""
    paths = (path for directory in directories for path in sorted(directory.iterdir()))
    return ",".join(str(path) for path in paths if path.name[0].isdigit())


def free_port_pair() -> int:
    """A port that is free together with the next one: KAFKALOG_ORACLE_PORT, or any.

    Below the ports that outgoing connections take: a stopped broker comes back on its own.
    """
    chosen = os.environ.get("KAFKALOG_ORACLE_PORT")
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second:
            first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                port = int(chosen or random.randrange(20_000, 32_000, 2))
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                chosen = None  # taken, by another broker of this session for one
                continue
            return port
    raise KafkaToolError("no two free ports in a row")


@dataclass
class Broker:
    """A single-node broker in its own directory: ``with Broker(...) as broker`` it is started, and
    ended whatever happened before.
    """

    kafka: Kafka
    directory: Path
    extra: tuple[str, ...] = ()  # lines for server.properties
    port: int = field(default_factory=free_port_pair)
    pid: int | None = None

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.pid is not None:
            self.kill()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def start(self) -> None:
        """Format if new and start; returns when it is ready."""
        assert self.pid is None
        extra = {"KAFKALOG_ORACLE_EXTRA": "\n".join(self.extra)}
        self.kafka.run("format", self.directory, str(self.port), environment=extra)
        self.pid = int(self.kafka.run("start", self.directory).stdout)

    def stop(self) -> None:
        """Clean shutdown."""
        assert self.pid is not None
        self.kafka.run("stop", str(self.pid))
        self.pid = None

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        assert self.pid is not None
        self.kafka.run("kill", str(self.pid))
        self.pid = None

    def create_topic(self, name: str, partitions: int = 1, **configs: str | int) -> None:
        """Create it; configs with underscores for dots. retention.ms=-1 unless given."""
        options = {"retention_ms": -1, **configs}
        pairs = [f"{key.replace('_', '.')}={value}" for key, value in options.items()]
        flags = [word for pair in pairs for word in ("--config", pair)]
        base = ("topics", "--bootstrap-server", self.bootstrap, "--create", "--topic", name)
        self.kafka.run(*base, "--partitions", str(partitions), *flags)

    def produce(
        self,
        topic: str,
        lines: Iterable[Mapping[str, Any]],
        *options: str,
        partition: int = 0,
        check: bool = True,
    ) -> list[Any]:
        """Send records and actions in order; the result of every record."""
        text = "".join(json.dumps(line) + "\n" for line in lines)
        base = ("produce", self.bootstrap, topic, str(partition), "-")
        return self.kafka.run(*base, *options, stdin=text, check=check).json_lines()

    def consume(
        self, topic: str, *, partition: int = 0, from_offset: int = 0, committed: bool = False
    ) -> list[str]:
        """JSON lines of Kafka's consumer, in the form of Kafka.scan."""
        base = ("consume", self.bootstrap, topic, str(partition), "--from", str(from_offset))
        return self.kafka.run(*base, *(["--committed"] if committed else [])).lines()

    def plant(
        self,
        topic_partition: str,
        source: Path,
        mode: str = "recover",
        log_start: int | None = None,
    ) -> None:
        """Put foreign segments under this stopped broker (see the kit's README)."""
        assert self.pid is None
        environment = {} if log_start is None else {"KAFKALOG_ORACLE_LOG_START": str(log_start)}
        self.kafka.run("plant", self.data, topic_partition, source, mode, environment=environment)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")
