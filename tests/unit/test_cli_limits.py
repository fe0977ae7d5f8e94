"""Goal: a change of a topic's limits says what becomes due, and asks somebody who is there.
Method: the real commands, and a client that answers as a daemon with four segments does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kafkalog.__main__ import root_command
from kafkalog.cli import configs as configs_command
from kafkalog.client import AccessDenied, Client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from click.testing import Result

DUE = {"604800000": 1, "1": 3}  # segments by retention.ms; the longer is the topic's
SENTENCE = "The next retention check will delete 2 segments (20 bytes) more of t."


def segments(count: int) -> list[dict[str, Any]]:
    """So many are due now, and one is soon."""
    return [
        {"base_offset": n, "size_bytes": 10, "due": {"earliest_ms": 5 if n < count else 6}}
        for n in range(count + 1)
    ]


@pytest.fixture
def altered(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str]]:
    """What was altered."""
    calls: list[Mapping[str, str]] = []

    def simulate(
        _self: Client, _topic: str, configs: Mapping[str, str], _horizon: int, **_: int
    ) -> dict[str, Any]:
        count = DUE[configs.get("retention.ms", "604800000")]
        return {"partitions": [{"partition": 0, "start_ms": 5, "segments": segments(count)}]}

    def described(_self: Client, _topic: str) -> list[dict[str, Any]]:
        synonyms = [
            {"source": "DYNAMIC_TOPIC_CONFIG", "name": "retention.ms", "value": "604800000"},
            {"source": "STATIC_BROKER_CONFIG", "name": "log.retention.ms", "value": "1"},
        ]
        source = "DYNAMIC_TOPIC_CONFIG"
        return [
            {"name": "retention.ms", "value": "604800000", "source": source, "synonyms": synonyms}
        ]

    def alter(_self: Client, _topic: str, wanted: Mapping[str, str], **_: object) -> None:
        calls.append(wanted)

    monkeypatch.setattr(Client, "simulate_retention", simulate)
    monkeypatch.setattr(Client, "topic_configs", described)
    monkeypatch.setattr(Client, "alter_topic_configs", alter)
    return calls


def run(*words: str, answer: str = "") -> Result:
    return CliRunner().invoke(root_command(), [*words, "--output", "table"], input=answer)


LOWERED = [
    ("configs", "alter", "t", "--config", "retention.ms=1"),
    ("configs", "alter", "t", "--delete-config", "retention.ms"),
    ("topics", "alter", "t", "--config", "retention.ms=1"),
]


@pytest.mark.parametrize("words", LOWERED, ids=" ".join)
def test_a_script_is_told_what_becomes_due(
    words: tuple[str, ...], altered: list[Mapping[str, str]]
) -> None:
    for more in ((), ("--yes",)):
        result = run(*words, *more)
        assert (result.exit_code, result.stderr) == (0, f"{SENTENCE}\n"), result.output
    assert len(altered) == 2


@pytest.mark.parametrize("words", LOWERED, ids=" ".join)
def test_somebody_is_asked(
    words: tuple[str, ...], altered: list[Mapping[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []
    monkeypatch.setattr(configs_command, "is_asked", lambda *, is_sure: not is_sure)

    def refuse(question: str, *, is_sure: bool) -> None:
        questions.append(question)
        raise SystemExit(1)

    monkeypatch.setattr(configs_command, "confirm", refuse)
    assert run(*words).exit_code == 1
    assert (questions, altered) == ([f"{SENTENCE} Alter it?"], [])
    assert run(*words, "--yes").exit_code == 0
    assert len(altered) == 1


@pytest.mark.parametrize("pair", ["retention.ms=604800000", "segment.bytes=1MiB"])
def test_nothing_is_said_when_nothing_becomes_due(
    pair: str, altered: list[Mapping[str, str]]
) -> None:
    result = run("configs", "alter", "t", "--config", pair)
    assert (result.exit_code, result.stderr, len(altered)) == (0, "", 1)


def test_who_may_not_simulate_may_alter(
    altered: list[Mapping[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AccessDenied("no", status=403, body={})

    monkeypatch.setattr(Client, "simulate_retention", refuse)
    assert run(*LOWERED[0]).exit_code == 0
    assert len(altered) == 1
