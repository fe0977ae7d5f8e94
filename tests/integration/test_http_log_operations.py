"""Goal: an operator sees one log, rolls, flushes and dumps it, and can look later how far it came.
Method: requests to a real daemon; what is on disk is looked at too, the dump beside the command's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from kafkalog import __version__
from kafkalog.server.admin.cleaner import CleaningRunsAnswer
from tests.integration.daemon import ROOT, Daemon
from tests.integration.http_world import Wire, refused, until

SETTINGS = {
    "http_produce_acks": "1",
    "log_retention_ms": "1000",
    "log_initial_task_delay_ms": "86400000",  # only an order retains
}


def path_of(topic: str, rest: str, partition: int = 0) -> str:
    return f"/v1/topics/{topic}/partitions/{partition}/{rest}"


def finished(daemon: Daemon, location: str) -> Any:
    until(lambda: daemon.request("GET", location).json["state"] != "running")
    return daemon.request("GET", location).json


def test_how_a_log_stands(daemon: Daemon) -> None:
    """Three records that nobody synced, before and after a flush and a roll."""
    daemon.create_topic("stands")
    daemon.produce_text("stands", "a", "b", "c")
    shown = daemon.request("GET", path_of("stands", "log")).json
    directory = daemon.log_dirs[0] / "stands-0"
    expected = {
        "topic": "stands",
        "partition": 0,
        "directory": str(directory),
        "log_start_offset": 0,
        "high_watermark": 3,
        "last_stable_offset": 3,
        "log_end_offset": 3,
        "recovery_point": 0,
        "unflushed_records": 3,
        "leader_epoch": 0,
        "size_bytes": (directory / "00000000000000000000.log").stat().st_size,
        "segments": 1,
        "active_base_offset": 0,
        "cleaning": None,
    }
    assert {name: shown[name] for name in expected} == expected
    assert len(shown["topic_id"]) == 22

    flushed = daemon.request("POST", path_of("stands", "log:flush"))
    assert flushed.json == {"topic": "stands", "partition": 0, "recovery_point": 3}
    assert daemon.request("GET", path_of("stands", "log")).json["unflushed_records"] == 0

    rolled = daemon.request("POST", path_of("stands", "log:roll")).json
    assert rolled == {"topic": "stands", "partition": 0, "is_rolled": True, "active_base_offset": 3}
    assert (directory / "00000000000000000003.log").exists()
    again = daemon.request("POST", path_of("stands", "log:roll")).json
    assert (again["is_rolled"], again["active_base_offset"]) == (False, 3)
    assert daemon.request("GET", path_of("stands", "log")).json["segments"] == 2
    daemon.produce_text("stands", "d")
    assert daemon.fetch_all("stands")[-1]["offset"] == 3


def test_one_segment(daemon: Daemon) -> None:
    daemon.create_topic("single", retention_ms="-1")
    daemon.produce_text("single", "a")
    daemon.request("POST", path_of("single", "log:roll"))
    listed = daemon.request("GET", path_of("single", "segments")).json["segments"]
    for entry in listed:
        one = daemon.request("GET", path_of("single", f"segments/{entry['base_offset']}")).json
        assert {name: one[name] for name in entry} == entry
        assert (one["topic"], one["partition"]) == ("single", 0)
    for base in ("7", "x", "-1", "9" * 30):
        refused(daemon.request("GET", path_of("single", f"segments/{base}")), 404, 404)
        refused(daemon.request("GET", path_of("single", f"segments/{base}:dump")), 404, 404)


@pytest.mark.parametrize(
    ("query", "flags"),
    [
        ("", []),
        ("?print_data_log=true", ["--print-data-log"]),
        ("?deep_iteration=true", ["--deep-iteration"]),
    ],
)
def test_a_dump_is_the_commands(daemon: Daemon, query: str, flags: list[str]) -> None:
    """DumpLogSegments' text, line by line."""
    if "dumped" not in daemon.request("GET", "/topics").json:
        daemon.create_topic("dumped", retention_ms="-1")
        daemon.produce_text("dumped", "first", "second")
    answer = daemon.request("GET", path_of("dumped", f"segments/0:dump{query}"))
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    file = daemon.log_dirs[0] / "dumped-0" / "00000000000000000000.log"
    command = [sys.executable, "-m", "kafkalog", "segments", "dump", "--files", str(file), *flags]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    assert answer.body == printed
    head = daemon.request("HEAD", path_of("dumped", f"segments/0:dump{query}"))
    assert (head.status, head.body) == (200, b"")


def children(daemon: Daemon) -> list[str]:
    pid = daemon.pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def wait_for_children(daemon: Daemon, count: int) -> None:
    until(lambda: len(children(daemon)) == count)


def test_dumps_that_nobody_reads(daemon: Daemon) -> None:
    """Two at once, each held back by its reader; who goes away ends its process."""
    daemon.create_topic("long", retention_ms="-1")
    for _ in range(3):
        daemon.produce_text("long", *["x"] * 30_000)
    path = path_of("long", "segments/0:dump?deep_iteration=true")
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with Wire(daemon, receive_bytes=4096) as first, Wire(daemon, receive_bytes=4096) as second:
        first.send(request)
        second.send(request)
        wait_for_children(daemon, 2)
        refused(daemon.request("GET", path), 429, 42902)
    wait_for_children(daemon, 0)
    assert daemon.request("GET", path).status == 200


@pytest.mark.parametrize("rest", ["log", "segments/0", "segments/0:dump"])
def test_unknown_logs(daemon: Daemon, rest: str) -> None:
    refused(daemon.request("GET", path_of("nowhere", rest)), 404, 40401)


def test_unknown_logs_are_not_begun(daemon: Daemon) -> None:
    later = {"Prefer": "respond-async"}
    for rest in ("log:roll", "log:flush", "log:retain"):
        refused(daemon.request("POST", path_of("nowhere", rest), {}, later), 404, 40401)


def test_answers_that_come_later(daemon: Daemon) -> None:
    """Prefer: respond-async: 202, and the operation's result is what the answer would have been."""
    daemon.create_topic("later", retention_ms="-1")
    daemon.produce_text("later", "a")
    wanted: list[tuple[str, object, str, dict[str, object]]] = [
        (path_of("later", "log:roll"), None, "log-roll", {"is_rolled": True}),
        (path_of("later", "log:flush"), None, "log-flush", {"recovery_point": 1}),
        (path_of("later", "log:retain"), {"dry_run": True}, "log-retain", {"dry_run": True}),
        ("/v1/retention:run", {"dry_run": True}, "retention-run", {"dry_run": True}),
    ]
    for path, body, kind, result in wanted:
        headers = {"Prefer": "wait=5, respond-async"}
        answer = daemon.request("POST", path, body, headers)
        assert (answer.status, answer.headers["Preference-Applied"]) == (202, "respond-async")
        assert answer.json["kind"] == kind
        operation = finished(daemon, answer.headers["Location"])
        assert (operation["state"], operation["error"]) == ("succeeded", None)
        assert operation["result"].items() >= result.items()
        listed = daemon.request("GET", "/v1/operations").json["operations"]
        assert operation in listed
    daemon.create_topic("compacted", cleanup_policy="compact")
    two = [{"topic": topic, "partition": 0} for topic in ("compacted", "later")]
    order = {"dry_run": True, "partitions": two}
    answer = daemon.request("POST", "/v1/cleaner:run", order, {"Prefer": "respond-async"})
    assert (answer.status, answer.json["kind"]) == (202, "cleaner-run")
    operation = finished(daemon, answer.headers["Location"])
    assert (operation["state"], operation["error"]) == ("succeeded", None)
    assert operation["progress"] == {"partitions": 2, "partitions_done": 2}
    convert(operation["result"], CleaningRunsAnswer)
    at_once = daemon.request("POST", "/v1/cleaner:run", order).json
    for entries in (operation["result"]["partitions"], at_once["partitions"]):
        assert [each["outcome"] for each in entries] == ["nothing_cleanable", "failed"]
        assert entries[1]["error_code"] == 40907
    twice = {"partitions": two[:1] * 2}
    later = {"Prefer": "respond-async"}
    refused(daemon.request("POST", "/v1/cleaner:run", twice, later), 400, 40002)
    other = path_of("later", "log:clean")
    refused(daemon.request("POST", other, {}, {"Prefer": "respond-async"}), 409, 40907)
    names = {task["name"] for task in daemon.request("GET", "/v1/tasks").json["tasks"]}
    assert {"kafkalog-log-roll", "kafkalog-retention-run"} <= names
    refused(daemon.request("GET", "/v1/operations/no-such"), 404, 404)


def test_what_runs_here(daemon: Daemon) -> None:
    """N14: version, cluster and limits."""
    shown = daemon.request("GET", "/v1/info").json
    assert (shown["name"], shown["version"]) == ("kafkalog", __version__)
    (cluster,) = daemon.request("GET", "/v3/clusters").json["data"]
    assert shown["cluster_id"] == cluster["cluster_id"]
    assert shown["listeners"] == {"http": f"http://127.0.0.1:{daemon.port}"}
    assert shown["limits"]["http.max.streams"] == 1000
    assert shown["phase"] == "serving"
