"""Goal: a daemon that recovers says so over HTTP, and obeys signals while it does.
Method: the real process, but the load of one partition waits while a gate file exists.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.daemon import TEXT, Daemon
from tests.integration.http_world import refused
from tests.integration.test_daemon_life import failed_start, listing, pid_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MARKER = ".kafka_cleanshutdown"
EARLY = "Shutting down: the start had touched nothing"


class GatedDaemon(Daemon):
    """A daemon that was killed; the load of its partition kept-1 waits for the gate."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.overrides["num.recovery.threads.per.data.dir"] = "1"
        self.gate = root / "gate"

    def command(self) -> list[str]:
        python, _, _, *rest = super().command()
        return [python, "-m", "tests.integration.gated_daemon", str(self.gate), *rest]

    def prepare(self) -> GatedDaemon:
        """Three partitions with a record each, an unclean end, the gate shut."""
        self.start()
        self.create_topic("kept", 3)
        for partition in range(3):
            body = {"records": [{"value": "v", "partition": partition}]}
            assert self.request("POST", "/topics/kept", body, {"Content-Type": TEXT}).status == 200
        self.kill()
        self.gate.write_text("kept-1")
        return self

    def start_and_reach_the_gate(self, *, stderr: int = subprocess.STDOUT) -> None:
        """A start whose load waits: from here on a signal finds it in the middle."""
        reached = self.gate.with_suffix(".reached")
        reached.unlink(missing_ok=True)
        self.start(wait=False, stderr=stderr)
        assert self.process is not None
        deadline = time.monotonic() + 60
        while not reached.exists():
            assert self.process.poll() is None, self.log_tail()
            assert time.monotonic() < deadline
            time.sleep(0.02)  # the test's own pace between two looks

    def counts(self) -> list[int]:
        """Records of each partition."""
        return [len(self.fetch_all("kept", partition)) for partition in range(3)]


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[GatedDaemon]:
    """One that is ended whatever the test does."""
    daemon = GatedDaemon(tmp_path / "gated").prepare()
    yield daemon
    if daemon.process is not None:
        daemon.kill()


def wait_for(daemon: Daemon, wish: str) -> Any:
    """Poll /readyz until a log line holds the wish; the last answer."""
    deadline = time.monotonic() + 60
    answer = None
    while time.monotonic() < deadline:
        try:
            answer = daemon.request("GET", "/readyz")
        except OSError:
            assert daemon.process is not None
            assert daemon.process.poll() is None, daemon.log_tail()
        if answer is not None and wish in daemon.log_path.read_text():
            return answer
        time.sleep(0.02)  # the test's own pace between two looks
    raise AssertionError(f"'{wish}' never came: {daemon.log_tail()}")


def lines(daemon: Daemon) -> list[str]:
    """Sentences of its log."""
    text = daemon.log_path.read_text().splitlines()
    return [json.loads(line)["event"] for line in text if line.startswith("{")]


def test_while_it_recovers_it_says_so(gated: GatedDaemon) -> None:
    """M01 M16: alive, not ready with its progress, everything else 503/50304; then it serves."""
    log_dir = gated.log_dirs[0]
    gated.start_and_reach_the_gate()
    assert gated.request("GET", "/livez").status == 200
    for path in ("/readyz", "/startupz", "/status/ready"):
        answer = gated.request("GET", path)
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "1"
        assert answer.json["checks"]["logs_loaded"] is False
        assert answer.json["loading"]["partitions"] == 3
        assert 0 <= answer.json["loading"]["partitions_loaded"] < 3
        assert {"segments_to_recover", "bytes_to_recover", "bytes_recovered", "elapsed_ms"} <= {
            *answer.json["loading"]
        }
    said = refused(gated.request("GET", "/topics"), 503, 50304)
    assert "of 3 partitions" in str(said["message"])
    refused(gated.request("POST", "/topics/kept", {"records": [{"value": 1}]}), 503, 50304)
    refused(gated.request("GET", "/no/such/path"), 503, 50304)
    page = gated.request("GET", "/metrics")
    assert page.status == 200
    assert b"kafkalog_recovery_remaining_logs" in page.body
    gated.gate.unlink()
    gated.wait_ready()
    assert "loading" not in gated.request("GET", "/readyz").json
    assert gated.counts() == [1, 1, 1]
    assert gated.stop() == 0
    events = lines(gated)
    assert f"Recovering 3 logs from {log_dir} since no clean shutdown file was found" in events
    assert any(event.startswith("Loaded 3 logs in ") for event in events)
    assert events[-1] == "Shutdown complete."
    gated.start()
    assert gated.stop() == 0
    found = f"Skipping recovery of 3 logs from {log_dir} since clean shutdown file was found"
    assert found in lines(gated)


def test_a_disk_that_hangs_at_the_first_look_is_seen(gated: GatedDaemon) -> None:
    """A mount that does not answer holds up a start that can be seen, and be ended."""
    gated.gate.write_text("write_access")
    gated.start_and_reach_the_gate()
    assert gated.request("GET", "/livez").status == 200
    assert gated.request("GET", "/startupz").json["checks"]["logs_loaded"] is False
    refused(gated.request("GET", "/topics"), 503, 50304)
    os.kill(pid_of(gated), signal.SIGTERM)
    wait_for(gated, "Shutting down")
    os.kill(pid_of(gated), signal.SIGTERM)
    assert gated.process is not None
    assert gated.process.wait(60) == 128 + signal.SIGTERM
    gated.process = None
    gated.gate.unlink()
    with gated:
        assert gated.counts() == [1, 1, 1]


def test_on_a_terminal_it_shows_a_line(gated: GatedDaemon) -> None:
    """M16: redrawn while it loads, erased in front of log lines and at a SIGTERM's end."""
    screen, terminal = pty.openpty()
    gated.start_and_reach_the_gate(stderr=terminal)
    os.close(terminal)
    shown = b""
    while b"Loading logs: 1/3" not in shown:  # the test's time bounds it
        shown += os.read(screen, 10_000)
    os.kill(pid_of(gated), signal.SIGTERM)
    wait_for(gated, "Shutting down")
    gated.gate.unlink()
    assert gated.process is not None
    assert gated.process.wait(60) == 0
    gated.process = None
    with suppress(OSError):  # EIO: nobody has the terminal open any more
        while found := os.read(screen, 10_000):
            shown += found
    os.close(screen)
    erase = b"\r\x1b[K"
    assert shown.startswith(erase)
    assert shown.endswith(erase)
    drawn = {text for text in shown.split(erase) if text}
    wish = re.compile(
        rb"Reading the log directories|Loading logs: [01]/3"
        rb"(, recovered [0-9.]+ K?i?B at [0-9.]+ K?i?B/s)?(, about \d+ s left)?"
    )
    assert all(wish.fullmatch(text) for text in drawn), drawn
    assert any(b"recovered" in text for text in drawn)
    assert "Loading logs" not in gated.log_path.read_text()


def test_a_signal_during_the_load_is_obeyed(gated: GatedDaemon) -> None:
    """M01: no "ready" after it; exit 0; what was not loaded stays unclean and is found later."""
    gated.overrides["shutdown.grace.ms"] = "60000"
    gated.start_and_reach_the_gate()
    os.kill(pid_of(gated), signal.SIGTERM)
    wait_for(gated, "Shutting down")
    answer = gated.request("GET", "/readyz")
    assert (answer.status, answer.json["checks"]["not_stopping"]) == (503, False)
    refused(gated.request("GET", "/topics"), 503, 50304)
    gated.gate.unlink()
    assert gated.process is not None
    assert gated.process.wait(60) == 0
    gated.process = None
    events = lines(gated)
    assert events.count("kafkalog is ready") == 1, "once, in the life before"
    assert "Traceback" not in gated.log_path.read_text()
    assert "will recover" in events[-1]
    assert not (gated.log_dirs[0] / MARKER).exists()
    gated.overrides["shutdown.grace.ms"] = "0"
    with gated:
        assert gated.counts() == [1, 1, 1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_during_the_load_leaves_at_once(gated: GatedDaemon, number: int) -> None:
    """M01: 128 + its number while the load hangs in the disk; a line says what comes next."""
    gated.start_and_reach_the_gate()
    os.kill(pid_of(gated), signal.SIGTERM)
    wait_for(gated, "Shutting down")
    os.kill(pid_of(gated), number)
    assert gated.process is not None
    assert gated.process.wait(60) == 128 + number
    gated.process = None
    assert "the next start will recover" in lines(gated)[-1]
    gated.gate.unlink()
    with gated:
        assert gated.counts() == [1, 1, 1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_signal_before_the_loop_runs_is_obeyed(
    gated: GatedDaemon, log_format: str, number: signal.Signals
) -> None:
    """M01: a signal in the first second of a start ends it with a line. Exit 0 and a line, not the
    signal's default; nothing was touched.
    """
    root = gated.log_dirs[0]
    before = listing(root)
    gated.gate.write_text("warm_up")
    gated.overrides["log.format"] = log_format
    gated.start_and_reach_the_gate()
    assert gated.process is not None
    gated.process.send_signal(number)
    assert gated.process.wait(60) == 0
    gated.process = None
    *_, line = gated.log_path.read_text().splitlines()
    if log_format == "json":
        told = json.loads(line)
        assert (told["event"], told["signal"]) == (EARLY, number.name)
        assert list(told)[:4] == ["timestamp", "level", "event", "logger"]
    else:
        assert EARLY in line
        assert line.endswith(f"signal={number.name}")
    assert listing(root) == before


def test_a_taken_port_touches_no_log(tmp_path: Path, gated: GatedDaemon) -> None:
    """M14: exit 1 with the address named; a directory that needs recovery is as it was."""
    root = gated.log_dirs[0]
    with Daemon(tmp_path / "first") as first:
        before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
        own, gated.port = gated.port, first.port
        said = failed_start(gated)
        assert "Cannot start" in said
        assert str(first.port) in said.splitlines()[-1]
        assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
        gated.port = own
        gated.gate.unlink()
        with gated:
            assert gated.counts() == [1, 1, 1]
