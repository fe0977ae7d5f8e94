"""An Api over a simulated manager, without a daemon around it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalog.observe.metrics_page import MetricsPage
from kafkalog.server.api import Api, Pools
from kafkalog.server.console.threads import ConsoleThreads
from kafkalog.server.fetch.delayed_fetch import DelayedFetches
from kafkalog.server.protocol.bodies import InFlightBytes

if TYPE_CHECKING:
    from concurrent.futures import Executor

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
