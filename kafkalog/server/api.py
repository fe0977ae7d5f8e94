"""The objects that the handlers use: operations, configuration, metrics, pools and shared state.

Owned by the event loop; nothing here blocks. Control-plane calls run on the control pool
(``blocking``), reads of cold pages on the pool of their log directory (``reading``).
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import functools
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from aiohttp import web

from kafkalog.broker.directory.commands import AppendCommand, JoinedAppendCommand
from kafkalog.errors import KafkalogError, NotReady, Overloaded
from kafkalog.log.values import WouldBlock
from kafkalog.server.fetch.delayed_fetch import ReadSlots
from kafkalog.server.fetch.tail_cache import TailCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from kafkalog.broker.catalog import OpenTopic
    from kafkalog.broker.directory.commands import Command
    from kafkalog.broker.operations import Acks, Operations
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import (
        FetchDataInfo,
        FetchSpan,
        Isolation,
        LogAppendInfo,
        TimestampOffset,
        ValidatedRecords,
    )
    from kafkalog.observe.metrics import Metrics
    from kafkalog.observe.metrics_page import MetricsPage
    from kafkalog.server.console.threads import ConsoleThreads
    from kafkalog.server.fetch.delayed_fetch import DelayedFetches
    from kafkalog.server.protocol.bodies import InFlightBytes
    from kafkalog.settings import ServerConfig, Settings

    _Appends = AppendCommand | JoinedAppendCommand

P = ParamSpec("P")
T = TypeVar("T")

# Bytes of appends that wait for the end of the loop's iteration: no other budget counts them.
_PENDING_BYTES = 1 << 20


class Phase(enum.Enum):
    """The phases of the daemon that its clients see."""

    STARTING = "starting"  # only probes, metrics and diagnostics are served
    SERVING = "serving"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Pools:
    """Threads for what the event loop must not wait for. They start on demand."""

    control: Executor
    sinks: Executor
    access: Executor  # passwords, files of access: no log directory is touched there
    debug: Executor  # of one thread; likewise
    readers: Callable[[str], Executor]  # by partition directory
    console: ConsoleThreads


@dataclass(slots=True)
class State:
    """What all views of one Api share. Owned by the event loop."""

    phase: Phase = Phase.STARTING
    # why the daemon waits to be stopped instead of loading (``unusable.log.dirs.wait``)
    start_refusal: str | None = None
    requests_in_work: int = 0  # that were let in and are not answered yet, waiting ones too
    console_streams: int = 0  # pages that are told of news
    null_key_rounds: Iterator[int] = field(default_factory=itertools.count)
    # appends of this iteration of the loop
    pending: list[tuple[Operations, _Appends]] = field(default_factory=list)
    pending_bytes: int = 0
    # those of them that further small appends to their logs may join
    joinable: dict[UnifiedLog, tuple[Operations, JoinedAppendCommand]] = field(default_factory=dict)


@dataclass(slots=True)
class Api:
    """What the handlers use; with access rules, as one principal sees it."""

    # constant after construction
    operations: Operations
    config: ServerConfig
    settings: Settings
    metrics: Metrics
    metrics_page: MetricsPage
    delayed_fetches: DelayedFetches
    in_flight: InFlightBytes
    pools: Pools
    tail_cache: TailCache = field(default_factory=TailCache)
    read_slots: ReadSlots = field(default_factory=ReadSlots)
    state: State = field(default_factory=State)

    @property
    def stopping(self) -> bool:
        """No request is admitted and no fetch waits any longer."""
        return self.state.phase is Phase.STOPPING

    def lets_in(self, *, is_ahead: bool = False) -> bool:
        """Whether there is room for one more request; if not, the middleware says why.

        ``is_ahead``: one that was sent before the last answer; they have half of the room.
        """
        state = self.state
        in_work = state.requests_in_work + 1 - self.delayed_fetches.waiting_count
        is_full = in_work > self.config.http_max_inflight_requests >> is_ahead
        return state.phase is Phase.SERVING and not is_full

    @property
    def cluster_id(self) -> str:
        """Of the log directories; empty before they are loaded."""
        return self.operations.cluster_id

    def refusal(self) -> NotReady:
        """Why a request is not served in this phase. Clients wait by the detail ``phase``."""
        if self.stopping:
            return NotReady(
                "The daemon is stopping; nothing was appended.", phase=Phase.STOPPING.value
            )
        loading = self.operations.loading()
        return NotReady(
            f"The daemon is starting: {loading.partitions_loaded} of {loading.partitions} "
            "partitions are loaded; nothing was appended.",
            phase=Phase.STARTING.value,
        )

    def null_key_partition(self, topic: OpenTopic | None, partition_count: int) -> int:
        """The partition of one request's records without key: the next one, round robin.

        Only one that is served, as Java's producer does, unless none is. ``topic`` None: it is
        still to be created.
        """
        round_number, partition = divmod(next(self.state.null_key_rounds), partition_count)
        if topic is None or topic.serves(partition):
            return partition
        every = range(partition_count)
        served = [number for number in every if topic.serves(number)] or every
        return served[(round_number + partition) % len(served)]

    async def blocking(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a control-plane call that may touch the disk on the control pool."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.pools.control, _in_context(call, *args, **kwargs))

    async def run_on_debug_pool(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run diagnostics on a pool that no hanging log directory can block."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.pools.debug, lambda: call(*args, **kwargs))

    async def run_on_sink_pool(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call of a sink on the sink pool: it waits for other calls and for disks."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.pools.sinks, _in_context(call, *args, **kwargs))

    async def reading(self, log: UnifiedLog, read: Callable[[bool], T]) -> T:
        """Call ``read(may_block=False)`` inline; when pages are cold, again on the reader pool."""
        try:
            return read(False)
        except WouldBlock:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.pools.readers(log.directory), read, True)

    async def fetch(
        self,
        log: UnifiedLog,
        offset: int,
        max_bytes: int,
        isolation: Isolation,
        *,
        remembers: bool = False,
    ) -> FetchDataInfo:
        """Read batches from an offset; ``remembers`` and errors as of ``Operations.fetch``."""

        def fetch(may_block: bool) -> FetchDataInfo:
            return self.operations.fetch(
                log, offset, max_bytes, isolation, may_block=may_block, remembers=remembers
            )

        return await self.reading(log, fetch)

    async def read_again(self, log: UnifiedLog, span: FetchSpan) -> memoryview:
        """On the reader pool; errors as of ``Operations.read_again``."""
        loop = asyncio.get_running_loop()
        readers = self.pools.readers(log.directory)
        return await loop.run_in_executor(readers, self.operations.read_again, log, span)

    async def offset_at(
        self, log: UnifiedLog, timestamp_ms: int, isolation: Isolation
    ) -> TimestampOffset | None:
        """The first record at or after a time, or a named offset; None without one."""
        list_offset = self.operations.list_offset
        return await self.reading(
            log, lambda may_block: list_offset(log, timestamp_ms, isolation, may_block=may_block)
        )

    def append(
        self,
        log: UnifiedLog,
        records: ValidatedRecords,
        acks: Acks,
        expected_offset: int | None = None,
    ) -> asyncio.Future[LogAppendInfo]:
        """Submit records to the writer; the future is done when ``acks`` is fulfilled."""
        future: asyncio.Future[LogAppendInfo] = asyncio.get_running_loop().create_future()
        on_done = functools.partial(self._finish_append, future)
        self.submit(log, records, acks, on_done, expected_offset)
        return future

    def _finish_append(self, future: asyncio.Future[LogAppendInfo], command: Command) -> None:
        """Count it: what was written also when it could not be made durable, as Kafka does."""
        assert isinstance(command, AppendCommand)
        topic, records = command.log.topic_partition.topic, command.records
        is_written, traffic = command.result is not None, self.metrics.traffic
        figures = (records.record_count, records.size_bytes, 1) if is_written else (0, 0, 1)
        if self.operations.is_topic(topic):
            traffic.observe_append(topic, *figures)
        else:  # a deleted topic's counters are forgotten, for good
            traffic.observe_departed_append(*figures)
        finish(future, command)

    def submit(
        self,
        log: UnifiedLog,
        records: ValidatedRecords,
        acks: Acks,
        on_done: Callable[[Command], None],
        expected_offset: int | None = None,
    ) -> None:
        """Submit records to the writer; ``on_done`` gets the command, refused or as ``acks`` wants.

        Appends of one iteration of the loop are submitted together at its end: a writer that the
        first of them wakes would take the interpreter from the requests that follow.
        """
        self.state.joinable.pop(log, None)  # what comes now is behind this one
        self._keep(AppendCommand(log, records, acks, expected_offset, on_done))
        self._count_pending(records.size_bytes)

    def submit_small(
        self,
        log: UnifiedLog,
        batch: bytes | memoryview,
        record_count: int,
        max_timestamp_ms: int,
        acks: Acks,
        on_done: Callable[[Command], None],
    ) -> None:
        """As ``submit``, of one batch that ``is_small_and_usual`` and has no producer id."""
        operations, command = self.state.joinable.get(log, (None, None))
        if command is None or operations is not self.operations or command.acks is not acks:
            command = JoinedAppendCommand(log, acks)
            self.state.joinable[log] = self.operations, command
            self._keep(command)
        command.add(batch, record_count, max_timestamp_ms, on_done)
        self._count_pending(len(batch))

    def _keep(self, command: _Appends) -> None:
        """To the end of this iteration of the loop."""
        if not self.state.pending:
            asyncio.get_running_loop().call_soon(self._submit_pending)
        self.state.pending.append((self.operations, command))

    def _count_pending(self, size_bytes: int) -> None:
        self.state.pending_bytes += size_bytes
        if self.state.pending_bytes > _PENDING_BYTES:
            self._submit_pending()

    def _submit_pending(self) -> None:
        """Submit the appends of this iteration in order."""
        state = self.state
        pending, state.pending, state.pending_bytes = state.pending, [], 0
        state.joinable.clear()
        runs: list[tuple[Operations, list[_Appends]]] = []
        newest: dict[UnifiedLog, tuple[Operations, list[_Appends]]] = {}
        for operations, command in pending:
            run = newest.get(command.log)
            if run is None or run[0] is not operations:
                run = newest[command.log] = operations, []
                runs.append(run)
            run[1].append(command)
        for operations, commands in runs:
            log = commands[0].log
            try:
                operations.submit_appends(log, commands)
            except Overloaded:  # there may be room for some of them
                for command in commands:
                    for single in command.split():
                        self._submit_one(operations, single)
            except KafkalogError as error:
                for command in commands:
                    self._refuse(command, error)

    def _submit_one(self, operations: Operations, command: _Appends) -> None:
        try:
            operations.submit_appends(command.log, (command,))
        except KafkalogError as error:
            self._refuse(command, error)

    def _refuse(self, command: _Appends, error: KafkalogError) -> None:
        """It was not queued."""
        for _ in range(command.append_count):
            self.metrics.traffic.observe_failed_append(command.log.topic_partition.topic, error)
        command.error = error
        command.complete()


def finish(future: asyncio.Future[T], command: Command) -> None:
    """The result of a finished command becomes that of the future."""
    if future.done():  # the client went away; what the command did is whole all the same
        return
    if command.error is None:
        future.set_result(cast("T", command.result))
        return
    future.set_exception(command.error)
    future.exception()  # seen: it is not reported when nothing awaits it, as with acks=0


def _in_context(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Callable[[], T]:
    """For a thread, with the request's context: ``NAMES_PATHS`` says whether it may see paths."""
    return functools.partial(contextvars.copy_context().run, call, *args, **kwargs)


API_KEY: web.AppKey[Api] = web.AppKey("api", Api)
# The gate sets it: the view of the request's principal.
API_VIEW: web.RequestKey[Api] = web.RequestKey("api_view", Api)


def api_of(request: web.Request) -> Api:
    """The Api of a request, as its principal sees it."""
    view = request.get(API_VIEW)
    return request.app[API_KEY] if view is None else view
