"""Goal: the image is built from what is in this repository, and runs as an orchestrator runs it.
Method: buildah over a bootstrapped Debian; the entry point as uid 1000 on a read-only root.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.operate.image_world import GROUP, USER, Image, ImageDaemon, image_or_skip

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.image, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    one = image_or_skip(tmp_path_factory.mktemp("image"))
    yield one
    one.close()


def volume(daemon: ImageDaemon) -> None:
    """As Docker makes a named one: with the owner and mode of the image's directory."""
    daemon.data.mkdir(parents=True)
    os.chown(daemon.data, USER, GROUP)
    daemon.data.chmod(0o770)


def processor_seconds(pid: int) -> float:
    """What the threads of a process have used so far."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def test_what_is_in_it(image: Image) -> None:
    prefix = image.files / "opt" / "kafkalog" / ".venv"
    installed = {path.name for path in (prefix / "bin").iterdir()}
    assert "kafkalog" in installed
    assert not installed & {"pip", "pip3", "uv", "gcc"}
    assert not (image.files / "opt" / "build").exists()
    lent = image.files / "etc" / "pip.conf"
    assert not lent.exists() or lent.stat().st_size == 0, "a mount leaves its place, empty"


def test_it_serves_on_a_read_only_root(image: Image, tmp_path: Path) -> None:
    """M01: docker run: ready at once by the kernels of the image, records in and out, health by the
    CLI, a graceful stop. Nothing is compiled or written outside the volume and /tmp.
    """
    daemon = ImageDaemon(tmp_path, image)
    volume(daemon)
    with daemon:
        # Of the processor, so that a busy machine changes nothing; compiling takes a hundred.
        assert processor_seconds(daemon.pid) < 5
        status = Path(f"/proc/{daemon.pid}/status").read_text()
        facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert facts["Uid"].split() == [str(USER)] * 4
        assert facts["Gid"].split() == [str(GROUP)] * 4
        assert (int(facts["CapEff"], 16), facts["NoNewPrivs"]) == (0, "1")
        daemon.create_topic("kept")
        daemon.produce_text("kept", "a", "b")
        url = {"KAFKALOG_URL": f"http://127.0.0.1:{daemon.port}"}
        health = image.command(daemon.data, url, *image.config["Healthcheck"]["Test"][2:])
        done = subprocess.run(health, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (0, "ready\n"), done.stderr
    lines = [json.loads(line) for line in daemon.log_path.read_text().splitlines()]
    (kernels,) = [line for line in lines if line["event"] == "Kernels are ready"]
    assert (kernels["compiled"], kernels["image"]) == (0, "loaded")
    assert lines[-1]["event"] == "Shutdown complete."
    assert (daemon.data / "log0" / ".kafka_cleanshutdown").exists()
    with daemon:
        assert len(daemon.fetch_all("kept")) == 2


def test_a_volume_of_root(image: Image, tmp_path: Path) -> None:
    """The commonest fault names its remedy."""
    daemon = ImageDaemon(tmp_path, image)
    daemon.data.mkdir(parents=True)
    daemon.data.chmod(0o755)
    said = daemon.refused_start()
    assert "No write access to log directory" in said
    assert "chown -R 1000:0 /var/lib/kafka/data" in said
    assert "fsGroup: 1000" in said
