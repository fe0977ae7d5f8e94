"""Goal: the configuration can be looked at without a daemon: every key, every value, its source.
Method: the command tree in process, a file and an environment of the test's own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from kafkalog.cli.configs import settings_from
from kafkalog.cli.main import make_cli
from kafkalog.settings.tables import BROKER_LEVEL, TOPIC_LEVEL

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def run(*words: str, **environment: str) -> Result:
    """``kafkalog config WORDS``."""
    return CliRunner(env=environment).invoke(make_cli(), ["config", *words])


def test_keys_are_listed() -> None:
    """Every key that is no secret of Kafka's tests, with its default and meaning."""
    lines = run("list").stdout.splitlines()
    assert lines[0].split() == ["KEY", "DEFAULT", "TYPE", "UNIT"]
    assert [line.split()[0] for line in lines[1:]] == sorted(
        key for key, setting in BROKER_LEVEL.items() if not setting.internal
    )
    topics = {
        one["name"]: one for one in json.loads(run("list", "--topics", "--output", "json").stdout)
    }
    assert topics.keys() == {key for key, setting in TOPIC_LEVEL.items() if not setting.internal}
    assert topics["retention.ms"]["default"] == "604800000"
    assert topics["archive.hold"]["is_own"] is True
    assert all(one["documentation"] for one in topics.values())


def test_values_say_where_they_come_from(tmp_path: Path) -> None:
    """Goal: --override over environment over file over default, each named.

    Method: a key in each of them, one in all.
    """
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.retention.ms=7\nlog.roll.ms=70\nno.such=1\n")
    words = ("show", str(file), "--override", "log.retention.ms=9")
    environment = {"KAFKALOG_LOG_RETENTION_MS": "8", "KAFKALOG_LOG_ROLL_MS": "80"}
    plain = run(*words, **environment)
    shown = ["log.retention.ms=9", "log.roll.ms=80", "num.partitions=2"]
    assert plain.stdout.splitlines() == shown
    assert "unknown configuration key no.such" in plain.stderr
    found = json.loads(run(*words, "--output", "json", **environment).stdout)
    by_name = {one["name"]: one for one in found}
    assert by_name["log.retention.ms"] == {
        "name": "log.retention.ms", "value": "9", "source": "override", "origin": None
    }  # fmt: skip
    assert by_name["log.roll.ms"]["origin"] == "KAFKALOG_LOG_ROLL_MS"
    assert by_name["num.partitions"]["source"] == "file"
    (tmp_path / "issuer").write_text("secret-5\n")
    mounted = {"KAFKALOG_HTTP_JWT_ISSUER_FILE": str(tmp_path / "issuer")}
    hidden = run("show", "--source", **mounted).stdout
    assert hidden.splitlines()[1].split()[:3] == ["http.jwt.issuer", "***", "environment"]
    table = run(*words, "--source", "--all", **environment).stdout.splitlines()
    assert table[0].split() == ["KEY", "VALUE", "SOURCE"]
    assert len(table) == 1 + len(BROKER_LEVEL)


@pytest.mark.parametrize(
    ("words", "status"),
    [(("--override", "http.port=x"), 1), (("--override", "x"), 2), (("/no/such/file",), 1)],
)
def test_what_no_daemon_would_take(words: tuple[str, ...], status: int) -> None:
    """The status and one line."""
    result = run("show", *words)
    assert (result.exit_code, result.stdout) == (status, "")
    assert "Error: " in result.stderr


def test_the_file_of_a_variable_is_read_as_the_variable_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory named in a file is the one that the variable would name."""
    named = tmp_path / "dirs"
    named.write_text("/data/größe", encoding="utf-8")
    monkeypatch.setenv("KAFKALOG_LOG_DIRS_FILE", str(named))
    assert settings_from((), ()).broker.log_dirs == ("/data/größe",)
    named.write_bytes(b"\xff\xfe")
    with pytest.raises(click.ClickException, match="is no UTF-8 text"):
        settings_from((), ())
