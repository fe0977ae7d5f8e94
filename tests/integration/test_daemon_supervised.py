"""Goal: systemd sees a start that recovers, a reload and a stop, and a loop that turns.
Method: the real process, with a socket of the test in the place of systemd's; the load of one
partition waits while a gate file exists.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import Daemon
from tests.integration.test_daemon_life import pid_of
from tests.integration.test_daemon_start import GatedDaemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
        """Nobody hears any more."""
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """One that hears until the test ends."""
    one = Manager(tmp_path / "notify")
    yield one
    one.close()


def test_a_life_under_a_service_manager(tmp_path: Path, manager: Manager) -> None:
    """Goal: progress and more time while it loads, READY when it serves, then a watchdog that is
    fed, a reload with both its ends, and the stop.
    Method: hear from the start that recovers to the end of the process.
    """
    daemon = GatedDaemon(tmp_path / "gated").prepare()
    daemon.environment = manager.environment
    daemon.start(wait=False)
    loading = manager.until("STATUS", "Reading the log directories")
    assert loading["EXTEND_TIMEOUT_USEC"] == "60000000"
    assert loading["WATCHDOG"] == "1"
    while not manager.until("STATUS")["STATUS"].startswith("Loading logs: 1/3"):
        pass  # the socket's time-out bounds it
    os.kill(pid_of(daemon), signal.SIGHUP)
    manager.until("WATCHDOG")
    assert not any("READY" in states or "RELOADING" in states for states in manager.heard)
    daemon.gate.unlink()
    ready = manager.until("READY")
    assert ready == {"READY": "1", "STATUS": f"Serving at http://127.0.0.1:{daemon.port}"}
    assert daemon.request("GET", "/readyz").status == 200
    assert manager.until("WATCHDOG") == {"WATCHDOG": "1"}, "no more time is asked for"
    os.kill(pid_of(daemon), signal.SIGHUP)
    assert int(manager.until("RELOADING")["MONOTONIC_USEC"]) > 0
    assert manager.until("READY") == {"READY": "1"}
    os.kill(pid_of(daemon), signal.SIGTERM)
    stopping = manager.until("STOPPING")
    assert stopping["EXTEND_TIMEOUT_USEC"] == "60000000"
    assert daemon.process is not None
    assert daemon.process.wait(60) == 0
    daemon.process = None


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
