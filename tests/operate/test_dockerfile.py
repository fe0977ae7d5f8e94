"""Goal: the image is what its users count on: who runs in it, where the data is, how it is asked.
Method: hadolint; the instructions of the Dockerfile, read.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from kafkalog.settings import load_settings
from tests.operate.tools import ROOT, run, tool

if TYPE_CHECKING:
    from pathlib import Path

DOCKERFILE = ROOT / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Name and text of each instruction, continued lines joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\s*\\\n\s*", " ", text).splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if line.strip()]


def last(name: str) -> str:
    """What the last instruction of the name says."""
    return [text for each, text in instructions() if each == name][-1]


@pytest.mark.operate
def test_hadolint_has_nothing_to_say(tmp_path: Path) -> None:
    """No habit that is known to go wrong."""
    hadolint = tool("hadolint", "pip install --require-hashes -r requirements/operate.txt")
    done = run(hadolint, "--failure-threshold", "style", DOCKERFILE)
    assert (done.returncode, done.stdout) == (0, "")
    careless = tmp_path / "Dockerfile"
    careless.write_text(DOCKERFILE.read_text().replace("WORKDIR /opt/build", "RUN cd /opt/build"))
    assert run(hadolint, "--failure-threshold", "style", careless).returncode != 0


def test_who_runs_where() -> None:
    """Not root, the volume, the one port, a stop that is graceful, a probe by the CLI."""
    assert last("USER") == "1000:0"
    assert last("VOLUME") == "/var/lib/kafka/data"
    assert last("EXPOSE") == "8082"
    assert last("STOPSIGNAL") == "SIGTERM"
    assert json.loads(last("ENTRYPOINT")) == ["kafkalog"]
    assert json.loads(last("CMD")) == ["server"]
    probe = last("HEALTHCHECK").split(" CMD ")
    assert json.loads(probe[1]) == ["kafkalog", "health", "--ready"]
    assert probe[0].split() == ["--interval=10s", "--start-period=30s", "--timeout=3s"]


def test_nothing_of_the_build_is_left() -> None:
    """No compiler, installer or source beside what runs."""
    last_stage = instructions()
    last_stage = last_stage[[name for name, _ in last_stage].index("FROM", 2) :]
    taken = [text for name, text in last_stage if name == "COPY"]
    assert taken == [
        "--from=build /opt/kafkalog /opt/kafkalog",
        "config/image.properties /etc/kafkalog/image.properties",
    ]
    assert "--without-pip /opt/kafkalog/.venv" in DOCKERFILE.read_text()


def test_the_images_file_serves_those_it_is_published_to() -> None:
    """A container without any configuration can be reached, and says that it asks nobody."""
    image = (ROOT / "config" / "image.properties").read_bytes()
    alone = load_settings(None, {}, {}, files={"image": image})
    assert alone.server.http_host == "0.0.0.0"
    assert alone.broker.log_dirs == ("/var/lib/kafka/data/log0",)
    assert any("without authentication" in notice.message for notice in alone.notices)
    mounted = b"http.auth=bearer\nhttp.auth.file=/run/secrets/credentials\n"
    asked = load_settings(None, {}, {}, files={"image": image, "mounted": mounted})
    assert asked.server.http_auth == ("bearer",)
    assert "KAFKALOG_HTTP" not in DOCKERFILE.read_text(), (
        "a variable would go over the mounted file"
    )
