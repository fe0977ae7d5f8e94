"""Goal: a daemon whose log starts rot serves no deleted record, deletes no other, and says so.
Method: one daemon, a topic for each way to rot a line of Kafka's file, damaged in one go after a
SIGKILL and again after a clean stop; its answers, its log and its metrics.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.daemon import Daemon

if TYPE_CHECKING:
    from pathlib import Path

LINES = {
    "gone": None,
    "lowered": "lowered 0 1",
    "renamed": "renamee 0 9",
    "numbered": "numbered 1 9",
    "raised": "raised 0 25",
    "above": "above 0 999",
    "whole": "whole 0 9",
}
STARTS = {**dict.fromkeys(LINES, 9), "raised": 25}
TOLD = {"gone", "lowered", "renamed", "numbered", "raised", "above"}


def damage(directory: Path) -> None:
    lines = [line for line in LINES.values() if line is not None]
    text = "".join(f"{line}\n" for line in ["0", str(len(lines)), *lines])
    (directory / "log-start-offset-checkpoint").write_text(text)


def first_offset(daemon: Daemon, topic: str) -> int:
    return int(
        daemon.request("GET", f"/topics/{topic}/partitions/0/offsets").json["beginning_offset"]
    )


def delete(daemon: Daemon, topic: str, offset: int) -> dict[str, Any]:
    partitions = [{"topic": topic, "partition": 0, "offset": offset}]
    body = json.dumps({"partitions": partitions, "version": 1}).encode()
    answer = daemon.request(
        "POST", "/v1/records:delete", body, {"Content-Type": "application/json"}
    )
    assert answer.status == 200, answer.body
    return dict(answer.json)


def told(daemon: Daemon) -> set[str]:
    """Topics of which the log says that their starts contradict; since the last call."""
    lines = [json.loads(line) for line in daemon.log_path.read_text().splitlines() if "{" in line]
    daemon.log_path.write_text("")
    return {
        line["partition"].removesuffix("-0")
        for line in lines
        if line.get("event") == "log_starts_contradict"
    }


def sample(daemon: Daemon, name: str) -> float:
    page = daemon.request("GET", "/metrics").body.decode()
    [line] = [line for line in page.splitlines() if line.startswith(f"{name}{{")]
    return float(line.rpartition(" ")[2])


@pytest.mark.slow
def test_log_starts_that_rot_between_two_lives(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    daemon.start()
    for topic in LINES:
        daemon.create_topic(topic)
        daemon.produce_text(topic, *(f"v{number}" for number in range(40)))
        delete(daemon, topic, 9)
    told(daemon)
    daemon.kill()
    damage(daemon.log_dirs[0])
    daemon.start()
    assert {topic: first_offset(daemon, topic) for topic in LINES} == STARTS
    assert told(daemon) == TOLD
    assert sample(daemon, "kafkalog_log_start_contradictions_total") == len(TOLD)
    assert sample(daemon, "kafkalog_log_starts_disputed") == 1
    assert daemon.stop() == 0
    damage(daemon.log_dirs[0])
    daemon.start()
    assert {topic: first_offset(daemon, topic) for topic in LINES} == STARTS
    assert told(daemon) == TOLD
    delete(daemon, "raised", 25)
    daemon.kill()
    daemon.start()
    assert {topic: first_offset(daemon, topic) for topic in LINES} == STARTS
    assert told(daemon) == set()
    assert daemon.stop() == 0
