"""Goal: the daemon takes its configuration from where containers put it, and says what it took.
Method: the real process with files and variables as an image, a pod and a chart give them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from tests.integration.daemon import Daemon
from tests.integration.test_daemon_life import pid_of

if TYPE_CHECKING:
    from pathlib import Path


class ImageDaemon(Daemon):
    """A daemon as the image starts it: no argument, no override."""

    def command(self) -> list[str]:
        return super().command()[:4]


def told(daemon: Daemon) -> dict[str, object]:
    """The line of its log about its configuration."""
    events = [json.loads(line) for line in daemon.log_path.read_text().splitlines()]
    found = [one for one in events if one["event"].startswith("Configuration;")]
    assert len(found) == 1
    assert isinstance(found[0], dict)
    return found[0]


def test_as_a_pod_starts_it(tmp_path: Path) -> None:
    """Goal: the mounted file goes over the image's, variables over both, service links are no keys.
    Method: the image's file, one that is not mounted, one that is; what a Service injects;
    /v1/configs and the line of the start; a secret of Kafka's in the file.
    """
    mounted, image = tmp_path / "server.properties", tmp_path / "image.properties"
    image.write_text("http.port=1\nhttp.auth=none\n")
    hours = tmp_path / "hours"
    hours.write_text("5\n")
    daemon = ImageDaemon(tmp_path)
    mounted.write_text(
        f"http.port={daemon.port}\nlog.dirs={daemon.log_dirs[0]}\nnum.partitions=2\n"
        "ssl.keystore.password=canary\n"
    )
    daemon.environment = {
        "KAFKALOG_SERVER_PROPERTIES": f"{image}:-{tmp_path}/absent.properties:-{mounted}",
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKALOG_LOG_FORMAT": "json",
        "KAFKALOG_LOG_RETENTION_HOURS_FILE": str(hours),
        "KAFKALOG_PORT": "tcp://10.0.0.1:8082",
        "KAFKALOG_HTTP_PORT": "tcp://10.0.0.1:8082",
        "KAFKALOG_SERVICE_HOST": "10.0.0.1",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
    }
    with daemon:
        named = {one["name"]: one for one in daemon.request("GET", "/v1/configs").json["configs"]}
        assert named["num.partitions"]["value"] == "3"
        daemon.create_topic("kept", 1)
        topic = daemon.request("GET", "/v3/clusters").json["data"][0]["cluster_id"]
        config = daemon.request("GET", f"/v3/clusters/{topic}/topics/kept/configs/retention.ms")
        assert config.json["value"] == str(5 * 3_600_000)
        assert told(daemon)["given"] == [
            f"http.auth=none (file {image})",
            f"http.port={daemon.port} (file {mounted})",
            f"log.dirs={daemon.log_dirs[0]} (file {mounted})",
            "log.format=json (environment KAFKALOG_LOG_FORMAT)",
            "log.retention.hours=*** (environment KAFKALOG_LOG_RETENTION_HOURS_FILE)",
            "num.partitions=3 (environment KAFKA_NUM_PARTITIONS)",
        ]
    said = daemon.log_path.read_text()
    assert "canary" not in said
    assert "unknown configuration key" not in said
    assert "ssl.keystore.password" in said, "named as one that does not apply"


def test_no_file_where_one_was_named(tmp_path: Path) -> None:
    """A mount that failed is no start with the defaults."""
    daemon = ImageDaemon(tmp_path)
    absent = tmp_path / "absent.properties"
    environment = os.environ | {"KAFKALOG_SERVER_PROPERTIES": f"{absent}:-{tmp_path}/none"}
    done = subprocess.run(
        daemon.command(), capture_output=True, text=True, env=environment, check=False, timeout=60
    )
    assert done.returncode == 1
    assert f"Cannot read {absent}: No such file or directory" in done.stderr


def test_a_signal_shows_every_stack(tmp_path: Path) -> None:
    """A daemon that hangs can be asked where, without a port."""
    with Daemon(tmp_path) as daemon:
        os.kill(pid_of(daemon), signal.SIGUSR1)
        deadline = time.monotonic() + 60
        while "Current thread" not in daemon.log_path.read_text():
            assert time.monotonic() < deadline, daemon.log_tail()
            time.sleep(0.02)  # the test's own pace between two looks
        assert daemon.request("GET", "/readyz").status == 200
        said = daemon.log_path.read_text()
    assert "log_dir_writer.py" in said
    assert "daemon.py" in said or "__main__.py" in said
