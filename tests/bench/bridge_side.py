"""Strimzi's Kafka Bridge in front of Kafka's broker: the HTTP side that JSON rows compare with.

``KAFKA_BRIDGE_HOME`` names a built one, the folder that holds bin/ and libs/.
"""

from __future__ import annotations

import http.client
import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.bench.kafka_side import JIT
from tests.integration.http_world import until
from tests.oracle.kafka import free_port_pair

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.kafka_side import BenchBroker

HOME = "KAFKA_BRIDGE_HOME"
_START_SECONDS = 60.0


@dataclass
class BenchBridge:
    """``with BenchBridge(home, broker) as bridge``: ready inside, ended in any case."""

    home: Path
    broker: BenchBroker
    port: int = field(default_factory=free_port_pair)
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> BenchBridge:
        settings = self.broker.directory / "bridge.properties"
        settings.write_text(
            f"bridge.id=bench\nkafka.bootstrap.servers={self.broker.bootstrap}\n"
            f"kafka.producer.acks=1\nhttp.host=127.0.0.1\nhttp.port={self.port}\n"
        )
        jars = self.broker.jars
        # At Kafka's level: by its own settings the Bridge logs every request.
        logs = f"-Dlog4j2.configurationFile={jars.tool_log_config} -Doracle.level=WARN"
        memory = ["-Xmx1g", "-Xms1g", *JIT]
        with (self.broker.directory / "bridge.log").open("wb") as output:
            self.process = subprocess.Popen(
                [self.home / "bin" / "kafka_bridge_run.sh", f"--config-file={settings}"],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "JAVA_OPTS": " ".join(memory), "KAFKA_BRIDGE_LOG4J_OPTS": logs},
            )
        try:
            until(self._is_ready, "the Bridge is not ready", seconds=_START_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    @property
    def pid(self) -> int:
        """Of the JVM: the script becomes it."""
        assert self.process is not None
        return self.process.pid

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status in (200, 204)
        except OSError:
            return False
        finally:
            connection.close()
