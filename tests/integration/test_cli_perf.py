"""Goal: the perf commands measure a real daemon, in the form of Kafka's tools.
Method: the command tree in process; the records that arrived, and the shape of the lines.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from tests.integration.http_world import end_offset

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.integration.daemon import Daemon

SUM = re.compile(
    r"(\d+) records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency,"
    r" \d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\.\n"
)
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
READ = re.compile(rf"{TIME}, {TIME}, \d+\.\d{{4}}, \d+\.\d{{4}}, (\d+), \d+\.\d{{4}}, \d+, \d+, .*")


def run(*words: str) -> Result:
    """``kafkalog WORDS``."""
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


def test_kafkas_tools(daemon: Daemon, tmp_path: Path) -> None:
    """Goal: M01: several properties behind one option, payloads of a file, each form of line.

    Method: the tools' options against a topic of one partition.
    """
    daemon.create_topic("tools")
    servers = f"bootstrap.servers=127.0.0.1:{daemon.port}"
    base = ("compat", "kafka-producer-perf-test", "--topic", "tools", "--num-records", "20")
    props = ("--producer-props", servers, "acks=1", "compression.type=zstd", "--throughput", "-1")
    assert SUM.fullmatch(run(*base, "--payload-monotonic", *props).stdout)
    values = [record["value"] for record in daemon.fetch_all("tools")]
    assert len(values) == 20
    file = tmp_path / "payloads"
    file.write_text("a\nb\n")
    lines = run(*base, *props, "--payload-file", str(file)).stdout.splitlines()
    assert lines[:2] == [f"Reading payloads from: {file}", "Number of messages read: 2"]
    file.write_text(f"{servers}\nclient.id=x\n")
    config = ("--producer.config", str(file), "--record-size", "5", "--throughput", "100000")
    told = run(*base, *config)
    assert told.stderr == "The property client.id has no effect here\n"
    assert end_offset(daemon, "tools") == 60
    where = ("--bootstrap-server", f"127.0.0.1:{daemon.port}", "--topic", "tools")
    read = run("compat", "kafka-consumer-perf-test", *where, "--messages", "60", "--hide-header")
    found = READ.fullmatch(read.stdout.rstrip("\n"))
    assert found is not None
    assert found[1] == "60"
    short = run(
        "compat", "kafka-consumer-perf-test", *where, "--messages", "61", "--timeout", "1",
        "--show-detailed-stats", "--reporting-interval", "1", "--group", "g",
    )  # fmt: skip
    header, *_, warning = short.stdout.splitlines()
    assert header.startswith("time, threadId, ")
    assert warning.startswith("WARNING: Exiting before consuming the expected number of messages:")
    assert (short.exit_code, short.stderr) == (0, "--group has no effect: every run reads anew\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--num-records", "0"), "--num-records should be greater than zero"),
        (("--record-size", "0"), "--record-size should be greater than zero"),
        ((), "Either --producer-props or --producer.config must be specified."),
        (("--producer-props", "acks"), "Invalid property: acks"),
        (("--producer-props", "acks=1"), "No resolvable bootstrap urls given in bootstrap.servers"),
        (
            ("--payload-monotonic", "--producer-props", "bootstrap.servers=h:1"),
            "Give exactly one of --record-size, --payload-file, --payload-monotonic",
        ),
        (
            ("--producer-props", "bootstrap.servers=h:1", "acks=2"),
            "Invalid value 2 for configuration acks: -1, all, 1, 0",
        ),
    ],
)
def test_wrong_loads(words: tuple[str, ...], reason: str) -> None:
    """The reason in a line, status 1, before anything is asked."""
    base = ("--topic", "t", "--throughput", "-1", "--num-records", "1", "--record-size", "9")
    result = run("compat", "kafka-producer-perf-test", *base, *words)  # the last of two counts
    assert (result.exit_code, result.stderr) == (1, f"{reason}\n")
