"""The operations of both clients, in the order of docs/reference/client.md.

An operation is written once, as steps, and becomes a method of both clients:

    class Operations:
        list_topics = Method(admin.list_topics)

``Client.list_topics(...)`` returns the result, ``AsyncClient.list_topics(...)`` an awaitable of it,
with the parameters and the docstring of the function; type checkers see both. As an attribute of
the class it is the function itself, for ``help`` and for ``run``.
"""

from __future__ import annotations

import functools
import random
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, overload

from kafkalog.client import admin, fetch as fetches, produce as appends, sinks
from kafkalog.client.fetch import MAX_BYTES, OutOfRange, TailState
from kafkalog.client.messages import DEFAULT_URL, Address, context_for
from kafkalog.client.producer import ProducerIdentity, ProducerState
from kafkalog.client.retry import Retries, RetryContext

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from kafkalog.client.messages import Credentials, Request, Tls
    from kafkalog.client.records import Acks, CodecName, Isolation
    from kafkalog.client.retry import Steps


P = ParamSpec("P")
T = TypeVar("T")
ProducerT = TypeVar("ProducerT")
TailT = TypeVar("TailT")

MAX_WAIT_MS = 10_000


class Blocking(ABC):
    """A client whose calls return when they are done."""

    @abstractmethod
    def run(self, steps: Steps[T]) -> T:
        """Carry out an operation. Raises ClientError."""


class Awaiting(ABC):
    """A client whose calls are awaited."""

    @abstractmethod
    async def run(self, steps: Steps[T]) -> T:
        """Carry out an operation. Raises ClientError."""


class Method(Generic[P, T]):
    """A descriptor: the function of an operation as a method."""

    def __init__(self, steps: Callable[P, Steps[T]]) -> None:
        self._steps = steps

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Steps[T]]: ...

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, Awaitable[T]]: ...

    def __get__(self, client: Blocking | Awaiting | None, owner: type) -> Any:
        if client is None:
            return self._steps

        @functools.wraps(self._steps)
        def method(*args: P.args, **kwargs: P.kwargs) -> object:
            return client.run(self._steps(*args, **kwargs))

        return method


TIMEOUT_SECONDS = 30.0


class Operations(ABC, Generic[ProducerT, TailT]):
    """`Client` returns the results, `AsyncClient` awaitables of them.

    credentials      Basic or Bearer; sent unencrypted, so use https
    tls              for https: files, or your own context; None: the system's CA certificates
    timeout_seconds  without data, for connecting and for each answer
    retries          see `retry.py`; ``ONE_TRY`` for none

    Raises ValueError for a URL that is not http(s)://host:port, OSError for files of ``tls``.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        credentials: Credentials | None = None,
        tls: Tls | ssl.SSLContext | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retries: Retries | None = None,
    ) -> None:
        self.address = Address.of(url)
        self._context = context_for(self.address, tls)
        self._authorization = None if credentials is None else credentials.authorization()
        self._timeout_seconds = timeout_seconds
        self._retry_context = RetryContext(
            self.address, retries or Retries(), time.monotonic, random.random
        )
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Prepare for connections; none is opened before the first call."""

    @abstractmethod
    def _new_producer(self, state: ProducerState) -> ProducerT: ...

    @abstractmethod
    def _new_tail(self, state: TailState) -> TailT: ...

    def _headers_of(self, request: Request) -> dict[str, str]:
        """All but those that the transport adds."""
        headers = request.headers()
        if self._authorization is not None:
            headers["Authorization"] = self._authorization
        return headers

    # producers and tails
    def producer(
        self,
        identity: ProducerIdentity | None = None,
        *,
        acks: Acks | None = None,
        codec: CodecName = "none",
    ) -> ProducerT:
        """A producer that appends each record exactly once.

        identity  a producer id to use; None: the daemon assigns one at the first send
        acks      all or 1; None: the daemon's default
        """
        return self._new_producer(ProducerState(identity, acks=acks, codec=codec))

    def tail(
        self,
        topic: str,
        partition: int,
        *,
        start: int | Literal["earliest", "latest"] = "latest",
        on_out_of_range: OutOfRange = "error",
        is_endless: bool = True,
        max_wait_ms: int = MAX_WAIT_MS,
        max_bytes: int = MAX_BYTES,
        isolation: Isolation = "read_uncommitted",
    ) -> TailT:
        """Records of a partition one by one, by default as they arrive, indefinitely.

        Parameters: see `TailState`. An unavailable daemon is waited for until the deadline of
        ``retries``. After that a ClientError is raised; iterating again continues at ``position``.
        """
        state = TailState(
            topic, partition, start, on_out_of_range, is_endless, max_wait_ms, max_bytes, isolation
        )
        return self._new_tail(state)

    # records
    produce = Method(appends.produce)
    append_batches = Method(appends.append_batches)
    fetch = Method(fetches.fetch)
    fetch_batches = Method(fetches.fetch_batches)
    fetch_page = Method(fetches.fetch_page)
    offset_range = Method(fetches.offset_range)
    offset_at = Method(fetches.offset_at)
    list_offsets = Method(fetches.list_offsets)
    delete_records = Method(admin.delete_records)

    # transactions
    describe_producers = Method(admin.describe_producers)
    abort_transaction = Method(admin.abort_transaction)

    # exactly-once sinks
    begin_sink = Method(sinks.begin_sink)
    commit_sink = Method(sinks.commit_sink)
    abort_sink = Method(sinks.abort_sink)
    list_sinks = Method(sinks.list_sinks)
    describe_sink = Method(sinks.describe_sink)

    # topics and configs
    list_topics = Method(admin.list_topics)
    describe_topics = Method(admin.describe_topics)
    describe_topic = Method(admin.describe_topic)
    partitions = Method(admin.partitions)
    create_topic = Method(admin.create_topic)
    grow_topic = Method(admin.grow_topic)
    delete_topic = Method(admin.delete_topic)
    topic_configs = Method(admin.topic_configs)
    alter_topic_configs = Method(admin.alter_topic_configs)
    broker_id = Method(admin.broker_id)
    broker_configs = Method(admin.broker_configs)
    alter_broker_configs = Method(admin.alter_broker_configs)

    # groups
    list_groups = Method(admin.list_groups)
    describe_group = Method(admin.describe_group)
    delete_group = Method(admin.delete_group)
    group_offsets = Method(admin.group_offsets)
    commit_offsets = Method(admin.commit_offsets)
    reset_group_offsets = Method(admin.reset_group_offsets)

    # logs
    describe_log = Method(admin.describe_log)
    explain_retention = Method(admin.explain_retention)
    simulate_retention = Method(admin.simulate_retention)
    run_retention = Method(admin.run_retention)
    accept_clock = Method(admin.accept_clock)
    archived_offsets = Method(admin.archived_offsets)
    raise_archived_offsets = Method(admin.raise_archived_offsets)
    losses = Method(admin.losses)
    accept_loss = Method(admin.accept_loss)
    roll_log = Method(admin.roll_log)
    flush_log = Method(admin.flush_log)
    cleaner_status = Method(admin.cleaner_status)
    run_cleaner = Method(admin.run_cleaner)
    steer_cleaner = Method(admin.steer_cleaner)

    # the daemon
    info = Method(admin.info)
    check_ready = Method(admin.check_ready)
    describe_log_dirs = Method(admin.describe_log_dirs)
    list_moves = Method(admin.list_moves)
    begin_moves = Method(admin.begin_moves)
    cancel_move = Method(admin.cancel_move)
    describe_tasks = Method(admin.describe_tasks)
    begin_backup = Method(admin.begin_backup)
    describe_operation = Method(admin.describe_operation)
    call = Method(admin.call)
