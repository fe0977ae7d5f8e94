"""Goal: a partition that is not served is shown in its place with its reason, everywhere that shows
topics, and what asks about a whole topic does not fail because of it.
Method: a daemon started on a directory in which somebody changed one partition.metadata; HTTP and
the command line beside each other.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import Daemon
from tests.integration.http_world import append, batch_of, failed_entry, refused
from tests.integration.test_cli_over_http import run, run_plain
from tests.integration.test_http_cleaner import order

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "t"
BAD = 1  # of three partitions
STRANGER = "AAAAAAAAAAAAAAAAAAASZw"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Serves partitions 0 and 2 of the topic."""
    maimed = Daemon(tmp_path_factory.mktemp("maimed"))
    maimed.start()
    maimed.create_topic(TOPIC, 3)
    for partition in range(3):
        maimed.produce_text(f"{TOPIC}/partitions/{partition}", "v")
    maimed.stop()
    (maimed.log_dirs[0] / f"{TOPIC}-{BAD}" / "partition.metadata").write_text(
        f"version: 0\ntopic_id: {STRANGER}"
    )
    with maimed:
        yield maimed


def reason(daemon: Daemon) -> str:
    """Why the partition is not served, as everybody is told it."""
    root = daemon.log_dirs[0]
    topic_id = (root / f"{TOPIC}-0" / "partition.metadata").read_text().split()[-1]
    return (
        f"Partition {TOPIC}-{BAD} is out of service: {root}/{TOPIC}-{BAD}/partition.metadata names "
        f"topic id {STRANGER}, but topic {TOPIC} has {topic_id}"
    )


def test_v2_metadata(daemon: Daemon) -> None:
    """M15: -1 leads it, its replica is not in sync, its error beside; alike in all three routes."""
    whole = daemon.request("GET", f"/topics/{TOPIC}").json["partitions"]
    listed = daemon.request("GET", f"/topics/{TOPIC}/partitions").json
    each = [daemon.request("GET", f"/topics/{TOPIC}/partitions/{n}") for n in range(3)]
    assert whole == listed == [answer.json for answer in each]
    sound = {"leader": 1, "replicas": [{"broker": 1, "leader": True, "in_sync": True}]}
    assert listed[0] == {"partition": 0, **sound}
    assert listed[2] == {"partition": 2, **sound}
    bad = listed[BAD]
    assert (bad["partition"], bad["leader"]) == (BAD, -1)
    assert bad["replicas"] == [{"broker": 1, "leader": False, "in_sync": False}]
    failed_entry(bad, 50303)
    assert bad["error"] == reason(daemon)
    refused(daemon.request("GET", f"/topics/{TOPIC}/partitions/3"), 404, 40402)
    refused(daemon.request("GET", f"/topics/{TOPIC}/partitions/{BAD}/offsets"), 503, 50303)


def test_v3_topic(daemon: Daemon) -> None:
    path = f"{daemon.cluster()}/topics"
    topic = daemon.request("GET", f"{path}/{TOPIC}").json
    assert topic == daemon.request("GET", path).json["data"][0]
    (bad,) = topic["offline_partitions"]
    assert bad.pop("partition_id") == BAD
    failed_entry(bad, 50303)
    draft = {"topic_name": "draft", "partitions_count": 2, "validate_only": True}
    assert daemon.request("POST", path, draft).json["offline_partitions"] == []


def test_topics_describe(daemon: Daemon) -> None:
    """M15: Kafka's word for no leader; why, on standard error; exit 0, for it is described."""
    result = run(daemon, "topics", "describe", TOPIC)
    assert result.returncode == 0
    rows = [line.split("\t")[3:] for line in result.stdout.decode().splitlines()[1:]]
    assert rows[BAD] == ["Leader: none", "Replicas: 1", "Isr: ", "Elr: 1", "LastKnownElr: 1"]
    sound = ["Leader: 1", "Replicas: 1", "Isr: 1", "Elr: ", "LastKnownElr: "]
    assert rows[0] == rows[2] == sound
    assert result.stderr.decode() == f"{TOPIC}-{BAD} is not served: {reason(daemon)}\n"
    (document,) = json.loads(run(daemon, "topics", "describe", "--output", "json").stdout)
    assert [each["partition_id"] for each in document["offline_partitions"]] == [BAD]


def test_health_says_how_many(daemon: Daemon) -> None:
    """Exit 0: it is ready, and serves the others."""
    result = run(daemon, "health", "--ready")
    assert result.returncode == 0
    said = result.stdout.decode()
    assert said.startswith("ready; 1 of 3 partitions is out of service: `kafkalog topics list`")
    document = json.loads(run(daemon, "health", "--ready", "--output", "json").stdout)
    assert document == {"state": "ready", "partitions": 2, "offline_partitions": 1}


def test_lost_offsets_are_described(tmp_path: Path) -> None:
    """By the daemon with the topic, and by doctor without one; until the loss is accepted."""
    daemon = Daemon(tmp_path)
    with daemon:
        daemon.create_topic(TOPIC, 1)
        for _ in range(3):
            assert append(daemon, TOPIC, batch_of(b"a", b"b")).status == 200
            order(daemon, f"/v1/topics/{TOPIC}/partitions/0/log:roll", {})
    (daemon.log_dirs[0] / f"{TOPIC}-0" / f"{2:020}.log").unlink()
    advice = "`kafkalog runbooks describe lost-offsets` says what to do"
    with daemon:
        result = run(daemon, "topics", "describe", TOPIC)
        assert result.returncode == 0
        assert result.stderr.decode() == f"{TOPIC}-0 has lost offsets 2 to 3: {advice}.\n"
        table = run(daemon, "topics", "describe", TOPIC, "--output", "table").stdout.decode()
        assert "served, 2 lost" in table
        (entity,) = json.loads(run(daemon, "topics", "describe", TOPIC, "--output", "json").stdout)
        assert entity["lost_ranges"] == [{"partition_id": 0, "first_offset": 2, "last_offset": 3}]
        doctor = ("doctor", "--override", f"log.dirs={daemon.log_dirs[0]}")
        found = run_plain(*doctor)
        assert found.returncode == 1
        assert (
            f"error: {daemon.log_dirs[0]}/{TOPIC}-0: offsets 2 to 3 are lost: {2:020}.log is"
            f" missing; {advice}" in found.stdout.decode().splitlines()
        )
        accepted = run(daemon, "segments", "accept-loss", TOPIC, "0", "2", "3", "--yes")
        assert accepted.returncode == 0
        assert run(daemon, "topics", "describe", TOPIC).stderr == b""
        assert "are lost" not in run_plain(*doctor).stdout.decode()


def test_consume_goes_on_with_the_others(daemon: Daemon) -> None:
    """What is missing is told before the first record, exit 3."""
    result = run(daemon, "consume", TOPIC, "--from-beginning", "-e", "--max-messages", "2")
    assert result.returncode == 3
    assert result.stdout == b"v\nv\n"
    first, last = result.stderr.decode().splitlines()
    assert first == f"Error: {TOPIC}-{BAD}: {reason(daemon)}"
    assert last == "Processed a total of 2 messages"
    alone = run(daemon, "consume", TOPIC, "--partition", str(BAD), "-e")
    assert (alone.returncode, alone.stderr.decode()) == (1, f"Error: {reason(daemon)}\n")


def test_produce_says_that_some_were_not_appended(daemon: Daemon) -> None:
    """Keys of all partitions: those of the bad one are named and counted, exit 3."""
    lines = b"".join(b"%d:v\n" % number for number in range(20))
    result = run(daemon, "produce", TOPIC, "-K", ":", "-v", stdin=lines)
    assert result.returncode == 3
    appended = len(result.stdout.splitlines())
    *reasons, end = result.stderr.decode().splitlines()
    assert 0 < appended < 20
    assert reasons == [f"{TOPIC}: {reason(daemon)} ({20 - appended} records)"]
    assert end == f"Records appended: {appended}, refused: {20 - appended}, unknown: 0"
    alone = run(daemon, "produce", TOPIC, "--partition", str(BAD), stdin=b"v\n")
    assert alone.returncode == 1


@pytest.mark.parametrize(
    "words", [("explain", TOPIC), ("simulate", TOPIC, "--horizon", "1d"), ("run", TOPIC)], ids=str
)
def test_retention_of_the_whole_topic(daemon: Daemon, words: tuple[str, ...]) -> None:
    """M28: the others are answered, the bad one is named, exit 3; asked for alone it is refused."""
    text = run(daemon, "retention", *words)
    assert text.returncode == 3
    assert text.stderr.decode() == f"Error: {TOPIC}-{BAD}: {reason(daemon)}\n"
    if words[0] != "run":  # which prints a row a segment that goes: none
        assert text.stdout.decode().count(f"Topic: {TOPIC}\tPartition: ") == 2
    document = run(daemon, "retention", *words, "--output", "json")
    assert document.returncode == 3
    shown = json.loads(document.stdout)
    entries = shown if isinstance(shown, list) else shown["partitions"]
    assert [entry["partition"] for entry in entries] == [0, 1, 2]
    failed_entry(entries[BAD], 50303)
    assert not any("error" in entries[number] for number in (0, 2))
    alone = run(daemon, "retention", *words, "--partition", str(BAD))
    assert alone.returncode == 1
    assert alone.stderr.decode().endswith(f"{reason(daemon)}\n")


def test_a_wrong_request_fails_whole(daemon: Daemon) -> None:
    """M28: configs that no topic may have are no partition's fault."""
    body = {"topic": TOPIC, "configs": {"retention.ms": "soon"}, "horizon_ms": 1}
    refused(daemon.request("POST", "/v1/retention:simulate", body), 400, 40002)
