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
        ["topics", "list", "--url", "ftp://127.0.0.1:1"],
        ["topics", "list", "--url", "http://[::1"],
        ["topics", "list", "--url", ""],
        ["topics", "list", "--url", "http://127.0.0.1:1/behind/a/proxy"],
        ["topics", "list", "--url", "http://me:secret@127.0.0.1:1"],
        ["topics", "create", "t", "--partitions", "0"],
        ["topics", "create", "t", "--config", "=5"],
        ["topics", "alter", "t", "--partitions", "-1"],
        ["configs", "alter", "--topic", "t", "--delete-config", "a,,b"],
        ["configs", "alter", "--topic", "t", "--add-config", ""],
        ["produce", ""],
        ["consume", ""],
        ["consume", "t", "--max-messages", "-3"],
        ["records", "delete"],
        ["records", "delete", "--topic", "t", "--before-offset", "-2"],
        ["records", "delete", "--topic", "t", "--before-offset", "1", "--partition", "-1"],
        ["compat", "kafka-delete-records", "--bootstrap-server", "http://127.0.0.1:1"],
        ["compat", "kafka-topics", "--list"],
        ["compat", "kafka-topics", "--bootstrap-server", "localhost:1", "--lst"],
        ["compat", "kafka-topics", "--bootstrap-server", "a:1,b:1", "--list"],
        ["compat", "kafka-console-producer", "--bootstrap-server", "localhost:1"],
        ["compat", "install"],
        ["config", "show", "--override", "=5"],
        ["doctor", "--override", " =5"],
        ["perf", "produce", "t"],
        ["perf", "produce", "t", "--num-records", "0"],
        ["perf", "produce", "t", "--num-records", "1", "--throughput", "0"],
        ["perf", "consume", "t"],
        ["retention", "explain", ""],
        ["retention", "run", ""],
        ["retention", "simulate", "t", "--horizon", "999999999999d"],
        ["topics", "create", "t", "--config", "no-equals-sign", "--url", "http://127.0.0.1:1"],
        ["retention", "simulate", "t"],
        ["retention", "simulate", "t", "--horizon", "30"],
        ["retention", "simulate", "t", "--horizon", "-1d"],
        ["retention", "simulate", "t", "--horizon", "1d", "--config", "no-equals-sign"],
        ["retention", "explain"],
        ["retention", "explain", "t", "--partition", "-1"],
        ["retention", "run", "--partition", "0"],
        ["retention", "archived", "t", "--raise-to", "-1"],
        ["retention", "archived", "t", "--partition", "0", "--url", "http://127.0.0.1:1"],
        ["groups", "describe", ""],
        ["groups", "reset-offsets", "g"],
        ["groups", "reset-offsets", "g", "--to-earliest", "--shift-by", "1"],
        ["groups", "reset-offsets", "g", "--to-offset", "-1"],
    ],
)
def test_wrong_arguments(words: list[str]) -> None:
    result = CliRunner().invoke(make_cli(), words)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert result.output
