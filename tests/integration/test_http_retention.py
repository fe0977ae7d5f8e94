"""Goal: retention is explained, tried and run over HTTP with the planner's words and numbers.
Method: a real daemon whose own check never comes; segments of old records; its answers beside the
planner on the facts that they name, and what is left after a run beside the dry run before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.http_world import append, batch_of, failed_entry, now_ms, refused

if TYPE_CHECKING:
    from tests.integration.daemon import Answer, Daemon

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
    """The report of partition 0."""
    answer = daemon.request("GET", f"/v1/topics/{topic}/partitions/0/segments")
    assert answer.status == 200, answer.body
    return answer.json


def served(report: Any) -> list[Any]:
    """Without those that wait for their delete-file task."""
    return [each for each in report["segments"] if each["state"] != "deleting"]


def run(daemon: Daemon, **body: object) -> Answer:
    """POST a pass."""
    return daemon.request("POST", "/v1/retention:run", body)


def names(*topics: str) -> list[dict[str, object]]:
    """Partition 0 of each."""
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
    """POST a what-if of ten days."""
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
    failed_entry(got[2], 40401)
    assert got[3]["error_code"] == 40002
    failed_entry(got[4], 40402)
    failed_entry(got[5], 40402)


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


@pytest.mark.parametrize(
    "body",
    [
        {"dry_run": "yes"},
        {"dry_run": 1},
        {"dryrun": True},
        {"partitions": [{"topic": "t"}]},
        {"partitions": [{"topic": "t", "partition": "0"}]},
        {"partitions": "t"},
        [],
    ],
    ids=str,
)
def test_a_run_of_the_wrong_shape(daemon: Daemon, body: object) -> None:
    """M28: 422 names the field; nothing is run."""
    refused(daemon.request("POST", "/v1/retention:run", body), 422, 422)


def test_wrong_runs(daemon: Daemon) -> None:
    """M28: no partitions, one twice, no body."""
    refused(run(daemon, partitions=[]), 400, 40002)
    refused(run(daemon, partitions=names("t", "t")), 400, 40002)
    refused(daemon.request("POST", "/v1/retention:run", b""), 400, 400)
    refused(daemon.request("GET", "/v1/retention:run"), 405, 405)


def test_wrong_simulations(daemon: Daemon) -> None:
    """M28: configs as topics have them, a horizon, a time with a zone."""
    daemon.create_topic("wrong")
    for configs in ({"retention.byte": "1"}, {"retention.ms": "-2"}, {"retention.ms": "1d"}):
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
