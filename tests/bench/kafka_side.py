"""Kafka's side of a benchmark: a broker and the perf tools with the JVM flags Kafka ships.

The kit's own commands start JVMs for short tests (serial collector, first-tier compiler only); a
figure needs what `kafka-server-start.sh` and `kafka-run-class.sh` use: 1 GiB heap, G1, all tiers.
"""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import perf_tools
from tests.integration.http_world import until
from tests.oracle.kafka import Kafka, KafkaToolError, free_port_pair

if TYPE_CHECKING:
    from tests.bench.results import Sample

# kafka-run-class.sh: KAFKA_JVM_PERFORMANCE_OPTS.
JIT = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
]
# Background work of short tests off, as on a production broker; deletions soon, to save disk.
_BROKER = """
log.retention.check.interval.ms=300000
log.initial.task.delay.ms=30000
log.cleaner.backoff.ms=15000
log.segment.delete.delay.ms=1000
"""
_START_SECONDS = 180.0
PERF_BATCH_BYTES = 131_072  # of the perf tools of both sides
_COMPLETED = re.compile(r"Completed load of \S+?dir=\S*?/([^/,]+), .*? in (\d+)ms")
_LOADED_ALL = re.compile(r"Loaded (\d+) logs in (\d+)ms")


class Jars:
    """Class path, version and Java command lines; starts no broker."""

    def __init__(self) -> None:
        self.kit = Kafka()
        self.kit.run("setup", timeout_seconds=900)
        self.class_path = self.kit.run("classpath").stdout.strip()
        home = Path(self.class_path.partition(":")[0]).parent
        self.broker_log_config = home / "log4j2-broker.properties"
        self.tool_log_config = home / "log4j2-tool.properties"
        names = [path.name for path in (home / "libs").glob("kafka-clients-*.jar")]
        self.version = names[0].removeprefix("kafka-clients-").removesuffix(".jar")

    def connector(self) -> str:
        """Spark's own Kafka source and sink, as its setting spark.jars names them."""
        return self.kit.connector()

    def command(self, heap: str, log_config: Path, *arguments: str) -> list[str]:
        """A java command line with Kafka's own flags."""
        log = f"-Dlog4j2.configurationFile={log_config}"
        memory = [f"-Xmx{heap}", f"-Xms{heap}"]
        return [
            "java",
            *memory,
            *JIT,
            log,
            "-Doracle.level=WARN",
            "-cp",
            self.class_path,
            *arguments,
        ]

    def tool(self, *arguments: str) -> list[str]:
        """The command line of one of Kafka's tools."""
        return self.command("512m", self.tool_log_config, *arguments)


@dataclass
class BenchBroker:
    """``with BenchBroker(jars, directory) as broker``: formatted, started, ended in any case."""

    jars: Jars
    directory: Path
    extra: str = ""
    port: int = field(default_factory=free_port_pair)
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> BenchBroker:
        self.format()
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def format(self) -> None:
        """Write server.properties and format the directory; one that exists keeps its port."""
        environment = {"KAFKALOG_ORACLE_EXTRA": _BROKER + self.extra}
        self.jars.kit.run("format", self.directory, str(self.port), environment=environment)
        properties = (self.directory / "server.properties").read_text(encoding="utf-8")
        self.port = int(
            properties.partition("listeners=PLAINTEXT://127.0.0.1:")[2].partition(",")[0]
        )

    def start(self) -> float:
        """Start; seconds from the process's start to Kafka's line that it is ready."""
        log = self.directory / "broker.log"
        started = time.perf_counter()
        properties = str(self.directory / "server.properties")
        command = self.jars.command("1g", self.jars.broker_log_config, "kafka.Kafka", properties)
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, cwd=self.directory
            )
        while time.perf_counter() - started < _START_SECONDS:
            if b"Kafka Server started" in log.read_bytes():
                return time.perf_counter() - started
            if self.process.poll() is not None:
                raise KafkaToolError(f"the broker ended: {self.log_text()[-3000:]}")
            time.sleep(0.02)
        raise KafkaToolError(f"the broker did not start: {self.log_text()[-3000:]}")

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(120)
        self.process = None

    def kill(self) -> None:
        """As a crash."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def log_text(self) -> str:
        return (self.directory / "broker.log").read_text(errors="replace")

    def load_ms(self, topic_partition: str) -> int | None:
        """Milliseconds the broker took to load this log at its start, by its own log line."""
        for name, milliseconds in _COMPLETED.findall(self.log_text()):
            if name == topic_partition:
                return int(milliseconds)
        return None

    def load_all_ms(self) -> tuple[int, int]:
        """Logs loaded at the start, and milliseconds, by the broker's own log line."""
        found = _LOADED_ALL.search(self.log_text())
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create it, without retention."""
        base = ("topics", "--bootstrap-server", self.bootstrap, "--create", "--topic", name)
        self.jars.kit.run(*base, "--partitions", str(partitions), "--config", "retention.ms=-1")

    def delete_topic(self, name: str) -> None:
        """Delete it and wait until its files are gone."""
        base = ("topics", "--bootstrap-server", self.bootstrap, "--delete", "--topic", name)
        self.jars.kit.run(*base)
        wait_until_gone(self.data, name)

    def produce(self, topic: str, *, records: int, **options: str | int) -> Sample:
        """kafka-producer-perf-test: records a second. Options with underscores: record_size=..."""
        extra = [
            word
            for key, value in options.items()
            for word in (f"--{key.replace('_', '-')}", str(value))
        ]
        command = self.jars.tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(records), "--throughput", "-1", *extra),
            *("--producer-props", f"bootstrap.servers={self.bootstrap}", "acks=1"),
            *(f"batch.size={PERF_BATCH_BYTES}", "linger.ms=5", "buffer.memory=67108864"),
        )
        return perf_tools.produced(command, self.pid, records)

    def consume(self, topic: str, *, records: int) -> Sample:
        """kafka-consumer-perf-test: MB a second of fetching (its group's set-up time left out)."""
        command = self.jars.tool(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", self.bootstrap, "--topic", topic),
            *("--messages", str(records), "--timeout", "60000"),
        )
        return perf_tools.consumed(command, self.pid)


def wait_until_gone(log_dir: Path, topic: str) -> None:
    """Until no partition directory of the topic is left, not even one that is marked deleted."""
    until(
        lambda: not any(path.name.startswith(f"{topic}-") for path in log_dir.iterdir()),
        f"{topic} is still there",
        seconds=_START_SECONDS,
        pace_seconds=0.05,
    )
