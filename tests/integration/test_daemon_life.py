"""Goal: the daemon starts only on what it can trust, stops in order, and finds everything again.
Method: signals to real processes; what they leave on disk is read.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.daemon import Daemon
from tests.integration.http_world import Wire, refused

HEAD = b"POST /topics/kept HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = b'{"records":[{"value":"half"}]}'


def pid_of(daemon: Daemon) -> int:
    """Its process."""
    assert daemon.process is not None
    return daemon.process.pid


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def failed_start(daemon: Daemon) -> str:
    """Start what must refuse to; what it said."""
    daemon.start(wait=False)
    assert daemon.process is not None
    assert daemon.process.wait(60) == 1
    daemon.process = None
    said = daemon.log_path.read_text()
    assert "Traceback" not in said, said
    return said


def listing(root: Path) -> dict[str, tuple[int, int]]:
    """Every path with size and modification time."""
    return {
        path.as_posix(): (path.stat().st_size, path.stat().st_mtime_ns) for path in root.rglob("*")
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_clean_stop_leaves_checkpoints_and_markers(tmp_path: Path, number: int) -> None:
    """M14 M03: exit 0, marker and checkpoints in each directory, indexes cut; all found again."""
    daemon = Daemon(tmp_path, log_dirs=2)
    daemon.start()
    daemon.create_topic("kept", 4)
    for index in range(8):
        daemon.produce_text("kept", f"v{index}", f"w{index}")
    ends = [len(daemon.fetch_all("kept", partition)) for partition in range(4)]
    assert sum(ends) == 16
    os.kill(pid_of(daemon), number)
    assert daemon.process is not None
    assert daemon.process.wait(60) == 0
    daemon.process = None
    for log_dir in daemon.log_dirs:
        marker = log_dir / ".kafka_cleanshutdown"
        assert json.loads(marker.read_text())["version"] == 0
        mine = sorted(path.name for path in log_dir.glob("kept-*"))
        assert mine
        points = (log_dir / "recovery-point-offset-checkpoint").read_text().splitlines()
        assert points[:2] == ["0", str(len(mine))]
        expected = [f"kept {name[-1]} {ends[int(name[-1])]}" for name in mine]
        assert sorted(points[2:]) == expected
        marks = (log_dir / "replication-offset-checkpoint").read_text().splitlines()
        assert sorted(marks[2:]) == expected
        assert (log_dir / "log-start-offset-checkpoint").exists()
        for index_file in log_dir.glob("kept-*/*.index"):
            assert index_file.stat().st_size < 1000
    with daemon:
        assert not (daemon.log_dirs[0] / ".kafka_cleanshutdown").exists()
        assert [len(daemon.fetch_all("kept", partition)) for partition in range(4)] == ends
        daemon.produce_text("kept", "more")


def test_waiting_fetches_are_answered_at_the_stop(tmp_path: Path) -> None:
    """A long poll of a minute does not hold the stop: it answers what there is."""
    daemon = Daemon(tmp_path)
    daemon.start()
    daemon.create_topic("kept")
    poll = (
        b"GET /topics/kept/partitions/0/records?offset=0&timeout=60000 HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    raw = poll.replace(b"/topics", b"/v1/topics").replace(b"records", b"batches")
    raw = raw.replace(b"timeout", b"max_wait_ms")
    with Wire(daemon) as one, Wire(daemon) as two, Wire(daemon):
        one.send(poll)
        two.send(raw)
        assert daemon.request("GET", "/livez").status == 200
        started = time.monotonic()
        os.kill(pid_of(daemon), signal.SIGTERM)
        answer = one.read_answer()
        assert (answer.status, answer.json) == (200, [])
        assert two.read_answer().status == 204
        assert daemon.process is not None
        assert daemon.process.wait(60) == 0
        daemon.process = None
        assert time.monotonic() - started < 10


def test_what_is_in_work_at_the_stop_is_finished(tmp_path: Path) -> None:
    """M01: a body half sent at SIGTERM is taken, acknowledged and found after the next start."""
    daemon = Daemon(tmp_path)
    daemon.start()
    daemon.create_topic("kept")
    with Wire(daemon) as wire:
        wire.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:10])
        assert daemon.request("GET", "/livez").status == 200
        os.kill(pid_of(daemon), signal.SIGTERM)
        wire.send(BODY[10:])
        answer = wire.read_answer()
        assert answer.status == 200
        assert answer.json["durability"] == "synced"
    assert daemon.process is not None
    assert daemon.process.wait(60) == 0
    daemon.process = None
    with daemon:
        assert len(daemon.fetch_all("kept")) == 1


def test_while_it_stops_it_says_so(tmp_path: Path) -> None:
    """M01: /readyz 503 and requests 503/50304 in the grace time; alive meanwhile.

    A grace time that no slow machine spends on these requests; a second signal ends it.
    """
    daemon = Daemon(tmp_path, shutdown_grace_ms="100000")
    daemon.start()
    daemon.create_topic("kept")
    os.kill(pid_of(daemon), signal.SIGTERM)
    deadline = time.monotonic() + 60
    while daemon.request("GET", "/readyz").status == 200:
        assert time.monotonic() < deadline
        time.sleep(0.01)  # the test's own pace between two looks
    assert daemon.request("GET", "/livez").status == 200
    assert daemon.request("GET", "/readyz").json["checks"]["not_stopping"] is False
    refused(daemon.request("POST", "/topics/kept", {"records": [{"value": 1}]}), 503, 50304)
    refused(daemon.request("GET", "/topics"), 503, 50304)
    os.kill(pid_of(daemon), signal.SIGTERM)
    assert daemon.process is not None
    assert daemon.process.wait(60) == 128 + signal.SIGTERM
    daemon.process = None


def test_the_grace_time_ends(tmp_path: Path) -> None:
    """M01: what has a grace time stops by itself behind it, in order."""
    daemon = Daemon(tmp_path, shutdown_grace_ms="300")
    daemon.start()
    begun = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - begun > 0.28
    assert (daemon.log_dirs[0] / ".kafka_cleanshutdown").exists()


def test_a_second_signal_leaves_at_once(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, shutdown_grace_ms="60000")
    daemon.start()
    daemon.produce_text("kept", "v")
    os.kill(pid_of(daemon), signal.SIGTERM)
    while daemon.request("GET", "/readyz").status == 200:
        time.sleep(0.01)  # the test's own pace between two looks
    os.kill(pid_of(daemon), signal.SIGTERM)
    assert daemon.process is not None
    assert daemon.process.wait(60) == 128 + signal.SIGTERM
    daemon.process = None
    daemon.overrides["shutdown.grace.ms"] = "0"
    with daemon:
        assert len(daemon.fetch_all("kept")) == 1


@pytest.mark.slow
def test_a_signal_during_the_start_ends_cleanly(tmp_path: Path) -> None:
    """At any moment of the start: an orderly end, never a halt with an error; then all is there."""
    daemon = Daemon(tmp_path)
    daemon.start()
    daemon.produce_text("kept", "v")
    assert daemon.stop() == 0
    for pause in (0.0, 0.3, 0.7, 1.2):
        daemon.start(wait=False)
        while not handles(pid_of(daemon), signal.SIGTERM):
            time.sleep(0.001)  # an interpreter before the program has the signal's own default
        time.sleep(pause)  # the moment is the test's subject
        os.kill(pid_of(daemon), signal.SIGTERM)
        assert daemon.process is not None
        assert daemon.process.wait(60) == 0
        daemon.process = None
    assert "Traceback" not in daemon.log_path.read_text()
    with daemon:
        assert len(daemon.fetch_all("kept")) == 1


def test_a_second_daemon_on_the_same_directory(tmp_path: Path) -> None:
    """M14: exits 1 on the lock before it touches a file; the first goes on."""
    first = Daemon(tmp_path / "first")
    with first:
        first.produce_text("kept", "v")
        second = Daemon(tmp_path / "second")
        second.log_dirs = first.log_dirs
        before = listing(first.log_dirs[0])
        said = failed_start(second)
        assert "lock" in said.lower()
        after = listing(first.log_dirs[0])
        assert {p: v for p, v in after.items() if "checkpoint" not in p} == {
            p: v for p, v in before.items() if "checkpoint" not in p
        }
        first.produce_text("kept", "w")
        assert len(first.fetch_all("kept")) == 2


def test_a_log_directory_inside_another_one(tmp_path: Path) -> None:
    """A link does not hide that a log directory lies in another one."""
    daemon = Daemon(tmp_path, log_dirs=2)
    daemon.log_dirs[1].symlink_to(daemon.log_dirs[0] / "inner")
    assert f"which lies in {daemon.log_dirs[0]}:" in failed_start(daemon)
    assert not daemon.log_dirs[0].exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("http_port", "seventy"),
        ("http_port", "70000"),
        ("log_segment_bytes", "12"),
        ("num_partitions", "0"),
        ("http_host", "0.0.0.0"),
        ("http_produce_acks", "2"),
        ("log_format", "xml"),
        ("log_cleanup_policy", "shred"),
        ("socket_request_max_bytes", "-1"),
    ],
)
def test_a_wrong_configuration_is_refused(tmp_path: Path, key: str, value: str) -> None:
    """Exit 1, key and value named, nothing made."""
    daemon = Daemon(tmp_path)
    daemon.overrides[key.replace("_", ".")] = value
    said = failed_start(daemon)
    assert key.replace("_", ".") in said
    assert value in said
    assert not daemon.log_dirs[0].exists()


def test_a_misspelt_key_is_named(tmp_path: Path) -> None:
    """A warning with the nearest key; the daemon starts."""
    with Daemon(tmp_path, log_retention_hors="5") as daemon:
        said = daemon.log_path.read_text()
        assert "log.retention.hors" in said
        assert "log.retention.hours" in said


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """Exit 1 with a plain reason; nothing was made."""
    with Daemon(tmp_path / "first") as first:
        second = Daemon(tmp_path / "second")
        second.port = first.port
        said = failed_start(second)
        assert "Cannot start" in said
        assert not second.log_dirs[0].exists()


def test_an_unusable_command_line(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    for arguments in (["--override", "novalue"], [str(tmp_path / "absent.properties")]):
        command = [*daemon.command()[:4], *arguments]
        result = subprocess.run(command, capture_output=True, check=False, timeout=60)
        assert result.returncode in (1, 2)
        assert b"Traceback" not in result.stderr
