"""Goal: no coroutine that is to run for ever ends without a word.
Method: coroutines that raise, return and are cancelled; reloads whose refresh meets a defect.
"""

from __future__ import annotations

import asyncio

import pytest

from kafkalog.env.systemd import ServiceManager
from kafkalog.server.supervision import Supervision, keep_files_current, lasting_task


class Deaths:
    """What was told, and when."""

    def __init__(self) -> None:
        self.told: list[tuple[str, BaseException | None]] = []
        self.came = asyncio.Event()

    def __call__(self, name: str, defect: BaseException | None) -> None:
        self.told.append((name, defect))
        self.came.set()


def test_who_dies_is_told_at_once() -> None:
    """While somebody still holds the task, and nobody asks it."""
    defect = AssertionError("defect")

    async def raises() -> None:
        raise defect

    async def returns() -> None:
        return

    async def lasts() -> None:
        await asyncio.Event().wait()

    async def run() -> list[tuple[str, BaseException | None]]:
        deaths = Deaths()
        tasks = [lasting_task(each(), each.__name__, deaths) for each in (raises, returns, lasts)]
        await asyncio.wait(tasks[:2])
        tasks[2].cancel()
        await asyncio.wait(tasks)
        return deaths.told

    assert asyncio.run(run()) == [("raises", defect), ("returns", None)]


def test_a_refresh_with_a_defect_ends_the_reloads_and_leaves_no_unit_reloading() -> None:
    """Credentials that are read no more are noticed, by the daemon and by systemd."""
    heard: list[set[str]] = []

    class Hearing(ServiceManager):
        def tell(self, **states: str) -> None:
            heard.append(set(states))

    async def refresh() -> None:
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
