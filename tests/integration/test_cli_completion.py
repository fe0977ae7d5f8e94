"""Goal: a shell completes commands, topics of the daemon and configs of topics.
Method: bash itself reads what `kafkalog completion bash` prints; its protocol against a daemon.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from tests.integration.daemon import ROOT

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon


def completed(*words: str) -> list[str]:
    """What stands to choose from for the last word."""
    finished = subprocess.run(
        [sys.executable, "-m", "kafkalog"],
        env={
            **os.environ,
            "_KAFKALOG_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("kafkalog", *words)),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
    )
    assert finished.stderr == ""
    return [line.partition(",")[2] for line in finished.stdout.splitlines() if line]


def test_words_of_commands_topics_and_configs(daemon: Daemon) -> None:
    """Each kind of word; hidden commands are none."""
    daemon.create_topic("orders")
    daemon.create_topic("others")
    url = ("--url", f"http://127.0.0.1:{daemon.port}")
    assert completed("top") == ["topics"]
    assert completed("ref") == []
    assert "describe" in completed("topics", "")
    assert completed("topics", "describe", *url, "ord") == ["orders"]
    assert completed("configs", "describe", *url, "--topic", "o") == ["orders", "others"]
    assert completed("topics", "create", "t", "--config", "retention.m") == ["retention.ms="]
    nobody = ("--url", "http://127.0.0.1:1")
    assert completed("topics", "describe", *nobody, "ord") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_of_shells(shell: str) -> None:
    """A script for each shell, which bash takes."""
    result = CliRunner().invoke(make_cli(), ["completion", shell])
    assert result.exit_code == 0
    assert "_KAFKALOG_COMPLETE" in result.stdout
    if shell == "bash":
        command = ["bash", "-n", "-c", result.stdout]
        assert subprocess.run(command, check=False, timeout=30).returncode == 0
    assert CliRunner().invoke(make_cli(), ["completion", "cmd"]).exit_code == 2
