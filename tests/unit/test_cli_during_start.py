"""Goal: a command that meets a daemon while it starts says so, waits, and then does its work.
Method: commands against a real edge whose phase the test sets.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from click.testing import CliRunner

from kafkalog.cli import connection
from kafkalog.cli.main import make_cli
from kafkalog.server.api import Phase
from kafkalog.settings import load_settings
from tests.made_api import api_over, listening
from tests.sim.sim_manager import SimManager, batch_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest
    from click.testing import Result

SETTINGS = load_settings(None, {}, {"http.port": "0"})
STARTS = "The daemon is starting: 0 of 0 partitions are loaded"


def said(
    *words: str, turns: Sequence[Phase], monkeypatch: pytest.MonkeyPatch, seconds: float = 60
) -> Result:
    """What a command says to a daemon that is in another phase after each time it waited."""
    sim = SimManager().start().with_topic("t", 1)
    sim.produce("t", batch_of("a"))
    monkeypatch.setattr(connection, "STARTING_SECONDS", seconds)

    async def story() -> Result:
        with ThreadPoolExecutor(4) as pool:
            api, left = api_over(sim, SETTINGS, pool), list(turns)

            def next_phase(notice: connection.StartingNotice, message: str) -> None:
                said_before(notice, message)
                if left:
                    api.state.phase = left.pop(0)

            said_before = connection.StartingNotice.__call__
            monkeypatch.setattr(connection.StartingNotice, "__call__", next_phase)
            async with listening(api) as listeners:
                api.state.phase = Phase.STARTING
                url = f"http://127.0.0.1:{listeners[0].port}"
                return await asyncio.to_thread(
                    CliRunner().invoke, make_cli(), [*words, "--url", url]
                )

    return asyncio.run(story())


CONSUME = ("consume", "t", "--from-beginning", "-e")


def test_consume_waits_for_the_start_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done = said(*CONSUME, turns=[Phase.STARTING, Phase.SERVING], monkeypatch=monkeypatch)
    assert (done.exit_code, done.stdout) == (0, "a\n")
    assert done.stderr.splitlines()[0] == f"{STARTS}; waiting up to 60 seconds."
    assert done.stderr.count("is starting") == 1


def test_a_start_that_lasts_is_an_error_that_says_how_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = said(*CONSUME, turns=(), monkeypatch=monkeypatch, seconds=0.2)
    assert done.exit_code == 1
    assert f"Error: {STARTS}" in done.stderr
    assert "kafkalog health --ready" in done.stderr


def test_a_daemon_that_stops_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    done = said(*CONSUME, turns=[Phase.STOPPING], monkeypatch=monkeypatch)
    assert done.exit_code == 1
    assert "Error: The daemon is stopping" in done.stderr


def test_what_a_server_says_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    connection.StartingNotice()("It starts\x1b[2J\x07; 0 of 1")
    assert capsys.readouterr().err == "It starts\\x1b[2J\\x07; waiting up to 60 seconds.\n"
    failed = {"topic": "t\x9b", "partition": 0, "error_code": 50010, "error": "\x1b[2J"}
    assert connection.report_failures([failed])
    assert capsys.readouterr().err == "Error: t\\x9b-0: \\x1b[2J\n"


def test_health_says_how_far_the_start_is_and_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = said("health", "--ready", turns=[Phase.SERVING], monkeypatch=monkeypatch)
    assert done.exit_code == 1
    assert "Error: The daemon is not ready" in done.stderr
    assert "waiting" not in done.stderr
