"""Goal: no coroutine that is to run for ever ends without a word, and the service manager hears in
time what it waits for; its absence costs nothing.
Method: coroutines that end and raise, a socket in the place of systemd's.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from kafkalog.env.systemd import ServiceManager, usec
from kafkalog.server.supervision import (
    STOP_SECONDS,
    Supervision,
    keep_files_current,
    supervised_task,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.broker.values import Loading


class Refusing(ServiceManager):
    """Takes no message while it is full."""

    def __init__(self) -> None:
        super().__init__("@nobody", 0.03)
        self.is_full = False
        self.enough = 1
        self.heard: list[dict[str, str]] = []
        self.was_told = asyncio.Event()

    def notify(self, **states: str) -> None:
        if self.is_full:
            raise BlockingIOError("full")
        self.heard.append(states)
        if len(self.heard) >= self.enough:
            self.was_told.set()


def _loading() -> Loading:
    raise AssertionError("a defect, or it serves already")


def _died(name: str, defect: BaseException | None) -> None:
    raise AssertionError(name) from defect


async def _told_after(manager: Refusing) -> dict[str, str]:
    """The first message that gets through once there is room."""
    supervision = Supervision(manager, _loading, _died)
    manager.is_full = True
    supervision.ready("http://somewhere")
    supervision.reloading()
    supervision.reloaded()
    manager.is_full = False
    async with supervision:
        await manager.was_told.wait()
    return manager.heard[0]


def test_ready_is_said_until_it_is_heard() -> None:
    manager = Refusing()
    assert asyncio.run(_told_after(manager)) == {"READY": "1", "WATCHDOG": "1"}
    assert all("READY" not in each for each in manager.heard[1:])


def test_a_defect_in_the_status_line_costs_no_watchdog() -> None:
    """A load is not ended by SIGABRT because nobody can say how far it is."""
    manager = Refusing()
    manager.enough = 3

    async def run() -> None:
        async with Supervision(manager, _loading, _died):
            await manager.was_told.wait()

    with capture_logs() as lines:
        asyncio.run(run())
    assert all(each.keys() == {"WATCHDOG", "EXTEND_TIMEOUT_USEC"} for each in manager.heard)
    assert [line["log_level"] for line in lines] == ["critical"]


def test_a_stop_asks_for_more_time_for_some_minutes() -> None:
    """A disk that hangs at the end does not keep the machine from going down."""
    manager, now = Refusing(), [1_000.0]

    async def run() -> None:
        async with Supervision(manager, _loading, _died, lambda: now[0]) as supervision:
            supervision.ready("http://somewhere")
            supervision.stopping()
            now[0] += STOP_SECONDS - 1
            supervision.stopping()
            assert "EXTEND_TIMEOUT_USEC" in manager.heard[-1]
            now[0] += 1
            manager.was_told.clear()
            manager.enough = len(manager.heard) + 2
            await manager.was_told.wait()

    asyncio.run(run())
    assert "EXTEND_TIMEOUT_USEC" not in manager.heard[0], "it serves"
    assert manager.heard[-2:] == [{"WATCHDOG": "1"}] * 2


class Deaths:
    def __init__(self) -> None:
        self.told: list[tuple[str, BaseException | None]] = []
        self.came = asyncio.Event()

    def __call__(self, name: str, defect: BaseException | None) -> None:
        self.told.append((name, defect))
        self.came.set()


def test_who_dies_is_told_at_once() -> None:
    defect = AssertionError("defect")

    async def raises() -> None:
        raise defect

    async def returns() -> None:
        return

    async def lasts() -> None:
        await asyncio.Event().wait()

    async def run() -> list[tuple[str, BaseException | None]]:
        deaths = Deaths()
        tasks = [
            supervised_task(each(), each.__name__, deaths) for each in (raises, returns, lasts)
        ]
        await asyncio.wait(tasks[:2])
        tasks[2].cancel()
        await asyncio.wait(tasks)
        return deaths.told

    assert asyncio.run(run()) == [("raises", defect), ("returns", None)]


def test_a_refresh_with_a_defect_ends_the_reloads_and_leaves_no_unit_reloading() -> None:
    heard: list[set[str]] = []

    class Hearing(ServiceManager):
        def notify(self, **states: str) -> None:
            heard.append(set(states))

    async def refresh() -> dict[str, str]:
        raise AssertionError("defect")

    async def run() -> None:
        supervision = Supervision(Hearing(None, None), pytest.fail, Deaths())
        supervision.ready("http://somewhere")
        hang_up = asyncio.Event()
        hang_up.set()
        await keep_files_current(refresh, None, hang_up, supervision)

    with pytest.raises(AssertionError, match="defect"):
        asyncio.run(run())
    assert heard == [{"READY", "STATUS"}, {"RELOADING", "MONOTONIC_USEC"}, {"READY"}]


def test_who_hangs_up_reads_what_was_done() -> None:
    """A line for SIGHUP, with each setting; none for a look that the period brings."""

    async def run() -> None:
        hang_up, looks = asyncio.Event(), 0

        async def refresh() -> dict[str, str]:
            nonlocal looks
            looks += 1
            if looks == 3:
                raise AssertionError("over")
            if looks == 1:
                hang_up.set()
            return {"http.auth.file": "read", "http.acl.file": "unchanged"}

        supervision = Supervision(ServiceManager(None, None), pytest.fail, Deaths())
        await keep_files_current(refresh, 0.0, hang_up, supervision)

    with capture_logs() as lines, pytest.raises(AssertionError, match="over"):
        asyncio.run(run())
    said = [each for each in lines if "SIGHUP" in each["event"]]
    assert [each["files"] for each in said] == [
        {"http.auth.file": "read", "http.acl.file": "unchanged"}
    ]


@pytest.mark.parametrize("is_abstract", [False, True])
def test_it_hears_states(tmp_path: Path, is_abstract: bool) -> None:
    name = str(tmp_path / "notify") if not is_abstract else f"@{tmp_path.name}-{os.getpid()}"
    address = name if not is_abstract else b"\0" + name[1:].encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        manager = ServiceManager.of({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000000"})
        assert manager.is_there
        assert manager.watchdog_seconds == 30
        manager.notify(READY="1", STATUS="Serving")
        assert listener.recv(1000) == b"READY=1\nSTATUS=Serving"
        manager.close()
        manager.notify(WATCHDOG="1")  # nothing more is told


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
    manager = ServiceManager.of(environment)
    assert (manager.is_there, manager.watchdog_seconds) == (is_there, watchdog_seconds)
    manager.close()


def test_a_listener_that_is_gone_is_an_error_of_the_call(tmp_path: Path) -> None:
    manager = ServiceManager(str(tmp_path / "gone"), None)
    with pytest.raises(FileNotFoundError):
        manager.notify(READY="1")
    manager.close()
    assert usec(1.5) == "1500000"
