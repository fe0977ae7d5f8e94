"""Goal: what the service manager waits for reaches it, also when its queue was full.
Method: a receiver that refuses some messages, and the periods of the real object.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalog.env.service_manager import ServiceManager
from kafkalog.server.supervision import Supervision

if TYPE_CHECKING:
    from kafkalog.manager.values import Loading


class Refusing(ServiceManager):
    """Takes no message while it is full."""

    def __init__(self) -> None:
        super().__init__("@nobody", 0.03)
        self.is_full = False
        self.heard: list[dict[str, str]] = []
        self.was_told = asyncio.Event()

    def tell(self, **states: str) -> None:
        """See ServiceManager."""
        if self.is_full:
            raise BlockingIOError("full")
        self.heard.append(states)
        self.was_told.set()


def _loading() -> Loading:
    raise AssertionError("it serves already")


async def _told_after(manager: Refusing) -> dict[str, str]:
    """The first message that gets through once there is room."""
    supervision = Supervision(manager, _loading)
    manager.is_full = True
    supervision.ready("http://somewhere")
    supervision.reloading()
    supervision.reloaded()
    manager.is_full = False
    async with supervision:
        await manager.was_told.wait()
    return manager.heard[0]


def test_ready_is_said_until_it_is_heard() -> None:
    """Goal: a daemon that serves is not killed because one datagram was lost.
    Method: no room for READY; the next period, and the one behind it.
    """
    manager = Refusing()
    assert asyncio.run(_told_after(manager)) == {"READY": "1", "WATCHDOG": "1"}
    assert all("READY" not in each for each in manager.heard[1:])
