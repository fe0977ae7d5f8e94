"""The daemon on the event loop: listen, load, serve, and stop in order.

``kafkalog/__main__.py`` builds the object graph. This module owns the loop, the listeners, the
signals and the order of the shutdown: not ready, stop accepting, finish requests in flight, close
the logs. The ports are opened after the access files are read and before any log directory is
touched: a port that is taken costs no recovery, and a long recovery can be watched.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from kafkalog.env.process_facts import give_freed_memory_back, own_command
from kafkalog.env.system_threads import PoolPerLogDir, thread_pool
from kafkalog.errors import UnusableLogDirs
from kafkalog.observe.metrics_page import MetricsPage
from kafkalog.server.api import Api, Phase, Pools
from kafkalog.server.app import Listener, close_listeners, open_listeners
from kafkalog.server.console.threads import ConsoleThreads
from kafkalog.server.fetch.delayed_fetch import DelayedFetches
from kafkalog.server.protocol.bodies import InFlightBytes
from kafkalog.server.protocol.replies import RequestIds
from kafkalog.server.security.gate import AccessFiles
from kafkalog.server.supervision import (
    Supervision,
    first_steps,
    keep_files_current,
    show_loading,
    supervised_task,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.broker.directory.writer import CompletionSink
    from kafkalog.broker.operations import Operations
    from kafkalog.env.systemd import ServiceManager
    from kafkalog.observe.metrics import Metrics
    from kafkalog.observe.terminal_line import TerminalLine
    from kafkalog.settings import ServerConfig, Settings


_log = structlog.get_logger("kafkalog.server")
_CONTROL_THREADS = 4
_SINK_THREADS = 8
_ACCESS_THREADS = 2
_LAG_PERIOD_SECONDS = 0.1
_WATCH_PERIOD_SECONDS = 2.0
_MEMORY_PERIOD_SECONDS = 60.0
_FINISH_SECONDS = 15.0  # for requests in work at the stop
# A pure-Python background thread may hold the GIL this long at most (design: the GIL is shared).
_SWITCH_INTERVAL_SECONDS = 0.0005
# Allocations between two runs of the garbage collector: some megabytes at most.
_GC_ALLOCATIONS = 20_000
_DEFECT_EXIT = 70  # sysexits.h: an internal software error


def _make_pools(readers: PoolPerLogDir) -> Pools:
    return Pools(
        control=thread_pool("control", _CONTROL_THREADS),
        sinks=thread_pool("sink", _SINK_THREADS),
        access=thread_pool("access", _ACCESS_THREADS),
        debug=thread_pool("debug", 1),
        readers=readers,
        console=ConsoleThreads(),
    )


def _shut_down(pools: Pools, readers: PoolPerLogDir) -> None:
    """Wait for running calls; blocks."""
    shared = (pools.sinks, pools.control, pools.access, pools.debug)
    for pool in (readers, pools.console, *shared):
        pool.shutdown()


@dataclass(frozen=True, slots=True)
class Graph:
    """What the composition root makes once a completion sink exists; no disk is touched yet."""

    operations: Operations
    metrics: Metrics
    load: Callable[[], None]  # blocking: loads and recovers all logs
    stop_loading: Callable[[], None]  # any thread: ``load`` returns soon, not everything is loaded
    close: Callable[[], None]  # blocking: flush, checkpoints, clean-shutdown markers


@dataclass(slots=True)
class Daemon:
    """One run of the server."""

    settings: Settings
    # The second argument is called, on any thread, when no log directory is left.
    build: Callable[[CompletionSink, Callable[[], None]], Graph]
    request_id_prefix: str
    service_manager: ServiceManager
    terminal_line: TerminalLine | None = None  # None: progress is in the log only
    exit_code: int = 0
    _has_stop_signal: bool = False

    @property
    def config(self) -> ServerConfig:
        """Of the HTTP edge."""
        return self.settings.server

    async def run(self) -> int:
        """Serve until SIGTERM or SIGINT; return the exit code.

        InvalidConfig when a port cannot be opened: no log directory was touched. What the load
        raises.
        """
        sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
        loop = asyncio.get_running_loop()
        files = AccessFiles(self.config)
        delayed = DelayedFetches(loop, self.config.http_max_streams)
        readers = PoolPerLogDir("reader", self.settings.broker.num_io_threads_per_data_dir)
        pools = _make_pools(readers)
        stop = asyncio.Event()

        def give_up() -> None:
            loop.call_soon_threadsafe(self._stop, api, stop, 1)  # as Kafka does

        graph = self.build(delayed, give_up)
        api = self._make_api(graph, delayed, pools)
        on_failure = functools.partial(self._stop_after_defect, api, graph, stop)
        supervision = Supervision(self.service_manager, graph.operations.loading, on_failure)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number, api, graph, stop)
        listeners = await open_listeners(api, files, RequestIds(self.request_id_prefix))
        reloads = supervised_task(
            self._keep_current(api, files, supervision), "reloads", on_failure
        )
        async with supervision:
            try:
                await self._load(api, graph)
            except UnusableLogDirs as error:
                if self.config.unusable_log_dirs_wait:
                    api.state.start_refusal = error.message
                    _log.error("Cannot start; waiting to be stopped", reason=error.message)
                    if self.terminal_line is not None:
                        self.terminal_line.write_above("Cannot start; waiting to be stopped.\n")
                    await stop.wait()
                await close_listeners(listeners, _FINISH_SECONDS)
                raise
            except BaseException:
                await close_listeners(listeners, _FINISH_SECONDS)
                raise
            supervised = [
                supervised_task(self._watch_lag(api), "loop-lag", on_failure),
                supervised_task(self._give_memory_back(api), "memory", on_failure),
            ]
            try:
                await self._serve(api, listeners, stop, supervision)
                await close_listeners(listeners, _FINISH_SECONDS)
            finally:
                reloads.cancel()
                for task in supervised:
                    task.cancel()
                supervision.stopping()
                await loop.run_in_executor(None, graph.close)
                await loop.run_in_executor(None, _shut_down, pools, readers)
        return self.exit_code

    def _make_api(self, graph: Graph, delayed: DelayedFetches, pools: Pools) -> Api:
        return Api(
            operations=graph.operations,
            config=self.config,
            settings=self.settings,
            metrics=graph.metrics,
            metrics_page=MetricsPage(graph.metrics, self.config.metrics_options),
            delayed_fetches=delayed,
            in_flight=InFlightBytes(self.config.queued_max_request_bytes),
            pools=pools,
        )

    def _on_signal(
        self, number: signal.Signals, api: Api, graph: Graph, stop: asyncio.Event
    ) -> None:
        """First signal: stop in order. Second: exit now; the next start recovers."""
        if self._has_stop_signal:
            _log.warning(
                "Second signal: leaving at once; the next start will recover", signal=number.name
            )
            os._exit(128 + number)  # a thread may hang in the disk: nothing is waited for
        self._has_stop_signal = True
        graph.stop_loading()
        self._stop(api, stop)

    def _stop_after_defect(
        self, api: Api, graph: Graph, stop: asyncio.Event, name: str, defect: BaseException | None
    ) -> None:
        """A supervised task ended: the daemon must not run on without it."""
        _log.critical("A task failed by a defect; the daemon stops", task=name, exc_info=defect)
        graph.stop_loading()
        self._stop(api, stop, _DEFECT_EXIT)

    def _stop(self, api: Api, stop: asyncio.Event, exit_code: int = 0) -> None:
        self.exit_code = exit_code or self.exit_code
        _log.info("Shutting down")
        api.state.phase = Phase.STOPPING
        stop.set()

    async def _load(self, api: Api, graph: Graph) -> None:
        """Load all logs off the loop, then admit requests, unless the daemon was stopped.

        What was imported and loaded stays: to walk it would stop every thread for 0.1 s and more.
        """
        gc.freeze()
        gc.enable()
        await self._shown(api, graph.load)
        if api.stopping:
            return
        gc.collect()
        gc.freeze()
        # The default of 700 visits every object of the requests in work for each new request.
        gc.set_threshold(_GC_ALLOCATIONS, 20, 20)
        api.state.phase = Phase.SERVING

    async def _shown(self, api: Api, load: Callable[[], None]) -> None:
        """The load, with its progress on the terminal if there is one."""
        loading = asyncio.get_running_loop().run_in_executor(api.pools.control, load)
        if self.terminal_line is None:
            await loading
            return
        shown = asyncio.create_task(show_loading(self.terminal_line, api.operations.loading))
        try:
            await loading
        finally:
            shown.cancel()
            await asyncio.wait([shown])

    async def _serve(
        self, api: Api, listeners: list[Listener], stop: asyncio.Event, supervision: Supervision
    ) -> None:
        """Until it is stopped and those who watch /readyz have had time to see it."""
        if api.stopping:
            return  # it was never ready: no client sends anything
        scheme = "http" if self.config.http_tls_cert_file is None else "https"
        for each in listeners[1:]:
            _log.info("Further port", routes=each.role.value, port=each.port)
        url = f"{scheme}://{self.config.http_host}:{listeners[0].port}"
        _log.info("kafkalog is ready", url=url)
        if self.terminal_line is not None:
            log_dirs = self.settings.broker.log_dirs
            self.terminal_line.write_above(first_steps(url, log_dirs, own_command()))
        supervision.ready(url)
        await stop.wait()
        supervision.stopping()
        api.delayed_fetches.wake_all()
        await asyncio.sleep(self.config.shutdown_grace_ms / 1000)

    async def _keep_current(self, api: Api, files: AccessFiles, supervision: Supervision) -> None:
        """The files of access."""
        loop = asyncio.get_running_loop()
        hang_up = asyncio.Event()
        loop.add_signal_handler(signal.SIGHUP, hang_up.set)
        period_seconds = _WATCH_PERIOD_SECONDS if files.is_any else None

        async def refresh() -> dict[str, str]:
            return await loop.run_in_executor(
                api.pools.access, files.refresh, api.metrics.observe_reload
            )

        await keep_files_current(refresh, period_seconds, hang_up, supervision)

    async def _watch_lag(self, api: Api) -> None:
        """How late the loop runs a timer while it serves: proof that no disk work is on it."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_PERIOD_SECONDS
            await asyncio.sleep(_LAG_PERIOD_SECONDS)
            api.metrics.event_loop_lag_seconds.observe(max(0.0, loop.time() - due))

    async def _give_memory_back(self, api: Api) -> None:
        """Return free heap memory to the system, on the debug thread: no request waits for it."""
        resident = 0
        while resident >= 0:
            await asyncio.sleep(_MEMORY_PERIOD_SECONDS)
            resident = await api.run_on_debug_pool(give_freed_memory_back, resident)
        await asyncio.get_running_loop().create_future()  # nothing to do on this system
