"""Goal: the perf commands measure a real daemon, in the form of Kafka's tools.
Method: the command tree in process; the records that arrived, and the shape of the lines.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from tests.integration.http_world import end_offset

if TYPE_CHECKING:
    from click.testing import Result

    from tests.integration.daemon import Daemon

SUM = re.compile(
    r"(\d+) records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency,"
    r" \d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\.\n"
)
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
READ = re.compile(rf"{TIME}, {TIME}, \d+\.\d{{4}}, \d+\.\d{{4}}, (\d+), \d+\.\d{{4}}, \d+, \d+, .*")


def run(*words: str) -> Result:
    return CliRunner().invoke(make_cli(), words)


def url(daemon: Daemon) -> tuple[str, str]:
    return "--url", f"http://127.0.0.1:{daemon.port}"


def test_native_runs(daemon: Daemon) -> None:
    """M01: what was sent is there and is read; both outputs; too few are exit 1."""
    daemon.create_topic("native", 2)
    words = ("perf", "produce", "native", "--num-records", "500", "--record-size", "64")
    sent = run(*words, "--codec", "gzip", *url(daemon))
    found = SUM.fullmatch(sent.stdout)
    assert found is not None, sent.output
    assert found[1] == "500"
    more = json.loads(run(*words, "--acks", "1", "--output", "json", *url(daemon)).stdout)
    assert (more["records"], more["bytes"]) == (500, 32_000)
    assert sum(end_offset(daemon, "native", number) for number in range(2)) == 1000
    read = run("perf", "consume", "native", "--messages", "1000", *url(daemon))
    header, line = read.stdout.splitlines()
    assert header.startswith("start.time, end.time, data.consumed.in.MB, ")
    numbers = READ.fullmatch(line)
    assert (read.exit_code, numbers and numbers[1]) == (0, "1000")
    many = ("--messages", "2000", "--timeout", "300", "--output", "json")
    few = run("perf", "consume", "native", *many, *url(daemon))
    assert (few.exit_code, few.stderr) == (1, "Error: only 1000 of 2000 records came.\n")
    assert json.loads(few.stdout)["is_complete"] is False
    assert run("perf", "produce", "nope", "--num-records", "1", *url(daemon)).exit_code == 1
