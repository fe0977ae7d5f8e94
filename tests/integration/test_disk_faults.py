"""Goal: a full disk, a lost directory and short descriptors cost what they must and nothing else,
no more descriptors are held than the setting says, and what the kernel failed to write is not
shown.
Method: limits set on a live process from outside, directories taken away, a small tmpfs, /proc, a
device that fails.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from kafkalog.env.system_filesystem import SystemFilesystem
from tests.integration.daemon import Daemon, ReservedPort
from tests.integration.http_world import (
    Wire,
    append,
    batch_of,
    delete_records,
    end_offset,
    read_batches,
    refused,
    until,
)
from tests.partition_world import records_of

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.daemon import Answer

FULL = 400_000


@contextmanager
def limited(daemon: Daemon, kind: int, soft: int) -> Iterator[None]:
    """A lower limit on the live process, lifted at the end."""
    pid = daemon.pid
    before = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, kind, before)


def fill(daemon: Daemon, topic: str, value: bytes = b"x" * 5000) -> int:
    """Append until it is refused as 507/50701; how many were acknowledged."""
    for count in range(5000):
        answer = append(daemon, topic, batch_of(value, b"%d" % count))
        if answer.status != 200:
            body = refused(answer, 507, 50701)
            assert body["retriable"] is True
            return count
    raise AssertionError("the disk never was full")


def resumed(daemon: Daemon, topic: str) -> int:
    """Offset of the first append after room was made; the daemon looks four times a second."""
    answers: list[Answer] = []

    def is_resumed() -> bool:
        answers.append(append(daemon, topic, batch_of(b"after", b"after")))
        if answers[-1].status != 200:
            refused(answers[-1], 507, 50701)
        return answers[-1].status == 200

    until(is_resumed, "appends did not resume", pace_seconds=0.05)
    return int(answers[-1].json["base_offset"])


def check_full_disk(daemon: Daemon, topic: str, acknowledged: int) -> None:
    """No partial batch in the file, everything acknowledged is served, nothing more."""
    assert end_offset(daemon, topic) == 2 * acknowledged
    seen = []
    offset = 0
    while offset < 2 * acknowledged:
        answer = read_batches(daemon, topic, offset)
        seen += [record.value for record in records_of(answer.body)]
        offset = int(answer.headers["Kafka-Next-Offset"])
    assert seen[1::2] == [b"%d" % number for number in range(acknowledged)]
    size = len(batch_of(b"x" * 5000, b"1"))
    log = sum(path.stat().st_size for path in daemon.log_dirs[0].glob(f"{topic}-0/*.log"))
    assert abs(log - size * acknowledged) < 4 * acknowledged  # varints of the counter


@pytest.mark.gate
def test_a_file_size_limit_is_a_full_disk(tmp_path: Path) -> None:
    """M15: EFBIG in the middle of a batch: 507/50701, cut back, fetches go on, appends resume."""
    with Daemon(tmp_path) as daemon:
        daemon.create_topic("full")
        with limited(daemon, resource.RLIMIT_FSIZE, FULL):
            acknowledged = fill(daemon, "full")
            assert acknowledged > 50
            check_full_disk(daemon, "full", acknowledged)
            refused(append(daemon, "full", batch_of(b"x" * 5000)), 507, 50701)
            answer = daemon.request("POST", "/topics/full", {"records": [{"value": "x" * 5000}]})
            refused(answer, 507, 50701)
            ready = daemon.request("GET", "/readyz")
            assert (ready.status, ready.json["full_log_dirs"]) == (200, 1)
        assert resumed(daemon, "full") == 2 * acknowledged
        daemon.kill()
        daemon.start()
        assert end_offset(daemon, "full") == 2 * acknowledged + 2


@contextmanager
def tmpfs(path: Path, size: str) -> Iterator[None]:
    """A small file system, when this user may mount one."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user cannot mount a tmpfs")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_full_file_system(tmp_path: Path) -> None:
    """M15: ENOSPC on a tmpfs of 3 MiB: 507/50701, then appends resume when room is made."""
    with tmpfs(tmp_path / "small", "3m"):
        daemon = Daemon(tmp_path, log_dir_min_free_bytes="0")
        daemon.log_dirs = [tmp_path / "small" / "logs"]
        with daemon:
            daemon.create_topic("full", 1, segment_index_bytes="4096")
            filler = tmp_path / "small" / "filler"
            filler.write_bytes(bytes(1 << 20))
            acknowledged = fill(daemon, "full")
            assert acknowledged > 50
            check_full_disk(daemon, "full", acknowledged)
            assert daemon.request("GET", "/readyz").json["online_log_dirs"] == 1
            filler.unlink()
            assert resumed(daemon, "full") == 2 * acknowledged


def filled_by_others(path: Path) -> None:
    """Write until the file system has not a byte left."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))


def test_retention_on_a_file_system_without_a_byte(tmp_path: Path) -> None:
    """M15: 507 for what must be written; reads and retention go on, and then appends."""
    with tmpfs(tmp_path / "small", "6m"):
        daemon = Daemon(
            tmp_path,
            log_dir_min_free_bytes="0",
            log_retention_check_interval_ms="500",
            log_initial_task_delay_ms="0",
        )
        daemon.log_dirs = [tmp_path / "small" / "logs"]
        configs = {"segment_index_bytes": "4096", "internal_segment_bytes": "300000"}
        with daemon:
            daemon.create_topic("full", 1, **configs, file_delete_delay_ms="100")
            filler = tmp_path / "small" / "filler"
            acknowledged = fill(daemon, "full")
            filled_by_others(filler)
            check_full_disk(daemon, "full", acknowledged)
            topic = f"{daemon.cluster()}/topics/full"
            refused(daemon.request("DELETE", topic), 507, 50701)
            (fault,) = daemon.request("GET", "/readyz").json["log_dir_faults"]
            assert (fault["log_dir"], fault["state"]) == (str(daemon.log_dirs[0]), "full")
            # The log start moves, and only that it is durable is refused: retention, which may
            # look at any moment, follows it and makes room.
            (entry,) = delete_records(daemon, ("full", 0, acknowledged))
            assert entry["error_code"] == 50003
            assert resumed(daemon, "full") == 2 * acknowledged
            filler.unlink()
            daemon.kill()
            daemon.start()
            assert end_offset(daemon, "full") == 2 * acknowledged + 2


def placed(daemon: Daemon, topic: str) -> dict[int, int]:
    """Partition by number of its directory, one each."""
    found = {}
    for number, log_dir in enumerate(daemon.log_dirs):
        for path in log_dir.glob(f"{topic}-*"):
            found[number] = int(path.name.rpartition("-")[2])
    return found


def test_what_is_written_and_not_synced_is_not_refused(tmp_path: Path) -> None:
    """M15: the epochs' file cannot be written: 500/50003 with the offsets; kill -9 finds them."""
    with Daemon(tmp_path, log_dirs=2) as daemon:
        daemon.create_topic("half")
        (partition,) = (path for log_dir in daemon.log_dirs for path in log_dir.glob("half-0"))
        assert append(daemon, "half", batch_of(b"old", b"old")).status == 200
        delete_records(daemon, ("half", 0, 1))
        in_the_way = partition / "leader-epoch-checkpoint.tmp"
        in_the_way.mkdir()
        body = refused(append(daemon, "half", batch_of(b"a", b"b")), 500, 50003)
        assert body["retriable"] is True
        assert body["kafka_error"] == "KAFKA_STORAGE_ERROR"
        details = body["details"]
        assert isinstance(details, dict)
        assert (details["first_offset"], details["last_offset"]) == (2, 3)
        refused(append(daemon, "half", batch_of(b"c")), 503, 50303)
        daemon.kill()
        in_the_way.rmdir()
        daemon.start()
        assert end_offset(daemon, "half") == 4


def test_one_of_two_directories_goes(tmp_path: Path) -> None:
    """M15: its partitions answer 503/50303, the others serve, readiness stays; metrics say it."""
    daemon = Daemon(tmp_path, log_dirs=2)
    with daemon:
        daemon.create_topic("spread", 2, internal_segment_bytes="1000")
        where = placed(daemon, "spread")
        assert sorted(where) == [0, 1]
        for partition in (0, 1):
            batch = batch_of(b"v" * 100)
            assert append(daemon, "spread", batch, partition=partition).status == 200
        lost = daemon.log_dirs[1]
        lost.rename(tmp_path / "gone")
        lost.write_bytes(b"no directory")
        for _ in range(20):
            answer = append(daemon, "spread", batch_of(b"v" * 100), partition=where[1])
            if answer.status != 200:
                break
        refused(answer, 503, 50303)
        base = f"/v1/topics/spread/partitions/{where[1]}"
        refused(daemon.request("GET", f"{base}/batches?offset=0"), 503, 50303)
        refused(daemon.request("GET", f"{base}/offsets"), 503, 50303)
        entries = delete_records(daemon, ("spread", 0, 1), ("spread", 1, 1))
        assert entries[where[1]]["error_code"] == 50303
        assert entries[where[0]]["low_watermark"] == 1
        for _ in range(20):
            answer = append(daemon, "spread", batch_of(b"v" * 100), partition=where[0])
            assert answer.status == 200
        ready = daemon.request("GET", "/readyz")
        assert ready.status == 200
        assert (ready.json["online_log_dirs"], ready.json["offline_log_dirs"]) == (1, 1)
        assert ready.json["offline_partitions"] == 1
        page = daemon.request("GET", "/metrics").body.decode()
        assert f'kafkalog_log_dir_online{{log_dir="{lost}"}} 0.0' in page
        (fault,) = ready.json["log_dir_faults"]
        assert (fault["log_dir"], fault["state"]) == (str(lost), "offline")
        said = f'kafkalog_log_dir_offline_reason{{log_dir="{lost}",reason="{fault["reason"]}"}} 1.0'
        assert said in page
        daemon.create_topic("afterwards")
        daemon.produce_text("afterwards", "v")


def test_the_last_directory_goes(tmp_path: Path) -> None:
    """M15: no directory left: the daemon ends with 1, as Kafka does."""
    daemon = Daemon(tmp_path)
    daemon.start()
    daemon.create_topic("only", 1, internal_segment_bytes="1000")
    daemon.log_dirs[0].rename(tmp_path / "gone")
    daemon.log_dirs[0].write_bytes(b"no directory")
    for _ in range(30):
        try:
            if append(daemon, "only", batch_of(b"v" * 200)).status != 200:
                break
        except OSError:
            break
    assert daemon.ended() == 1


class FewDescriptors(Daemon):
    """A daemon that may have no more than 256, and half of them for segments."""

    def command(self) -> list[str]:
        return ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *super().command()]


def test_connections_leave_descriptors_to_logs(tmp_path: Path) -> None:
    """Whoever opens connections on end gets no more; appends, rolls and the probes of the
    operators' port go on, and the log tells it once.
    """
    metrics = ReservedPort()
    with (
        FewDescriptors(tmp_path, metrics_port=str(metrics.number)) as daemon,
        Wire(daemon) as wire,
        ExitStack() as stack,
    ):
        daemon.create_topic("t", 4)
        wires = [stack.enter_context(Wire(daemon)) for _ in range(300)]
        refused_count = sum(is_closed(each.socket) for each in wires)
        assert 100 < refused_count < 200
        body = json.dumps({"records": [{"value": "x" * 900}] * 2}).encode()
        head = b"POST /topics/t/partitions/%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n"
        kind = b"Content-Type: application/vnd.kafka.json.v2+json\r\n\r\n"
        for partition in range(4):
            wire.send(head % (partition, len(body)) + kind + body)
            assert wire.read_answer().status == 200
            path = b"/v1/topics/t/partitions/%d/log:roll" % partition
            wire.send(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            assert wire.read_answer().status == 200
        address = f"http://127.0.0.1:{metrics.number}/livez"
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert answer.status == 200
        lines = [json.loads(line) for line in daemon.log_path.read_text().splitlines()]
        (told,) = [line for line in lines if line["event"] == "Connections are refused"]
        assert told["descriptors"] == 192


def is_closed(client: socket.socket) -> bool:
    """Whether the daemon closes a connection that sends nothing, soon."""
    client.settimeout(0.01)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_short_descriptors(tmp_path: Path) -> None:
    """EMFILE is 503/50302 and no dead disk; with descriptors back everything works.

    The probe says so and of which directory; equal lines are one, with the remedy.
    """
    with Daemon(tmp_path) as daemon, Wire(daemon) as wire:
        daemon.create_topic("before")
        used = len(os.listdir(f"/proc/{daemon.pid}/fd"))
        body = b'{"topic_name":"short","partitions_count":50}'
        head = b"POST /admin/topics HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        head += b"Content-Length: %d\r\n\r\n" % len(body)
        with limited(daemon, resource.RLIMIT_NOFILE, used + 4):
            for _ in range(3):
                wire.send(head + body)
                refused(wire.read_answer(), 503, 50302)
        ready = daemon.request("GET", "/readyz")
        assert (ready.status, ready.json["offline_log_dirs"]) == (200, 0)
        (fault,) = ready.json["log_dir_faults"]
        assert (fault["log_dir"], fault["state"]) == (str(daemon.log_dirs[0]), "failing")
        told = daemon.log_path.read_text()
        assert told.count('"descriptors_short"') == 1
        assert "ulimit -n" in told
        daemon.produce_text("before", "v")
        daemon.create_topic("short", 50)


BOUND = 16
PARTITIONS = 25
SEGMENTS = 4
SLACK = 12  # what a flush or a request holds just now


def open_files(daemon: Daemon) -> list[str]:
    """What the descriptors of the process lead to, but for connections: they come and go."""
    home = f"/proc/{daemon.pid}/fd"
    found = []
    for number in os.listdir(home):
        try:
            target = os.readlink(f"{home}/{number}")
        except FileNotFoundError:
            continue  # closed since the listing
        if not target.startswith("socket:"):
            found.append(target)
    return found


def test_descriptors_stay_under_the_setting(tmp_path: Path) -> None:
    """M28: 100 segments of three files each, 16 kept open; also after a start."""
    with Daemon(tmp_path, log_dir_max_open_files=str(BOUND)) as daemon:
        base = len(open_files(daemon))
        daemon.create_topic("many", PARTITIONS, internal_segment_bytes="1500")
        for _ in range(SEGMENTS):
            for partition in range(PARTITIONS):
                batch = batch_of(b"x" * 1000)
                assert append(daemon, "many", batch, partition=partition).status == 200
        logs = list(daemon.log_dirs[0].glob("many-*/*.log"))
        assert len(logs) == PARTITIONS * SEGMENTS
        for partition in range(PARTITIONS):
            for offset in range(SEGMENTS):
                path = f"/v1/topics/many/partitions/{partition}/batches?offset={offset}"
                assert daemon.request("GET", path).status == 200
        assert len(open_files(daemon)) <= base + BOUND + SLACK
        daemon.stop()
        daemon.start()
        assert len(open_files(daemon)) <= base + BOUND + SLACK
        assert append(daemon, "many", batch_of(b"more"), partition=7).status == 200


SIZE = 12 << 20


def run(*command: object) -> bool:
    return not subprocess.run([str(part) for part in command], capture_output=True).returncode


@contextmanager
def thin_disk(root: Path) -> Iterator[Path]:
    """A directory on a file system of 40 MiB that has 6 MiB behind it."""
    small, mounted = root / "small", root / "mounted"
    small.mkdir()
    mounted.mkdir()
    if not run("mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", small):
        pytest.skip("this user cannot mount a tmpfs")
    try:
        image = small / "image"
        with image.open("wb") as file:
            file.truncate(40 << 20)
        is_made = run("mkfs.ext4", "-q", "-O", "^has_journal", image)
        if not is_made or not run("mount", "-o", "loop", image, mounted):
            pytest.skip("this user cannot mount a loop device")
        try:
            yield mounted
        finally:
            run("umount", "-l", mounted)
    finally:
        run("umount", "-l", small)


def test_pages_that_were_not_written_are_not_read(tmp_path: Path) -> None:
    """M15: syncs fail, then one "succeeds" without the pages: reads show what the disk holds."""
    with thin_disk(tmp_path) as directory:
        filesystem = SystemFilesystem()
        path = f"{directory}/file"
        file = filesystem.open_write(path)
        file.pwrite(b"x" * SIZE, 0)
        failures = 0
        for _ in range(10):
            try:
                file.datasync()
                break
            except OSError:
                failures += 1
        assert failures, "the disk took more than it has"
        data = filesystem.read_file(path)
        written = sum(data[position] == ord("x") for position in range(0, SIZE, 4096))
        assert 0 < written < SIZE // 4096
        file.close()
