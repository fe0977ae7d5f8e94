"""Goal: the commands of docs/howto-back-up-and-restore.md work when pasted, and give what it says.
Method: its shell block, word for word but for the variables, beside a daemon; then a daemon on what
it restored.
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


@pytest.mark.timeout(400)
def test_the_commands_of_the_howto(tmp_path: Path) -> None:
    """A backup of all, one of a topic, a restore to two directories, a check."""
    page = (ROOT / "docs/howto-back-up-and-restore.md").read_text()
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
