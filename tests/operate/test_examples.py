"""Goal: the programs of examples/ work as they are.
Method: each is run against a daemon of its own, where its toolchain is; what it prints is read.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import ROOT, Daemon
from tests.operate.tools import tool

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.operate, pytest.mark.timeout(900)]

EXAMPLES = ROOT / "examples"
PROGRAMS = {
    "example.sh": ("curl", ["sh"]),
    "example.py": (None, [sys.executable]),
    "example.go": ("go", ["go", "run"]),
    "Example.java": ("java", ["java"]),
}
RECORDS = [("alice", "tea", 1), ("bob", "coffee", 2), ("alice", "water", 3)]


def environment(port: int) -> dict[str, str]:
    """Go downloads nothing; Python finds the client of this tree."""
    url = f"http://127.0.0.1:{port}"
    return {**os.environ, "KAFKALOG_URL": url, "PYTHONPATH": str(ROOT), "GOTOOLCHAIN": "local"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_produces_and_reads(program: str, tmp_path: Path) -> None:
    needs, command = PROGRAMS[program]
    if needs is not None:
        tool(needs, f"examples/{program} is not run")
    with Daemon(tmp_path) as daemon:
        done = subprocess.run(
            [*command, str(EXAMPLES / program)],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,  # Go compiles its standard library first
            cwd=tmp_path,
            env=environment(daemon.port),
        )
        stored = daemon.fetch_all("examples")
    assert done.returncode == 0, done.stdout + done.stderr
    values = [json.loads(base64.b64decode(record["value"])) for record in stored]
    assert [(value["drink"], value["cups"]) for value in values] == [each[1:] for each in RECORDS]
    shown = done.stdout.splitlines()[-3:]
    for offset, ((key, drink, cups), line) in enumerate(zip(RECORDS, shown, strict=True)):
        assert {key, drink, str(cups), str(offset)} <= set(re.findall(r"\w+", line)), line


def test_it_says_what_the_daemon_refuses(tmp_path: Path) -> None:
    """A status of failure and the daemon's words, not a trace or nothing."""
    with Daemon(tmp_path, auto_create_topics_enable="false") as daemon:
        done = subprocess.run(
            ["sh", str(EXAMPLES / "example.sh")],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
            env=environment(daemon.port),
        )
    assert done.returncode != 0
    assert '"error_code":40401' in done.stdout
