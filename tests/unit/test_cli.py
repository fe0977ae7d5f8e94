"""Goal: the command line refuses wrong arguments with status 2, shows the configuration without a
daemon, is what docs/reference/cli.md says, and a terminal sees how far something is.
Method: the command tree in process; terminals that record what is written.
"""

from __future__ import annotations

import asyncio
import errno
import http.client
import io
import json
import logging
import os
import pty
import re
import socket
import ssl
import sys
import termios
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from kafkalog.__main__ import root_command
from kafkalog.broker.values import Loading
from kafkalog.cli.configs import settings_from
from kafkalog.cli.connection import message_of
from kafkalog.cli.main import _GROUP_HELP, make_cli
from kafkalog.cli.output import Progress
from kafkalog.cli.retention import print_run
from kafkalog.client import ClientError
from kafkalog.client.client import unanswered
from kafkalog.client.errors import failure_of
from kafkalog.client.messages import DEFAULT_URL, Address
from kafkalog.env.process_facts import own_command
from kafkalog.observe.logging import configure_logging
from kafkalog.observe.terminal_line import TerminalLine
from kafkalog.server.supervision import CLIENT_URL, first_steps, loading_text, show_loading
from kafkalog.settings.tables import BROKER_LEVEL, TOPIC_LEVEL
from tests.integration.daemon import ROOT
from tests.sim.sim_clock import SimClock
from tools.commands_page import commands_page, leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "list", "--url", "http://127.0.0.1:99999"],
        ["topics", "list", "--url", "http://me:secret@127.0.0.1:1"],
        ["topics", "create", "t", "--config", "=5"],
        ["configs", "alter", "--topic", "t", "--delete-config", "a,,b"],
        ["configs", "alter", "--topic", "t", "--add-config", ""],
        ["produce", ""],
        ["consume", ""],
        ["records", "delete"],
        ["records", "delete", "--topic", "t", "--before-offset", "-2"],
        ["compat", "kafka-topics", "--bootstrap-server", "/a,b:1", "--list"],
        ["config", "show", "--override", "=5"],
        ["doctor", "--override", " =5"],
        ["retention", "explain", ""],
        ["retention", "run", ""],
        ["retention", "simulate", "t", "--horizon", "999999999999d"],
        ["topics", "create", "t", "--config", "no-equals-sign", "--url", "http://127.0.0.1:1"],
        ["retention", "simulate", "t", "--horizon", "30"],
        ["retention", "simulate", "t", "--horizon", "-1d"],
        ["retention", "simulate", "t", "--horizon", "1d", "--config", "no-equals-sign"],
        ["retention", "run", "--partition", "0"],
        ["retention", "archived", "t", "--partition", "0", "--url", "http://127.0.0.1:1"],
        ["groups", "describe", ""],
        ["groups", "reset-offsets", "g"],
        ["groups", "reset-offsets", "g", "--to-earliest", "--shift-by", "1"],
        ["groups", "reset-offsets", "g", "--to-earliest", "--topic", "t", "--all-topics"],
    ],
)
def test_wrong_arguments(words: list[str]) -> None:
    result = CliRunner().invoke(make_cli(), words)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert result.output


HELD = {"clock_held_segments": 2, "clock_held_bytes": 90}
RESET = ["groups", "reset-offsets", "g"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*RESET, "--to-earliest", "--to-latest", "--execute"],
         "Give one of the --to options or --shift-by, not several"),
        ([*RESET, "--to-datetime", "yesterday"],
         "Invalid value for '--to-datetime': 'yesterday' is not ms since 1970"),
        (["retention", "simulate", "t", "--horizon", "1d", "--at", "yesterday"],
         "Invalid value for '--at': 'yesterday' is not ms since 1970"),
        (["retention", "simulate", "t", "--horizon", "1d", "--check-interval", "0s"],
         "Invalid value for --check-interval: it is more than 0"),
        ([*RESET, "--to-latest", "--dry-run", "--execute"], "--dry-run only shows it"),
        ([*RESET, "--to-latest", "--topic", "t:x"], "'t:x' is not NAME or NAME:0,1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(words: list[str], message: str) -> None:
    result = CliRunner().invoke(make_cli(), words)
    assert result.exit_code == 2
    assert message in result.stderr


@contextmanager
def peer(said: bytes) -> Iterator[str]:
    """The address of a port that says this to the first one who sends anything."""

    def answer() -> None:
        with listener.accept()[0] as connection:
            connection.recv(65_536)
            connection.sendall(said)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        speaker = threading.Thread(target=answer)
        speaker.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        speaker.join()


FOREIGN = b"HTTP/1.1 404 Not Found\r\nServer: nginx\x1b]0;x\x07\r\nContent-Length: 2\r\n\r\nno"


@pytest.mark.parametrize(
    ("scheme", "said", "message"),
    [
        ("http", FOREIGN,
         "Error: What answers at http://{} is not kafkalog (status 404, nginx\\x1b]0;x\\x07):"
         " is the address right?\n"),
        ("http", b"SSH-2.0-OpenSSH_9\x1b[2J\r\n",
         "Error: No answer from http://{}: what answers is not HTTP.\n"),
        ("http", b"\x15\x03\x03\x00\x02\x02F\r\n",
         "Error: No answer from http://{}: what answers is not HTTP but TLS, use https://.\n"),
        ("https", b"HTTP/1.1 400 Bad Request\r\n\r\n",
         "Error: No answer from https://{0}: {0} does not speak TLS, use http://.\n"),
    ],
)  # fmt: skip
def test_what_is_no_daemon_is_said(scheme: str, said: bytes, message: str) -> None:
    """And no byte of a foreign peer steers the terminal."""
    with peer(said) as address:
        result = CliRunner().invoke(
            make_cli(), ["topics", "list", "--url", f"{scheme}://{address}"]
        )
    assert result.exit_code == 1
    assert result.stderr == message.format(address)


def test_another_server_is_not_healthy() -> None:
    with peer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as address:
        result = CliRunner().invoke(make_cli(), ["health", "--url", f"http://{address}"])
    assert result.exit_code == 1
    assert result.stderr == "Error: This is not an answer of the daemon: 'ok'.\n"


def test_an_address_that_is_none(tmp_path: Path) -> None:
    unknown = CliRunner().invoke(make_cli(), ["topics", "list", "--url", "http://no.invalid"])
    assert unknown.stderr.removeprefix("Error: No answer from http://no.invalid:8082: ") in (
        "the name no.invalid is not known.\n",
        "Temporary failure in name resolution.\n",
    )
    listed = CliRunner().invoke(make_cli(), ["topics", "list", "--bootstrap-server", "a:1,b:2"])
    assert (listed.exit_code, "give one address, not a list" in listed.stderr) == (2, True)
    file = tmp_path / "ca.pem"
    file.write_text("none")
    for option, fault in (
        ("--ca-file", f"{file} is no PEM certificate"),
        ("--client-cert", f"{file} is no PEM certificate with its key"),
    ):
        words = ["topics", "list", "--url", "https://127.0.0.1:1", option, str(file)]
        refused = CliRunner().invoke(make_cli(), words)
        assert refused.exit_code == 2
        assert refused.stderr.endswith(f"Error: TLS cannot be set up: {fault}\n")


@pytest.mark.parametrize(
    ("error", "was_sent", "asks"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), False, True),
        (TimeoutError(), False, True),
        (TimeoutError(), True, False),
        (ConnectionResetError(errno.ECONNRESET, "reset"), True, True),
        (http.client.RemoteDisconnected("closed"), True, True),
        (http.client.BadStatusLine("SSH-2.0"), True, False),
        (ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed"), False, False),
        (ssl.SSLError(1, "tlsv13 alert certificate required"), True, False),
        (ssl.SSLEOFError(8, "EOF occurred"), False, True),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), False, False),
        (OSError(errno.EHOSTUNREACH, "No route to host"), False, True),
    ],
    ids=repr,
)
def test_only_a_daemon_that_may_be_down_is_asked_for(
    error: Exception, was_sent: bool, asks: bool
) -> None:
    """A certificate that is not trusted, or an answer that is late, comes from something."""
    failure = failure_of(unanswered(error, Address.of(DEFAULT_URL), was_sent=was_sent), "there")
    assert isinstance(failure, ClientError)
    assert ("Is the daemon running? (kafkalog server)" in message_of(failure)) is asks


def run(*words: str, **environment: str) -> Result:
    """``kafkalog config WORDS``."""
    return CliRunner(env=environment).invoke(make_cli(), ["config", *words])


def test_keys_are_listed() -> None:
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
    """--override over environment over file over default, each named."""
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
    result = run("show", *words)
    assert (result.exit_code, result.stdout) == (status, "")
    assert "Error: " in result.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("start", "start is no file: kafkalog server takes properties files; to start, say just"),
        ("status", "kafkalog health"),
        ("http.port=18405", "a setting is --override http.port=18405"),
        ("--port 18405", "--override http.port=18405"),
        ("--port=18405", "--override http.port=18405"),
        ("-p 18405", "--override http.port=18405"),
        ("--config f.properties", "The file is an argument: kafkalog server f.properties"),
        ("-f f.properties", "The file is an argument: kafkalog server f.properties"),
    ],
)
def test_habits_of_other_servers(words: str, complaint: str) -> None:
    """What is no file and no option of ours, and which word does it here."""
    result = CliRunner().invoke(root_command(), ["server", *words.split()])
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_log_dirs_are_no_yaml_list() -> None:
    result = run("show", "--override", "log.dirs=[/data/a, /data/b]")
    assert result.exit_code == 1
    assert "no YAML list: give the directories with commas between them" in result.stderr


def test_the_file_of_a_variable_is_read_as_the_variable_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "dirs"
    named.write_text("/data/größe", encoding="utf-8")
    monkeypatch.setenv("KAFKALOG_LOG_DIRS_FILE", str(named))
    assert settings_from((), ()).broker.log_dirs == ("/data/größe",)
    named.write_bytes(b"\xff\xfe")
    with pytest.raises(click.ClickException, match="is not UTF-8 text"):
        settings_from((), ())


DOCS = Path(__file__).resolve().parents[2] / "docs"
COMMANDS = dict(leaves(root_command()))


def test_the_page_is_current() -> None:
    assert (DOCS / "reference" / "cli.md").read_text(encoding="utf-8") == commands_page(
        root_command()
    )


GROUPS = sorted({words[:depth] for words in COMMANDS for depth in range(len(words))})


@pytest.mark.parametrize("words", GROUPS, ids=" ".join)
def test_a_list_of_commands_cuts_no_sentence(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(root_command(), [*words, "--help"], terminal_width=80)
    assert result.exit_code == 0
    commands = result.output.partition("\nCommands:\n")[2]
    assert commands
    assert "..." not in commands
    assert max(map(len, commands.splitlines())) <= 80


@pytest.mark.parametrize("group", sorted(_GROUP_HELP.keys() | {"topics", "groups", "configs"}))
def test_the_help_of_a_group_has_examples(group: str) -> None:
    """A newcomer reads it before that of a command."""
    text = CliRunner().invoke(make_cli(), [group, "--help"]).output
    _, title, examples = text.partition("\nExamples:\n")
    assert title, text
    lines = examples.strip("\n").splitlines()
    assert 1 <= sum(line.startswith("  kafkalog ") for line in lines) <= 3


def test_a_text_that_is_no_number_is_told_what_is_wanted() -> None:
    said = CliRunner().invoke(make_cli(), ["topics", "create", "t", "--partitions", "three"])
    assert said.exit_code == 2
    assert "Invalid value for '--partitions': 'three' is not a whole number from 1" in said.output
    said = CliRunner().invoke(make_cli(), ["consume", "t", "--max-messages", "0"])
    assert "0 is not in the range x>=1" in said.output


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_explains_itself(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    assert command.help
    assert any(part.strip().startswith("Example: ") for part in command.help.split("\n\n"))
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        if parameter.param_type_name == "option":
            assert text, (words, parameter.opts)


class Terminal(io.StringIO):
    """A terminal that keeps what it was sent."""

    def isatty(self) -> bool:
        return True


def test_a_run_says_what_a_clock_jump_holds(capsys: pytest.CaptureFixture[str]) -> None:
    """M36: and the command that goes on; nothing of it where nothing is held."""
    entry = {"topic": "t", "partition": 0, "segments": []}
    answer = {"dry_run": False, "segments": 0, "bytes": 0, "partitions": [entry]}
    print_run(answer)
    assert "clock" not in capsys.readouterr().out
    print_run({**answer, "partitions": [{**entry, **HELD}]})
    assert capsys.readouterr().out.splitlines()[-1] == (
        "2 segments (90 bytes) held: the wall clock jumped ahead. Put it right, or if it is right:"
        " kafkalog retention run --accept-clock"
    )
    result = CliRunner().invoke(make_cli(), ["retention", "run", "--dry-run", "--accept-clock"])
    assert (result.exit_code, "--dry-run" in result.output) == (2, True)


def test_a_terminal_has_one_line() -> None:
    """Drawn at most ten times a second, erased in the end."""
    clock, stream = SimClock(), Terminal()
    shown = Progress(stream, clock)
    for number in range(4):
        shown.show(f"{number} done")
        clock.advance_ms(50)
    shown.clear()
    drawn = stream.getvalue().split("\r\x1b[K")
    assert drawn == ["", "2 done", ""]


def test_a_file_has_a_line_each_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = SimClock()
    shown = Progress(io.StringIO(), clock)
    for number in range(25):
        shown.show(f"{number} done")
        clock.advance_ms(1000)
    shown.clear()
    assert capsys.readouterr().err == "10 done\n20 done\n"


MIB = 1 << 20
NOTHING = Loading(0, 0, 0, 0, 0, 0)


def loading(logs: int, done: int, left_bytes: int, done_bytes: int, elapsed_ms: int) -> Loading:
    return Loading(logs, done, 0, left_bytes, done_bytes, elapsed_ms)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (NOTHING, "Reading the log directories"),
        (loading(10, 0, 0, 0, 500), "Loading logs: 0/10"),
        (loading(10, 0, 5 * MIB, 0, 500), "Loading logs: 0/10, recovered 0 B at 0 B/s"),
        (loading(10, 4, 0, 0, 2_000), "Loading logs: 4/10, about 3 s left"),
        (
            loading(2_000, 500, 600 * MIB, 100 * MIB, 20_000),
            "Loading logs: 500/2000, recovered 100.0 MiB at 5.0 MiB/s, about 2 min 0 s left",
        ),
        (
            loading(3, 1, 10, 1_000, 7_200_000),
            "Loading logs: 1/3, recovered 1000 B at 0 B/s, about 4 h 0 min left",
        ),
        (
            loading(5, 5, 0, 2 * MIB, 0),
            "Loading logs: 5/5, recovered 2.0 MiB at 2.0 GiB/s, about 0 s left",
        ),
    ],
)
def test_the_text(state: Loading, text: str) -> None:
    """M16: numbers of bytes only where bytes are recovered, a guess only where there is a pace."""
    assert loading_text(state) == text


class StartTerminal:
    """A pseudo-terminal: what is written to ``stream`` comes out of ``read``."""

    def __init__(self, columns: int) -> None:
        self.reader, writer = pty.openpty()
        termios.tcsetwinsize(writer, (24, columns))
        self.stream = os.fdopen(writer, "w")

    def read(self, until: str) -> str:
        """What comes up to these characters; the test's time bounds the wait."""
        text = ""
        while not text.endswith(until):
            text += os.read(self.reader, 100_000).decode()
        return text

    def close(self) -> None:
        with suppress(OSError):  # what it could not write
            self.stream.close()
        os.close(self.reader)


@pytest.fixture
def terminal() -> Iterator[StartTerminal]:
    opened = StartTerminal(columns=20)
    yield opened
    opened.close()


def test_the_line_stays_below_what_is_printed(terminal: StartTerminal) -> None:
    """M16: redrawn in place, never wider than the screen, away while a log line is printed."""
    line = TerminalLine(terminal.stream)
    line.show("")
    line.show("one")
    line.show("two, which is longer than the screen")
    with line.hidden():
        terminal.stream.write("log line\n")
    line.show("")
    with line.hidden():
        terminal.stream.write("more\n")
    erase, two = "\r\x1b[K", "two, which is longe"
    terminal.stream.flush()
    expected = f"{erase}one{erase}{two}{erase}log line\r\n{two}{erase}more\r\n"
    assert terminal.read("more\r\n") == expected


def test_log_lines_go_above_it(terminal: StartTerminal) -> None:
    """M16: the daemon's set-up, the log on the same terminal."""
    line = TerminalLine(terminal.stream)
    configure_logging(terminal.stream, log_format="json", level="info", above=line)
    line.show("half")
    logging.getLogger("x").warning("said")
    first, second = terminal.read("\r\nhalf").split("\r\n")
    assert first.startswith('\r\x1b[Khalf\r\x1b[K{"timestamp"')
    assert second == "half"


def test_a_start_on_a_terminal_says_what_comes_next(terminal: StartTerminal) -> None:
    """Where data is, the console, the first record; lines that stay."""
    line = TerminalLine(terminal.stream)
    line.show("half")
    line.write_above(first_steps(CLIENT_URL, ["/data/a", "/data/b"], "kafkalog"))
    with line.hidden():
        terminal.stream.write("end")
        terminal.stream.flush()
    lines = terminal.read("endhalf").split("\r\n")
    assert lines[1:4] == [
        "  Data     /data/a, /data/b",
        f"  Console  {CLIENT_URL}/console",
        "  Produce  echo hello | kafkalog produce greetings",
    ]
    assert CLIENT_URL == DEFAULT_URL


def test_a_port_of_its_own_is_in_the_command() -> None:
    text = first_steps("http://0.0.0.0:9000", ["/data"], ".venv/bin/kafkalog")
    assert "http://127.0.0.1:9000/console" in text
    assert " | .venv/bin/kafkalog produce greetings --url http://127.0.0.1:9000\n" in text


@pytest.mark.parametrize(
    ("is_on_path", "program", "command"),
    [
        (True, "/opt/bin/kafkalog", "kafkalog"),
        (False, "/my venv/bin/kafkalog", "'/my venv/bin/kafkalog'"),
        (False, "/x/kafkalog/__main__.py", f"{sys.executable} -m kafkalog"),
    ],
)
def test_the_command_is_what_a_person_can_type(
    monkeypatch: pytest.MonkeyPatch, *, is_on_path: bool, program: str, command: str
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "server"])
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if is_on_path else None)
    assert own_command() == command


def test_a_terminal_that_is_gone_costs_the_line_only(terminal: StartTerminal) -> None:
    line = TerminalLine(terminal.stream)
    os.close(terminal.reader)
    terminal.reader = os.open(os.devnull, os.O_RDONLY)
    line.show("nobody reads this")
    with line.hidden():
        pass
    line.show("")


def test_it_is_redrawn_until_the_load_ends(terminal: StartTerminal) -> None:
    """M16: numbers of the moment; nothing is left on the screen."""
    states = iter([loading(2, 0, 0, 0, 1), loading(2, 1, 0, 0, 400)])

    async def watch() -> None:
        last = asyncio.Event()

        def next_state() -> Loading:
            state = next(states)
            if state.partitions_loaded:
                last.set()
            return state

        shown = asyncio.create_task(show_loading(TerminalLine(terminal.stream), next_state))
        await last.wait()
        await asyncio.sleep(0)
        shown.cancel()
        await asyncio.wait([shown])

    asyncio.run(watch())
    erase = "\r\x1b[K"
    drawn = terminal.read(f"1/2, {erase}").split(erase)
    assert drawn == ["", "Loading logs: 0/2", "Loading logs: 1/2, ", ""]


# ---- runbooks


def test_a_message_leads_to_a_runbook_that_is_installed() -> None:
    """Each call that some message or page of the package tells."""
    told = set[str]()
    for path in (ROOT / "kafkalog").rglob("*.py"):
        told |= set(re.findall(r"kafkalog runbooks describe ([A-Za-z-]+)", path.read_text()))
    assert {"lost-offsets", "rotten-record"} <= told
    for name in told:
        found = CliRunner().invoke(make_cli(), ["runbooks", "describe", name.upper()])
        assert found.exit_code == 0
        assert found.stdout == (ROOT / "docs" / "runbooks" / f"{name}.md").read_text()


def test_all_runbooks_and_none() -> None:
    listed = CliRunner().invoke(make_cli(), ["runbooks", "list", "--output", "name"])
    files = {each.stem for each in (ROOT / "docs" / "runbooks").glob("*.md")}
    assert set(listed.stdout.split()) == files - {"README"}
    unknown = CliRunner().invoke(make_cli(), ["runbooks", "describe", "lost-ofsets"])
    assert unknown.exit_code == 1
    assert "There is no runbook lost-ofsets; did you mean lost-offsets?" in unknown.stderr
    unlike = CliRunner().invoke(make_cli(), ["runbooks", "describe", "../x"])
    assert "; kafkalog runbooks list shows all" in unlike.stderr
