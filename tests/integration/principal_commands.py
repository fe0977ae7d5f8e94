"""The command line as one of the principals of ``access_world``."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.integration.access_world import token_of, write
from tests.integration.daemon import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.daemon import Daemon


class Commands:
    """``kafkalog ARGUMENTS`` as one principal."""

    def __init__(self, daemon: Daemon, root: Path, principal: str) -> None:
        self._environment = {
            **os.environ,
            "KAFKALOG_URL": f"http://127.0.0.1:{daemon.port}",
            "KAFKALOG_TOKEN_FILE": str(write(root / principal, f"{token_of(principal)}\n")),
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Whatever comes of it."""
        return subprocess.run(
            [sys.executable, "-m", "kafkalog", *arguments],
            capture_output=True,
            cwd=ROOT,
            env=self._environment,
            check=False,
            timeout=60,
            text=True,
        )

    def printed(self, *arguments: str) -> str:
        """What a command that succeeds prints."""
        done = self.run(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout
