"""Goal: offsets are found and topics trimmed on the command line, with honest exit statuses.
Method: the command tree in process at a real daemon; output compared to the byte.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from kafkalog.client import Client, ProducerRecord
from tests.integration.http_world import end_offset

if TYPE_CHECKING:
    from click.testing import Result

    from tests.integration.daemon import Daemon

SETTINGS = {"log_retention_check_interval_ms": "3600000", "log_retention_ms": "-1"}
MINUTE_MS = 60_000


def run(daemon: Daemon, *words: str) -> Result:
    where = ("--url", f"http://127.0.0.1:{daemon.port}")
    return CliRunner().invoke(make_cli(), [*words, *where])


def fill(daemon: Daemon, topic: str, *minutes: int, partition: int = 0) -> None:
    """A record at each of these minutes since 1970."""
    with Client(f"http://127.0.0.1:{daemon.port}") as client:
        records = [ProducerRecord("v", timestamp_ms=minute * MINUTE_MS) for minute in minutes]
        client.produce(topic, records, partition=partition)


def test_offsets_by_place_and_by_moment(daemon: Daemon) -> None:
    daemon.create_topic("placed", 2)
    fill(daemon, "placed", 1, 5, 3)
    for at, first in (
        ("latest", 3),
        ("earliest", 0),
        ("max-timestamp", 1),
        ("120000", 1),
        ("1970-01-01T00:01:00Z", 0),
        ("1970-01-01T00:01:00.001+00:00", 1),
    ):
        lines = run(daemon, "offsets", "get", "placed", "--at", at).stdout.splitlines()
        second = "none" if at not in ("latest", "earliest") else 0
        assert lines == [f"placed:0:{first}", f"placed:1:{second}"], at
    behind = run(daemon, "offsets", "get", "placed", "--partition", "0", "--at", "9999999")
    assert (behind.exit_code, behind.stdout) == (0, "placed:0:none\n")
    found = run(daemon, "offsets", "get", "placed", "--at", "max-timestamp", "--output", "json")
    assert json.loads(found.stdout) == [
        {"topic": "placed", "partition": 0, "offset": 1, "timestamp": 5 * MINUTE_MS},
        {"topic": "placed", "partition": 1, "offset": None, "timestamp": None},
    ]
    everything = run(daemon, "offsets", "get").stdout.splitlines()
    assert {"placed:0:3", "placed:1:0"} <= set(everything)


def test_offsets_that_cannot_be_had(daemon: Daemon) -> None:
    """Exit 3 when some have an answer, 1 when nothing has, 2 for no moment."""
    daemon.create_topic("some", 1)
    partly = run(daemon, "offsets", "get", "some", "--partition", "0", "--partition", "9")
    assert (partly.exit_code, partly.stdout) == (3, "some:0:0\n")
    assert partly.stderr.startswith("Error: some-9: ")
    assert run(daemon, "offsets", "get", "nope").exit_code == 1
    unknown = run(daemon, "offsets", "get", "some", "--at", "2026-01-31T12:00:00")
    assert unknown.exit_code == 2
    choices = "is not latest, earliest, max-timestamp, ms since 1970 or ISO-8601 with a zone, as "
    assert choices in unknown.stderr


def test_a_trim_is_shown_before_it_is_done(daemon: Daemon) -> None:
    """M10: by moment, over all partitions; nothing goes without --execute."""
    daemon.create_topic("old", 3)
    fill(daemon, "old", 1, 2, 8, 3, 9)
    fill(daemon, "old", 1, 2, partition=1)
    words = ("topics", "trim", "old", "--before-time", str(5 * MINUTE_MS))
    shown = run(daemon, *words)
    table = (
        "TOPIC  PARTITION  LOG-START  NEW-START  OFFSETS DELETED\n"
        "old    0          0          2          2\n"
        "old    1          0          2          2\n"
        "old    2          0          0          0\n"
    )
    assert (shown.exit_code, shown.stdout) == (0, table)
    assert shown.stderr == "Nothing was deleted; add --execute.\n"
    assert len(daemon.fetch_all("old", 0, 0)) == 5
    done = run(daemon, *words, "--execute")
    assert (done.exit_code, done.stdout, done.stderr) == (0, table, "")
    assert len(daemon.fetch_all("old", 0, 2)) == 3  # the older one behind a newer one stayed
    assert end_offset(daemon, "old", 1) == 2
    again = json.loads(run(daemon, *words, "--execute", "--output", "json").stdout)
    starts = [(one["log_start_offset"], one["new_log_start_offset"]) for one in again["partitions"]]
    assert (again["dry_run"], starts) == (False, [(2, 2), (2, 2), (0, 0)])


def test_a_trim_that_fails_partly(daemon: Daemon) -> None:
    """Exit 3 and the reason of each partition that failed; the others are trimmed. 1: none was."""
    daemon.create_topic("uneven", 2)
    fill(daemon, "uneven", 1, 2, 3)
    words = ("topics", "trim", "uneven", "--before-offset", "2", "--execute")
    partly = run(daemon, *words)
    assert partly.exit_code == 3
    assert partly.stdout.splitlines()[1:] == ["uneven  0          0          2          2"]
    assert partly.stderr.startswith("Error: uneven-1: ")
    daemon.create_topic("kept", 1, cleanup_policy="compact")
    with Client(f"http://127.0.0.1:{daemon.port}") as client:
        client.produce("kept", [ProducerRecord("v", "k")] * 2, partition=0)
    refused = run(daemon, "topics", "trim", "kept", "--before-offset", "1", "--execute")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: kept-0: ")


def test_records_are_deleted_by_time(daemon: Daemon) -> None:
    """M10: --before-time finds the offset; a dry run says what would be and deletes nothing."""
    daemon.create_topic("timed")
    fill(daemon, "timed", 1, 2, 8, 9)
    words = ("records", "delete", "--topic", "timed")
    between = ("--before-time", str(5 * MINUTE_MS))
    line = "partition: timed-0\tlow_watermark: 2"
    dry = run(daemon, *words, *between, "--dry-run")
    assert (dry.exit_code, dry.stdout.splitlines()[-1]) == (0, line)
    assert dry.stderr == "Nothing was deleted: this is a dry run.\n"
    assert len(daemon.fetch_all("timed", 0, 0)) == 4
    done = run(daemon, *words, *between)
    assert (done.exit_code, done.stdout, done.stderr) == (0, dry.stdout, "")
    for offset, low_watermark in (("1", 2), ("-1", 4)):
        shown = run(daemon, *words, "--before-offset", offset, "--dry-run", "--output", "json")
        (entry,) = json.loads(shown.stdout)["partitions"]
        assert entry == {"topic": "timed", "partition": 0, "low_watermark": low_watermark}
    beyond = run(daemon, *words, "--before-offset", "5", "--dry-run")
    assert (beyond.exit_code, beyond.stderr) == (
        1,
        "Error: Offset 5 is above the high watermark of timed-0, 4.\n",
    )
    everything = run(daemon, *words, "--before-time", str(60 * MINUTE_MS))
    assert everything.stdout.splitlines()[-1] == "partition: timed-0\tlow_watermark: 4"


@pytest.mark.parametrize(
    "words",
    [
        ("records", "delete", "--topic", "t", "--before-offset", "1", "--before-time", "1"),
        ("records", "delete", "--dry-run"),
        ("topics", "trim", "t"),
        ("topics", "trim", "t", "--before-offset", "1", "--before-time", "1"),
        ("topics", "trim", "t", "--before-offset", "-1"),
        ("topics", "trim", "t", "--before-time", "soon"),
    ],
)
def test_deletions_that_say_no_place(daemon: Daemon, words: tuple[str, ...]) -> None:
    """Wrong usage is status 2 before anything is asked."""
    assert run(daemon, *words).exit_code == 2
