"""Goal: the daemon keeps what its own description promises, whatever it is sent.
Method: schemathesis reads /openapi.json of a running daemon and asks it, also in the order of the
links; every check is on. What a schema cannot say is in schemathesis.toml.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = Path(__file__).with_name("schemathesis.toml")
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon with some records; topics that are made stay small, and no fetch waits for long."""
    with Daemon(
        tmp_path, max_partitions_per_topic="8", http_max_wait_ms="50", http_stream_max_ms="200"
    ) as daemon:
        daemon.create_topic("fuzz-a", partitions=2)
        daemon.create_topic("fuzz.b")
        daemon.produce_text("fuzz-a", *map(str, range(20)))
        yield daemon
        assert daemon.request("GET", "/readyz").status == 200
    assert "Unhandled" not in daemon.log_path.read_text(), daemon.log_tail()


def ask(daemon: Daemon, *options: str) -> int:
    """Run schemathesis; how many requests it made. Its findings are the failure's message."""
    (cluster,) = daemon.request("GET", "/v3/clusters").json["data"]
    url = f"http://127.0.0.1:{daemon.port}/openapi.json"
    run = subprocess.run(
        [SCHEMATHESIS, "--config-file", CONFIG, "--no-color", "run", url, *options],
        cwd=daemon.root,
        env={**os.environ, "KAFKALOG_CLUSTER_ID": cluster["cluster_id"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-2_000:]
    counted = re.search(r"(\d+) generated", run.stdout)
    assert counted is not None, run.stdout[-2_000:]
    return int(counted[1])


@pytest.mark.timeout(400)  # half a minute by itself; beside others it waits for its processor
def test_a_few_requests_of_each_kind(asked: Daemon) -> None:
    assert ask(asked, "--phases", "fuzzing", "--max-examples", "2", "--seed", "1") > 100


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_ten_thousand_requests(asked: Daemon) -> None:
    """No status that is not declared, no body of another shape, no 500.

    Edge values of every parameter, random ones, and walks along the links.
    """
    assert ask(asked, "--max-examples", "125", "--generation-database", "none") >= 10_000
