"""Goal: an audit line says what its request was about and how it ended, partition by partition.
Method: a daemon's log after requests with ids of their own; every form of an order.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.integration.http_world import append, batch_of, refused
from tests.integration.test_http_console_compaction import posted
from tests.integration.test_http_v3 import cluster

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon


def lines_of(daemon: Daemon, operation: str) -> list[dict[str, Any]]:
    """The audit lines of an operation, oldest first."""
    lines = [
        json.loads(line) for line in daemon.log_path.read_text()[daemon.log_start :].splitlines()
    ]
    return [line for line in lines if line["logger"] == "audit" and line["operation"] == operation]


def filled(daemon: Daemon, topic: str) -> str:
    """A topic of one partition with ten records."""
    daemon.create_topic(topic, 1)
    assert append(daemon, topic, batch_of(*[b"x"] * 10)).status == 200
    return topic


def delete(daemon: Daemon, *entries: tuple[str, int, int]) -> None:
    """The tool's file; 200 whatever becomes of its partitions."""
    partitions = [{"topic": t, "partition": p, "offset": o} for t, p, o in entries]
    answer = daemon.request("POST", "/v1/records:delete", {"partitions": partitions})
    assert answer.status == 200, answer.body


def test_deleted_records(daemon: Daemon) -> None:
    """Goal: topic, partition, offset and the end of each, whichever way they were deleted.
    Method: the tool's file with a partition that fails, v3, the console's form.
    """
    filled(daemon, "gone")
    delete(daemon, ("gone", 0, 3), ("gone", 7, 1))
    (line,) = lines_of(daemon, "deleteRecords")
    failed, done = line["subjects"]
    assert done == {"topic": "gone", "partition": 0, "offset": 3, "low_watermark": 3}
    assert (failed["topic"], failed["partition"], failed["offset"]) == ("gone", 7, 1)
    assert failed["error_code"] == 40402
    assert failed["error"]
    assert (line["status"], line["reason"]) == (200, "1 of 2 failed")
    assert line["subject_count"] == 2

    path = f"{cluster(daemon)}/topics/gone/partitions/0/records:delete"
    assert daemon.request("POST", path, {"offset": 5}).status == 200
    (line,) = lines_of(daemon, "deletePartitionRecords")
    assert line["subjects"] == [{"topic": "gone", "partition": 0, "offset": 5, "low_watermark": 5}]
    assert line["reason"] == ""

    page = "/console/topics/gone/partitions/0/delete-records"
    topic_id = daemon.request("GET", f"{page}.json").json["topic_id"]
    form = {"topic_id": topic_id, "offset": "99", "confirmation": "gone-0"}
    told = refused(posted(daemon, page, form), 416, 41602)
    assert posted(daemon, page, form | {"offset": "7"}).status == 303
    failed_line, line = lines_of(daemon, "consoleDeleteRecordsNow")
    (subject,) = failed_line["subjects"]
    assert (subject["offset"], subject["error_code"]) == (99, 41602)
    assert failed_line["reason"] == told["message"]
    assert line["subjects"] == [{"topic": "gone", "partition": 0, "offset": 7, "low_watermark": 7}]


def test_a_line_is_bounded_and_one(daemon: Daemon) -> None:
    """Twenty subjects, what failed first, then a count; nobody's name forges a line."""
    filled(daemon, "bounded")
    delete(daemon, ("bounded", 0, 1), *(("bounded\n{}", n, 1) for n in range(30)))
    line = lines_of(daemon, "deleteRecords")[-1]
    assert line["subject_count"] == 31
    assert len(line["subjects"]) == 20
    assert all(each["topic"] == "bounded\n{}" for each in line["subjects"])
    assert line["reason"] == "30 of 31 failed"
    answer = daemon.request("POST", "/admin/topics", {"topic_name": "n" * 1_000_000})
    assert answer.status == 400
    line = lines_of(daemon, "createTopicAsBridge")[-1]
    assert line["subjects"] == [{"topic": "n" * 300}]
    assert len(json.dumps(line)) < 2_000


def test_topics_and_their_configs(daemon: Daemon) -> None:
    """Goal: the name of what was made, grown, altered and deleted; values of configs never.
    Method: both ways of creation, then each order, the line of each.
    """
    bridge = {"topic_name": "made", "partitions_count": 2, "configs": {"retention.ms": "77777777"}}
    assert daemon.request("POST", "/admin/topics", bridge).status == 201
    topics = f"{cluster(daemon)}/topics"
    wanted = {"topic_name": "made-3", "partitions_count": 1}
    answer = daemon.request("POST", topics, {**wanted, "validate_only": True})
    assert answer.status == 200
    (line,) = lines_of(daemon, "createTopic")
    assert line["subjects"] == [{"topic": "made-3", "partition_count": 1, "validate_only": True}]
    answer = daemon.request("POST", topics, wanted)
    assert answer.status == 201
    assert daemon.request("PATCH", f"{topics}/made-3", {"partitions_count": 2}).status == 200
    changes = {"data": [{"name": "retention.ms", "value": "88888888"}]}
    assert daemon.request("POST", f"{topics}/made/configs:alter", changes).status == 204
    value = {"value": "99999999"}
    assert daemon.request("PUT", f"{topics}/made/configs/retention.ms", value).status == 204
    hidden = {"data": [{"name": "ssl.keystore.password", "value": "hunter2"}]}
    for path in (f"{topics}/made/configs:alter", f"{cluster(daemon)}/broker-configs:alter"):
        assert daemon.request("POST", path, hidden).status == 400
    assert "ssl.keystore.password" in str(lines_of(daemon, "alterTopicConfigs")[-1]["subjects"])
    assert "hunter2" not in daemon.log_path.read_text()
    assert daemon.request("DELETE", f"{topics}/made").status == 204
    expected = {
        "createTopicAsBridge": {"topic": "made", "partition_count": 2},
        "createTopic": {"topic": "made-3", "partition_count": 1},
        "growTopic": {"topic": "made-3", "partition_count": 2},
        "alterTopicConfigs": {"topic": "made", "config": "retention.ms"},
        "setTopicConfig": {"topic": "made", "config": "retention.ms"},
        "deleteTopic": {"topic": "made"},
    }
    for operation, subject in expected.items():
        line = [each for each in lines_of(daemon, operation) if each["status"] < 400][-1]
        assert line["subjects"] == [subject], operation
        for secret in ("77777777", "88888888", "99999999"):
            assert secret not in json.dumps(line)


def test_groups(daemon: Daemon) -> None:
    """The offsets that were set and the group that was deleted are on record."""
    filled(daemon, "read")
    wanted = {"to": "latest", "topics": ["read"], "dry_run": True}
    path = "/v1/groups/readers/offsets:reset"
    offset = {"topic": "read", "partition": 0, "offset": 4}
    put = daemon.request("PUT", "/v1/groups/readers/offsets", {"offsets": [offset]})
    assert put.status == 204
    assert daemon.request("POST", path, wanted).status == 200
    assert lines_of(daemon, "resetGroupOffsets") == []
    assert daemon.request("POST", path, wanted | {"dry_run": False}).status == 200
    (line,) = lines_of(daemon, "resetGroupOffsets")
    assert line["subjects"] == [
        {"group": "readers", "topic": "read", "partition": 0, "old_offset": 4, "new_offset": 10}
    ]
    assert daemon.request("DELETE", "/v1/groups/readers/offsets?topics=none").status == 200
    assert daemon.request("DELETE", "/v1/groups/readers").status == 204
    assert lines_of(daemon, "deleteGroupOffsets")[-1]["subjects"] == [{"group": "readers"}]
    assert lines_of(daemon, "deleteGroup")[-1]["subjects"] == [{"group": "readers"}]


def test_orders_about_several_partitions(daemon: Daemon) -> None:
    """Goal: retention, cleaner and moves tell each partition's end, and that a run was dry.
    Method: one partition that is there and one that is not, of each order.
    """
    filled(daemon, "kept")
    names = [{"topic": "kept", "partition": number} for number in (0, 9)]
    orders = (
        ("/v1/retention:run", "runRetention", {"partitions": names, "dry_run": True}),
        ("/v1/cleaner:run", "runCleaner", {"partitions": names, "dry_run": True}),
        (
            "/v1/partition-moves",
            "beginPartitionMoves",
            {"moves": [{**name, "log_dir": str(daemon.log_dirs[0])} for name in names]},
        ),
    )
    for path, operation, body in orders:
        answer = daemon.request("POST", path, body)
        assert answer.status == 200, answer.body
        line = lines_of(daemon, operation)[-1]
        named = {each["partition"]: each for each in line["subjects"]}
        assert set(named) == {0, 9}
        assert named[9]["error_code"] == 40402, operation
        assert named[9]["error"]
        assert named[0].get("dry_run", False) is ("dry_run" in body)
        assert line["reason"].endswith("of 2 failed")
    assert daemon.request("POST", "/v1/cleaner:pause", names[1]).status == 404
    assert lines_of(daemon, "pauseCleaning")[-1]["subjects"] == [names[1]]
