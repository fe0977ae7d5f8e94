"""Goal: what the README, docs/reference/client.md and docs/how-to/back-up-and-restore.md show works
when pasted.
Method: the blocks, word for word but for port and variables, beside a daemon.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import ROOT, Daemon
from tests.integration.test_backup import manifest_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.gate
@pytest.mark.timeout(400)
def test_the_session_of_the_readme(tmp_path: Path) -> None:
    """M01 M02 M07 M10: create, produce, fetch, offsets, delete records, files, dump."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    session = next(block for block in blocks if "curl" in block)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    daemon = Daemon(tmp_path)
    daemon.log_dirs = [tmp_path / "data"]
    with daemon:
        assert "127.0.0.1:8082" in session
        script = session.replace("127.0.0.1:8082", f"127.0.0.1:{daemon.port}")
        result = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    said = result.stdout
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert 'error_code":4' not in said
    assert said.startswith("{}")
    assert said.count('"durability":"synced"') == 2
    assert '"key":"k1","value":{"n":1},"partition":0,"offset":0' in said
    assert '"value":"third"' in said
    assert '"headers":[{"key":"h","value":"eA=="}]' in said
    assert '"offset":3,"timestamp":-1' in said
    assert "partition: orders-0\tlow_watermark: 1\n" in said
    assert "00000000000000000000.log" in said
    assert "baseOffset: 2 lastOffset: 2 count: 1" in said
    assert 'headerKeys: [h] payload: "third"' in said


def _run_python(blocks: list[str], daemon: Daemon) -> str:
    """What the blocks print, one script after the other."""
    said = ""
    for block in blocks:
        script = block.replace("127.0.0.1:8082", f"127.0.0.1:{daemon.port}")
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        said += done.stdout
    return said


def test_the_python_of_the_readme(daemon: Daemon) -> None:
    """M01: a topic, two records by key, both read back."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = _run_python([block], daemon).splitlines()
    assert sorted(line.split(" ", 2)[2] for line in lines) == [
        "b'alice' b'/home'",
        "b'bob' b'/cart'",
    ]


def test_the_python_of_the_page(daemon: Daemon) -> None:
    """M01 M10: every block of docs/reference/client.md that stands for itself."""
    page = (ROOT / "docs" / "reference" / "client.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    whole = [block for block in blocks if "127.0.0.1:8082" in block]
    assert len(whole) >= 3
    assert "exactly once" in _run_python(whole, daemon)


@pytest.mark.timeout(400)
def test_the_commands_of_the_howto(tmp_path: Path) -> None:
    """A backup of all, one of a topic, a restore to two directories, a check."""
    page = (ROOT / "docs/how-to/back-up-and-restore.md").read_text()
    (script,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    script = script.replace(".venv/bin/kafkalog", f"{sys.executable} -m kafkalog")
    backups, data = tmp_path / "backups", tmp_path / "data"
    backups.mkdir()
    data.mkdir()
    with Daemon(tmp_path / "source") as daemon:
        result = subprocess.run(
            ["bash", "-e", "-u", "-o", "pipefail", "-c", script],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "U": f"http://127.0.0.1:{daemon.port}",
                "BACKUP": str(backups),
                "DATA": str(data),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("Backup complete: ") == 2
    assert "all files are copies" in result.stdout
    assert re.search(r"^Restored\. Start: ", result.stdout, re.MULTILINE)
    assert result.stdout.splitlines()[-1].endswith("/orders-0: sound")
    assert manifest_of(backups / "monday").is_complete
    copy = Daemon(tmp_path / "copy")
    copy.log_dirs = [data / "a", data / "b"]
    with copy:
        assert len(copy.fetch_all("orders")) == 3
