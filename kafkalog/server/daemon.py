"""The daemon's life on the event loop: listen, serve, stop in order (operations.md 6.2).

The object graph is built by ``kafkalog/__main__.py``; this module owns the loop, the listener and
the order of the shutdown: not ready, stop accepting, finish what is in flight, close the logs.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from kafkalog.env.pools import PoolPerLogDir, thread_pool
from kafkalog.server.api import Api
from kafkalog.server.app import make_app
from kafkalog.server.delayed_fetch import DelayedFetches
from kafkalog.server.in_flight import InFlightBytes
from kafkalog.server.protocol import ConnectionServer
from kafkalog.server.replies import RequestIds

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.manager.log_dir_writer import CompletionSink
    from kafkalog.manager.operations import Operations
    from kafkalog.observe.metrics import Metrics
    from kafkalog.settings import ServerConfig

_log = structlog.get_logger("kafkalog.server")
_CONTROL_THREADS = 4
_LAG_PERIOD_SECONDS = 0.1
_FINISH_SECONDS = 15.0  # for requests in work at the stop
# A pure-Python background thread may hold the GIL this long at most (design: the GIL is shared).
_SWITCH_INTERVAL_SECONDS = 0.0005
# Containers that live between two looks of the garbage collector: some megabytes at most.
_GC_ALLOCATIONS = 20_000


@dataclass(frozen=True, slots=True)
class Graph:
    """What the composition root makes once a completion sink exists."""

    operations: Operations
    metrics: Metrics
    cluster_id: str
    close: Callable[[], None]  # blocking: flush, checkpoints, clean-shutdown markers


@dataclass(slots=True)
class Daemon:
    """One run of the server."""

    config: ServerConfig
    # Blocking: loads and recovers all logs. The second argument is called, on any thread, when no
    # log directory is left.
    build: Callable[[CompletionSink, Callable[[], None]], Graph]
    request_id_prefix: str
    reader_threads_per_dir: int
    exit_code: int = 0

    async def run(self) -> int:
        """Serve until SIGTERM or SIGINT; return the exit code."""
        sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, stop)
        delayed = DelayedFetches(loop, self.config.http_max_streams)
        control = thread_pool("control", _CONTROL_THREADS)
        readers = PoolPerLogDir("reader", self.reader_threads_per_dir)

        def give_up() -> None:
            loop.call_soon_threadsafe(self._stop_with_error, stop)

        graph = await loop.run_in_executor(control, self.build, delayed, give_up)
        # What was loaded stays: walking it again would stop every thread for 0.1 s and more.
        gc.collect()
        gc.freeze()
        # The default of 700 looks at every object of the requests in work once for each of them.
        gc.set_threshold(_GC_ALLOCATIONS, 20, 20)
        api = Api(
            operations=graph.operations,
            config=self.config,
            metrics=graph.metrics,
            delayed_fetches=delayed,
            in_flight=InFlightBytes(self.config.queued_max_request_bytes),
            control_pool=control,
            reader_pools=readers,
            cluster_id=graph.cluster_id,
        )
        try:
            await self._serve(api, stop)
        finally:
            await loop.run_in_executor(None, graph.close)
            readers.shutdown()
            control.shutdown()
        return self.exit_code

    def _on_signal(self, stop: asyncio.Event) -> None:
        """First signal: stop in order. Second: leave now, recovery will do the rest."""
        if stop.is_set():
            raise SystemExit(130)
        stop.set()

    def _stop_with_error(self, stop: asyncio.Event) -> None:
        """No log directory is left: end as Kafka does."""
        self.exit_code = 1
        stop.set()

    async def _serve(self, api: Api, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        ids = RequestIds(self.request_id_prefix)
        server = ConnectionServer(
            make_app(api, ids), loop=loop, config=self.config, request_ids=ids
        )
        listener = await loop.create_server(
            server, self.config.http_host, self.config.http_port, backlog=1024, reuse_address=True
        )
        port = listener.sockets[0].getsockname()[1]
        _log.info("kafkalog is ready", url=f"http://{self.config.http_host}:{port}")
        lag = asyncio.create_task(self._watch_lag(api))
        try:
            await stop.wait()
        finally:
            _log.info("Shutting down")
            api.stopping = True
            api.delayed_fetches.wake_all()
            await asyncio.sleep(self.config.shutdown_grace_ms / 1000)
            lag.cancel()
            listener.close()
            await server.finish(_FINISH_SECONDS)

    async def _watch_lag(self, api: Api) -> None:
        """How late the loop runs a timer: proof that no disk work is on it."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_PERIOD_SECONDS
            await asyncio.sleep(_LAG_PERIOD_SECONDS)
            api.metrics.observe_loop_lag(max(0.0, loop.time() - due))
