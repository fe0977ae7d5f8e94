"""Goal: rot, a missing directory or a deleted file costs no neighbour its service, moves, deletes
or revives no record, and is said with the command that helps.
Method: bytes and files changed between the lives of real daemons; every route is asked.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.__main__ import UNUSABLE_LOG_DIRS_EXIT
from kafkalog.client import Client, InvalidRequest
from tests.integration.daemon import BINARY, START_SECONDS, Daemon
from tests.integration.http_world import (
    append,
    batch_of,
    delete_records,
    end_offset,
    read_batches,
    refused,
    until,
)
from tests.integration.test_cli_over_http import run_plain
from tests.partition_world import records_of

if TYPE_CHECKING:
    from pathlib import Path


def flip(path: Path, position: int) -> bytes:
    """The bytes that the file has then."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    return bytes(data)


def probe(daemon: Daemon) -> dict[str, str]:
    """What /readyz says; nothing while the port is not open yet."""
    try:
        answer: dict[str, str] = daemon.request("GET", "/readyz").json
    except OSError:
        return {}
    return answer


def test_bits_of_both_files(tmp_path: Path) -> None:
    """Repaired beside a whole directory; without one the daemon ends and the doctor helps."""
    daemon = Daemon(tmp_path, log_dirs=2)
    with daemon:
        daemon.create_topic("t", 2)
        for partition in range(2):
            daemon.produce_text(f"t/partitions/{partition}", "v")
    registry, meta = (daemon.log_dirs[0] / n for n in ("kafkalog.registry", "meta.properties"))
    whole = registry.read_bytes()
    damaged = [flip(registry, 40), flip(meta, meta.read_bytes().index(b"cluster.id=") + 15)]
    with daemon:
        assert [len(daemon.fetch_all("t", partition)) for partition in range(2)] == [1, 1]
        ready = daemon.request("GET", "/readyz").json
        assert (ready["offline_log_dirs"], ready["offline_partitions"]) == (0, 0)
        text = daemon.request("GET", "/metrics").body.decode()
        for file in ("kafkalog.registry", "meta.properties"):
            assert re.search(rf'log_dir_files_repaired_total{{.*"{file}".*}} 1.0', text)
    assert registry.read_bytes() == whole
    assert [path.with_name(f"{path.name}.damaged").read_bytes() for path in (registry, meta)] == (
        damaged
    )

    registries = [path / "kafkalog.registry" for path in daemon.log_dirs]
    for each in registries:
        flip(each, 40)
    said = daemon.refused_start(UNUSABLE_LOG_DIRS_EXIT)  # no service manager repeats it
    assert "Remedy: kafkalog doctor --repair" in said
    daemon.overrides["unusable.log.dirs.wait"] = "true"
    daemon.start(wait=False)
    until(lambda: "start_refused" in probe(daemon), seconds=START_SECONDS)
    assert daemon.request("GET", "/livez").status == 200
    told = re.search(
        r"Remedy: kafkalog (doctor --repair .*?) \. It", probe(daemon)["start_refused"]
    )
    assert told is not None
    done = run_plain(*shlex.split(told[1]))
    assert daemon.stop() == UNUSABLE_LOG_DIRS_EXIT
    assert (done.returncode, done.stderr) == (0, b"")
    for each in registries:
        assert f"info: {each}: one bit of it has flipped" in done.stdout.decode()
        assert each.read_bytes() == whole
    with daemon:
        assert [len(daemon.fetch_all("t", partition)) for partition in range(2)] == [1, 1]


def test_records_without_key_go_where_they_are_served(tmp_path: Path) -> None:
    """No request is refused that names neither partition nor key, while one is served."""
    daemon = Daemon(tmp_path, log_dirs=2)
    with daemon:
        daemon.create_topic("t", 4)
    daemon.log_dirs = daemon.log_dirs[1:]
    with daemon:
        used = {daemon.produce_text("t", "v")["offsets"][0]["partition"] for _ in range(12)}
    assert used == {number for number in range(4) if (daemon.log_dirs[0] / f"t-{number}").exists()}


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
        delete_records(daemon, (topic, 0, 9))
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
    delete_records(daemon, ("raised", 0, 25))
    daemon.kill()
    daemon.start()
    assert {topic: first_offset(daemon, topic) for topic in LINES} == STARTS
    assert told(daemon) == set()
    assert daemon.stop() == 0


COUNT = 40


def value(offset: int) -> bytes:
    """Of the record at an offset; all are of one size."""
    return b'"value-%02d"' % offset


def produce(daemon: Daemon, topic: str, offset: int) -> None:
    """One record with acks=all, which gets this offset."""
    assert append(daemon, topic, batch_of(value(offset))).status == 200
    assert end_offset(daemon, topic) == offset + 1


def flip_in_batch(
    daemon: Daemon, topic: str, offset: int, at: int, mask: int, base: int = 0
) -> None:
    """Bits of one byte of the batch of an offset; ``at`` below 0 counts from its end."""
    path = daemon.log_dirs[0] / f"{topic}-0" / f"{base:020d}.log"
    data, size = bytearray(path.read_bytes()), len(batch_of(value(0)))
    data[(offset - base + (at < 0)) * size + at] ^= mask
    path.write_bytes(data)


def served(daemon: Daemon, topic: str) -> dict[int, bytes | None]:
    """All records from the beginning on, to the first one refused."""
    found: dict[int, bytes | None] = {}
    offset = 0
    while offset < end_offset(daemon, topic):
        answer = read_batches(daemon, topic, offset)
        if answer.status != 200:
            break
        found |= {record.offset: record.value for record in records_of(answer.body)}
        offset = int(answer.headers["Kafka-Next-Offset"])
    return found


def verify(daemon: Daemon, topic: str) -> str:
    directory = str(daemon.log_dirs[0] / f"{topic}-0")
    return run_plain("segments", "verify", directory).stdout.decode()


def test_rot_moves_no_record_and_gives_no_offset_twice(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, http_produce_acks="all", log_initial_task_delay_ms="86400000")
    with daemon:
        for topic in ("base", "payload", "length"):
            daemon.create_topic(topic)
            for offset in range(COUNT):
                if topic != "length" or offset < 12:
                    produce(daemon, topic, offset)
        roll = "/v1/topics/length/partitions/0/log:roll"
        assert daemon.request("POST", roll, {}).status == 200
        produce(daemon, "length", 12)
    assert "sound" in verify(daemon, "base")
    flip_in_batch(daemon, "base", COUNT - 1, 5, 2)
    assert "sound" not in verify(daemon, "base")

    with daemon:  # after a clean stop
        assert served(daemon, "base") == {each: value(each) for each in range(COUNT)}
        produce(daemon, "base", COUNT)
        daemon.kill()
        flip_in_batch(daemon, "base", COUNT, 5, 2)
        flip_in_batch(daemon, "payload", COUNT - 1, -3, 1)
        flip_in_batch(daemon, "length", 4, 10, 1)
        flip_in_batch(daemon, "length", 7, 16, 4)

        daemon.start()  # after kill -9
        assert served(daemon, "base") == {each: value(each) for each in range(COUNT + 1)}
        produce(daemon, "base", COUNT + 1)
        assert end_offset(daemon, "payload") == COUNT
        assert served(daemon, "payload") == {each: value(each) for each in range(COUNT - 1)}
        body = refused(read_batches(daemon, "payload", COUNT - 1), 500, 50010)
        assert json.dumps(body["details"]).count(str(COUNT - 1)) == 2
        produce(daemon, "payload", COUNT)
        for rotten in (4, 7):
            body = refused(read_batches(daemon, "length", rotten), 500, 50010)
            details = body["details"]
            assert isinstance(details, dict)
            assert (details["base_offset"], details["last_offset"]) == (rotten, rotten)
            behind = read_batches(daemon, "length", rotten + 1)
            assert records_of(behind.body)[0].offset == rotten + 1
            page = daemon.request(
                "GET",
                f"/topics/length/partitions/0/records?offset={rotten + 1}",
                None,
                {"Accept": BINARY},
            )
            assert page.json[0]["offset"] == rotten + 1
    assert "sound" in verify(daemon, "base")


PAGES = {
    "v2": ("/topics/{topic}/partitions/0/records?offset={offset}", BINARY),
    "v1": ("/topics/{topic}/partitions/0/messages?offset={offset}&count=100", ""),
    "native": ("/v1/topics/{topic}/partitions/0/records?offset={offset}", "application/json"),
}
STREAMS = {
    "lines": "application/x-ndjson",
    "events": "text/event-stream",
    "arrow": "application/vnd.apache.arrow.stream",
}


def filled(daemon: Daemon, topic: str, cleanup_policy: str = "delete") -> list[int]:
    """Forty batches over several segments; where these begin."""
    daemon.create_topic(topic, cleanup_policy=cleanup_policy)
    for number in range(COUNT):
        value = b'"value-%02d"' % number
        assert append(daemon, topic, batch_of(value, keys=[b"%d" % number])).status == 200
        if number % 8 == 7:
            roll = f"/v1/topics/{topic}/partitions/0/log:roll"
            assert daemon.request("POST", roll, {}).status == 200
    directory = daemon.log_dirs[0] / f"{topic}-0"
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def told_of_loss(answer: Any, lost: tuple[int, int]) -> None:
    """The refusal names the range."""
    body = refused(answer, 500, 50010)
    details = body["details"]
    assert isinstance(details, dict)
    assert (details["first_offset"], details["last_offset"]) == lost
    assert ".log" not in str(body)


def ask_every_route(daemon: Daemon, topic: str, lost: tuple[int, int]) -> None:
    """In front of the loss, at its first and at its last offset."""
    first, last = lost
    for offset in (first, last):
        told_of_loss(read_batches(daemon, topic, offset), lost)
        for path, accept in PAGES.values():
            at = path.format(topic=topic, offset=offset)
            told_of_loss(
                daemon.request("GET", at, None, {"Accept": accept} if accept else {}), lost
            )
        for accept in STREAMS.values():
            at = f"/v1/topics/{topic}/partitions/0/records?offset={offset}&max_wait_ms=0"
            told_of_loss(daemon.request("GET", at, None, {"Accept": accept}), lost)
    before = read_batches(daemon, topic, first - 1)
    assert [record.offset for record in records_of(before.body)] == [first - 1]
    assert before.headers["Kafka-Next-Offset"] == str(first)
    for path, accept in PAGES.values():
        at = path.format(topic=topic, offset=first - 2)
        answer = daemon.request("GET", at, None, {"Accept": accept} if accept else {})
        assert answer.status == 200, answer.body
        found = answer.json["records"] if isinstance(answer.json, dict) else answer.json
        assert [each["offset"] for each in found] == [first - 2, first - 1]
    at = f"/v1/topics/{topic}/partitions/0/records?offset={first - 1}&max_wait_ms=0"
    lines = daemon.request("GET", at, None, {"Accept": STREAMS["lines"]}).body.splitlines()
    assert json.loads(lines[0])["offset"] == first - 1
    assert b'"first_offset":%d' % first in lines[-1].replace(b" ", b"")
    events = daemon.request("GET", at, None, {"Accept": STREAMS["events"]}).body
    assert b'"error_code":50010' in events.replace(b" ", b"")
    behind = read_batches(daemon, topic, last + 1)
    assert records_of(behind.body)[0].offset == last + 1


def poll(daemon: Daemon, topic: str, offset: int) -> Any:
    """What a consumer gets there that was assigned the partition."""
    made = daemon.request(
        "POST", f"/consumers/{topic}", {"format": "binary", "auto.offset.reset": "earliest"}
    )
    assert made.status == 200, made.body
    path = f"/consumers/{topic}/instances/{made.json['instance_id']}"
    at = {"partitions": [{"topic": topic, "partition": 0}]}
    assert daemon.request("POST", f"{path}/assignments", at).status == 204
    seek = {"offsets": [{"topic": topic, "partition": 0, "offset": offset}]}
    assert daemon.request("POST", f"{path}/positions", seek).status == 204
    answer = daemon.request("GET", f"{path}/records?timeout=0", None, {"Accept": BINARY})
    assert daemon.request("DELETE", path).status == 204
    return answer


def test_a_deleted_log_is_refused_by_every_route_until_it_is_accepted(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, http_produce_acks="1", log_initial_task_delay_ms="86400000")
    with daemon:
        topics = {
            "gapless": filled(daemon, "gapless"),
            "left": filled(daemon, "left", cleanup_policy="compact"),
        }
    ranges: dict[str, tuple[int, int]] = {}
    for topic, bases in topics.items():
        ranges[topic] = bases[2], bases[3] - 1
        suffixes = ("log", "index", "timeindex", "snapshot") if topic == "gapless" else ("log",)
        for suffix in suffixes:
            path = daemon.log_dirs[0] / f"{topic}-0" / f"{bases[2]:020d}.{suffix}"
            path.unlink(missing_ok=suffix == "snapshot")
    with daemon:
        with Client(f"http://127.0.0.1:{daemon.port}") as client:
            for topic, lost in ranges.items():
                ask_every_route(daemon, topic, lost)
                told_of_loss(poll(daemon, topic, lost[0]), lost)
                found = client.losses(topic, 0)
                named = {"first_offset": lost[0], "last_offset": lost[1]}
                assert (found["lost"], found["accepted"]) == ([named], [])
                with pytest.raises(InvalidRequest, match=f"accepted: {lost[0]} to {lost[1]}"):
                    client.accept_loss(topic, 0, lost[0], lost[1] + 1)
            assert "50010" in json.dumps(client.run_cleaner([("left", 0)]))
            daemon.kill()
            daemon.start()
            for topic, lost in ranges.items():
                told_of_loss(read_batches(daemon, topic, lost[0]), lost)
                found = client.accept_loss(topic, 0, *lost)
                assert (found["lost"], len(found["accepted"])) == ([], 1)
                assert client.accept_loss(topic, 0, *lost) == found
        check_passed(daemon, ranges)
        assert "acceptLoss" in daemon.log_path.read_text()
    with daemon:
        check_passed(daemon, ranges)
        assert end_offset(daemon, "left") == COUNT


def check_passed(daemon: Daemon, ranges: dict[str, tuple[int, int]]) -> None:
    """Every route goes on behind the accepted ranges."""
    for topic, (first, last) in ranges.items():
        answer = read_batches(daemon, topic, first)
        assert answer.status == 200, answer.body
        assert records_of(answer.body)[0].offset == last + 1
        for path, accept in PAGES.values():
            at = path.format(topic=topic, offset=first)
            answer = daemon.request("GET", at, None, {"Accept": accept} if accept else {})
            found = answer.json["records"] if isinstance(answer.json, dict) else answer.json
            assert found[0]["offset"] == last + 1
        assert poll(daemon, topic, first).json[0]["offset"] == last + 1
