"""What every route needs: the operations, the configuration, the metrics and the waiting places.

Lives on the event loop; nothing here blocks. Blocking control-plane calls go through ``blocking``
and cold reads through the pool of their log directory.
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import functools
import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from aiohttp import web

from kafkalog.errors import KafkalogError
from kafkalog.log.values import WouldBlock
from kafkalog.server.fetch.source import ReadPlaces
from kafkalog.server.fetch.tail_cache import TailPieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from kafkalog.broker.directory.commands import Command
    from kafkalog.broker.operations import Acks, Operations
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import LogAppendInfo, ValidatedRecords
    from kafkalog.observe.metrics import Metrics
    from kafkalog.observe.metrics_page import MetricsPage
    from kafkalog.server.console.threads import ConsoleThreads
    from kafkalog.server.fetch.delayed_fetch import DelayedFetches
    from kafkalog.server.protocol.bodies import InFlightBytes
    from kafkalog.settings import ServerConfig, Settings

    _Append = tuple[
        Operations,
        UnifiedLog,
        ValidatedRecords,
        Acks,
        int | None,
        asyncio.Future[LogAppendInfo],
    ]

P = ParamSpec("P")
T = TypeVar("T")

# Appends that wait for the end of the turn hold memory that no budget counts: not more than this.
_TURN_BYTES = 1 << 20


class Phase(enum.Enum):
    """Of the daemon's life, as its clients see it."""

    STARTING = "starting"  # only probes and metrics are answered
    SERVING = "serving"
    STOPPING = "stopping"


@dataclass(slots=True)
class _Shared:
    """What all views of one edge have in common. Owned by the event loop."""

    phase: Phase = Phase.STARTING
    start_refusal: str | None = None
    requests_in_work: int = 0
    null_key_turns: Iterator[int] = field(default_factory=itertools.count)
    turn: list[_Append] = field(default_factory=list)  # appends of this turn of the loop
    turn_bytes: int = 0


@dataclass(slots=True)
class Api:
    """The object graph of the HTTP edge; with access rules, as one principal sees it."""

    # constant after construction
    operations: Operations
    config: ServerConfig
    settings: Settings
    metrics: Metrics
    metrics_page: MetricsPage
    delayed_fetches: DelayedFetches
    in_flight: InFlightBytes
    control_pool: Executor
    sink_pool: Executor
    access_pool: Executor  # passwords, files of access: no log directory is touched there
    debug_pool: Executor  # of one thread; likewise
    reader_pools: Callable[[str], Executor]  # by partition directory
    console_threads: ConsoleThreads
    tail_pieces: TailPieces = field(default_factory=TailPieces)
    read_places: ReadPlaces = field(default_factory=ReadPlaces)
    _shared: _Shared = field(default_factory=_Shared)

    def with_operations(self, operations: Operations) -> Api:
        """The same edge with other operations: a principal's view of them."""
        return replace(self, operations=operations)

    @property
    def phase(self) -> Phase:
        """Of the daemon's life."""
        return self._shared.phase

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self._shared.phase = phase

    @property
    def start_refusal(self) -> str | None:
        """Why the daemon waits to be stopped instead of loading (``unusable.log.dirs.wait``)."""
        return self._shared.start_refusal

    @start_refusal.setter
    def start_refusal(self, reason: str) -> None:
        self._shared.start_refusal = reason

    @property
    def requests_in_work(self) -> int:
        """Requests that were let in and are not answered yet, waiting ones too."""
        return self._shared.requests_in_work

    @requests_in_work.setter
    def requests_in_work(self, count: int) -> None:
        self._shared.requests_in_work = count

    @property
    def stopping(self) -> bool:
        """Nothing new is begun, nobody waits any longer."""
        return self._shared.phase is Phase.STOPPING

    @property
    def cluster_id(self) -> str:
        """Of the log directories; empty before they are loaded."""
        return self.operations.cluster_id

    def refusal(self) -> str:
        """Why a request is not served in this phase."""
        if self.stopping:
            return "The daemon is stopping; nothing was appended."
        loading = self.operations.loading()
        return (
            f"The daemon is starting: {loading.partitions_loaded} of {loading.partitions} "
            "partitions are loaded; nothing was appended."
        )

    def null_key_partition(self, topic: str, partition_count: int) -> int:
        """Where the records without key of one request go: the next partition in turn.

        As Java's producer only one that is served, unless none is.
        """
        round_number, partition = divmod(next(self._shared.null_key_turns), partition_count)
        if self.operations.is_served(topic, partition):
            return partition
        every = range(partition_count)
        served = [number for number in every if self.operations.is_served(topic, number)] or every
        return served[(round_number + partition) % len(served)]

    async def blocking(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a control-plane call that may touch the disk on the control pool."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.control_pool, _in_context(call, *args, **kwargs))

    async def inside(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what looks into the process where no log directory that hangs holds it up."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.debug_pool, lambda: call(*args, **kwargs))

    async def in_turn(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call of a sink, which waits for others of it and for every disk, on its pool."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.sink_pool, _in_context(call, *args, **kwargs))

    async def reading(self, log: UnifiedLog, read: Callable[[bool], T]) -> T:
        """Call ``read(may_block=False)`` inline; when pages are cold, again on the reader pool."""
        try:
            return read(False)
        except WouldBlock:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.reader_pools(log.directory), read, True)

    def append(
        self,
        log: UnifiedLog,
        records: ValidatedRecords,
        acks: Acks,
        expected_offset: int | None = None,
    ) -> asyncio.Future[LogAppendInfo]:
        """Hand records to the writer; the future ends as the durability class says.

        The appends of one turn of the loop are handed over together when it ends: a writer that is
        woken by the first of them would take the interpreter away from the requests behind it.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[LogAppendInfo] = loop.create_future()
        shared = self._shared
        if not shared.turn:
            loop.call_soon(self._submit_turn)
        shared.turn.append((self.operations, log, records, acks, expected_offset, future))
        shared.turn_bytes += records.size_bytes
        if shared.turn_bytes > _TURN_BYTES:
            self._submit_turn()
        return future

    def _submit_turn(self) -> None:
        """Queue what this turn appended, in order; a refusal is the outcome of its future."""
        shared = self._shared
        turn, shared.turn, shared.turn_bytes = shared.turn, [], 0
        for operations, log, records, acks, expected_offset, future in turn:
            finish = functools.partial(_finish, future)
            try:
                operations.submit_produce(
                    log, records, acks, expected_offset=expected_offset, on_done=finish
                )
            except KafkalogError as error:
                topic = log.topic_partition.topic
                self.metrics.traffic.observe_failed_append(topic, error)
                if not future.done():
                    _fail(future, error)


def _finish(future: asyncio.Future[LogAppendInfo], command: Command) -> None:
    """What a finished command says is the outcome of its future."""
    if future.done():  # the client went away; the append is whole all the same
        return
    if command.error is not None:
        _fail(future, command.error)
    else:
        future.set_result(cast("LogAppendInfo", command.result))


def _fail(future: asyncio.Future[LogAppendInfo], error: BaseException) -> None:
    """A failure that nobody waits for is no news: its client left, or wanted acks=0."""
    future.set_exception(error)
    future.exception()  # seen


def _in_context(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Callable[[], T]:
    """For a thread: what the request is allowed to be told (``NAMES_PATHS``) goes along."""
    return functools.partial(contextvars.copy_context().run, call, *args, **kwargs)


API_KEY: web.AppKey[Api] = web.AppKey("api", Api)
# What the gate gives a request when there is one: its principal's view, and who that is.
API_VIEW: web.RequestKey[Api] = web.RequestKey("api_view", Api)
PRINCIPAL: web.RequestKey[str] = web.RequestKey("principal", str)


def api_of(request: web.Request) -> Api:
    """The graph behind a request, as its principal sees it."""
    view = request.get(API_VIEW)
    return request.app[API_KEY] if view is None else view
