"""Goal: the units of deploy/systemd are what systemd understands, and locked up.
Method: systemd-analyze on copies whose program is there; what the units say about each other.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from kafkalog.__main__ import UNUSABLE_LOG_DIRS_EXIT
from kafkalog.settings.settings import load_settings
from tests.integration.daemon import Daemon
from tests.integration.http_world import until
from tests.operate.tools import ROOT, run, tool

pytestmark = pytest.mark.operate

UNITS = ROOT / "deploy" / "systemd"
NAMES = ("kafkalog.service", "kafkalog@.service")
ARCHIVE = (
    "kafkalog-archive.service",
    "kafkalog-archive-once.service",
    "kafkalog-archive-once.timer",
)
PROGRAM = "/opt/kafkalog/.venv/bin/kafkalog"
EXPOSURE_MAX = 30  # tenths


@pytest.fixture
def analyze() -> str:
    return tool("systemd-analyze", "apt-get install systemd")


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units with a program that every machine has."""
    for name in (*NAMES, *ARCHIVE):
        text = (UNITS / name).read_text()
        assert PROGRAM in text or name.endswith(".timer")
        (tmp_path / name).write_text(text.replace(PROGRAM, "/bin/true"))
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_verify_has_nothing_to_say(analyze: str, units: Path, name: str) -> None:
    unit = units / name
    done = run(analyze, "verify", unit)
    about = [line for line in (done.stdout + done.stderr).splitlines() if "kafkalog" in line]
    assert (done.returncode, about) == (0, [])
    unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchdogSeconds="))
    assert "WatchdogSeconds" in run(analyze, "verify", unit).stderr


@pytest.mark.parametrize("name", ARCHIVE)
def test_the_units_of_an_archive(analyze: str, units: Path, name: str) -> None:
    """Understood, locked up, and the command's own words."""
    done = run(analyze, "verify", units / name)
    about = [line for line in (done.stdout + done.stderr).splitlines() if "kafkalog" in line]
    assert (done.returncode, about) == (0, [])
    if name.endswith(".timer"):
        return
    threshold = f"--threshold={EXPOSURE_MAX}"
    done = run(analyze, "security", "--offline=true", "--no-pager", threshold, units / name)
    assert done.returncode == 0, done.stdout[-200:]
    (start,) = re.findall(rf"^ExecStart={PROGRAM} (.*)$", (UNITS / name).read_text(), re.MULTILINE)
    words = start.replace("$ARCHIVE_OPTIONS", "--help").split()
    assert run(sys.executable, "-m", "kafkalog", *words).returncode == 0


@pytest.mark.parametrize("name", NAMES)
def test_exposure_is_low(analyze: str, units: Path, name: str) -> None:
    unit = units / name
    arguments = ("security", "--offline=true", "--no-pager")
    done = run(analyze, *arguments, f"--threshold={EXPOSURE_MAX}", unit)
    assert done.returncode == 0, done.stdout[-200:]
    assert run(analyze, *arguments, "--threshold=5", unit).returncode != 0


def test_what_no_restart_mends_is_not_repeated() -> None:
    """Damaged log directories end the service for good."""
    line = f"RestartPreventExitStatus={UNUSABLE_LOG_DIRS_EXIT}"
    assert all(line in (UNITS / name).read_text().splitlines() for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_clock_is_set_before_the_start(name: str) -> None:
    """A clock that is set later is a jump, which holds retention. The time daemon pulls it in."""
    lines = (UNITS / name).read_text().splitlines()
    (after,) = (line for line in lines if line.startswith("After="))
    (wants,) = (line for line in lines if line.startswith("Wants="))
    assert "time-sync.target" in after.split()
    assert "time-sync.target" not in wants
    runbook = ROOT / "docs/runbooks/KafkalogRetentionHeldByClock.md"
    assert "time-sync.target" in runbook.read_text()


def test_the_instance_differs_in_its_places_alone() -> None:
    one, several = ((UNITS / name).read_text().splitlines() for name in NAMES)
    assert len(one) == len(several)
    differing = [
        left.split("=")[0]
        for left, right in zip(one, several, strict=True)
        if left != right and not left.startswith("#")
    ]
    assert differing == [
        "Description",
        "ExecStart",
        "EnvironmentFile",
        "StateDirectory",
        "WorkingDirectory",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_logs_outlive_a_stop(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No log directory lies where a stop empties it, whatever the user's file leaves out."""
    unit = (UNITS / name).read_text()
    assert "PrivateTmp" not in unit.replace("# No PrivateTmp", "")
    (start,) = re.findall(r"^ExecStart=\S+ server (\S+) (\S+)$", unit, re.MULTILINE)
    brought, users = start
    assert users.startswith("/etc/kafkalog/")
    monkeypatch.chdir(tmp_path)
    shipped = (ROOT / brought.removeprefix("/opt/kafkalog/")).read_bytes()
    settings = load_settings(None, {}, {}, files={brought: shipped, users: b""})
    assert [Path(each).resolve() for each in settings.broker.log_dirs] == [tmp_path / "data"]


class TracedDaemon(Daemon):
    def __init__(self, root: Path, strace: str) -> None:
        super().__init__(root, log_dirs=2)
        self.strace = strace
        self.trace = root / "trace"

    def command(self) -> list[str]:
        """See Daemon. strace puts itself behind the process, which stays ours to signal."""
        options = ("--daemonize", "--follow-forks", "--output", str(self.trace))
        return [self.strace, *options, *super().command()]

    def calls(self) -> set[str]:
        """Names, once strace has written the end."""
        assert self.process is None
        until(lambda: "exited with 0 +++" in self.trace.read_text(), pace_seconds=0.05)
        return set(re.findall(r"^\d+ +([a-z0-9_]+)\(", self.trace.read_text(), re.MULTILINE))


def allowed_calls(analyze: str, unit: str) -> set[str]:
    """Names of system calls that the unit's filters leave."""
    allowed: set[str] = set()
    for line in unit.splitlines():
        if line.startswith("SystemCallFilter="):
            wanted = line.removeprefix("SystemCallFilter=")
            names = expanded(analyze, wanted.removeprefix("~"))
            allowed = allowed - names if wanted.startswith("~") else allowed | names
    return allowed


def expanded(analyze: str, name: str) -> set[str]:
    """The calls of a set of systemd's, whose sets may name others."""
    done = run(analyze, "syscall-filter", name)
    assert done.returncode == 0, done.stderr
    found: set[str] = set()
    for line in done.stdout.splitlines()[1:]:
        word = line.strip()
        if word.startswith("@"):
            found |= expanded(analyze, word)
        elif word and not word.startswith("#"):
            found.add(word)
    return found


def test_no_call_of_the_daemon_is_filtered(analyze: str, tmp_path: Path) -> None:
    """The filter of system calls takes nothing away that the daemon needs."""
    strace = tool("strace", "apt-get install strace")
    daemon = TracedDaemon(tmp_path, strace)
    with daemon:
        daemon.create_topic("t", 2)
        daemon.produce_text("t", *map(str, range(100)))
        assert daemon.request("POST", "/v1/topics/t/partitions/0/log:roll", {}).status == 200
        assert daemon.request("GET", "/debug/bundle").status == 200
        assert daemon.request("DELETE", f"{daemon.cluster()}/topics/t").status == 204
    called = daemon.calls()
    assert {"fdatasync", "rename", "pwrite64"} <= called, "the trace shows the daemon's work"
    # Background threads make themselves nicer, where the daemon is not nice already.
    filtered = (called | {"setpriority"}) - allowed_calls(analyze, (UNITS / NAMES[0]).read_text())
    assert filtered == set()
