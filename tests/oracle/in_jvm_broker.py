"""A broker of any Kafka from 1.1 on with its clients in one JVM (`InJvmBroker.java`)."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.oracle.kafka import SETUP_SECONDS, free_port_pair
from tests.oracle.one_jvm import jvm_on_pipes

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.oracle.kafka import Kafka

SOURCE = Path(__file__).parent / "InJvmBroker.java"
CLUSTER = "a2Fma2Fsb2dPcmFjbGUwMQ"
COMMON = """
log.dirs={log_dirs}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.retention.ms=-1
log.cleaner.dedupe.buffer.size=8388608
"""
OF_ZOOKEEPER = "broker.id={node_id}\nlisteners=PLAINTEXT://127.0.0.1:{port}\n"
OF_KRAFT = """process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={node_id}@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
"""


@dataclass(frozen=True)
class Version:
    """One of Maven's. ``has_zookeeper``: it keeps topics there, else in its log directory."""

    artifact: str
    number: str
    has_zookeeper: bool

    def __str__(self) -> str:
        return self.number


class InJvmBroker:
    """Commands to the JVM; AssertionError when one fails."""

    def __init__(self, process: subprocess.Popen[str], home: Path, version: Version) -> None:
        self._process = process
        self._properties = home / "server.properties"
        self._home = home
        self._version = version

    def ask(self, *words: object) -> list[str]:
        """Run a command; the lines that it prints."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        lines: list[str] = []
        while True:
            line = self._process.stdout.readline()
            assert line, f"the JVM ended in {words}: {self.errors()}"
            answer, _, rest = line.rstrip("\n").partition(" ")
            if answer == "ok":
                return lines
            assert answer == "record", f"{words}: {line}: {self.errors()}"
            lines.append(rest)

    def errors(self) -> str:
        """The end of what the JVM said beside."""
        return (self._home / "stderr").read_text(errors="replace")[-4000:]

    def prepare(self, node_id: int, log_dirs: list[Path]) -> None:
        """Write the properties; with KRaft format the directories, else start ZooKeeper."""
        port = free_port_pair()
        text = (OF_ZOOKEEPER if self._version.has_zookeeper else OF_KRAFT) + COMMON
        dirs = ",".join(map(str, log_dirs))
        values = {"node_id": node_id, "port": port, "controller": port + 1, "log_dirs": dirs}
        self._properties.write_text(text.format(**values))
        if self._version.has_zookeeper:
            self.ask("zookeeper", self._home / "zookeeper")
        else:
            self.ask("format", self._properties, CLUSTER)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Stopped cleanly after the block."""
        self.ask("start", self._properties)
        try:
            yield
        finally:
            self.ask("stop")


@contextmanager
def in_jvm_broker(kafka: Kafka, version: Version, home: Path) -> Iterator[InJvmBroker]:
    """Fetch that Kafka, compile the program against it and start the JVM, which ends afterwards."""
    fetched = kafka.run("version", version.artifact, version.number, timeout_seconds=SETUP_SECONDS)
    class_path = fetched.stdout.strip()
    with jvm_on_pipes(home, class_path, [SOURCE], "InJvmBroker") as process:
        yield InJvmBroker(process, home, version)
