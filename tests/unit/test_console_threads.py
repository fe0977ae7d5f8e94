"""Goal: no page of the console takes from the daemon the threads that everything else needs.
Method: the whole HTTP edge over a simulated manager; threads are held by a gate of the test's.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from aiohttp import ClientSession, ClientTimeout

from kafkalog.manager.broker_config import BrokerConfig
from kafkalog.observe.metrics_page import MetricsPage
from kafkalog.server.api import Api, Phase
from kafkalog.server.delayed_fetch import DelayedFetches
from kafkalog.server.in_flight import InFlightBytes
from kafkalog.server.listeners import close_listeners, open_listeners
from kafkalog.server.replies import RequestIds
from kafkalog.server.security.gate import AccessFiles
from kafkalog.settings import load_settings
from kafkalog.ui.assets import asset_address
from kafkalog.ui.rendering import prepare
from tests.sim.sim_manager import DIRS, SimManager

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BROWSER = {"Accept": "text/html"}
TIMEOUT = ClientTimeout(30)
SETTINGS = load_settings(None, {}, {"http.port": "0"})


class Edge:
    """An HTTP edge with two control threads, both of which wait for ``gate``."""

    def __init__(self) -> None:
        self.sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start()
        self.sim.operations.topics.create("t", 2)
        self.gate = threading.Event()
        self.url = ""

    def run(self, story: Callable[[Edge, Api, ClientSession], Awaitable[None]]) -> None:
        """The story beside an edge that serves; its gate is open at the end."""
        asyncio.run(self._run(story))

    async def _run(self, story: Callable[[Edge, Api, ClientSession], Awaitable[None]]) -> None:
        control, others = ThreadPoolExecutor(2), ThreadPoolExecutor(2)
        api = Api(
            operations=self.sim.operations,
            config=SETTINGS.server,
            settings=SETTINGS,
            metrics=self.sim.metrics,
            metrics_page=MetricsPage(self.sim.metrics),
            delayed_fetches=DelayedFetches(asyncio.get_running_loop(), 10),
            in_flight=InFlightBytes(1 << 20),
            control_pool=control,
            access_pool=others,
            debug_pool=others,
            sink_pool=others,
            reader_pools=lambda _: others,
        )
        api.phase = Phase.SERVING
        for _ in range(2):
            control.submit(self.gate.wait)
        listeners = await open_listeners(api, AccessFiles(SETTINGS.server), RequestIds("test"))
        self.url = f"http://127.0.0.1:{listeners[0].port}"
        try:
            async with ClientSession(timeout=TIMEOUT) as client:
                await story(self, api, client)
        finally:
            self.gate.set()
            await close_listeners(listeners, 1)
            control.shutdown()
            others.shutdown()


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_refusals_and_files_wait_for_no_thread_that_hangs(*, is_first: bool) -> None:
    """Goal: load is shed, and a login asked for, also when every control thread hangs.
    Method: all control threads held; errors as pages, a style sheet; before and after the first.
    """
    if is_first:
        prepare.cache_clear()

    async def story(edge: Edge, api: Api, client: ClientSession) -> None:
        style = asset_address("console.css")
        for path, phase, status in (
            ("/console/none", Phase.SERVING, 404),
            ("/console/topics", Phase.STARTING, 503),
            (style, Phase.SERVING, 200),
        ):
            api.phase = phase
            async with client.get(edge.url + path, headers=BROWSER) as answer:
                kind = "text/css" if path == style else "text/html"
                assert (answer.status, answer.content_type) == (status, kind)
        assert not edge.gate.is_set()

    Edge().run(story)
