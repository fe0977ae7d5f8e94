"""Goal: the service manager that started us hears of us, and its absence costs nothing.
Method: datagram sockets of both name spaces, environments right and wrong.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from kafkalog.env.systemd import ServiceManager, usec

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("is_abstract", [False, True])
def test_it_hears_states(tmp_path: Path, is_abstract: bool) -> None:
    """One datagram a call, in the protocol's form."""
    name = str(tmp_path / "notify") if not is_abstract else f"@{tmp_path.name}-{os.getpid()}"
    address = name if not is_abstract else b"\0" + name[1:].encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        manager = ServiceManager.of({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000000"})
        assert manager.is_there
        assert manager.watchdog_seconds == 30
        manager.tell(READY="1", STATUS="Serving")
        assert listener.recv(1000) == b"READY=1\nSTATUS=Serving"
        manager.close()
        manager.tell(WATCHDOG="1")  # nothing more is told


@pytest.mark.parametrize(
    ("environment", "is_there", "watchdog_seconds"),
    [
        ({}, False, None),
        ({"NOTIFY_SOCKET": ""}, False, None),
        ({"NOTIFY_SOCKET": "vsock:2:1234", "WATCHDOG_USEC": "1000"}, False, None),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "abc"}, True, None),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "0"}, True, None),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, True, None),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "500000"}, True, 0.5),
    ],
)
def test_who_started_us(
    environment: dict[str, str], is_there: bool, watchdog_seconds: float | None
) -> None:
    """What is meant for another process, or nobody, is not taken."""
    manager = ServiceManager.of(environment)
    assert (manager.is_there, manager.watchdog_seconds) == (is_there, watchdog_seconds)
    manager.close()


def test_a_listener_that_is_gone_is_an_error_of_the_call(tmp_path: Path) -> None:
    """Who tells decides what it means."""
    manager = ServiceManager(str(tmp_path / "gone"), None)
    with pytest.raises(FileNotFoundError):
        manager.tell(READY="1")
    manager.close()
    assert usec(1.5) == "1500000"
