"""Reloads: the files of access are read again when they change, or at once at SIGHUP."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkalog.server.supervision import Supervision


async def keep_files_current(
    refresh: Callable[[], Awaitable[None]],
    period_seconds: float | None,
    hang_up: asyncio.Event,
    supervision: Supervision,
) -> None:
    """Refresh at every period (None: there is nothing to look at) and when ``hang_up`` is set.

    Until it is cancelled. What is wrong in a file is the refresh's to tell; what it raises is a
    defect, and ends this.
    """
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(period_seconds):
                await hang_up.wait()
        is_asked_for = hang_up.is_set()
        hang_up.clear()
        if is_asked_for:
            supervision.reloading()
        try:
            await refresh()
        finally:
            if is_asked_for:
                supervision.reloaded()
