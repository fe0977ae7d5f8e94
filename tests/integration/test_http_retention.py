"""Goal: retention is explained, tried and run over HTTP and on the command line, and waits for an
archive where it shall.
Method: a real daemon whose own check never comes; segments of old records; dry runs before runs.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.client import Client, OffsetAboveHighWatermark
from tests.integration.daemon import Daemon
from tests.integration.http_world import append, batch_of, failed_entry, now_ms, refused
from tests.integration.test_cli_over_http import done, run as kafkalog

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.daemon import Answer

SETTINGS = {"log_initial_task_delay_ms": "86400000", "log_cleaner_enable": "false"}
DAY = 86_400_000
HALF_SEGMENT = b"x" * 600_000  # two of them do not fit a segment of 1 MiB


def filled(daemon: Daemon, topic: str, ages_ms: list[int], **configs: str) -> str:
    """A topic with a segment an age; the last one is active."""
    daemon.create_topic(topic, 1, segment_bytes="1048576", **configs)
    for age_ms in ages_ms:
        data = batch_of(HALF_SEGMENT, timestamp_ms=now_ms() - age_ms)
        assert append(daemon, topic, data).status == 200
    return topic


def segments(daemon: Daemon, topic: str) -> Any:
    answer = daemon.request("GET", f"/v1/topics/{topic}/partitions/0/segments")
    assert answer.status == 200, answer.body
    return answer.json


def served(report: Any) -> list[Any]:
    """Without those that wait for their delete-file task."""
    return [each for each in report["segments"] if each["state"] != "deleting"]


def run(daemon: Daemon, **body: object) -> Answer:
    return daemon.request("POST", "/v1/retention:run", body)


def names(*topics: str) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": 0} for topic in topics]


def test_what_a_segment_is(daemon: Daemon) -> None:
    """M28: offsets, sizes, index entries, where its time comes from, its state."""
    report = segments(daemon, filled(daemon, "shown", [DAY, DAY, 0]))
    assert [each["base_offset"] for each in report["segments"]] == [0, 1, 2]
    assert [each["next_offset"] for each in report["segments"]] == [1, 2, 3]
    assert [each["state"] for each in report["segments"]] == ["inactive", "inactive", "active"]
    assert report["size_bytes"] == sum(each["size_bytes"] for each in report["segments"])
    first, last = report["segments"][0], report["segments"][2]
    assert (first["offset_index_entries"], first["offset_index_bytes"]) == (0, 0)
    assert (first["time_index_entries"], first["time_index_bytes"]) == (1, 12)
    assert first["largest_timestamp_source"] == "record"
    assert first["due"]["earliest_ms"] == first["largest_timestamp_ms"] + 7 * DAY + 1
    assert first["due"]["files_gone_ms"] == first["due"]["latest_ms"] + 60_000
    assert last["largest_timestamp_source"] == "record"
    daemon.create_topic("empty")
    (only,) = segments(daemon, "empty")["segments"]
    assert (only["state"], only["keeper"]) == ("active", "empty_active")
    assert only["largest_timestamp_source"] == "file_mtime"
    assert abs(only["largest_timestamp_ms"] - now_ms()) < 60_000
    daemon.create_topic("forever", retention_ms="9223372036854775807")
    assert append(daemon, "forever", batch_of(b"v")).status == 200
    (only,) = segments(daemon, "forever")["segments"]
    assert (only["keeper"], only["due"]) == ("limits", None)


def test_one_partition(daemon: Daemon) -> None:
    """M28: log:retain says it for its partition, by size; all may go, behind a roll."""
    topic = filled(daemon, "one", [0, 0, 0], retention_bytes="0")
    path = f"/v1/topics/{topic}/partitions/0/log:retain"
    dry = daemon.request("POST", path, {"dry_run": True})
    wet = daemon.request("POST", path, {})
    assert (dry.status, wet.status) == (200, 200)
    assert wet.json == {**dry.json, "dry_run": False}
    assert [each["reason"] for each in wet.json["segments"]] == ["size"] * 3
    assert (wet.json["log_start_offset"], wet.json["topic"]) == (3, topic)
    assert [each["base_offset"] for each in served(segments(daemon, topic))] == [3]
    # what is not delete's is left, but for records below the log start
    kept = filled(daemon, "kept", [9 * DAY, 9 * DAY], cleanup_policy="")
    path = f"/v1/topics/{kept}/partitions/0/log:retain"
    for body in (b"{}", None):  # its only field may be left out, and so may the body
        assert daemon.request("POST", path, body).json["segments"] == []
    assert segments(daemon, kept)["segments"][0]["keeper"] == "policy"


def simulate(daemon: Daemon, topic: str, **body: object) -> Answer:
    body.setdefault("horizon_ms", 10 * DAY)
    return daemon.request("POST", "/v1/retention:simulate", {"topic": topic, **body})


def test_each_partition_fails_alone(daemon: Daemon) -> None:
    """M28: unknown topics and partitions, Kafka's own topics: an entry each; the rest is done."""
    filled(daemon, "good", [9 * DAY, 0])
    wanted = [
        *names("good", "nope", "../etc", "__cluster_metadata"),
        {"topic": "good", "partition": 7},
        {"topic": "good", "partition": -1},
    ]
    got = run(daemon, partitions=wanted).json["partitions"]
    assert [each["base_offset"] for each in got[0]["segments"]] == [0]
    failed_entry(got[1], 40401)
    assert (got[2]["error_code"], got[2]["kafka_error"]) == (40002, "INVALID_TOPIC_EXCEPTION")
    assert got[3]["error_code"] == 40002
    failed_entry(got[4], 40402)
    failed_entry(got[5], 40402)


def test_an_accepted_clock(daemon: Daemon) -> None:
    """M28: without a jump it changes nothing; a run says what is held: nothing."""
    daemon.create_topic("clocked")
    reply = daemon.request("POST", "/v1/retention:accept-clock")
    assert (reply.status, reply.json) == (200, {"jump_ms": 0, "partitions": []})
    (entry,) = run(daemon, partitions=names("clocked")).json["partitions"]
    assert (entry["clock_held_segments"], entry["clock_held_bytes"]) == (0, 0)
    refused(daemon.request("GET", "/v1/retention:accept-clock"), 405, 405)


def test_unknown_partitions(daemon: Daemon) -> None:
    """M28: 40401 and 40402, and 404 for what is no partition number."""
    daemon.create_topic("here")
    for topic, partition, code in (("nope", "0", 40401), ("here", "1", 40402), ("here", "x", 404)):
        path = f"/v1/topics/{topic}/partitions/{partition}"
        refused(daemon.request("GET", f"{path}/segments"), 404, code)
        refused(daemon.request("POST", f"{path}/log:retain", {"dry_run": True}), 404, code)
        refused(daemon.request("POST", f"{path}/log:retain", {}), 404, code)
    refused(simulate(daemon, "nope"), 404, 40401)
    refused(simulate(daemon, "here", partition=1), 404, 40402)
    refused(daemon.request("DELETE", "/v1/topics/here/partitions/0/segments"), 405, 405)
    path = "/v1/topics/__cluster_metadata/partitions/0/log:retain"
    refused(daemon.request("POST", path, {}), 400, 40002)


def test_wrong_runs(daemon: Daemon) -> None:
    """M28: no partitions, one twice, no body, another shape."""
    bodies: tuple[object, ...] = (
        {"dry_run": 1},
        {"dryrun": True},
        {"partitions": [{"topic": "t"}]},
        [],
    )
    for body in bodies:
        refused(daemon.request("POST", "/v1/retention:run", body), 422, 422)
    refused(run(daemon, partitions=[]), 400, 40002)
    refused(run(daemon, partitions=names("t", "t")), 400, 40002)
    refused(daemon.request("POST", "/v1/retention:run", b""), 422, 42206)
    refused(daemon.request("GET", "/v1/retention:run"), 405, 405)


def test_wrong_simulations(daemon: Daemon) -> None:
    """M28: configs as topics have them, a horizon, a time with a zone."""
    daemon.create_topic("wrong")
    for configs in ({"retention.byte": "1"}, {"retention.ms": "-2"}, {"retention.ms": "1GB"}):
        refused(simulate(daemon, "wrong", configs=configs), 400, 40002)
    for at in ("", "soon", "2026-01-01T00:00:00", "-5"):
        refused(simulate(daemon, "wrong", at=at), 400, 40002)
    for horizon in (-1, 1 << 63, "30d", None):
        refused(simulate(daemon, "wrong", horizon_ms=horizon), 422, 422)
    refused(simulate(daemon, "wrong", at=-5), 400, 40002)
    refused(simulate(daemon, "wrong", at=True), 422, 422)
    refused(simulate(daemon, "wrong", configs={"retention.ms": 5}), 422, 422)
    (entry,) = simulate(daemon, "wrong", horizon_ms=(1 << 63) - 1).json["partitions"]
    assert (entry["end_ms"], entry["segments"]) == (None, [])


def test_without_a_cleaner_its_orders_are_refused(daemon: Daemon) -> None:
    """Who has everything cleaned is told that nobody cleans, not that there was nothing."""
    daemon.create_topic("dirty", 1, cleanup_policy="compact")
    headers: dict[str, str]
    for headers in ({}, {"Prefer": "respond-async"}):
        for path in ("/v1/cleaner:run", "/v1/topics/dirty/partitions/0/log:clean"):
            answer = daemon.request("POST", path, {}, headers)
            refused(answer, 409, 40910)
            assert "log.cleaner.enable" in answer.json["message"]
    named = {"dry_run": True, "partitions": [{"topic": "dirty", "partition": 0}]}
    (entry,) = daemon.request("POST", "/v1/cleaner:run", named).json["partitions"]
    failed_entry(entry, 40910)


MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def lines(daemon: Daemon, *arguments: str) -> list[str]:
    return done(kafkalog(daemon, "retention", *arguments)).decode().splitlines()


def document(daemon: Daemon, *arguments: str) -> Any:
    return json.loads(done(kafkalog(daemon, "retention", *arguments, "--output", "json")))


def columns(line: str) -> list[str]:
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
        "kept: an older one stays",
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
    assert kafkalog(daemon, "retention", "explain", "nope").returncode == 1
    assert kafkalog(daemon, "retention", "explain", topic, "--partition", "7").returncode == 1


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
    done(kafkalog(daemon, "records", "delete", "--topic", topic, "--before-offset", "1"))
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
    hourly = (*words, "--check-interval", "1h")
    (entry,) = document(daemon, *hourly)["partitions"]
    assert entry["schedule"]["check_interval_ms"] == 3_600_000
    refused(simulate(daemon, topic, horizon_ms=1, check_interval_ms=0), 422, 422)
    compacted = ("simulate", topic, "--horizon", "1d", "--config", "cleanup.policy=compact")
    assert lines(daemon, *compacted)[1].startswith("No check: the log is compacted")
    for status, wrong in (
        (1, ("--config", "retention.ms=soon")),
        (1, ("--config", "no.such=1")),
        (2, ("--at", "soon")),  # an option, so it is said without the daemon
    ):
        result = kafkalog(daemon, "retention", "simulate", topic, "--horizon", "1d", *wrong)
        assert result.returncode == status
        assert b"Error: " in result.stderr


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
    failed = kafkalog(daemon, "retention", "run", topic, "--partition", "5")
    assert failed.returncode == 1
    assert failed.stderr == b"Error: run-5: Topic run has no partition 5\n"
    assert kafkalog(daemon, "retention", "run", "nope").returncode == 1


HELD = {"retention_ms": str(DAY), "archive_hold": "true"}


def raised(daemon: Daemon, topic: str, *entries: dict[str, int]) -> Answer:
    path = f"/v1/topics/{topic}/archived-offsets:raise"
    return daemon.request("POST", path, {"partitions": list(entries)})


def listed(daemon: Daemon, topic: str) -> Any:
    answer = daemon.request("GET", f"/v1/topics/{topic}/archived-offsets")
    assert answer.status == 200, answer.body
    return answer.json["partitions"]


def test_what_is_refused(daemon: Daemon) -> None:
    daemon.create_topic("bounds", 2)
    daemon.produce_text("bounds", "a", "b", query="?partition=0")
    above = raised(daemon, "bounds", {"partition": 0, "offset": 1}, {"partition": 1, "offset": 99})
    refused(above, 416, 41602)
    unknown = raised(daemon, "bounds", {"partition": 0, "offset": 1}, {"partition": 2, "offset": 0})
    refused(unknown, 404, 40402)
    refused(raised(daemon, "nope", {"partition": 0, "offset": 1}), 404, 40401)
    other = {"partitions": [{"partition": 0, "offset": 1}], "topic_id": "A" * 22}
    path = "/v1/topics/bounds/archived-offsets:raise"
    refused(daemon.request("POST", path, other), 404, 40401)
    refused(raised(daemon, "__consumer_offsets", {"partition": 0, "offset": 0}), 400, 40002)
    refused(raised(daemon, "bounds"), 422, 422)
    refused(raised(daemon, "bounds", *[{"partition": 0, "offset": 0}] * 2), 400, 40002)
    refused(raised(daemon, "bounds", {"partition": 0, "offset": -1}), 422, 422)
    refused(daemon.request("GET", "/v1/topics/nope/archived-offsets"), 404, 40401)
    assert [each["archived_offset"] for each in listed(daemon, "bounds")] == [0, 0]


def test_an_archived_offset_survives_a_kill(tmp_path: Path) -> None:
    """M14: and the hold with it."""
    with Daemon(
        tmp_path, log_initial_task_delay_ms="86400000", log_cleaner_enable="false"
    ) as daemon:
        topic = filled(daemon, "kept", [9 * DAY, 8 * DAY, 0], **HELD)
        assert raised(daemon, topic, {"partition": 0, "offset": 1}).status == 200
        daemon.kill()
        daemon.start()
        assert [each["archived_offset"] for each in listed(daemon, topic)] == [1]
        assert run(daemon).json["segments"] == 1
        assert [each["base_offset"] for each in served(segments(daemon, topic))] == [1, 2]


def test_the_client_and_the_command_line(daemon: Daemon) -> None:
    topic = filled(daemon, "typed", [9 * DAY, 8 * DAY, 0], **HELD)
    with Client(f"http://127.0.0.1:{daemon.port}") as client:
        assert client.raise_archived_offsets(topic, {0: 1}) == {0: 1}
        with pytest.raises(OffsetAboveHighWatermark):
            client.raise_archived_offsets(topic, {0: 4})
        # What is held is what the last check found: with one here, a later one finds the same.
        assert run(daemon, partitions=[{"topic": topic, "partition": 0}]).json["segments"] == 1
        entries = client.archived_offsets(topic)
    assert [each["held_segments"] for each in entries] == [1]
    shown = done(kafkalog(daemon, "retention", "archived", topic, "--output", "json"))
    assert json.loads(shown) == {"topic": topic, "partitions": entries}
    step = kafkalog(daemon, "retention", "archived", topic, "--partition", "0", "--raise-to", "2")
    head, row = done(step).decode().splitlines()
    assert head.split()[:3] == ["PARTITION", "ARCHIVED", "OFFSET"]
    assert row.split()[:5] == ["0", "2", "1", "3", "1"]
    explained = done(kafkalog(daemon, "retention", "explain", topic)).decode()
    assert "archive.hold: archived below 2; 0 segments (0 bytes) over the limits kept." in explained
    assert kafkalog(daemon, "retention", "archived", topic, "--raise-to", "2").returncode == 2
