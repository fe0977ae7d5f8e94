"""Goal: an independent EventSource reads a topic to its end and goes on wherever it broke off.
Method: the npm package eventsource in node, unchanged, against a live daemon that is killed,
stopped and bounded under it. Without npm's registry skipped, with KAFKALOG_ORACLE=required failed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from tests.integration.daemon import ROOT, Daemon
from tests.integration.http_world import append, batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGE = "eventsource@5.1.5"
SCRIPT = ROOT / "tests/integration/event_source.mjs"
RECORDS_MAX = 1_000_000  # never seen: the stream or the test ends it


def missing(reason: str) -> NoReturn:
    """The client cannot be had: no silent pass where it is required."""
    if os.environ.get("KAFKALOG_ORACLE") == "required":
        pytest.fail(f"{PACKAGE} is required: {reason}")
    pytest.skip(f"{PACKAGE} cannot be installed: {reason}")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("npm")
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE]
    if shutil.which("npm") is None:
        missing("there is no npm")
    run = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        missing(run.stdout + run.stderr)
    return home / "node_modules/eventsource/dist/index.js"


class Follower:
    """``with Follower(...) as follower``: one EventSource in its process, killed at the end."""

    def __init__(self, package: Path, daemon: Daemon, path: str, count: int = RECORDS_MAX) -> None:
        url = f"http://127.0.0.1:{daemon.port}{path}"
        command = ["node", str(SCRIPT), str(package), url, str(count)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def said(self) -> Iterator[dict[str, Any]]:
        """What it saw, until it closed its source."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def until(self, kind: str) -> dict[str, Any]:
        return next(each for each in self.said() if each["kind"] == kind)


def fill(daemon: Daemon, topic: str, numbers: range, partitions: int) -> None:
    """A record each, its number as its value, durable when it returns."""
    for number in numbers:
        answer = append(daemon, topic, batch_of(b"%d" % number), partition=number % partitions)
        assert answer.status == 200, answer.body


@pytest.mark.parametrize(
    ("path", "partitions"),
    [("/v1/topics/t/partitions/0/records", 1), ("/v1/topics/t/records", 2)],
    ids=["one partition", "merged"],
)
@pytest.mark.timeout(120)
def test_kill_and_come_back(tmp_path: Path, package: Path, path: str, partitions: int) -> None:
    """M13: kill -9 in the middle of the stream, twice: every record once, in order."""
    with Daemon(tmp_path) as daemon:
        daemon.create_topic("t", partitions)
        seen: list[tuple[int, int]] = []
        with Follower(package, daemon, f"{path}?from=latest&fields=partition,value", 600) as one:
            assert one.until("control")["id"]
            said = one.said()
            for life in range(3):
                fill(daemon, "t", range(200 * life, 200 * life + 200), partitions)
                for each in said:
                    if each["kind"] == "record":
                        seen.append((each["data"]["partition"], each["data"]["value"]))
                    assert each["kind"] != "end", each
                    if len(seen) >= 200 * life + 100 and life < 2:
                        break
                if life < 2:
                    daemon.kill()
                    daemon.start()
            assert one.process.wait(60) == 0
    for partition in range(partitions):
        values = [value for number, value in seen if number == partition]
        assert values == list(range(partition, 600, partitions))


def test_the_howto_works_as_it_is_printed(daemon: Daemon, package: Path, tmp_path: Path) -> None:
    daemon.create_topic("orders")
    fill(daemon, "orders", range(12), 1)
    page = (ROOT / "docs/how-to/server-sent-events.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>\n(.*?)</script>", page, re.DOTALL)
    assert "127.0.0.1:8082" in script
    home = tmp_path / "page.mjs"
    home.write_text(
        f"import {{ EventSource }} from '{package}'\n"
        "globalThis.EventSource = EventSource\n"
        "globalThis.document = "
        "{ getElementById: () => ({ append: (text) => process.stdout.write(text) }) }\n"
        "setInterval(() => {}, 1 << 30)\n"
        f"{script.replace('8082', str(daemon.port))}",
        encoding="utf-8",
    )
    with subprocess.Popen(["node", str(home)], stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        try:
            shown = [next(node.stdout) for _ in range(11)]
        finally:
            node.kill()
    assert shown[:10] == [f"0/{number} {number}\n" for number in range(2, 12)]
    assert shown[10].startswith("all there is {")
