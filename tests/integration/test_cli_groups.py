"""Goal: the command line shows groups and sets them back, with honest exit statuses.
Method: the real command in its own process against a real daemon; output compared to the byte.
A member that is interrupted, terminated, or whose reader has gone: commits and members afterwards.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import pytest

from tests.integration.daemon import ROOT, V2, Daemon
from tests.integration.test_cli_over_http import done, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS: dict[str, Any] = {
    "offsets_topic_num_partitions": "3",
    "http_trusted_proxies": "127.0.0.0/8",
}

# A suite that a shell runs in the background hands down that SIGINT is ignored.
CONSUME = ("env", "--default-signal=INT", sys.executable, "-m", "kafkalog", "consume")


def test_the_life_of_a_group(daemon: Daemon) -> None:
    daemon.create_topic("t", 2)
    daemon.produce_text("t", "a", "b", "c")
    end = sum(len(daemon.fetch_all("t", number)) for number in range(2))
    assert end == 3
    full = 0 if daemon.fetch_all("t", 0) else 1
    entry = {"topic": "t", "partition": full, "offset": 1}
    daemon.request("PUT", "/v1/groups/billing/offsets", {"offsets": [entry]})
    daemon.request("POST", "/consumers/billing", {"name": "c1"}, {"Content-Type": V2})
    path = "/consumers/billing/instances/c1"
    assigned = {"partitions": [{"topic": "t", "partition": full}]}
    assert daemon.request("POST", f"{path}/assignments", assigned).status == 204
    assert done(run(daemon, "groups", "list")) == (
        b"GROUP    STATE   MEMBERS\nbilling  Stable  1\n"
    )
    assert done(run(daemon, "groups", "describe", "billing")).decode() == (
        "TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID\n"
        f"t      {full}          1               3               2    c1\n"
    )
    refused = run(daemon, "groups", "delete", "billing")
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert b"The group has 1 member. Delete" in refused.stderr
    daemon.request("DELETE", path)
    shown = run(daemon, "groups", "reset-offsets", "billing", "--to-latest")
    assert shown.returncode == 0
    assert shown.stderr == b"Nothing was changed; add --execute.\n"
    expected = f"TOPIC  PARTITION  OLD-OFFSET  NEW-OFFSET\nt      {full}          1           3\n"
    assert shown.stdout.decode() == expected
    words = ("groups", "reset-offsets", "billing", "--shift-by", "1", "--topic", "t", "--execute")
    partly = run(daemon, *words)
    assert partly.returncode == 3
    assert partly.stderr.decode() == f"Error: t-{1 - full}: t-{1 - full} has no commit to shift\n"
    found = json.loads(done(run(daemon, "groups", "describe", "billing", "--output", "json")))
    assert [each["offset"] for each in found["offsets"]] == [2]
    assert done(run(daemon, "groups", "delete", "billing")) == b"Deleted group billing.\n"
    assert run(daemon, "groups", "describe", "billing").returncode == 1


def test_what_a_reset_takes(daemon: Daemon) -> None:
    """Partitions, the default by its name; an offset that no log has is clipped and said."""
    daemon.create_topic("u", 2)
    daemon.request("POST", "/topics/u/partitions/0", {"records": [{"value": "YQ=="}] * 3})
    reset = ("groups", "reset-offsets", "g")
    nothing = run(daemon, *reset, "--to-latest", "--all-topics", "--dry-run")
    assert nothing.returncode == 1
    assert nothing.stderr == b"Error: Group g has no commit: name topics, --topic orders\n"
    above = run(daemon, *reset, "--to-offset", "9999", "--topic", "u:0", "--execute")
    assert done(above).decode().splitlines()[1:] == ["u      0          -           3"]
    assert above.stderr == b"Offset 9999 is above the end of u-0; 3 is taken\n"
    before = run(daemon, *reset, "--shift-by", "-5", "--dry-run")
    assert before.returncode == 0
    assert before.stderr.splitlines()[0] == b"Offset -2 is before the start of u-0; 0 is taken"


def commits(daemon: Daemon, group: str) -> dict[tuple[str, int], int]:
    found = daemon.request("GET", f"/v1/groups/{group}/offsets").json["offsets"]
    return {(each["topic"], each["partition"]): each["offset"] for each in found}


def wait_for_commits(daemon: Daemon, group: str, expected: dict[tuple[str, int], int]) -> None:
    deadline = time.monotonic() + 60
    while commits(daemon, group) != expected:
        assert time.monotonic() < deadline, commits(daemon, group)
        time.sleep(0.02)  # the test's own pace between two looks


def ended_following(
    daemon: Daemon, *words: str, until: bytes, number: signal.Signals
) -> tuple[int, bytes, bytes]:
    """Status and outputs of a consume that got the signal once it had printed a line."""
    with subprocess.Popen(
        [*CONSUME, *words, "--url", f"http://127.0.0.1:{daemon.port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # communicate knows of no buffer
        env={**os.environ, "PYTHONUNBUFFERED": ""},  # else a record is printed before its page is
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first == until
        process.send_signal(number)
        rest, messages = process.communicate(timeout=30)
    return process.returncode, first + rest, messages


def test_consume_as_a_member_of_a_group(daemon: Daemon) -> None:
    """What was printed is committed, also of a part of a page; the next run goes on behind it."""
    done(run(daemon, "topics", "create", "read", "--partitions", "2"))
    done(run(daemon, "produce", "read", "--partition", "0", stdin=b"a\nb\nc\n"))
    done(run(daemon, "produce", "read", "--partition", "1", stdin=b"d\n"))
    member = ("consume", "read", "--group", "readers", "-e")
    whole = (*member, "--from-beginning")
    first = done(run(daemon, *whole, "--max-messages", "2"))
    assert sum(commits(daemon, "readers").values()) == 2
    assert len(commits(daemon, "readers")) == 2, "also of what was not reached: it is no end"
    rest = done(run(daemon, *member))
    assert sorted((first + rest).splitlines()) == [b"a", b"b", b"c", b"d"]
    assert commits(daemon, "readers") == {("read", 0): 3, ("read", 1): 1}
    late = ("consume", "read", "--group", "late", "-e")
    assert done(run(daemon, *late)) == b"", "the end, for a group without commits"
    assert commits(daemon, "late") == commits(daemon, "readers")
    done(run(daemon, "produce", "read", "--partition", "1", stdin=b"k\n"))
    assert done(run(daemon, *late, "--from-beginning")) == b"k\n"
    json_line = done(run(daemon, *member, "--output", "json"))
    assert json.loads(json_line)["value"] == "k"
    assert commits(daemon, "readers") == {("read", 0): 3, ("read", 1): 2}
    assert daemon.request("GET", "/v1/groups/readers").json["members"] == []
    missing = run(daemon, "consume", "nope", "--group", "readers", "-e")
    assert missing.returncode == 1
    assert b"nope" in missing.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_member_that_is_ended_commits_and_leaves(
    daemon: Daemon, number: signal.Signals, status: int
) -> None:
    group = f"ended-{status}"
    done(run(daemon, "topics", "create", group))
    done(run(daemon, "produce", group, stdin=b"a\nb\n"))
    words = (group, "--group", group, "--from-beginning")
    ended, shown, messages = ended_following(daemon, *words, until=b"a\n", number=number)
    printed = len(shown.splitlines())
    assert (ended, messages) == (status, b"Processed a total of %d messages\n" % printed)
    assert commits(daemon, group) == {(group, 0): printed}
    assert daemon.request("GET", f"/v1/groups/{group}").json["members"] == []


@contextmanager
def member(
    daemon: Daemon, printed: bytes, *words: str
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """A process that reads t as a member of g and has printed a line, and its standard error."""
    command = [*CONSUME, "t", "--group", "g", "--from-beginning", *words]
    with subprocess.Popen(
        [*command, "--url", f"http://127.0.0.1:{daemon.port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as consuming:
        assert consuming.stdout is not None
        assert consuming.stderr is not None
        assert consuming.stdout.readline() == printed
        yield consuming, consuming.stderr


def test_a_member_outlives_a_restart_of_the_daemon(tmp_path: Path) -> None:
    """It joins again and reads on from its commits: each record once, two lines say it."""
    with Daemon(tmp_path, **SETTINGS) as daemon:
        daemon.create_topic("t")
        daemon.produce_text("t", "before")
        with member(daemon, b"before\n", "--max-messages", "2") as (consuming, errors):
            wait_for_commits(daemon, "g", {("t", 0): 1})
            assert daemon.stop() == 0
            told = errors.readline()
            assert told.endswith(
                b"; waiting up to 300 seconds to read on from the commits of the group."
                b" Ctrl-C stops.\n"
            )
            daemon.start()
            daemon.produce_text("t", "after")
            shown, messages = consuming.communicate(timeout=60)
        assert (consuming.returncode, shown) == (0, b"after\n")
        assert messages.decode().splitlines() == [
            "The daemon answers again; reading goes on.",
            "Processed a total of 2 messages",
        ]
        assert commits(daemon, "g") == {("t", 0): 2}
        assert daemon.request("GET", "/v1/groups/g").json["members"] == []


def test_a_member_ends_with_a_daemon_that_stays_away(tmp_path: Path) -> None:
    """Ctrl-C while it is away: there is nothing to leave."""
    with Daemon(tmp_path, **SETTINGS) as daemon:
        daemon.create_topic("t")
        daemon.produce_text("t", "a")
        with member(daemon, b"a\n") as (consuming, errors):
            assert daemon.stop() == 0
            assert b"; waiting up to 300 seconds" in errors.readline()
            consuming.send_signal(signal.SIGINT)
            _, messages = consuming.communicate(timeout=60)
        assert consuming.returncode == 130, messages
        assert messages == b"Processed a total of 1 messages\n"


def test_what_nobody_read_is_not_committed(daemon: Daemon) -> None:
    done(run(daemon, "topics", "create", "unread"))
    done(run(daemon, "produce", "unread", stdin=b"a\n"))
    reader, writer = os.pipe()
    os.close(reader)
    words = ("consume", "unread", "--group", "unread", "--from-beginning", "-e")
    with os.fdopen(writer, "wb") as closed:
        ended = subprocess.run(
            [sys.executable, "-m", "kafkalog", *words, "--url", f"http://127.0.0.1:{daemon.port}"],
            stdout=closed,
            cwd=ROOT,
            check=False,
            timeout=60,
        )
    assert ended.returncode == 141
    assert commits(daemon, "unread") == {("unread", 0): 0}
    assert daemon.request("GET", "/v1/groups/unread").json["members"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "waited, from its end on (--from-beginning prints earlier ones)"),
        (("--from-beginning",), "waited, from its beginning on"),
        (("--offset", "0"), "waited, from offset 0 on"),
        (
            ("--group", "g"),
            "waited, for group g, on from its commits, else from the end (--from-beginning prints "
            "earlier ones)",
        ),
    ],
)
def test_a_person_reads_what_is_waited_for(
    daemon: Daemon, words: tuple[str, ...], said: str
) -> None:
    """Once, on standard error, and only on a terminal: kafka-console-consumer.sh says nothing."""
    run(daemon, "topics", "create", "waited")  # once is enough
    screen, terminal = pty.openpty()
    with subprocess.Popen(
        [*CONSUME, "waited", *words, "--url", f"http://127.0.0.1:{daemon.port}"],
        stdout=subprocess.PIPE,
        stderr=terminal,
        cwd=ROOT,
    ) as process:
        os.close(terminal)
        with open(screen, "rb", buffering=0) as shown:
            lines = shown.read(1000).splitlines()
            process.send_signal(signal.SIGINT)
            process.wait(30)
    assert lines[0].decode() == f"Waiting for records of {said}. Ctrl-C stops."
    assert process.returncode == 130
