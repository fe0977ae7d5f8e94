"""Goal: what the service manager waits for reaches it, also when its queue was full.
Method: a receiver that refuses some messages, a load that cannot be described, real periods.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from kafkalog.env.systemd import ServiceManager
from kafkalog.server.supervision import STOP_SECONDS, Supervision

if TYPE_CHECKING:
    from kafkalog.broker.values import Loading


class Refusing(ServiceManager):
    """Takes no message while it is full."""

    def __init__(self) -> None:
        super().__init__("@nobody", 0.03)
        self.is_full = False
        self.enough = 1
        self.heard: list[dict[str, str]] = []
        self.was_told = asyncio.Event()

    def tell(self, **states: str) -> None:
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
    """A daemon that serves is not killed because one datagram was lost."""
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
