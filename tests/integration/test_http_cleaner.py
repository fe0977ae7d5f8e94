"""Goal: a compacted topic over HTTP keeps the last record of each key, also when something changes
in the middle of a clean; orders to the cleaner do what they say.
Method: a real daemon with small segments; records that supersede each other; orders over HTTP and
by the command line, fetches before and after.
"""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import convert

from kafkalog.server.admin.cleaner import CleanerAnswer, CleaningRunAnswer, CleaningRunsAnswer
from tests.integration.http_world import delete_records, end_offset, refused, until
from tests.integration.test_cli_over_http import done, run as run_cli

if TYPE_CHECKING:
    from collections.abc import Iterator

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

    def is_settled() -> bool:
        threads = daemon.request("GET", "/v1/cleaner").json["threads"]
        return all(each["next_turn_ms"] is not None for each in threads)

    until(is_settled)


def order(daemon: Daemon, path: str, body: object) -> Answer:
    return daemon.request("POST", path, body, timeout=60)


def log_of(daemon: Daemon, topic: str) -> Any:
    report = daemon.request("GET", f"/v1/cleaner?topic={topic}").json
    convert(report, CleanerAnswer)
    (entry,) = report["logs"]
    return entry


def test_the_last_value_of_each_key_is_left(daemon: Daemon) -> None:
    """M17: a dry run foretells the clean, it keeps offsets, consumers see each last value."""
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
    daemon.create_topic("uncompacted", 1)
    path = "/v1/topics/{}/partitions/{}/log:clean"
    refused(order(daemon, path.format("uncompacted", 0), {}), 409, 40907)
    refused(order(daemon, path.format("nowhere", 0), {}), 404, 40401)
    refused(order(daemon, path.format("uncompacted", 7), {}), 404, 40402)
    refused(order(daemon, path.format("uncompacted", 0), {"dry": True}), 422, 422)
    refused(daemon.request("GET", "/v1/cleaner?topic=nowhere"), 404, 40401)
    name = {"topic": "uncompacted", "partition": 0}
    refused(order(daemon, "/v1/cleaner:run", {"partitions": [name, name]}), 400, 40002)
    run = order(daemon, "/v1/cleaner:run", {"partitions": [name]}).json
    convert(run, CleaningRunsAnswer)
    assert run["partitions"][0]["error_code"] == 40907


def test_the_command_line(daemon: Daemon) -> None:
    """M28: plan, run, status and retry say what the daemon says."""
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
    where = '{partition="0",topic="measured"}'
    assert float(values[f"kafkalog_cleaner_tombstone_batches{where}"]) > 0
    horizon = float(values[f"kafkalog_cleaner_next_horizon_timestamp_seconds{where}"])
    assert abs(horizon - time.time() - 86_400) < 600  # delete.retention.ms
    ratio = float(values[f"kafkalog_cleaner_map_utilization_ratio{thread}"])
    percent = float(values["kafka_log_logcleaner_max_buffer_utilization_percent"])
    assert percent == int(100 * ratio)
    log = daemon.log_path.read_text()
    for words in (
        "Log cleaner thread 0 cleaned log measured-0 (dirty section = [0, ",
        "MB of log processed in",
        "Buffer utilization: ",
        "% size reduction (",
    ):
        assert words in log


# Nothing is cleaned or retained without an order.

CRAWL = "2000"  # the topics have about 50,000 bytes, and each is read twice: most of a minute
ROUNDS, KEYS = 120, 10
SECONDS = 30


def alter(daemon: Daemon, **values: str | None) -> None:
    """Dynamic broker configs; underscores for dots, None takes one back."""
    entries = [
        {"name": key.replace("_", "."), "operation": "DELETE"}
        if value is None
        else {"name": key.replace("_", "."), "value": value}
        for key, value in values.items()
    ]
    path = f"{daemon.cluster()}/broker-configs:alter"
    answer = daemon.request("POST", path, {"data": entries})
    assert answer.status == 204, answer.body


@pytest.fixture
def crawling(daemon: Daemon) -> Iterator[Daemon]:
    """The daemon with a cleaner that takes many seconds for a topic; fast again afterwards."""
    alter(daemon, log_cleaner_io_max_bytes_per_second=CRAWL)
    yield daemon
    alter(daemon, log_cleaner_io_max_bytes_per_second=None, log_cleaner_threads=None)


def begin_clean(daemon: Daemon, topic: str) -> str:
    """Order a clean and return when a thread is in the middle of it; where its operation is."""
    path = f"/v1/topics/{topic}/partitions/0/log:clean"
    answer = daemon.request("POST", path, {}, {"Prefer": "respond-async"})
    assert answer.status == 202, answer.body
    until(lambda: log_of(daemon, topic)["state"] == "in_progress", "no thread took the log")
    return answer.headers["Location"]


def ended(daemon: Daemon, where: str) -> Any:
    until(lambda: daemon.request("GET", where).json["state"] != "running")
    return daemon.request("GET", where).json


def cleaned(daemon: Daemon, topic: str) -> Any:
    """The answer of a clean by order, behind those that the threads begin by themselves."""
    deadline = time.monotonic() + SECONDS
    path = f"/v1/topics/{topic}/partitions/0/log:clean"
    while (run := order(daemon, path, {})).status == 409:
        assert time.monotonic() < deadline, run.body
        time.sleep(0.05)
    assert run.status == 200, run.body
    return run.json


def check_every_key(daemon: Daemon, topic: str, last: dict[str, str | None], start: int) -> None:
    """A consumer that applies what it reads has the last value of each key."""
    found: dict[str, str | None] = {}
    for offset, key, value in contents(daemon, topic):
        assert offset >= start
        found[key] = value
    gone = last.keys() - found.keys()
    assert all(last[key] is None for key in gone), "only a deleted key may be missing"
    assert all(last[key] == value for key, value in found.items())


def test_records_are_deleted_in_the_middle_of_a_clean(crawling: Daemon) -> None:
    """M10 M17: as in Kafka the log start moves at once; the clean goes on or begins again.
    Delete-records waits for no clean, and a clean brings nothing back.
    """
    daemon = crawling
    last = filled(daemon, "cut", ROUNDS, cleanup_policy="compact,delete")
    middle = end_offset(daemon, "cut") // 2
    where = begin_clean(daemon, "cut")
    began = time.monotonic()
    (entry,) = delete_records(daemon, ("cut", 0, middle))
    assert entry["low_watermark"] == middle
    assert time.monotonic() - began < 15, "it waited for the clean"
    check_every_key(daemon, "cut", last, middle)
    path = "/v1/topics/cut/partitions/0/log:clean"
    refused(order(daemon, path, {}), 409, 40910)  # at once: there is one thread, and it is busy
    assert daemon.request("GET", where).json["state"] == "running"
    alter(daemon, log_cleaner_io_max_bytes_per_second=None)
    ended(daemon, where)
    check_every_key(daemon, "cut", last, middle)
    cleaned(daemon, "cut")
    check_every_key(daemon, "cut", last, middle)
    assert log_of(daemon, "cut")["failure"] is None


def test_a_topic_is_no_longer_compacted_in_the_middle_of_a_clean(crawling: Daemon) -> None:
    """M16 M17: the clean ends before the answer, and leaves no file behind. From the answer on
    nobody compacts the log. What it had replaced before stays so.
    """
    daemon = crawling
    last = filled(daemon, "turned", ROUNDS)
    before = contents(daemon, "turned")
    where = begin_clean(daemon, "turned")
    path = f"{daemon.cluster()}/topics/turned/configs:alter"
    change = {"data": [{"name": "cleanup.policy", "value": "delete"}]}
    assert daemon.request("POST", path, change).status == 204
    left = contents(daemon, "turned")
    operation = ended(daemon, where)  # of which a thread of its own tells, a moment after the clean
    assert (operation["state"], operation["error"]["error_code"]) == ("failed", 40910)
    assert daemon.request("GET", "/v1/cleaner?topic=turned").json["logs"] == []
    directory = daemon.log_dirs[0] / "turned-0"
    assert not list(directory.glob("*.cleaned"))
    assert contents(daemon, "turned") == left
    assert set(left) <= set(before)
    check_every_key(daemon, "turned", last, 0)
    change["data"][0]["value"] = "compact"
    assert daemon.request("POST", path, change).status == 204
    alter(daemon, log_cleaner_io_max_bytes_per_second=None)
    assert cleaned(daemon, "turned")["outcome"] == "cleaned"
    check_every_key(daemon, "turned", last, 0)


def test_the_number_of_threads_changes_in_the_middle_of_a_clean(crawling: Daemon) -> None:
    """M17: all threads begin afresh, as in Kafka; the log that was in work is cleaned by the next.
    The change is in force on its answer, and the clean in work costs nothing but its time.
    """
    daemon = crawling
    last = filled(daemon, "shared", ROUNDS)
    where = begin_clean(daemon, "shared")
    alter(daemon, log_cleaner_threads="2")
    operation = ended(daemon, where)
    assert (operation["state"], operation["error"]["error_code"]) == ("failed", 40910)
    threads = daemon.request("GET", "/v1/cleaner").json["threads"]
    assert [thread["alive"] for thread in threads] == [True, True]
    assert log_of(daemon, "shared")["state"] == "none"
    assert log_of(daemon, "shared")["failure"] is None, "an abort is no failure"
    check_every_key(daemon, "shared", last, 0)
    alter(daemon, log_cleaner_io_max_bytes_per_second=None)
    assert cleaned(daemon, "shared")["outcome"] == "cleaned"
    assert len(contents(daemon, "shared")) < ROUNDS * KEYS / 2
    check_every_key(daemon, "shared", last, 0)


__all__ = ["SETTINGS"]  # of the daemon fixture

ALTER = "kafkalog configs alter plain --config cleanup.policy=compact"


def test_pause_and_resume(daemon: Daemon) -> None:
    """M17 M28: pauses add up, each is taken back by itself; a plan is made meanwhile. The whole of
    a pause can be done by hand.
    """
    filled(daemon, "held")
    assert done(run_cli(daemon, "compact", "pause", "held")) == b"held-0 is paused(1).\n"
    paused = done(
        run_cli(daemon, "compact", "pause", "held", "--partition", "0", "--output", "json")
    )
    assert json.loads(paused) == [{"topic": "held", "partition": 0, "state": "paused", "pauses": 2}]
    planned = done(run_cli(daemon, "compact", "plan", "held")).decode().splitlines()[1]
    assert planned.endswith("  paused")
    assert planned.split()[4].isdigit(), "a dry run has its figures"
    refused = run_cli(daemon, "compact", "run", "held")
    assert refused.returncode == 1
    assert b"held-0: The cleaning of held-0 is paused(2)" in refused.stderr
    assert done(run_cli(daemon, "compact", "resume", "held")) == b"held-0 is paused(1).\n"
    assert done(run_cli(daemon, "compact", "resume", "held")) == b"held-0 may be cleaned.\n"
    again = run_cli(daemon, "compact", "resume", "held")
    assert again.returncode == 1
    assert b"No partition of topic held was paused by an operator." in again.stderr
    assert done(run_cli(daemon, "compact", "abort", "held")) == b"held-0 may be cleaned.\n"
    assert log_of(daemon, "held")["pauses"] == 0


def test_a_topic_that_is_not_compacted(daemon: Daemon) -> None:
    """M28: every command that names one says how to have it compacted. The message is a remedy."""
    daemon.create_topic("plain")
    for verb in ("plan", "run", "pause", "resume", "abort", "retry"):
        refused = run_cli(daemon, "compact", verb, "plain")
        assert refused.returncode == 1
        said = refused.stderr.decode()
        assert "Topic plain is not compacted, or none of its partitions is served." in said
        assert said.endswith(f"To compact it: {ALTER}\n")
    assert ALTER in done(run_cli(daemon, "compact", "status", "plain")).decode()
    filled(daemon, "one", rounds=1)
    beyond = run_cli(daemon, "compact", "run", "one", "--partition", "7")
    assert beyond.returncode == 1
    assert b"Topic one has no partition 7, or it is not served." in beyond.stderr


def test_the_last_clean_of_a_thread_says_how_it_ended(daemon: Daemon) -> None:
    """M17 M28: a clean that failed does not pass for one that was made. The moment of a failed
    clean carries its outcome and its log.
    """
    filled(daemon, "bent")
    first = daemon.log_dirs[0] / "bent-0" / f"{0:020d}.log"
    with first.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    failed = run_cli(daemon, "compact", "run", "bent")
    assert failed.returncode == 1
    status = done(run_cli(daemon, "compact", "status", "bent")).decode()
    (thread,) = [line for line in status.splitlines() if line.startswith("kafka-log-cleaner")]
    assert " (failed bent-0)  " in thread
    (row,) = [line for line in status.splitlines() if line.startswith("bent-0  ")]
    assert row.split()[-2:] == ["-", "CorruptBatch"]
