"""Exactly-once sinks: begin, commit and abort of a query's batches (design.md 4.24)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web
from msgspec import structs

from kafkalog.broker.transactions.sink import Caller, LastSequence
from kafkalog.format.disk.sink_state import Winner
from kafkalog.format.topic_names import TopicPartition
from kafkalog.server.api import api_of
from kafkalog.server.groups.answers import (
    PendingPartition,
    SinkAbortedAnswer,
    SinkAnswer,
    SinkBeginAnswer,
    SinkCommittedAnswer,
    SinkList,
    SinkProducerAnswer,
    SinkProducerEntry,
    SinkSummary,
)
from kafkalog.server.protocol.endpoint import Access, Action, Answer, Resource, endpoint
from kafkalog.server.protocol.media_types import JSON
from kafkalog.server.protocol.parameters import sink_of
from kafkalog.server.protocol.replies import json_reply
from kafkalog.server.protocol.schemas import AbortSink, BeginSink, CommitSink, read_body

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.broker.transactions.sink import SinkDescription, SinkProducer
    from kafkalog.server.protocol.schemas import SinkWinner

ROUTES = web.RouteTableDef()
_WRITE = Access(Action.WRITE, Resource.SINK)
_DESCRIBE = Access(Action.DESCRIBE, Resource.SINK)
# Also of a state that cannot be read: nothing is decided without it.
_WRITES = (50003, 50010, 50302, 50303, 50701)


@ROUTES.get("/v1/sinks")
@endpoint(
    "listSinks",
    "sinks",
    _DESCRIBE,
    {200: Answer("By query.", {JSON: SinkList})},
    errors=(50010, 50303),
)
async def sinks(request: web.Request) -> web.Response:
    """Queries that write exactly once, and where they are."""
    api = api_of(request)
    found = await api.blocking(api.operations.sinks.describe_all)
    return json_reply(SinkList([_summary(each) for each in found]))


# Not the calls of its sink, which have a colon: their GET is 405.
@ROUTES.get("/v1/sinks/{sink:[^:/]+}")
@endpoint(
    "describeSink",
    "sinks",
    _DESCRIBE,
    {200: Answer("The sink.", {JSON: SinkAnswer})},
    errors=(40411, 50010, 50303),
)
async def describe(request: web.Request) -> web.Response:
    """One query with its producers."""
    api, query = api_of(request), sink_of(request)
    found = await api.blocking(api.operations.sinks.describe, query)
    producers = [_producer(each) for each in found.producers]
    return json_reply(SinkAnswer(**structs.asdict(_summary(found)), producers=producers))


@ROUTES.post("/v1/sinks/{sink}:begin")
@endpoint(
    "beginSink",
    "sinks",
    _WRITE,
    {200: Answer("A producer, or nothing to do.", {JSON: SinkBeginAnswer})},
    body={JSON: BeginSink},
    errors=(40912, *_WRITES),
)
async def begin(request: web.Request) -> web.Response:
    """Begin an attempt to write one partition of a batch.

    The producer is the attempt's own. Its epoch grows with every begin: from the answer on, batches
    of older ones are refused. Sequences begin at 0. An open batch with a lower id is aborted, and
    one of another run of the query, which is refused from then on. A call that is repeated has the
    same answer.
    """
    api, query = api_of(request), sink_of(request)
    wanted = await read_body(BeginSink, request, api)
    identity = await api.run_on_sink_pool(
        api.operations.sinks.begin,
        query,
        wanted.batch_id,
        wanted.partition_id,
        wanted.attempt,
        Caller(wanted.run_id, wanted.call_id),
    )
    if identity is None:
        return json_reply(SinkCommittedAnswer("committed", wanted.batch_id))
    return json_reply(SinkProducerAnswer("open", *identity))


@ROUTES.post("/v1/sinks/{sink}:commit")
@endpoint(
    "commitSink",
    "sinks",
    _WRITE,
    {200: Answer("Committed, now or before.", {JSON: SinkCommittedAnswer})},
    body={JSON: CommitSink},
    errors=(40402, 40908, 40912, 40913, 41301, *_WRITES),
)
async def commit(request: web.Request) -> web.Response:
    """Commit a batch: what the winners wrote is shown, what else was begun of it is aborted.

    A winner names exactly the partitions that it wrote to; the sequence of its last record, where
    it is named, must be the last one in the log. Asking again is safe, and has the same
    answer. A refused commit, or one of a former run, has committed nothing; after 50003 the outcome
    is unknown until the next try. The last batch of a query keeps no producer.
    """
    api, query = api_of(request), sink_of(request)
    wanted = await read_body(CommitSink, request, api)
    winners, last_sequences = _winners(wanted.winners), _last_sequences(wanted.winners)
    await api.run_on_sink_pool(
        api.operations.sinks.commit,
        query,
        wanted.batch_id,
        winners,
        last_sequences,
        is_last=wanted.is_last,
        run_id=wanted.run_id,
    )
    return json_reply(SinkCommittedAnswer("committed", wanted.batch_id))


@ROUTES.post("/v1/sinks/{sink}:abort")
@endpoint(
    "abortSink",
    "sinks",
    _WRITE,
    {200: Answer("Nothing of it is open.", {JSON: SinkAbortedAnswer})},
    body={JSON: AbortSink},
    errors=(40908, 40912, *_WRITES),
)
async def abort(request: web.Request) -> web.Response:
    """Abort what was begun of a batch; it may begin again.

    A former run of the query is refused: what is open is another's.
    """
    api, query = api_of(request), sink_of(request)
    wanted = await read_body(AbortSink, request, api)
    await api.run_on_sink_pool(
        api.operations.sinks.abort, query, wanted.batch_id, run_id=wanted.run_id
    )
    return json_reply(SinkAbortedAnswer("aborted", wanted.batch_id))


def _winners(winners: Sequence[SinkWinner]) -> list[Winner]:
    return [
        Winner(
            each.producer_id,
            each.producer_epoch,
            tuple(sorted({TopicPartition(at.topic, at.partition) for at in each.partitions})),
        )
        for each in winners
    ]


def _last_sequences(winners: Sequence[SinkWinner]) -> list[LastSequence]:
    return [
        LastSequence(winner.producer_id, TopicPartition(at.topic, at.partition), at.last_sequence)
        for winner in winners
        for at in winner.partitions
        if at.last_sequence is not None
    ]


def _summary(sink: SinkDescription) -> SinkSummary:
    return SinkSummary(
        query=sink.name,
        state=sink.state,
        committed_batch_id=sink.committed_batch_id,
        open_batch_id=sink.open_batch_id,
        open_producers=sum(each.is_open for each in sink.producers),
        pending=[PendingPartition(at.topic, at.partition) for at in sink.pending],
        changed=sink.changed_ms,
    )


def _producer(producer: SinkProducer) -> SinkProducerEntry:
    return SinkProducerEntry(
        partition_id=producer.key.partition_id,
        attempt=producer.key.attempt,
        producer_id=producer.value.producer_id,
        producer_epoch=producer.value.producer_epoch,
        batch_id=producer.value.batch_id,
        begun=producer.value.timestamp_ms,
        is_open=producer.is_open,
    )
