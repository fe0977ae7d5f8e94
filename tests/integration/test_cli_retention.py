"""Goal: the command line says what the daemon says about retention, as text and as JSON.
Method: the real command in its own process; its text read back beside the answer over HTTP.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tests.integration.http_world import now_ms
from tests.integration.test_cli_over_http import done, run
from tests.integration.test_http_retention import DAY, filled, segments, served

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

SETTINGS = {"log_initial_task_delay_ms": "86400000", "log_cleaner_enable": "false"}
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def lines(daemon: Daemon, *arguments: str) -> list[str]:
    """What ``kafkalog retention`` prints."""
    return done(run(daemon, "retention", *arguments)).decode().splitlines()


def document(daemon: Daemon, *arguments: str) -> Any:
    """The same as JSON."""
    return json.loads(done(run(daemon, "retention", *arguments, "--output", "json")))


def columns(line: str) -> list[str]:
    """Cells of a table's line."""
    return re.split(r" {2,}", line)


def test_explain(daemon: Daemon) -> None:
    """M28: a line a segment: the rule or the keeper, the bytes, the three moments."""
    topic = filled(daemon, "explained", [8 * DAY, DAY, 0], retention_bytes="1900000")
    head, checks, names, *rows = lines(daemon, "explain", topic)
    size = segments(daemon, topic)["size_bytes"]
    assert head == (
        f"Topic: {topic}\tPartition: 0\tLogStartOffset: 0\tHighWatermark: 3\tLogEndOffset: 3"
        f"\tSize: {size}"
    )
    assert re.fullmatch(
        f"Checks: next at {MOMENT}, then every 300000 ms; files are deleted 60000 ms later\\.",
        checks,
    )
    assert columns(names)[:6] == ["SEGMENT", "NEXT", "BYTES", "NEWEST", "STATE", "WHY"]
    assert columns(names)[6:] == ["BYTES UNTIL", "EARLIEST", "LATEST", "FILES GONE"]
    cells = [columns(row) for row in rows]
    assert [row[:2] for row in cells] == [["0", "1"], ["1", "2"], ["2", "3"]]
    assert [row[4] for row in cells] == ["inactive", "inactive", "active"]
    assert [row[5] for row in cells] == [
        "deleted by time",
        "kept: inside the limits",
        "kept: older one retained",
    ]
    assert cells[0][6] == "-"
    assert int(cells[1][6]) > 0
    for row in cells:
        for moment in (row[3], *row[7:]):
            assert re.fullmatch(MOMENT, moment)
        assert row[7] <= row[8] < row[9]
    (report,) = document(daemon, "explain", topic, "--partition", "0")
    (again,) = document(daemon, "explain", topic)
    for each in (report, again):
        assert [s["base_offset"] for s in each["segments"]] == [0, 1, 2]
    assert run(daemon, "retention", "explain", "nope").returncode == 1
    assert run(daemon, "retention", "explain", topic, "--partition", "7").returncode == 1


def test_explain_where_no_record_has_a_time(daemon: Daemon) -> None:
    """M28: what the time rule counts from is told to be the file's; a log start in the middle."""
    daemon.create_topic("timeless")
    _, _, _, empty = lines(daemon, "explain", "timeless")
    cells = columns(empty)
    assert re.fullmatch(f"{MOMENT} \\(file\\)", cells[3])
    assert cells[4:] == ["active", "kept: active and empty", "-", "-", "-", "-"]
    topic = filled(
        daemon, "middle", [3 * DAY, 2 * DAY, -5 * DAY], message_timestamp_after_max_ms=str(9 * DAY)
    )
    done(run(daemon, "records", "delete", "--topic", topic, "--before-offset", "1"))
    head, _, _, first, second, future = lines(daemon, "explain", topic)
    assert "\tLogStartOffset: 1\t" in head
    assert columns(first)[5] == "deleted by start_offset"
    assert columns(second)[5] == "kept: inside the limits"
    assert columns(future)[7] > columns(second)[7], "a week behind a record of next week"


def test_simulate(daemon: Daemon) -> None:
    """M28: segment, reason, bytes, earliest, latest; configs are laid over the topic's."""
    topic = filled(daemon, "whatif", [3 * DAY, DAY, 0])
    size = segments(daemon, topic)["segments"][0]["size_bytes"]
    words = ("simulate", topic, "--config", "retention.ms=86400000", "--horizon", "30h")
    head, _, names, *rows, last = lines(daemon, *words)
    assert re.fullmatch(f"Topic: {topic}\tPartition: 0\tFrom: {MOMENT}\tTo: {MOMENT}", head)
    assert columns(names) == ["SEGMENT", "REASON", "BYTES", "EARLIEST", "LATEST", "FILES GONE"]
    cells = [columns(row) for row in rows]
    assert [row[:3] for row in cells] == [[str(n), "time", str(size)] for n in range(3)]
    assert all(row[3] <= row[4] < row[5] for row in cells)
    assert last == f"3 segments ({3 * size} bytes) deleted, 1 segment (0 bytes) retained."
    *_, last = lines(daemon, "simulate", topic, "--horizon", "1h")
    assert last == f"0 segments (0 bytes) deleted, 3 segments ({3 * size} bytes) retained."
    at = str(now_ms() + 30 * DAY)
    later = ("--at", at, "--partition", "0")
    (entry,) = document(daemon, "simulate", topic, "--horizon", "1d", *later)["partitions"]
    assert [each["base_offset"] for each in entry["segments"]] == [0, 1, 2]
    compacted = ("simulate", topic, "--horizon", "1d", "--config", "cleanup.policy=compact")
    assert lines(daemon, *compacted)[1].startswith("No check: the log is compacted")
    for wrong in (("--config", "retention.ms=soon"), ("--config", "no.such=1"), ("--at", "soon")):
        result = run(daemon, "retention", "simulate", topic, "--horizon", "1d", *wrong)
        assert result.returncode == 1
        assert result.stderr.startswith(b"Error: ")


def test_run(daemon: Daemon) -> None:
    """M28: the dry run names what the run deletes; exit 3 when a partition failed."""
    topic = filled(daemon, "run", [9 * DAY, 8 * DAY, 0])
    size = segments(daemon, topic)["segments"][0]["size_bytes"]
    names, *dry, said = lines(daemon, "run", topic, "--dry-run")
    assert columns(names) == ["PARTITION", "SEGMENT", "REASON", "BYTES"]
    assert [columns(row) for row in dry] == [
        ["run-0", str(base), "time", str(size)] for base in (0, 1)
    ]
    assert said == f"2 segments ({2 * size} bytes) would be deleted."
    assert document(daemon, "run", "--dry-run")["segments"] >= 2
    assert len(served(segments(daemon, topic))) == 3
    assert lines(daemon, "run", topic) == [names, *dry, f"2 segments ({2 * size} bytes) deleted."]
    assert [each["base_offset"] for each in served(segments(daemon, topic))] == [2]
    explained = lines(daemon, "explain", topic)
    assert sum("deleting" in line for line in explained) == 2
    assert lines(daemon, "run", topic, "--partition", "0") == ["0 segments (0 bytes) deleted."]
    failed = run(daemon, "retention", "run", topic, "--partition", "5")
    assert failed.returncode == 3
    assert failed.stderr == b"Error: run-5: Topic run has no partition 5\n"
    assert run(daemon, "retention", "run", "nope").returncode == 1
