"""Goal: the README's curl session works when pasted, and leaves on disk what it says.
Method: its second shell block, word for word but for port, run beside a daemon with data in ./data.
"""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from tests.integration.daemon import ROOT, Daemon

if TYPE_CHECKING:
    from pathlib import Path


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
            timeout=60,
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
