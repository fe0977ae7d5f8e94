"""Goal: an archive's progress over HTTP, and retention that waits for it, over a kill as well.
Method: a real daemon whose own check never comes; old segments; the client and the command line.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.client import Client, OffsetAboveHighWatermark
from tests.integration.daemon import Daemon
from tests.integration.http_world import refused
from tests.integration.test_cli_over_http import done
from tests.integration.test_cli_over_http import run as run_cli
from tests.integration.test_http_retention import DAY, filled, run, segments, served

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.daemon import Answer

SETTINGS = {"log_initial_task_delay_ms": "86400000", "log_cleaner_enable": "false"}
HELD = {"retention_ms": str(DAY), "archive_hold": "true"}


def raised(daemon: Daemon, topic: str, *entries: dict[str, int]) -> Answer:
    path = f"/v1/topics/{topic}/archived-offsets:raise"
    return daemon.request("POST", path, {"partitions": list(entries)})


def listed(daemon: Daemon, topic: str) -> Any:
    answer = daemon.request("GET", f"/v1/topics/{topic}/archived-offsets")
    assert answer.status == 200, answer.body
    return answer.json["partitions"]


def test_what_is_refused(daemon: Daemon) -> None:
    """Bounds, unknown names and wrong shapes; nothing of a refused request is done."""
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
    """What a job calls and an operator types."""
    topic = filled(daemon, "typed", [9 * DAY, 8 * DAY, 0], **HELD)
    with Client(f"http://127.0.0.1:{daemon.port}") as client:
        assert client.raise_archived_offsets(topic, {0: 1}) == {0: 1}
        with pytest.raises(OffsetAboveHighWatermark):
            client.raise_archived_offsets(topic, {0: 4})
        # What is held is what the last check found: with one here, a later one finds the same.
        assert run(daemon, partitions=[{"topic": topic, "partition": 0}]).json["segments"] == 1
        entries = client.archived_offsets(topic)
    assert [each["held_segments"] for each in entries] == [1]
    shown = done(run_cli(daemon, "retention", "archived", topic, "--output", "json"))
    assert json.loads(shown) == {"topic": topic, "partitions": entries}
    step = run_cli(daemon, "retention", "archived", topic, "--partition", "0", "--raise-to", "2")
    head, row = done(step).decode().splitlines()
    assert head.split()[:3] == ["PARTITION", "ARCHIVED", "OFFSET"]
    assert row.split()[:5] == ["0", "2", "1", "3", "1"]
    explained = done(run_cli(daemon, "retention", "explain", topic)).decode()
    assert "archive.hold: archived below 2; 0 segments (0 bytes) over the limits kept." in explained
    assert run_cli(daemon, "retention", "archived", topic, "--raise-to", "2").returncode == 2
