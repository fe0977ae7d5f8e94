"""Goal: an operator sees the background tasks over HTTP, on the command line and in the metrics.
Method: a real daemon with short periods; the three views of the same facts beside each other.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

from tests.integration.http_world import check_sealed, now_ms
from tests.integration.test_cli_over_http import done, run

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

SETTINGS = {
    "log_initial_task_delay_ms": "50",
    "log_flush_offset_checkpoint_interval_ms": "100",
    "log_flush_scheduler_interval_ms": "9223372036854775806",
    "log_segment_delete_delay_ms": "0",
}
CHECKPOINT = "kafka-recovery-point-checkpoint"
NAMES = [
    "PeriodicProducerExpirationCheck",
    "delete-expired-group-metadata",
    "highwatermark-checkpoint",
    "kafka-delete-logs",
    "kafka-log-flusher",
    "kafka-log-retention",
    "kafka-log-start-offset-checkpoint",
    CHECKPOINT,
    "kafkalog-group-lags",
    "kafkalog-log-dir-metrics",
    "kafkalog-log-metrics",
    "kafkalog-partition-reload",
    "transaction-abort",
    "transactionalId-expiration",
]


def tasks(daemon: Daemon) -> dict[str, dict[str, Any]]:
    answer = daemon.request("GET", "/v1/tasks")
    assert answer.status == 200
    check_sealed(answer)
    assert abs(answer.json["now_ms"] - now_ms()) < 10_000
    names = [entry["name"] for entry in answer.json["tasks"]]
    assert names == sorted(names)
    return {entry["name"]: entry for entry in answer.json["tasks"]}


def when_run(daemon: Daemon, name: str, runs: int) -> dict[str, Any]:
    """The entry once it has that many runs; the test's time bounds it."""
    while (found := tasks(daemon)[name])["runs"] < runs:
        time.sleep(0.02)
    return found


def test_periodic_tasks(daemon: Daemon) -> None:
    """M13: schedule, history and the next run of each; a period of Long.MAX is never due again."""
    started_ms = now_ms()
    entry = when_run(daemon, CHECKPOINT, 3)
    assert (entry["initial_delay_ms"], entry["period_ms"]) == (50, 100)
    assert (entry["failures"], entry["last_error"], entry["last_failure_ms"]) == (0, None, None)
    assert entry["state"] in ("waiting", "running")
    if entry["state"] == "waiting":  # else the last run is the one under way
        assert entry["last_run_ms"] <= entry["last_success_ms"] + 1
    assert entry["last_duration_ms"] >= 0
    found = tasks(daemon)
    assert sorted(found) == NAMES
    never = found["kafka-log-flusher"]
    assert (never["runs"], never["next_run_ms"]) == (1, 2**63 - 1)
    first = found["PeriodicProducerExpirationCheck"]
    assert (first["runs"], first["last_run_ms"], first["last_duration_ms"]) == (0, None, None)
    assert started_ms < first["next_run_ms"] <= now_ms() + first["initial_delay_ms"]


def test_the_command_line(daemon: Daemon) -> None:
    """M13: a table for people, the answer as it is for programs."""
    when_run(daemon, CHECKPOINT, 1)
    document = json.loads(done(run(daemon, "tasks", "list", "--output", "json")))
    assert [entry["name"] for entry in document["tasks"]] == NAMES
    lines = done(run(daemon, "tasks", "list")).decode().splitlines()
    assert lines[0].split("  ")[0] == "TASK"
    assert [line.split()[0] for line in lines[1:]] == NAMES
    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    (line,) = [line for line in lines if line.startswith(CHECKPOINT)]
    pattern = rf"{CHECKPOINT} +(waiting|running) +100 ms +({moment}|-) +{moment} +\d+ ms +\d+ +0"
    assert re.fullmatch(pattern, line), line
    (line,) = [line for line in lines if line.startswith("kafka-log-flusher")]
    assert "  never  " in line
    (line,) = [line for line in lines if line.startswith("kafka-delete-logs")]
    # Each run makes the next before it has ended, so that several can be at their ends at once.
    states = r"(1 waiting|\d+ running(, 1 waiting)?)"
    assert re.match(rf"kafka-delete-logs +{states} +once  ", line), line
