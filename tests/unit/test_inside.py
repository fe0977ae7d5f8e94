"""Goal: a look into the process does not stand in the way of what it looks at.
Method: a page of metrics as large as one gets, counted beside a coroutine that wants its turns.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import to_builtins

from kafkalog.server.admin.debug import metrics_cardinality

if TYPE_CHECKING:
    from kafkalog.server.admin.answers import MetricsCardinality

PARTITIONS = 20_000


def test_the_loop_turns_while_samples_are_counted() -> None:
    """Goal: nobody waits for the whole page, on the loop or for the interpreter's lock.
    Method: how often another coroutine is run until the answer is there; the answer itself.
    """
    lines = [f'size{{topic="t\\"{n % 7}",partition="{n}"}} {n}\n' for n in range(PARTITIONS)]
    page = "".join(("# HELP up One.\n# TYPE up gauge\nup 1\n# TYPE size gauge\n", *lines))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> MetricsCardinality:
        counting = asyncio.create_task(count_turns())
        found = await metrics_cardinality(page.encode())
        counting.cancel()
        return found

    assert to_builtins(asyncio.run(run())) == {
        "samples": PARTITIONS + 1,
        "families": [
            {
                "name": "size",
                "samples": PARTITIONS,
                "labels": {"topic": 7, "partition": PARTITIONS},
            },
            {"name": "up", "samples": 1, "labels": {}},
        ],
    }
    assert turns >= PARTITIONS // 100
