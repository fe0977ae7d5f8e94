"""Goal: a compacted topic over HTTP keeps the last record of each key; the cleaner says why not.
Method: a real daemon with small segments; records that supersede each other; orders over HTTP and
by the command line, fetches before and after.
"""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

from msgspec import convert

from kafkalog.server.admin.cleaner import CleanerAnswer, CleaningRunAnswer, CleaningRunsAnswer
from tests.integration.http_world import end_offset, refused
from tests.integration.test_cli_over_http import done
from tests.integration.test_cli_over_http import run as run_cli

if TYPE_CHECKING:
    from tests.integration.daemon import Answer, Daemon

# Nothing is cleaned or retained without an order.
SETTINGS = {"log_cleaner_backoff_ms": "600000", "log_initial_task_delay_ms": "86400000"}
SMALL = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": "2000",
    "min_cleanable_dirty_ratio": "1",
}
BINARY = "application/vnd.kafka.binary.v2+json"


def produce(daemon: Daemon, topic: str, *pairs: tuple[str, str | None]) -> None:
    """A request of records with keys; None deletes."""

    def text(value: str | None) -> str | None:
        return None if value is None else base64.b64encode(value.encode()).decode()

    records = [{"key": text(key), "value": text(value), "partition": 0} for key, value in pairs]
    answer = daemon.request(
        "POST", f"/topics/{topic}", {"records": records}, {"Content-Type": BINARY}
    )
    assert answer.status == 200, answer.body


def filled(daemon: Daemon, topic: str, rounds: int = 30, **configs: str) -> dict[str, str | None]:
    """A topic with so many versions of ten keys, some deleted; the last of each."""
    daemon.create_topic(topic, 1, **{**SMALL, **configs})
    last: dict[str, str | None] = {}
    for number in range(rounds):
        pairs: list[tuple[str, str | None]] = [
            (f"key{each}", None if (number + each) % 10 == 9 else f"value-{number}-{each}")
            for each in range(10)
        ]
        produce(daemon, topic, *pairs)
        last.update(pairs)
    return last


def contents(daemon: Daemon, topic: str) -> list[tuple[int, str, str | None]]:
    """Offset, key and value of every record that a consumer gets."""

    def plain(text: str | None) -> str | None:
        return None if text is None else base64.b64decode(text).decode()

    return [
        (record["offset"], plain(record["key"]) or "", plain(record["value"]))
        for record in daemon.fetch_all(topic)
    ]


def settled(daemon: Daemon) -> None:
    """Until every thread of the cleaner pauses: without an order nothing is looked at then."""
    deadline = time.monotonic() + 60
    while any(
        each["next_turn_ms"] is None
        for each in daemon.request("GET", "/v1/cleaner").json["threads"]
    ):
        assert time.monotonic() < deadline, daemon.log_tail()
        time.sleep(0.02)  # threads of another process


def order(daemon: Daemon, path: str, body: object) -> Answer:
    """A POST to the cleaner."""
    return daemon.request("POST", path, body, timeout=60)


def log_of(daemon: Daemon, topic: str) -> Any:
    """Its entry in the cleaner's report."""
    report = daemon.request("GET", f"/v1/cleaner?topic={topic}").json
    convert(report, CleanerAnswer)
    (entry,) = report["logs"]
    return entry


def test_the_last_value_of_each_key_is_left(daemon: Daemon) -> None:
    """M17: a dry run foretells the clean, the clean keeps offsets, consumers see every final value.

    Produce versions, ask for a dry run, then for the clean; fetch before and after.
    """
    last = filled(daemon, "compacted")
    before, end = contents(daemon, "compacted"), end_offset(daemon, "compacted")
    path = "/v1/topics/compacted/partitions/0/log:clean"
    dry = order(daemon, path, {"dry_run": True}).json
    assert contents(daemon, "compacted") == before
    wet = order(daemon, path, {"dry_run": False}).json
    convert(wet, CleaningRunAnswer)
    assert (dry["outcome"], wet["outcome"]) == ("cleaned", "cleaned")
    for name in ("bytes_before", "bytes_after", "records_before", "records_after", "removed"):
        assert dry[name] == wet[name]
    after = contents(daemon, "compacted")
    assert set(after) <= set(before), "offsets never change"
    assert wet["records_before"] - wet["records_after"] == len(before) - len(after) > 200
    assert {key: value for _, key, value in after} == last
    assert end_offset(daemon, "compacted") == end
    assert log_of(daemon, "compacted")["checkpoint"] == wet["end_offset"]
    for body in (b"{}", None):
        again = order(daemon, path, body).json
        assert again["outcome"] == "nothing_cleanable"
    daemon.stop()
    daemon.start()
    assert contents(daemon, "compacted") == after


def test_refusals(daemon: Daemon) -> None:
    """M28: unknown names, topics that are not compacted and wrong bodies have their numbers."""
    daemon.create_topic("plain", 1)
    path = "/v1/topics/{}/partitions/{}/log:clean"
    refused(order(daemon, path.format("plain", 0), {}), 409, 40907)
    refused(order(daemon, path.format("nowhere", 0), {}), 404, 40401)
    refused(order(daemon, path.format("plain", 7), {}), 404, 40402)
    refused(order(daemon, path.format("plain", 0), {"dry": True}), 422, 422)
    refused(daemon.request("GET", "/v1/cleaner?topic=nowhere"), 404, 40401)
    name = {"topic": "plain", "partition": 0}
    refused(order(daemon, "/v1/cleaner:run", {"partitions": [name, name]}), 400, 40002)
    run = order(daemon, "/v1/cleaner:run", {"partitions": [name]}).json
    convert(run, CleaningRunsAnswer)
    assert run["partitions"][0]["error_code"] == 40907


def test_the_command_line(daemon: Daemon) -> None:
    """M28: plan, run, status and retry say what the daemon says.

    The real command against it, as text and as JSON.
    """
    last = filled(daemon, "by-hand")
    planned = done(run_cli(daemon, "compact", "plan", "by-hand")).decode()
    head, row = planned.splitlines()
    assert head.split()[:4] == ["PARTITION", "DIRTY", "NEEDS", "RANK"]
    assert row.split()[:3] == ["by-hand-0", "100.0%", "100.0%"]
    runs = json.loads(done(run_cli(daemon, "compact", "run", "by-hand", "--output", "json")))
    assert runs[0]["outcome"] == "cleaned"
    assert row.split()[4:8] == [
        str(runs[0][name])
        for name in ("bytes_before", "bytes_after", "records_before", "records_after")
    ]
    assert {key: value for _, key, value in contents(daemon, "by-hand")} == last
    status = done(run_cli(daemon, "compact", "status", "by-hand")).decode()
    assert "kafka-log-cleaner-thread-0" in status
    assert "by-hand-0" in status
    assert done(run_cli(daemon, "compact", "retry")).decode() == "No partition has failed.\n"
    idle = done(run_cli(daemon, "compact", "plan", "by-hand")).decode()
    assert "nothing: what is dirty is active" in idle


def test_what_a_clean_leaves_in_metrics_and_log(daemon: Daemon) -> None:
    """M26: the native set and Kafka's names agree, and the log has Kafka's sentences."""
    filled(daemon, "measured")
    order(daemon, "/v1/topics/measured/partitions/0/log:clean", {})
    page = daemon.request("GET", "/metrics").body.decode()
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    assert float(values['kafkalog_cleaner_read_bytes_total{topic="measured"}']) > 0
    removed = 'kafkalog_cleaner_records_removed_total{reason="superseded",topic="measured"}'
    assert float(values[removed]) > 100
    thread = '{thread="kafka-log-cleaner-thread-0"}'
    assert float(values[f"kafkalog_cleaner_thread_up{thread}"]) == 1
    phases = [
        f'{{phase="{name}",thread="kafka-log-cleaner-thread-0"}}' for name in ("copy", "swap")
    ]
    assert all(float(values[f"kafkalog_cleaner_phase_seconds_total{each}"]) > 0 for each in phases)
    where = '{partition="0",topic="measured"}'
    assert float(values[f"kafkalog_cleaner_tombstone_batches{where}"]) > 0
    horizon = float(values[f"kafkalog_cleaner_next_horizon_timestamp_seconds{where}"])
    assert abs(horizon - time.time() - 86_400) < 600  # delete.retention.ms
    assert float(values["kafka_log_logcleaner_deadthreadcount"]) == 0
    ratio = float(values[f"kafkalog_cleaner_map_utilization_ratio{thread}"])
    percent = float(values["kafka_log_logcleaner_max_buffer_utilization_percent"])
    assert percent == int(100 * ratio)
    assert "kafka_log_logcleanermanager_time_since_last_run_ms" in values
    assert f"kafkalog_thread_heartbeat_timestamp_seconds{thread}" in values
    log = daemon.log_path.read_text()
    for words in (
        "Log cleaner thread 0 cleaned log measured-0 (dirty section = [0, ",
        "MB of log processed in",
        "Buffer utilization: ",
        "% size reduction (",
    ):
        assert words in log
