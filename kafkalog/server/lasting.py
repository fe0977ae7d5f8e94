"""Lasting tasks: coroutines of the event loop that run until they are cancelled.

One that ends by itself died of a defect, which a task of asyncio keeps to itself until somebody
asks. Nobody does, and what it was for is simply not done any more; so it is told at once, as the
death of a thread is.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def lasting_task(
    coroutine: Coroutine[object, object, None],
    name: str,
    died: Callable[[str, BaseException | None], None],
) -> asyncio.Task[None]:
    """Begin it on the running loop; ``died`` gets its name and what it died of, on the loop.

    None: it returned, which it must not either.
    """

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            died(name, task.exception())

    task = asyncio.create_task(coroutine, name=name)
    task.add_done_callback(ended)
    return task
