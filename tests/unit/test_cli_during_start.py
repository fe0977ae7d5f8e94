"""Goal: a command that meets a daemon while it starts says so, waits, and then does its work.
Method: commands against a real edge whose phase the test sets, or against a port that opens when
the command waits.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

import pytest
from click.testing import CliRunner

from kafkalog.cli import connection, consume
from kafkalog.cli.consume import Printer
from kafkalog.cli.main import make_cli
from kafkalog.client import (
    ClientError,
    ConnectFailed,
    ConsumerRecord,
    OutcomeUnknown,
    Unavailable,
    UnknownTopic,
)
from kafkalog.client.messages import Address, Answer
from kafkalog.client.records import FetchedRecords, Position
from kafkalog.env import daemon_processes
from kafkalog.server.api import Phase
from kafkalog.settings import load_settings
from tests.made_api import api_over, listening
from tests.sim.sim_manager import SimManager, batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from click.testing import Result

    from kafkalog.client import Client, Retries

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

            def next_phase(
                notice: connection.WaitNotice, failure: ClientError, waited: float
            ) -> None:
                said_before(notice, failure, waited)
                if left:
                    api.state.phase = left.pop(0)

            said_before = connection.WaitNotice.__call__
            monkeypatch.setattr(connection.WaitNotice, "__call__", next_phase)
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
    told = {"error_code": 50304, "details": {"phase": "starting"}}
    said_by_server = ClientError("It starts\x1b[2J\x07; 0 of 1", body=told)
    connection.WaitNotice()(said_by_server, 60)
    assert capsys.readouterr().err == "It starts\\x1b[2J\\x07; waiting up to 60 seconds.\n"
    failed = {"topic": "t\x9b", "partition": 0, "error_code": 50010, "error": "\x1b[2J"}
    assert connection.report_failures([failed])
    assert capsys.readouterr().err == "Error: t\\x9b-0: \\x1b[2J\n"


# ---- the daemon goes away under a reader


class Leaving:
    """A client whose daemon is away in between: pages, and failures that it raises."""

    def __init__(self, *outcomes: str | ClientError) -> None:
        self._outcomes = list(outcomes)
        self.offsets: list[int] = []

    def with_retries(self, _retries: Retries) -> Leaving:
        return self

    def fetch_page(self, topic: str, partition: int, offset: int, **_: object) -> FetchedRecords:
        self.offsets.append(offset)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, ClientError):
            raise outcome
        record = ConsumerRecord(topic, partition, offset, 0, None, outcome.encode(), ())
        return FetchedRecords((record,), Position(offset + 1, offset + 1, 0, True))


def gone() -> ConnectFailed:
    failure = ConnectFailed("No answer from http://here:1: Connection refused.", retriable=True)
    failure.may_be_down = True
    return failure


def followed(client: Leaving, *, exits: bool = False) -> int:
    """How many records a reader of two printed."""
    printer = Printer(as_json=False, print_key=False, key_separator="", max_messages=2)
    waiting = consume._Waiting("t", "latest", None, exits=exits)
    consume._follow(cast("Client", client), "t", {0: 7}, None, printer, waiting)
    return printer.count


def test_consume_outlives_a_restart_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended with the daemon; Kafka's consumer goes on where it was."""
    monkeypatch.setattr(consume, "_AWAY_PAUSE_SECONDS", 0)
    not_ready = {"error_code": 50304}
    client = Leaving(
        "a",
        ClientError("The daemon is stopping; come back.", status=503, body=not_ready),
        OutcomeUnknown("No answer from http://here:1: Connection reset by peer."),
        gone(),
        ClientError("The daemon is starting.", status=503, body=not_ready),
        "b",
    )
    assert followed(client) == 2
    assert client.offsets == [7, 8, 8, 8, 8, 8]
    assert capsys.readouterr().err.splitlines() == [
        "The daemon is stopping; waiting to read on where it was. Ctrl-C stops.",
        "The daemon answers again; reading goes on.",
    ]


@pytest.mark.parametrize(
    ("failure", "exits"),
    [
        (gone(), True),  # with -e the end of the log is the end
        (ConnectFailed("no such host"), False),
        (UnknownTopic("Topic t does not exist", status=404), False),
        (Unavailable("An offline directory", status=503, body={"error_code": 50303}), False),
    ],
)
def test_other_failures_end_a_consume(failure: ClientError, exits: bool) -> None:
    with pytest.raises(type(failure)) as raised:
        followed(Leaving("a", failure, "b"), exits=exits)
    assert raised.value is failure


class Forgetting:
    """A client of a group: what its reads bring, from the offset 7 on, and what it called."""

    def __init__(self, *outcomes: str | ClientError) -> None:
        self._outcomes = list(outcomes)
        self._offset = 7
        self.calls: list[str] = []
        self.commits: list[dict[tuple[str, int], int]] = []

    def with_retries(self, _retries: Retries) -> Forgetting:
        return self

    def call(self, method: str, path: str, *_: object, **__: object) -> Answer:
        word = path.rpartition("/")[2]
        self.calls.append(f"{method} {word}")
        if word == "g" and not isinstance(self._outcomes[0], ConnectFailed):
            return Answer(200, {}, b'{"instance_id": "i"}')
        if word not in ("records", "g"):
            return Answer(204, {}, b"")
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, ClientError):
            raise outcome
        value = base64.b64encode(outcome.encode()).decode()
        entry = {"topic": "t", "partition": 0, "timestamp": 0, "key": None, "value": value}
        self._offset += 1
        return Answer(200, {}, json.dumps([entry | {"offset": self._offset - 1}]).encode())

    def commit_offsets(self, _group: str, offsets: dict[tuple[str, int], int]) -> None:
        self.commits.append(dict(offsets))


def read_as_member(client: Forgetting) -> int:
    """How many records a member of the group printed, at most two."""
    printer = Printer(as_json=False, print_key=False, key_separator="", max_messages=2)
    member = consume._Member(cast("Client", client), "t", "g", {}, exits=False)
    consume._follow_in_group(member, printer, consume._Waiting("t", "latest", "g", exits=False))
    return printer.count


def test_a_member_joins_again_after_a_restart_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended with the daemon, which stores no members; Kafka's consumer goes on."""
    monkeypatch.setattr(consume, "_AWAY_PAUSE_SECONDS", 0)
    forgotten = ClientError("It left its group.", status=404, body={"error_code": 40403})
    client = Forgetting("a", gone(), forgotten, "b")
    assert read_as_member(client) == 2
    joined = ["POST g", "POST subscription", "POST offsets", "GET records"]
    assert client.calls == [*joined, "POST offsets", "GET records", *joined, *joined, "DELETE i"]
    assert client.commits == [{("t", 0): 9}]
    assert capsys.readouterr().err.splitlines() == [
        "No answer from http://here:1: Connection refused; waiting up to 300 seconds to read on"
        " from the commits of the group. Ctrl-C stops.",
        "The daemon answers again; reading goes on.",
    ]


def test_a_member_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it leave a group that nobody serves."""
    monkeypatch.setattr(consume, "_AWAY_PAUSE_SECONDS", 0)
    monkeypatch.setattr(consume, "_AWAY_SECONDS", 0.0)
    last = gone()
    client = Forgetting("a", gone(), last)
    with pytest.raises(ConnectFailed) as raised:
        read_as_member(client)
    assert raised.value is last
    assert client.calls[-2:] == ["GET records", "POST g"]


# ---- the port is not open yet


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Processes of daemons that start on this machine: none, whatever runs beside the test."""
    found: list[int] = []
    monkeypatch.setattr(daemon_processes, "starting_daemons", lambda _port: found)
    return found


@pytest.fixture
def closed_port(starting: list[int]) -> Iterator[socket.socket]:
    """A port that is bound, so that nobody else takes it, and that refuses connections."""
    assert not starting
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held


def listed(held: socket.socket, *words: str) -> Result:
    """``kafkalog topics list`` or other words, at the port."""
    url = f"http://127.0.0.1:{held.getsockname()[1]}"
    return CliRunner().invoke(make_cli(), [*(words or ("topics", "list")), "--url", url])


def test_a_port_that_opens_while_a_command_waits(
    closed_port: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kafkalog server &` in the line before: its port opens a second or two later."""
    says, openers = connection.WaitNotice.__call__, list[threading.Thread]()

    def opening(notice: connection.WaitNotice, failure: ClientError, seconds: float) -> None:
        says(notice, failure, seconds)
        if not openers:
            closed_port.listen()
            openers.append(threading.Thread(target=answer))
            openers[0].start()

    def answer() -> None:
        with closed_port.accept()[0] as peer:
            peer.recv(65_536)
            body = b'{"error_code": 40401, "message": "It is here."}'
            head = f"HTTP/1.1 404 Not Found\r\nContent-Length: {len(body)}\r\n\r\n"
            peer.sendall(head.encode() + body)

    monkeypatch.setattr(connection.WaitNotice, "__call__", opening)
    done = listed(closed_port)
    openers[0].join()
    address = f"http://127.0.0.1:{closed_port.getsockname()[1]}"
    assert done.stderr.splitlines() == [
        f"No answer from {address}: Connection refused; waiting up to 10 seconds.",
        "Error: It is here.",
    ]


def test_a_port_that_stays_closed_is_an_error_that_says_what_to_do(
    closed_port: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "NO_DAEMON_SECONDS", 0.2)
    done = listed(closed_port)
    notice, error = done.stderr.splitlines()
    assert (done.exit_code, "waiting up to 0 seconds" in notice) == (1, True)
    assert error.endswith("Connection refused. Is the daemon running? (kafkalog server)")
    assert "waiting" not in listed(closed_port, "health").stderr


def test_a_daemon_without_a_port_is_waited_for_while_its_process_lives(
    closed_port: socket.socket, starting: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kafkalog server &` on a busy machine: the command in the next line gave up after 10 s."""
    monkeypatch.setattr(connection, "NO_DAEMON_SECONDS", 0.0)
    says, waits = connection.WaitNotice.__call__, list[float]()

    def dying(notice: connection.WaitNotice, failure: ClientError, seconds: float) -> None:
        says(notice, failure, seconds)
        waits.append(seconds)
        if len(waits) == 3:
            starting.clear()

    monkeypatch.setattr(connection.WaitNotice, "__call__", dying)
    starting.append(4711)
    done = listed(closed_port)
    assert waits == [180, 180, 180]
    notice, error = done.stderr.splitlines()
    assert notice.endswith(
        "refused, but a daemon is starting on this machine; waiting up to 180 seconds."
    )
    assert error.endswith("Connection refused. Is the daemon running? (kafkalog server)")
    starting.append(4711)
    assert "waiting" not in listed(closed_port, "health").stderr


@pytest.mark.parametrize(
    ("url", "is_loopback"),
    [
        ("localhost:1", True),
        ("http://[::1]:1", True),
        ("http://127.0.1.1", True),
        ("http://10.0.0.1", False),
        ("http://store", False),
    ],
)
def test_only_this_machine_is_waited_for(url: str, is_loopback: bool) -> None:
    assert Address.of(url).is_loopback is is_loopback


def test_health_says_how_far_the_start_is_and_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = said("health", "--ready", turns=[Phase.SERVING], monkeypatch=monkeypatch)
    assert done.exit_code == 1
    assert "Error: The daemon is not ready" in done.stderr
    assert "waiting" not in done.stderr
