"""What both clients can do: every operation as a method, in the order of docs/client.md."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from kafkalog.client import administration, appends, archiving, fetches, sinks, transactions
from kafkalog.client.conversation import Manner, Retries
from kafkalog.client.messages import DEFAULT_URL, Address, context_for
from kafkalog.client.methods import Method

if TYPE_CHECKING:
    import ssl

    from kafkalog.client.messages import Credentials, Request, Tls

TIMEOUT_SECONDS = 30.0


class Operations(ABC):
    """`Client` returns the results, `AsyncClient` awaitables of them.

    credentials      Basic or Bearer; they cross the network as they are, so use https
    tls              for https: files, or a context of your own; None: the machine's authorities
    timeout_seconds  of silence, for connecting and for each answer
    retries          see `conversation.py`; ``ONE_TRY`` for none

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
        self._manner = Manner(self.address, retries or Retries(), time.monotonic, random.random)
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Make a place for connections; none is opened before the first call."""

    def _headers_of(self, request: Request) -> dict[str, str]:
        """All but those that the transport adds."""
        headers = request.headers()
        if self._authorization is not None:
            headers["Authorization"] = self._authorization
        return headers

    # records
    produce = Method(appends.produce)
    append_batches = Method(appends.append_batches)
    fetch = Method(fetches.fetch)
    fetch_batches = Method(fetches.fetch_batches)
    fetch_page = Method(fetches.fetch_page)
    offset_range = Method(fetches.offset_range)
    offset_at = Method(fetches.offset_at)
    list_offsets = Method(fetches.list_offsets)
    delete_records = Method(administration.delete_records)

    # transactions
    describe_producers = Method(transactions.describe_producers)
    abort_transaction = Method(transactions.abort_transaction)

    # exactly-once sinks
    begin_sink = Method(sinks.begin_sink)
    commit_sink = Method(sinks.commit_sink)
    abort_sink = Method(sinks.abort_sink)
    list_sinks = Method(sinks.list_sinks)
    describe_sink = Method(sinks.describe_sink)

    # topics and configs
    list_topics = Method(administration.list_topics)
    describe_topics = Method(administration.describe_topics)
    describe_topic = Method(administration.describe_topic)
    partitions = Method(administration.partitions)
    create_topic = Method(administration.create_topic)
    grow_topic = Method(administration.grow_topic)
    delete_topic = Method(administration.delete_topic)
    topic_configs = Method(administration.topic_configs)
    alter_topic_configs = Method(administration.alter_topic_configs)
    broker_id = Method(administration.broker_id)
    broker_configs = Method(administration.broker_configs)
    alter_broker_configs = Method(administration.alter_broker_configs)

    # groups
    list_groups = Method(administration.list_groups)
    describe_group = Method(administration.describe_group)
    delete_group = Method(administration.delete_group)
    group_offsets = Method(administration.group_offsets)
    commit_offsets = Method(administration.commit_offsets)
    reset_group_offsets = Method(administration.reset_group_offsets)

    # logs
    describe_log = Method(administration.describe_log)
    explain_retention = Method(administration.explain_retention)
    simulate_retention = Method(administration.simulate_retention)
    run_retention = Method(administration.run_retention)
    archived_offsets = Method(archiving.archived_offsets)
    raise_archived_offsets = Method(archiving.raise_archived_offsets)
    losses = Method(administration.losses)
    accept_loss = Method(administration.accept_loss)
    roll_log = Method(administration.roll_log)
    flush_log = Method(administration.flush_log)
    cleaner_status = Method(administration.cleaner_status)
    run_cleaner = Method(administration.run_cleaner)
    steer_cleaner = Method(administration.steer_cleaner)

    # the daemon
    info = Method(administration.info)
    check_ready = Method(administration.check_ready)
    describe_log_dirs = Method(administration.describe_log_dirs)
    list_moves = Method(administration.list_moves)
    begin_moves = Method(administration.begin_moves)
    cancel_move = Method(administration.cancel_move)
    describe_tasks = Method(administration.describe_tasks)
    begin_backup = Method(administration.begin_backup)
    describe_operation = Method(administration.describe_operation)
    call = Method(administration.call)
