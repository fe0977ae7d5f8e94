"""Goal: wrong arguments end with a usage message and exit status 2, never with a traceback.
Method: the command tree in process.
"""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kafkalog.cli.main import make_cli


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "list", "--url", "http://127.0.0.1:99999"],
        ["topics", "list", "--url", "https://127.0.0.1:1"],
        ["topics", "list", "--url", "http://[::1"],
        ["consume", "t", "--max-messages", "-3"],
        ["records", "delete"],
        ["topics", "create", "t", "--config", "no-equals-sign", "--url", "http://127.0.0.1:1"],
        ["retention", "simulate", "t"],
        ["retention", "simulate", "t", "--horizon", "30"],
        ["retention", "simulate", "t", "--horizon", "-1d"],
        ["retention", "simulate", "t", "--horizon", "1d", "--config", "no-equals-sign"],
        ["retention", "explain"],
        ["retention", "explain", "t", "--partition", "-1"],
        ["retention", "run", "--partition", "0"],
    ],
)
def test_wrong_arguments(words: list[str]) -> None:
    result = CliRunner().invoke(make_cli(), words)
    assert result.exit_code in (1, 2)
    assert isinstance(result.exception, SystemExit)
    assert result.output
