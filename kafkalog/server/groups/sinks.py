"""Exactly-once sinks: begin, commit and abort of a query's batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from aiohttp import web

from kafkalog.broker.operations import Operations
from kafkalog.broker.transactions.sink import Caller, LastSequence, SinkPhase
from kafkalog.format.disk.sink_state import Winner
from kafkalog.server.protocol.endpoint import Access, Answer, Routes
from kafkalog.server.protocol.json_schema import AnswerBody, NamedType, PartitionAnswer, answer_of
from kafkalog.server.protocol.parameters import sink_of
from kafkalog.server.protocol.schemas import AbortSink, BeginSink, CommitSink

if TYPE_CHECKING:
    from kafkalog.broker.transactions.sink import SinkDescription

ROUTES = Routes("sinks", "/v1/sinks")
# Also of a state that cannot be read: nothing is decided without it.
_WRITES = (50003, 50010, 50302, 50303, 50701)


class SinkProducerAnswer(AnswerBody):
    """What an attempt writes into its batches."""

    state: Literal["open"]
    producer_id: int
    producer_epoch: int


class SinkCommittedAnswer(AnswerBody):
    """The batch is committed: there is nothing to write."""

    state: Literal["committed"]
    batch_id: int


SinkBeginAnswer = NamedType(
    "SinkBeginAnswer", SinkProducerAnswer | SinkCommittedAnswer, "What a begin gives."
)


class SinkAbortedAnswer(AnswerBody):
    """Nothing of the batch is open."""

    state: Literal["aborted"]
    batch_id: int


class PendingPartition(PartitionAnswer):
    """Where a marker is still to be written."""


class SinkProducerEntry(AnswerBody):
    """A producer of a sink; ``is_open``: it may append, and be named by a commit."""

    partition_id: int
    attempt: int
    producer_id: int
    producer_epoch: int
    batch_id: int
    begun: int
    is_open: bool


class SinkSummary(AnswerBody):
    """A sink; times are ms since 1970. ``pending``: decided to be committed, markers follow."""

    query: str
    state: SinkPhase
    committed_batch_id: int | None
    open_batch_id: int | None
    open_producers: int
    pending: list[PendingPartition]
    changed: int


class SinkAnswer(SinkSummary):
    """A sink with its producers, by partition and attempt."""

    producers: list[SinkProducerEntry]


class SinkList(AnswerBody):
    """By query."""

    sinks: list[SinkSummary]


@ROUTES.endpoint("GET", "listSinks", Access.DESCRIBE_SINK, "By query.", errors=(50010, 50303))
def sinks(_: web.Request, operations: Operations) -> SinkList:
    """Queries that write exactly once, and where they are."""
    return SinkList([_summary(each) for each in operations.sinks.describe_all()])


# Not the calls of its sink, which have a colon: their GET is 405.
@ROUTES.endpoint(
    "GET /{sink:[^:/]+}",
    "describeSink",
    Access.DESCRIBE_SINK,
    "The sink.",
    errors=(40411, 50010, 50303),
)
def describe(request: web.Request, operations: Operations) -> SinkAnswer:
    """One query with its producers."""
    found = operations.sinks.describe(sink_of(request))
    producers = [
        answer_of(SinkProducerEntry, each.key, each.value, each, begun=each.value.timestamp_ms)
        for each in found.producers
    ]
    return answer_of(SinkAnswer, _summary(found), producers=producers)


@ROUTES.endpoint(
    "POST /{sink}:begin",
    "beginSink",
    Access.WRITE_SINK,
    Answer("A producer, or nothing to do.", SinkBeginAnswer),
    errors=(40912, *_WRITES),
    on_sink_pool=True,
)
def begin(
    request: web.Request, operations: Operations, wanted: BeginSink
) -> SinkProducerAnswer | SinkCommittedAnswer:
    """Begin an attempt to write one partition of a batch.

    The producer is the attempt's own. Its epoch grows with every begin: from the answer on, batches
    of older ones are refused. Sequences begin at 0. An open batch with a lower id is aborted, and
    one of another run of the query, which is refused from then on. A call that is repeated has the
    same answer.
    """
    identity = operations.sinks.begin(
        sink_of(request),
        wanted.batch_id,
        wanted.partition_id,
        wanted.attempt,
        Caller(wanted.run_id, wanted.call_id),
    )
    if identity is None:
        return SinkCommittedAnswer("committed", wanted.batch_id)
    return SinkProducerAnswer("open", *identity)


@ROUTES.endpoint(
    "POST /{sink}:commit",
    "commitSink",
    Access.WRITE_SINK,
    "Committed, now or before.",
    errors=(40402, 40908, 40912, 40913, 41301, *_WRITES),
    on_sink_pool=True,
)
def commit(request: web.Request, operations: Operations, wanted: CommitSink) -> SinkCommittedAnswer:
    """Commit a batch: what the winners wrote is shown, what else was begun of it is aborted.

    A winner names exactly the partitions that it wrote to; the sequence of its last record, where
    it is named, must be the last one in the log. Asking again is safe, and has the same
    answer. A refused commit, or one of a former run, has committed nothing; after 50003 the outcome
    is unknown until the next try. The last batch of a query keeps no producer.
    """
    winners = [
        Winner(
            each.producer_id, each.producer_epoch, tuple(sorted({at.key for at in each.partitions}))
        )
        for each in wanted.winners
    ]
    sequences = [
        LastSequence(winner.producer_id, at.key, at.last_sequence)
        for winner in wanted.winners
        for at in winner.partitions
        if at.last_sequence is not None
    ]
    operations.sinks.commit(
        sink_of(request),
        wanted.batch_id,
        winners,
        sequences,
        is_last=wanted.is_last,
        run_id=wanted.run_id,
    )
    return SinkCommittedAnswer("committed", wanted.batch_id)


@ROUTES.endpoint(
    "POST /{sink}:abort",
    "abortSink",
    Access.WRITE_SINK,
    "Nothing of it is open.",
    errors=(40908, 40912, *_WRITES),
    on_sink_pool=True,
)
def abort(request: web.Request, operations: Operations, wanted: AbortSink) -> SinkAbortedAnswer:
    """Abort what was begun of a batch; it may begin again.

    A former run of the query is refused: what is open is another's.
    """
    operations.sinks.abort(sink_of(request), wanted.batch_id, run_id=wanted.run_id)
    return SinkAbortedAnswer("aborted", wanted.batch_id)


def _summary(sink: SinkDescription) -> SinkSummary:
    return answer_of(
        SinkSummary,
        sink,
        query=sink.name,
        open_producers=sum(each.is_open for each in sink.producers),
        pending=[PendingPartition(at.topic, at.partition) for at in sink.pending],
        changed=sink.changed_ms,
    )
