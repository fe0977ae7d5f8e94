"""Goal: the daemon takes its configuration from where containers put it, starts only on what it can
trust, tells systemd, stops in order, and finds everything again.
Method: signals to real processes; a socket in the place of systemd's; what is on disk.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.daemon import TEXT, Daemon, GatedDaemon
from tests.integration.http_world import Wire, refused, until

if TYPE_CHECKING:
    from collections.abc import Iterator


HEAD = b"POST /topics/kept HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = b'{"records":[{"value":"half"}]}'


def handles(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def listing(root: Path) -> dict[str, tuple[int, int]]:
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
    os.kill(daemon.pid, number)
    assert daemon.ended() == 0
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
        os.kill(daemon.pid, signal.SIGTERM)
        answer = one.read_answer()
        assert (answer.status, answer.json) == (200, [])
        assert two.read_answer().status == 204
        assert daemon.ended() == 0
        assert time.monotonic() - started < 10


def test_what_is_in_work_at_the_stop_is_finished(tmp_path: Path) -> None:
    """M01: a body half sent at SIGTERM is taken, acknowledged and found after the next start."""
    daemon = Daemon(tmp_path)
    daemon.start()
    daemon.create_topic("kept")
    with Wire(daemon) as wire:
        wire.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:10])
        assert daemon.request("GET", "/livez").status == 200
        os.kill(daemon.pid, signal.SIGTERM)
        wire.send(BODY[10:])
        answer = wire.read_answer()
        assert answer.status == 200
        assert answer.json["durability"] == "synced"
    assert daemon.ended() == 0
    with daemon:
        assert len(daemon.fetch_all("kept")) == 1


def test_while_it_stops_it_says_so(tmp_path: Path) -> None:
    """M01: /readyz 503 and requests 503/50304 in the grace time; alive meanwhile.

    A grace time that no slow machine spends on these requests; a second signal ends it.
    """
    daemon = Daemon(tmp_path, shutdown_grace_ms="100000")
    daemon.start()
    daemon.create_topic("kept")
    os.kill(daemon.pid, signal.SIGTERM)
    until(lambda: daemon.request("GET", "/readyz").status != 200)
    assert daemon.request("GET", "/livez").status == 200
    assert daemon.request("GET", "/readyz").json["checks"]["not_stopping"] is False
    refused(daemon.request("POST", "/topics/kept", {"records": [{"value": 1}]}), 503, 50304)
    refused(daemon.request("GET", "/topics"), 503, 50304)
    os.kill(daemon.pid, signal.SIGTERM)
    assert daemon.ended() == 128 + signal.SIGTERM


def test_the_grace_time_ends(tmp_path: Path) -> None:
    """M01: what has a grace time stops by itself behind it, in order."""
    daemon = Daemon(tmp_path, shutdown_grace_ms="300")
    daemon.start()
    begun = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - begun > 0.28
    assert (daemon.log_dirs[0] / ".kafka_cleanshutdown").exists()


@pytest.mark.slow
def test_a_signal_during_the_start_ends_cleanly(tmp_path: Path) -> None:
    """At any moment of the start: an orderly end, never a halt with an error; then all is there."""
    daemon = Daemon(tmp_path)
    daemon.start()
    daemon.produce_text("kept", "v")
    assert daemon.stop() == 0
    for pause in (0.0, 0.3, 0.7, 1.2):
        daemon.start(wait=False)
        while not handles(daemon.pid, signal.SIGTERM):
            time.sleep(0.001)  # an interpreter before the program has the signal's own default
        time.sleep(pause)  # the moment is the test's subject
        os.kill(daemon.pid, signal.SIGTERM)
        assert daemon.ended() == 0
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
        said = second.refused_start()
        assert "lock" in said.lower()
        after = listing(first.log_dirs[0])
        assert {p: v for p, v in after.items() if "checkpoint" not in p} == {
            p: v for p, v in before.items() if "checkpoint" not in p
        }
        first.produce_text("kept", "w")
        assert len(first.fetch_all("kept")) == 2


@pytest.mark.parametrize("key", ["http", "metrics"])
def test_a_port_in_use(tmp_path: Path, key: str) -> None:
    """Which port of which setting, and what to do; no number of the system. No file is touched."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        daemon = Daemon(tmp_path)
        daemon.overrides[f"{key}.port"] = str(port)
        *_, last = daemon.refused_start().splitlines()
    reason = (
        f"Cannot open port {port} on 127.0.0.1: Address already in use. Stop the program that has "
        f"it (ss -ltnp 'sport = :{port}' names it), or set {key}.port to another port."
    )
    assert json.loads(last)["reason"] == reason
    assert not daemon.log_dirs[0].exists()


MARKER = ".kafka_cleanshutdown"
EARLY = "Shutting down: the start had touched nothing"


@contextmanager
def spoilt(daemon: Daemon, kind: str) -> Iterator[str]:
    """What keeps it from starting; how the sentence about it begins and ends."""
    log_dir, file = daemon.log_dirs[0], daemon.root / "file"
    file.write_text("no such thing")
    with ExitStack() as held:
        match kind:
            case "port in use":
                held.enter_context(socket.create_server(("127.0.0.1", daemon.port)))
                yield f"Cannot open port {daemon.port} .* or set http.port to another port."
            case "locked directory":
                log_dir.mkdir()
                lock = held.enter_context((log_dir / ".lock").open("w"))
                fcntl.lockf(lock, fcntl.LOCK_EX)
                yield "Failed to acquire lock .* or name another directory in log.dirs."
            case "no directory":
                daemon.log_dirs = [file]
                yield "Shutdown broker because .* it is a file .* or name others in log.dirs."
            case "damaged file":
                log_dir.mkdir()
                (log_dir / "meta.properties").write_text("no such thing")
                yield ".*meta.properties is damaged .* Remedy: kafkalog doctor --repair .*"
            case "access file":
                daemon.overrides["http.acl.file"] = str(file)
                yield f"http.acl.file={file}: line 1: .*"
            case _:
                daemon.overrides["http.port"] = "80x"
                yield "Invalid value 80x for configuration http.port: must be a whole number .*"


@pytest.mark.parametrize(
    ("kind", "is_terminal"),
    [
        ("port in use", True),
        ("port in use", False),
        ("locked directory", True),
        ("no directory", True),
        ("damaged file", True),
        ("access file", True),
        ("setting", True),
    ],
)
def test_the_last_thing_a_refused_start_says(tmp_path: Path, kind: str, is_terminal: bool) -> None:
    """The person at a terminal reads one plain line; in a log there is the structured one only."""
    daemon = Daemon(tmp_path)
    screen, terminal = pty.openpty() if is_terminal else os.pipe()
    with spoilt(daemon, kind) as sentence:
        daemon.start(wait=False, stderr=terminal)
        os.close(terminal)
        status = daemon.ended()
    with open(screen, "rb", buffering=0) as shown, suppress(OSError):  # EIO: as its end
        said = b""
        while found := shown.read(100_000):
            said += found
    lines = said.decode().replace("\r\x1b[K", "").splitlines()
    assert status == (65 if kind == "damaged file" else 1)
    if kind == "setting" or is_terminal:  # settings say where the log goes
        assert re.fullmatch(f"Error: {sentence}", lines[-1]), lines
    else:
        assert lines == []
    if kind != "setting":
        last = json.loads(daemon.log_path.read_text().splitlines()[-1])
        assert last["event"] == "Cannot start"
        assert re.fullmatch(sentence, last["reason"])


class LoadedDaemon(GatedDaemon):
    """A daemon that was killed; the load of its partition kept-1 waits for the gate."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, num_recovery_threads_per_data_dir="1")

    def prepare(self) -> LoadedDaemon:
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
        process = self.process
        assert process is not None
        until(lambda: reached.exists() or process.poll() is not None)
        assert process.poll() is None, self.log_tail()

    def counts(self) -> list[int]:
        return [len(self.fetch_all("kept", partition)) for partition in range(3)]


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[LoadedDaemon]:
    daemon = LoadedDaemon(tmp_path / "gated").prepare()
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
    text = daemon.log_path.read_text().splitlines()
    return [json.loads(line)["event"] for line in text if line.startswith("{")]


def test_while_it_recovers_it_says_so(gated: LoadedDaemon) -> None:
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


def test_a_disk_that_hangs_at_the_first_look_is_seen(gated: LoadedDaemon) -> None:
    """A mount that does not answer holds up a start that can be seen, and be ended."""
    gated.gate.write_text("write_access")
    gated.start_and_reach_the_gate()
    assert gated.request("GET", "/livez").status == 200
    assert gated.request("GET", "/startupz").json["checks"]["logs_loaded"] is False
    refused(gated.request("GET", "/topics"), 503, 50304)
    os.kill(gated.pid, signal.SIGTERM)
    wait_for(gated, "Shutting down")
    os.kill(gated.pid, signal.SIGTERM)
    assert gated.ended() == 128 + signal.SIGTERM
    gated.gate.unlink()
    with gated:
        assert gated.counts() == [1, 1, 1]


def test_on_a_terminal_it_shows_a_line(gated: LoadedDaemon) -> None:
    """M16: redrawn while it loads, erased in front of log lines and at a SIGTERM's end."""
    screen, terminal = pty.openpty()
    gated.start_and_reach_the_gate(stderr=terminal)
    os.close(terminal)
    shown = b""
    while b"Loading logs: 1/3" not in shown:  # the test's time bounds it
        shown += os.read(screen, 10_000)
    os.kill(gated.pid, signal.SIGTERM)
    wait_for(gated, "Shutting down")
    gated.gate.unlink()
    assert gated.ended() == 0
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


def test_a_signal_during_the_load_is_obeyed(gated: LoadedDaemon) -> None:
    """M01: no "ready" after it; exit 0; what was not loaded stays unclean and is found later."""
    gated.overrides["shutdown.grace.ms"] = "60000"
    gated.start_and_reach_the_gate()
    os.kill(gated.pid, signal.SIGTERM)
    wait_for(gated, "Shutting down")
    answer = gated.request("GET", "/readyz")
    assert (answer.status, answer.json["checks"]["not_stopping"]) == (503, False)
    refused(gated.request("GET", "/topics"), 503, 50304)
    gated.gate.unlink()
    assert gated.ended() == 0
    events = lines(gated)
    assert events.count("kafkalog is ready") == 1, "once, in the life before"
    assert "Traceback" not in gated.log_path.read_text()
    assert "will recover" in events[-1]
    assert not (gated.log_dirs[0] / MARKER).exists()
    gated.overrides["shutdown.grace.ms"] = "0"
    with gated:
        assert gated.counts() == [1, 1, 1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_during_the_load_leaves_at_once(gated: LoadedDaemon, number: int) -> None:
    """M01: 128 + its number while the load hangs in the disk; a line says what comes next."""
    gated.start_and_reach_the_gate()
    os.kill(gated.pid, signal.SIGTERM)
    wait_for(gated, "Shutting down")
    os.kill(gated.pid, number)
    assert gated.ended() == 128 + number
    assert "the next start will recover" in lines(gated)[-1]
    gated.gate.unlink()
    with gated:
        assert gated.counts() == [1, 1, 1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_signal_before_the_loop_runs_is_obeyed(
    gated: LoadedDaemon, log_format: str, number: signal.Signals
) -> None:
    """M01: a signal in the first second of a start ends it with a line. Exit 0 and a line, not the
    signal's default; nothing was touched.
    """
    root = gated.log_dirs[0]
    before = listing(root)
    gated.gate.write_text("warm_up")
    gated.overrides["log.format"] = log_format
    gated.start_and_reach_the_gate()
    os.kill(gated.pid, number)
    assert gated.ended() == 0
    *_, line = gated.log_path.read_text().splitlines()
    if log_format == "json":
        told = json.loads(line)
        assert (told["event"], told["signal"]) == (EARLY, number.name)
        assert list(told)[:4] == ["timestamp", "level", "event", "logger"]
    else:
        assert EARLY in line
        assert line.endswith(f"signal={number.name}")
    assert listing(root) == before


def test_a_taken_port_touches_no_log(tmp_path: Path, gated: LoadedDaemon) -> None:
    """M14: exit 1 with the address named; a directory that needs recovery is as it was."""
    root = gated.log_dirs[0]
    with Daemon(tmp_path / "first") as first:
        before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
        own, gated.port = gated.port, first.port
        said = gated.refused_start()
        assert "Cannot start" in said
        assert str(first.port) in said.splitlines()[-1]
        assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
        gated.port = own
        gated.gate.unlink()
        with gated:
            assert gated.counts() == [1, 1, 1]


class ImageDaemon(Daemon):
    """A daemon as the image starts it: no argument, no override."""

    def command(self) -> list[str]:
        return super().command()[:4]


def told(daemon: Daemon) -> dict[str, object]:
    events = [json.loads(line) for line in daemon.log_path.read_text().splitlines()]
    found = [one for one in events if one["event"].startswith("Configuration;")]
    assert len(found) == 1
    assert isinstance(found[0], dict)
    return found[0]


def test_as_a_pod_starts_it(tmp_path: Path) -> None:
    """The mounted file goes over the image's, variables over both, service links are no keys."""
    mounted, image = tmp_path / "server.properties", tmp_path / "image.properties"
    image.write_text("http.port=1\nhttp.auth=none\n")
    hours = tmp_path / "hours"
    hours.write_text("5\n")
    daemon = ImageDaemon(tmp_path)
    mounted.write_text(
        f"http.port={daemon.port}\nlog.dirs={daemon.log_dirs[0]}\nnum.partitions=2\n"
        "ssl.keystore.password=canary\n"
    )
    daemon.environment = {
        "KAFKALOG_SERVER_PROPERTIES": f"{image}:-{tmp_path}/absent.properties:-{mounted}",
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKALOG_LOG_FORMAT": "json",
        "KAFKALOG_LOG_RETENTION_HOURS_FILE": str(hours),
        "KAFKALOG_PORT": "tcp://10.0.0.1:8082",
        "KAFKALOG_HTTP_PORT": "tcp://10.0.0.1:8082",
        "KAFKALOG_SERVICE_HOST": "10.0.0.1",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
    }
    with daemon:
        daemon.create_topic("kept", 1)
        topic = daemon.request("GET", "/v3/clusters").json["data"][0]["cluster_id"]
        config = daemon.request("GET", f"/v3/clusters/{topic}/topics/kept/configs/retention.ms")
        assert config.json["value"] == str(5 * 3_600_000)
        assert told(daemon)["given"] == [
            f"http.auth=none (file {image})",
            f"http.port={daemon.port} (file {mounted})",
            f"log.dirs={daemon.log_dirs[0]} (file {mounted})",
            "log.format=json (environment KAFKALOG_LOG_FORMAT)",
            "log.retention.hours=*** (environment KAFKALOG_LOG_RETENTION_HOURS_FILE)",
            "num.partitions=3 (environment KAFKA_NUM_PARTITIONS)",
        ]
    said = daemon.log_path.read_text()
    assert "canary" not in said
    assert "unknown configuration key" not in said
    assert "ssl.keystore.password" in said, "named as one that does not apply"


def test_no_file_where_one_was_named(tmp_path: Path) -> None:
    """A mount that failed is no start with the defaults."""
    daemon = ImageDaemon(tmp_path)
    absent = tmp_path / "absent.properties"
    environment = os.environ | {"KAFKALOG_SERVER_PROPERTIES": f"{absent}:-{tmp_path}/none"}
    done = subprocess.run(
        daemon.command(), capture_output=True, text=True, env=environment, check=False, timeout=60
    )
    assert done.returncode == 1
    assert f"Cannot read {absent}: No such file or directory" in done.stderr


def test_a_signal_shows_every_stack(tmp_path: Path) -> None:
    """A daemon that hangs can be asked where, without a port."""
    with Daemon(tmp_path) as daemon:
        os.kill(daemon.pid, signal.SIGUSR1)
        # The thread that the signal met is the last one.
        until(lambda: "kafkalog/__main__.py" in daemon.log_path.read_text())
        assert daemon.request("GET", "/readyz").status == 200
        assert "broker/directory/writer.py" in daemon.log_path.read_text()


# What a kernel gives a socket's path.
_PATH_BYTES_MAX = 100


class Manager:
    """The socket of a service manager, and what it heard."""

    def __init__(self, path: Path) -> None:
        assert len(os.fsencode(path)) < _PATH_BYTES_MAX
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(60)
        self.environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "600000"}
        self.heard: list[dict[str, str]] = []

    def until(self, name: str, value: str | None = None) -> dict[str, str]:
        """Hear until a state comes; the message with it."""
        while True:
            lines = self._socket.recv(4096).decode().splitlines()
            states = dict(line.split("=", 1) for line in lines)
            self.heard.append(states)
            if name in states and value in (None, states[name]):
                return states

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    one = Manager(tmp_path / "notify")
    yield one
    one.close()


def test_a_life_under_a_service_manager(tmp_path: Path, manager: Manager) -> None:
    """Progress and more time while it loads, READY when it serves, then a watchdog that is fed, a
    reload with both its ends, and the stop.
    """
    daemon = LoadedDaemon(tmp_path / "gated").prepare()
    daemon.environment = manager.environment
    daemon.start(wait=False)
    loading = manager.until("STATUS", "Reading the log directories")
    assert loading["EXTEND_TIMEOUT_USEC"] == "60000000"
    assert loading["WATCHDOG"] == "1"
    while not manager.until("STATUS")["STATUS"].startswith("Loading logs: 1/3"):
        pass  # the socket's time-out bounds it
    os.kill(daemon.pid, signal.SIGHUP)
    manager.until("WATCHDOG")
    assert not any("READY" in states or "RELOADING" in states for states in manager.heard)
    daemon.gate.unlink()
    ready = manager.until("READY")
    assert ready == {"READY": "1", "STATUS": f"Serving at http://127.0.0.1:{daemon.port}"}
    assert daemon.request("GET", "/readyz").status == 200
    assert manager.until("WATCHDOG") == {"WATCHDOG": "1"}, "no more time is asked for"
    os.kill(daemon.pid, signal.SIGHUP)
    assert int(manager.until("RELOADING")["MONOTONIC_USEC"]) > 0
    assert manager.until("READY") == {"READY": "1"}
    os.kill(daemon.pid, signal.SIGTERM)
    stopping = manager.until("STOPPING")
    assert stopping["EXTEND_TIMEOUT_USEC"] == "60000000"
    assert daemon.ended() == 0


def test_a_service_manager_that_is_gone(tmp_path: Path, manager: Manager) -> None:
    """A restart of systemd is no reason to stop; one line tells of it."""
    daemon = Daemon(tmp_path / "daemon", environment=manager.environment)
    with daemon:
        manager.until("READY")
        manager.close()
        while "cannot be notified" not in daemon.log_path.read_text():
            time.sleep(0.05)  # the test's own pace; the suite's time bounds it
        assert daemon.request("GET", "/readyz").status == 200
    assert daemon.log_path.read_text().count("cannot be notified") == 1
