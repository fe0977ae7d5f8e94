"""Goal: tables are about the operator's topics; internal ones are folded, or asked for.
Method: the real commands, and a client that answers from a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kafkalog.__main__ import root_command
from kafkalog.client import Client

if TYPE_CHECKING:
    from click.testing import Result

INTERNAL = "__consumer_offsets"


def run(*words: str) -> Result:
    return CliRunner().invoke(root_command(), [*words, "--output", "table"])


def partition(name: str, size: int, *, is_future: bool = False) -> dict[str, Any]:
    return {"partition": name, "size": size, "offsetLag": 0, "isFuture": is_future}


@pytest.fixture
def log_dirs(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = [partition(f"{INTERNAL}-{number}", number) for number in range(50)]
    partitions += [partition("orders-0", 7), partition(f"{INTERNAL}-9", 3, is_future=True)]
    space = {"totalBytes": 100, "usableBytes": 40, "usedBytes": 60}
    log_dir = {"logDir": "/data", "state": "online", "reason": None, "partitions": partitions}
    answer = {"brokers": [{"broker": 1, "logDirs": [log_dir | space]}]}
    monkeypatch.setattr(Client, "describe_log_dirs", lambda _self, _topics: answer)


@pytest.mark.usefixtures("log_dirs")
def test_log_dirs_fold_internal_topics() -> None:
    """The sum of a directory stays; a move is shown, whatever its topic."""
    lines = [line.split() for line in run("dirs", "describe").stdout.splitlines()]
    assert lines[1] == ["/data", "online", "52", "1235", "60.0%", "40"]
    assert lines[3:] == [
        ["orders-0", "7", "-", "/data"],
        [f"{INTERNAL}-9", "3", "0", "/data"],
        ["internal", "topics", "(50)", "1225", "-", "/data"],
    ]
    for words in (("--include-internal",), ("--topics", f"{INTERNAL},orders")):
        shown = run("dirs", "describe", *words).stdout
        assert (f"{INTERNAL}-49 " in shown, "internal topics" in shown) == (True, False)


@pytest.fixture
def cleaner(monkeypatch: pytest.MonkeyPatch) -> None:
    def log(topic: str, number: int, failure: dict[str, Any] | None = None) -> dict[str, Any]:
        at: dict[str, Any] = {"topic": topic, "partition": number, "state": "none", "pauses": 0}
        at |= {"checkpoint": 0, "first_uncleanable_offset": 0, "cleanable_ratio": 0.0}
        return at | {"last_success_ms": None, "failure": failure}

    failed = {"uncleanable": True, "attempts": 3, "reason": "rotten", "error": "CorruptData"}
    logs = [log(INTERNAL, number, failed if number == 7 else None) for number in range(50)]
    report = {
        "enabled": True, "throttle_bytes_per_second": None, "threads": [],
        "logs": [*logs, log("fruit", 0)],
    }  # fmt: skip
    monkeypatch.setattr(Client, "cleaner_status", lambda _self, _topic: report)


@pytest.mark.usefixtures("cleaner")
def test_the_status_of_the_cleaner_folds_quiet_internal_topics() -> None:
    lines = run("compact", "status").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == [f"{INTERNAL}-7", "fruit-0"]
    assert lines[3] == "49 partitions of internal topics: --include-internal lists them."
    for words in (("--include-internal",), (INTERNAL,)):
        shown = run("compact", "status", *words).stdout
        assert (f"{INTERNAL}-49 " in shown, "--include-internal" in shown) == (True, False)
