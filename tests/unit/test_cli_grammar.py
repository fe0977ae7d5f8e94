"""Goal: one grammar for every command: help, near misses, former spellings, forms of output,
questions at a terminal, durations and sizes; and a program that ends quietly when nobody reads it.
Method: the command tree in process; real processes for pipes, full devices and terminals.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, strategies as st

from kafkalog.__main__ import root_command
from kafkalog.cli import consume
from kafkalog.cli.arguments import Milliseconds, Size
from kafkalog.cli.connection import exit_after
from kafkalog.cli.output import confirm, yaml_text
from tests.integration.daemon import ROOT
from tools.commands_page import leaves

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

COMMANDS = dict(leaves(root_command()))
GOLDEN = ROOT / "tests" / "golden" / "dump" / "t-0"
LOG = f"{0:020}.log"
NOBODY = "http://0.0.0.0:1"
"""Refused at once: a command waits only for an address of this machine, like 127.0.0.1."""


def run(*words: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(root_command(), words)


# ---- help, and names that nearly exist


@pytest.mark.parametrize("words", [(), ("topics",), ("topics", "list"), ("compat", "kafka-topics")])
def test_the_short_option_helps(words: tuple[str, ...]) -> None:
    short, long = run(*words, "-h"), run(*words, "--help")
    assert (short.exit_code, short.output) == (0, long.output)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("topic", "list"), "Did you mean kafkalog topics list?"),
        (("group", "describe", "a b"), "Did you mean kafkalog groups describe 'a b'?"),
        (("topics", "list", "--zookeeper", "z:2181"), "There is no ZooKeeper"),
        (("ls", "topics"), "Did you mean kafkalog topics list?"),
        (("ls",), "kafkalog tasks list, kafkalog topics list or kafkalog transactions list?"),
        (("lag", "billing"), "Did you mean kafkalog groups describe?"),
        (("acls",), "see docs/how-to/security.md"),
        (("-v",), "The version is -V"),
        (("topics", "create", "t", "3"), "argument (3). Example: kafkalog topics create orders"),
        (("consume", "t", "--offset", "soon"), "--offset takes earliest, latest, a number, or -n"),
        (("topics", "lst"), "Did you mean kafkalog topics list?"),
        (("topics", "rm", "t"), "Did you mean kafkalog topics delete?"),
        (("topics", "show", "t"), "Did you mean kafkalog topics describe?"),
        (("topics", "explode"), "There are alter, create, delete, describe, list, trim."),
        (("segments", "vrify"), "Did you mean kafkalog segments verify?"),
        (("delete", "topic", "t"), "Did you mean kafkalog topics delete?"),
        (("kafka-topics", "--list"), "Did you mean kafkalog compat kafka-topics --list?"),
        (("simulate",), "Did you mean kafkalog retention simulate?"),
        (("topics", "list", "--exclude-interna"), "'--exclude-internal'?)"),
        (("topics", "create", "t", "--partition", "1"), "Did you mean '--partitions'?"),
        (("--url", NOBODY, "topics", "list"), "Options stand after the command: kafkalog COMMAND"),
        (("topics", "--url", NOBODY, "list"), "Options stand after the command: kafkalog topics"),
        (("config", "describ"), "Did you mean kafkalog configs describe?"),
        (("config", "set", "t"), "Did you mean kafkalog configs alter?"),
        (("config", "explode"), "There are alter, describe, list, show."),
        (("config", "describe"), "Usage: kafkalog configs describe"),
        (("tail", "t"), "Did you mean kafkalog consume?"),
        (("status",), "Did you mean kafkalog health?"),
        (("log-dirs",), "Did you mean kafkalog dirs describe?"),
        (("consumer-groups", "--list"), "Did you mean kafkalog groups?"),
        (("TOPICS", "list"), "Did you mean kafkalog topics list?"),
        (("topics", "Create", "t"), "Did you mean kafkalog topics create t?"),
        (("topics", "rename", "a", "b"), "A topic keeps its name"),
        (("offsets", "orders"), "There is only get: kafkalog offsets get orders"),
        (("stop",), "A daemon stops at Ctrl-C or SIGTERM"),
        (("compat", "kafka-acls"), "kafkalog has no kafka-acls: see docs/how-to/security.md"),
        (("compat", "kafka-server-start"), "Use kafkalog server."),
        (("kafka-reassign-partitions.sh",), "Use kafkalog dirs move."),
        (("compat", "kafka-transactions", "list"), "Use kafkalog transactions."),
        (("compat", "kafka-producer-perf-test"), "Use kafkalog perf produce."),
        (("kafka-consumer-perf-test.sh",), "Use kafkalog perf consume."),
        (("kafka-leader-election",), "There is one broker, which leads all partitions"),
        (("kafka-storage", "format"), "kafkalog server formats new log directories"),
        (("kafka-broker-api-versions",), "There is one broker, which speaks HTTP"),
        (
            ("topics", "create", "--topic", "t"),
            "NAME is an argument: kafkalog topics create orders",
        ),
        (("groups", "describe", "--group", "g"), "GROUP is an argument: kafkalog groups describe"),
        (("topics", "create", "t", "--replication-factor", "1"), "one broker: leave it out"),
        (("consume", "t", "--property", "print.key=true"), "print.key=true is --print-key"),
        (("consume", "t", "--timeout-ms", "5"), "Did you mean --exit-at-end?"),
        (("consume", "t", "--group", "g", "--offset", "3"), "leave out --partition and --offset."),
        (("consume", "t", "-n", "5"), "Did you mean --max-messages?"),
        (("topics", "list", "--broker-list", "a:1"), "Did you mean --url?"),
        (("topics", "create", "t", "-p", "3"), "Did you mean --partitions?"),
        (("topics", "list", "-o", "json"), "Did you mean --output?"),
        (("topics", "--list"), "Did you mean kafkalog topics list? With Kafka's options: kafkalog"),
        (("topics", "--list"), "compat kafka-topics --list"),
        (("topics", "--create", "--topic", "x"), "Did you mean kafkalog topics create x?"),
        (("topics", "--topic", "x", "--describe"), "kafkalog compat kafka-topics --topic x --desc"),
        (("topics", "--delete", "--topic=x"), "Did you mean kafkalog topics delete x?"),
        (("groups", "--describe", "--group", "g"), "Did you mean kafkalog groups describe g?"),
        (("groups", "--describe", "--group", "a b"), "kafka-consumer-groups --describe --group 'a"),
        (("groups", "--reset-offsets", "--group", "g"), "mean kafkalog groups reset-offsets g?"),
        (("configs", "--describe", "--entity-name", "x"), "mean kafkalog configs describe x?"),
        (("compact", "--status"), "Did you mean kafkalog compact status?"),
        (("topics", "--url", NOBODY, "--list"), "Did you mean kafkalog topics list?"),
        (("groups", "reset"), "Did you mean kafkalog groups reset-offsets?"),
        (("groups", "reset-offsets"), "Missing argument 'GROUP'. Example: kafkalog groups reset-"),
        (("groups", "reset-offsets", "g"), "--to-offset OFFSET or --shift-by NUMBER. Example: kaf"),
        (("segments", "dump"), "Missing argument 'FILE...'. Example: kafkalog segments dump data/"),
        (("spark", "stats"), "Missing argument 'DIR...'. Example: kafkalog spark stats ./data"),
        (("transactions", "abort", "t"), "Missing option '--partition'. Example: kafkalog trans"),
        (("configs", "list", "--output", "jsn"), "'jsn' is not one of 'table', 'json', 'yaml'"),
    ],
)
def test_a_near_miss_is_named(words: tuple[str, ...], hint: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert hint in " ".join(result.stderr.split())


def test_no_group_is_no_output() -> None:
    assert "--output" not in run("topics", "list", "--group", "g").stderr.splitlines()[-1]


def test_the_help_says_how_to_begin() -> None:
    shown = run("--help").stdout
    assert "\n    kafkalog consume greetings --from-beginning\n" in shown


def test_the_help_begins_with_what_is_called_first_and_names_every_command_once() -> None:
    shown = run("--help").stdout
    first, *others = shown.partition("\nCommands:\n")[2].split("\n\n")
    assert [line.split()[0] for line in first.splitlines()][:3] == ["server", "topics", "produce"]
    titles = [each.splitlines()[0] for each in others]
    assert titles == ["Operation:", "Files:", "Tables and Spark:", "Other:"]
    lines = shown.partition("\nCommands:\n")[2].splitlines()
    names = [line.split()[0] for line in lines if line[:2] == "  " != line[1:3]]
    root = root_command()
    assert sorted(names) == root.list_commands(click.Context(root))


def test_help_and_version_are_commands_too() -> None:
    for words, meant in (
        (("help",), ("--help",)),
        (("help", "topics", "create"), ("topics", "create", "--help")),
        (("topics", "help"), ("topics", "--help")),
        (("topics", "help", "list"), ("topics", "list", "--help")),
        (("version",), ("--version",)),
        (("-V",), ("--version",)),
    ):
        result = run(*words)
        assert (result.exit_code, result.stdout) == (0, run(*meant).stdout)


# ---- the subject is an argument


@pytest.mark.parametrize(
    ("now", "before"),
    [
        (("records", "delete", "t", "--before-offset", "1"),
         ("records", "delete", "--topic", "t", "--before-offset", "1")),
        (("configs", "describe", "t"), ("configs", "describe", "--topic", "t")),
        (("configs", "alter", "t", "--config", "flush.ms=1"),
         ("configs", "alter", "--topic", "t", "--add-config", "flush.ms=1")),
    ],
)  # fmt: skip
def test_former_spellings_stay(now: tuple[str, ...], before: tuple[str, ...]) -> None:
    """Both reach for the daemon, which is not there; nothing was asked and nothing is missing."""
    for words in (now, before):
        result = run(*words, "--url", NOBODY)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"Error: No answer from {NOBODY}")


def test_former_names_of_commands_stay(tmp_path: Path) -> None:
    file = tmp_path / f"{0:020}.log"
    file.touch()
    dumped = run("segments", "dump", str(file))
    assert dumped.exit_code == 0
    assert run("segments", "dump", "--files", str(file)).output == dumped.output
    assert run("config", "list").output == run("configs", "list").output
    assert run("config", "show").output == run("configs", "show").output
    assert run("config", "--help").output == run("configs", "--help").output
    empty = tmp_path / "t-0"
    empty.mkdir()
    (empty / file.name).touch()
    foreseen = run("segments", "preview", str(empty))
    assert run("segments", "repair", str(empty), "--dry-run").stdout == foreseen.stdout
    refused = run("segments", "repair", str(empty))
    assert refused.exit_code == 2
    assert "segments preview" in refused.stderr


def test_former_names_are_hidden() -> None:
    listed = {words[:2] for words in COMMANDS}
    assert {("config", "list"), ("segments", "repair")}.isdisjoint(listed)
    assert {("configs", "list"), ("segments", "preview")} <= listed
    shown = run("records", "delete", "--help").output
    assert "--topic" not in shown
    assert "[TOPIC]" in shown


def test_a_subject_is_given_once() -> None:
    twice = run("configs", "describe", "t", "--topic", "t", "--url", NOBODY)
    assert twice.exit_code == 2
    assert "--topic is its former spelling" in twice.stderr
    assert "Missing argument 'FILE...'" in run("segments", "dump").stderr


# ---- forms of output

WITHOUT_FORM = {"completion", "consume", "produce", "server", "auth", "compat"}
WITHOUT_NAMES = {"adopt", "hand-back", "health", "perf", "spark"}
PRINTS_ITS_OWN = {("offline", "scan"), ("offline", "load"), ("offline", "compact"),
                  ("segments", "dump"), ("runbooks", "describe")}  # fmt: skip
NAMELESS = {("segments", "losses"), ("segments", "accept-loss"), ("segments", "convert"),
            ("archive", "convert")}  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [words for words in COMMANDS if words[0] not in WITHOUT_FORM and words not in PRINTS_ITS_OWN],
    ids=" ".join,
)
def test_a_command_has_every_form(words: tuple[str, ...]) -> None:
    (option,) = (one for one in COMMANDS[words].params if one.name == "output")
    forms = {"table", "json", "yaml"}
    is_archive = words in (("archive", "run"), ("archive", "maintain"))
    if is_archive or (words[0] == "spark" and words[1] != "pipeline"):
        forms.add("parquet")
    elif words[0] not in WITHOUT_NAMES and words not in NAMELESS:
        forms.add("name")
    assert isinstance(option.type, click.Choice)
    assert set(option.type.choices) == forms


def test_one_document_in_three_forms() -> None:
    as_json = json.loads(run("configs", "list", "--output", "json").stdout)
    assert yaml.safe_load(run("configs", "list", "--output", "yaml").stdout) == as_json
    names = run("configs", "list", "--output", "name").stdout.splitlines()
    assert names == [one["name"] for one in as_json]
    from_environment = run("configs", "list", KAFKALOG_OUTPUT="name")
    assert from_environment.stdout.splitlines() == names
    text = run("configs", "list", "--output", "text")  # the former name of the default
    assert (text.exit_code, text.stdout) == (0, run("configs", "list").stdout)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON_VALUES)
def test_yaml_is_read_back(value: object) -> None:
    read = yaml.safe_load(yaml_text(value))
    assert read == value or json.loads(json.dumps(value)) == read


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"topic": "orders", "partitions": [{"partition": 0, "offset": None}]},
         "topic: orders\npartitions:\n  - partition: 0\n    offset: null"),
        ({"empty": [], "none": {}, "word": "no", "number": "5", "path": "/data/a-0"},
         'empty: []\nnone: {}\nword: "no"\nnumber: "5"\npath: /data/a-0'),
        ([], "[]"),
        ([["a"], []], "- - a\n- []"),
    ],
)  # fmt: skip
def test_yaml_in_blocks(value: object, text: str) -> None:
    assert yaml_text(value) == text


# ---- questions

PROGRAM = """
import click
from kafkalog.cli.output import confirm

@click.command()
def ask():
    confirm("Sure?", is_sure=False)
    print("done")

ask()
"""


def at_terminal(answer: bytes, arguments: tuple[str, ...] = ("-c", PROGRAM)) -> tuple[int, bytes]:
    """Exit status and what the terminal shows of a program that asks there."""
    leader, follower = pty.openpty()
    os.write(leader, answer)
    with subprocess.Popen(
        [sys.executable, *arguments], stdin=follower, stdout=follower, stderr=follower, cwd=ROOT
    ) as process:
        process.wait(timeout=60)
    os.close(follower)
    shown = os.read(leader, 10_000)
    os.close(leader)
    return process.returncode, shown


@pytest.mark.parametrize(
    ("answer", "status", "last"),
    [(b"y\n", 0, b"done"), (b"n\n", 1, b"Nothing was changed."), (b"\n", 1, b"changed.")],
)
def test_a_terminal_is_asked(answer: bytes, status: int, last: bytes) -> None:
    code, shown = at_terminal(answer)
    assert b"Sure? [y/N]" in shown
    assert (code, shown.rstrip().endswith(last)) == (status, True)
    assert b"Error" not in shown, "to refuse is no error"


def answered(prompt: bytes, answer: bytes, *words: str) -> tuple[int, bytes]:
    """The same of a program whose terminal it is, answered once it has asked."""
    process, terminal = pty.fork()
    if process == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what runs in the background ignores it
        os.execv(sys.executable, (sys.executable, "-m", "kafkalog", *words))
    shown = b""
    while prompt not in shown:
        shown += os.read(terminal, 10_000)
    os.write(terminal, answer)
    with suppress(OSError):  # EIO: the program has ended
        for _ in range(60):
            # A key just before the program waits for keys may be lost: a person presses it again,
            # but not once the program has gone on: Ctrl-C would kill it while it ends.
            while select.select([terminal], [], [], 5)[0]:
                shown += os.read(terminal, 10_000)
            if b"\n" not in shown.partition(prompt)[2]:
                os.write(terminal, answer)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), shown


@pytest.mark.parametrize(("key", "status"), [(b"\x03", 130), (b"\x04", 1)], ids=["C", "D"])
def test_an_answer_by_a_control_key(key: bytes, status: int, tmp_path: Path) -> None:
    (tmp_path / f"{0:020}.log").touch()
    ended, shown = answered(b"[y/N]", key, "segments", "convert", str(tmp_path), "--execute")
    assert (ended, shown.endswith(b"\r\nNothing was changed.\r\n")) == (status, True)


def test_no_limit_is_said_to_people() -> None:
    words = ("-m", "kafkalog", "configs", "list", "--topics")
    code, shown = at_terminal(b"", words)
    (line,) = [each for each in shown.splitlines() if each.startswith(b"flush.messages ")]
    assert (code, b" 9223372036854775807 (no limit) " in line) == (0, True)
    assert "no limit" not in run("configs", "list", "--topics").stdout


def test_an_empty_password_is_said() -> None:
    status, shown = answered(b"Password", b"\n", "auth", "hash-password", "al")
    assert (status, shown.endswith(b"Error: The password is empty.\r\n")) == (1, True)


def test_a_script_is_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    confirm("Sure?", is_sure=False)
    assert capsys.readouterr() == ("", "")


DESTRUCTIVE = [
    ("topics", "delete"), ("records", "delete"), ("groups", "delete"), ("transactions", "abort"),
    ("segments", "accept-loss"), ("retention", "archived"), ("topics", "trim"),
    ("groups", "reset-offsets"), ("retention", "run"), ("configs", "alter"), ("topics", "alter"),
]  # fmt: skip


@pytest.mark.parametrize("words", DESTRUCTIVE, ids=" ".join)
def test_what_destroys_can_be_told_not_to_ask(words: tuple[str, ...]) -> None:
    assert any("--yes" in option.opts for option in COMMANDS[words].params)


SHOW_FIRST = [
    ("topics", "trim"), ("groups", "reset-offsets"), ("adopt",), ("hand-back",),
    ("segments", "convert"),
]  # fmt: skip


@pytest.mark.parametrize("words", SHOW_FIRST, ids=" ".join)
def test_what_shows_first_has_one_grammar(words: tuple[str, ...]) -> None:
    """--execute asks at a terminal, --yes does not; both are one word in a script."""
    found = {name for option in COMMANDS[words].params for name in option.opts}
    assert {"--execute", "--yes", "-y"} <= found


@pytest.mark.parametrize("command", [("adopt",), ("hand-back",), ("segments", "convert")])
def test_a_rewriting_command_asks(command: tuple[str, ...], tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").touch()
    words = ("-m", "kafkalog", *command, str(directory))
    code, shown = at_terminal(b"n\n", (*words, "--execute"))
    assert b"? [y/N]" in shown
    assert (code, shown.rstrip().endswith(b"Nothing was changed.")) == (1, True)
    assert b"[y/N]" not in at_terminal(b"n\n", (*words, "--yes"))[1]


def test_to_trust_the_clock_is_asked() -> None:
    """Before a request; a pass without that deletes what a check would delete anyway."""
    words = ("-m", "kafkalog", "retention", "run", "--url", NOBODY)
    code, shown = at_terminal(b"n\n", (*words, "--accept-clock"))
    assert b"all topics? This cannot be undone. [y/N]" in shown
    assert (code, shown.rstrip().endswith(b"Nothing was changed.")) == (1, True)
    for others in (("--accept-clock", "--yes"), ()):
        shown = at_terminal(b"n\n", (*words, *others))[1]
        assert b"[y/N]" not in shown
        assert b"No answer from" in shown


def test_a_script_may_say_either(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").touch()
    for option in ("--execute", "--yes", "-y"):
        done = run("segments", "convert", str(tmp_path), option, "--output", "json")
        assert json.loads(done.stdout)["dry_run"] is False


# ---- output that goes nowhere


def shell(line: str) -> subprocess.CompletedProcess[bytes]:
    """In bash, with ``kafkalog`` as a command; PIPESTATUS is printed last on standard error."""
    program = f'kafkalog() {{ "{sys.executable}" -m kafkalog "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", f'{program}{line}\necho "${{PIPESTATUS[0]}}" >&2'],
        capture_output=True,
        cwd=ROOT,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    "command",
    [
        "kafkalog --help",
        "kafkalog topics -h",
        "kafkalog configs list",
        "kafkalog compat install DIR.bin",
        "kafkalog segments dump DIR",
    ],
)
def test_a_reader_that_has_gone(command: str, tmp_path: Path) -> None:
    """141, as of a program that SIGPIPE ends, without a word."""
    file = tmp_path / f"{0:020}.log"
    file.touch()
    done = shell(f"{command.replace('DIR', str(file))} | true")
    assert done.stderr.splitlines()[-1] in (b"141", b"0")  # 0: it was faster than its reader
    assert done.stderr.splitlines()[:-1] == []


@pytest.mark.parametrize("words", [("configs", "list"), ("compat", "install", "DIR")])
def test_a_closed_pipe_ends_with_141(words: tuple[str, ...], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(
        [sys.executable, "-m", "kafkalog", *(word.replace("DIR", str(tmp_path)) for word in words)],
        stdout=writer,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        _, messages = process.communicate(timeout=60)
    os.close(writer)
    assert (process.returncode, messages) == (141, b"")


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("configs", "list"),
        ("completion", "bash"),
        ("segments", "dump", str(GOLDEN / LOG)),
        ("offline", "scan", str(GOLDEN)),
    ],
)
def test_a_full_device(words: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kafkalog", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            check=False,
            timeout=60,
        )
    reason = b"The output cannot be written: No space left on device."
    remedy = b"Free space there, or write elsewhere."
    assert (done.returncode, done.stderr) == (1, b"Error: %b %b\n" % (reason, remedy))


@pytest.mark.parametrize("tool", [("segments", "dump"), ("compat", "kafka-dump-log", "--files")])
def test_a_file_that_is_not_there(tool: tuple[str, ...]) -> None:
    result = run(*tool, f"/nowhere/{LOG}")
    reason = f"Cannot read /nowhere/{LOG}: No such file or directory. Check the path."
    assert (result.exit_code, result.stderr) == (1, f"Error: {reason}\n")


@pytest.mark.parametrize("module", ["click", "kafkalog.cli.main", "kafkalog.cli.topics"])
def test_an_interrupt_of_an_import_is_quiet(module: str) -> None:
    """A Ctrl-C while the program still loads; the last one is a command's own import."""
    code = f"""
import runpy, sys

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
sys.argv = ["kafkalog", "topics", "list"]
runpy.run_module("kafkalog", run_name="__main__", alter_sys=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    ("failed", "status"), [([], 0), ([False] * 2, 0), ([True, False], 3), ([True] * 2, 1)]
)
def test_partial_failure_means_that_something_was_done(failed: list[bool], status: int) -> None:
    @click.command()
    def work() -> None:
        exit_after(failed)

    assert CliRunner().invoke(work).exit_code == status


# ---- durations and sizes


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Size(min=1), "64MiB", 64 << 20),
        (Size(min=1), "1048576", 1 << 20),
        (Milliseconds(min=0), "30s", 30_000),
        (Milliseconds(min=0), "250", 250),
    ],
)
def test_options_take_units(kind: Size | Milliseconds, text: str, value: int) -> None:
    assert kind.convert(text, None, None) == value


@pytest.mark.parametrize("text", ["64MB", "-1", "1.5", "MiB", "7d"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Size(min=1).convert(text, None, None)


def test_a_closed_output_is_as_good_as_none() -> None:
    """``>&-`` of a shell: the command does its work, without a word and without a stack trace."""
    command = f"'{sys.executable}' -m kafkalog configs list >&-"
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def printed_beside(*numbers: signal.Signals) -> list[str]:
    """What is noted of a record beside which the signals come, and how that ends."""
    ends, noted = consume._Ends(), list[str]()
    try:
        with ends.held():
            for number in numbers:
                ends.handle(number, None)
            noted.append("record")
    except (KeyboardInterrupt, SystemExit) as end:
        noted.append(type(end).__name__)
    return noted


def test_an_interrupt_waits_for_the_record_that_is_printed() -> None:
    """What is printed is also noted, so that it is committed; a second Ctrl-C does not wait."""
    assert printed_beside(signal.SIGINT) == ["record", "KeyboardInterrupt"]
    assert printed_beside(signal.SIGTERM) == ["record", "SystemExit"]
    assert printed_beside(signal.SIGINT, signal.SIGINT) == ["KeyboardInterrupt"]
