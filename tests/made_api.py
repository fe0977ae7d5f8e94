"""An Api over a simulated manager, without a daemon around it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kafkalog.observe.metrics_page import MetricsPage
from kafkalog.server.api import Api, Phase, Pools
from kafkalog.server.app import close_listeners, open_listeners
from kafkalog.server.console.threads import ConsoleThreads
from kafkalog.server.fetch.delayed_fetch import DelayedFetches
from kafkalog.server.protocol.bodies import InFlightBytes
from kafkalog.server.protocol.replies import RequestIds
from kafkalog.server.security.gate import AccessFiles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from concurrent.futures import Executor

    from kafkalog.server.app import Listener
    from kafkalog.settings import Settings
    from tests.sim.sim_manager import SimManager


def api_over(
    sim: SimManager,
    settings: Settings,
    pool: Executor,
    *,
    control_pool: Executor | None = None,
    console_threads: ConsoleThreads | None = None,
) -> Api:
    """On the loop that runs; every pool is ``pool`` but those that are given."""
    return Api(
        operations=sim.operations,
        config=settings.server,
        settings=settings,
        metrics=sim.metrics,
        metrics_page=MetricsPage(sim.metrics),
        delayed_fetches=DelayedFetches(asyncio.get_running_loop(), 10),
        in_flight=InFlightBytes(1 << 20),
        pools=Pools(
            control=control_pool or pool,
            sinks=pool,
            access=pool,
            debug=pool,
            readers=lambda _: pool,
            console=console_threads or ConsoleThreads(),
        ),
    )


@asynccontextmanager
async def listening(api: Api) -> AsyncIterator[list[Listener]]:
    """The ports of its settings, over an edge that serves."""
    api.state.phase = Phase.SERVING
    listeners = await open_listeners(api, AccessFiles(api.config), RequestIds("test"))
    try:
        yield listeners
    finally:
        await close_listeners(listeners, 1)
