"""Exactly-once sinks: the batches of a query, each written by many producers and committed at once.

Between its begin and the commit an attempt appends whole transactional batches
(``append_batches``) with its producer id and epoch; sequences start at 0 in each partition.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalog.client.errors import BadAnswer, document_of
from kafkalog.client.messages import Json, Repeat, Request, given, json_body, path_of
from kafkalog.client.producer import ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.client.messages import Answer
    from kafkalog.client.retry import Steps


SinkProducer = ProducerIdentity
"""The producer id and epoch of the batches of an attempt."""


@dataclass(frozen=True, slots=True)
class SinkWinner:
    """A producer whose batches are to be committed, and every (topic, partition) it appended to.

    last_sequences   of its last record in each: nothing is committed unless the daemon has that
                     record and, as sequences have no gaps, all before it
    """

    producer_id: int
    producer_epoch: int
    partitions: Sequence[tuple[str, int]]
    last_sequences: Mapping[tuple[str, int], int] = field(default_factory=dict)


def begin_sink(
    query: str, batch_id: int, partition_id: int, attempt: int = 0, *, run_id: str | None = None
) -> Steps[SinkProducer | None]:
    """Begin an attempt to write one partition of a batch; None: the batch is committed already.

    run_id   of this run of the query: what another run left open is aborted, and that run is
             refused from then on

    Each begin fences the earlier ones of the same attempt; its own retries after a lost answer do
    not. Raises ProducerFenced when a later batch is open or committed, or another run has begun
    since.
    """
    wanted = {
        "batch_id": batch_id,
        "partition_id": partition_id,
        "attempt": attempt,
        "run_id": run_id,
        "call_id": str(uuid.uuid4()),
    }
    answer = yield from _call(query, "begin", wanted)
    document = document_of(answer, "state")
    if document["state"] == "committed":
        return None
    try:
        return SinkProducer(int(document["producer_id"]), int(document["producer_epoch"]))
    except KeyError as error:
        raise BadAnswer(f"The answer to a begin has no {error}.") from error


def commit_sink(
    query: str,
    batch_id: int,
    winners: Sequence[SinkWinner],
    *,
    is_last: bool = False,
    run_id: str | None = None,
) -> Steps[None]:
    """Commit what the winners appended, and abort everything else that was begun of the batch.

    is_last   no batch of the query follows: the daemon keeps its name for some hours, no producer
    run_id    that of its begins

    Committing a batch again changes nothing. Raises ProducerFenced, also for an earlier run, and
    InvalidTxnState; nothing was committed then.
    """
    entries = [
        {
            "producer_id": winner.producer_id,
            "producer_epoch": winner.producer_epoch,
            "partitions": [
                {"topic": at[0], "partition": at[1]}
                | given(last_sequence=winner.last_sequences.get(at))
                for at in winner.partitions
            ],
        }
        for winner in winners
    ]
    document = {"batch_id": batch_id, "winners": entries, "is_last": is_last, "run_id": run_id}
    yield from _call(query, "commit", document)


def abort_sink(query: str, batch_id: int, *, run_id: str | None = None) -> Steps[None]:
    """Abort everything that was begun of a batch.

    run_id   that of its begins

    Raises InvalidTxnState when it is committed, and ProducerFenced for an earlier run.
    """
    yield from _call(query, "abort", {"batch_id": batch_id, "run_id": run_id})


def list_sinks() -> Steps[list[Json]]:
    """Queries that write exactly once, with their batches."""
    answer = yield Request("GET", "/v1/sinks")
    sinks: list[Any] = document_of(answer, "sinks")["sinks"]
    return sinks


def describe_sink(query: str) -> Steps[Json]:
    """One query with its producers. Raises NotFound."""
    answer = yield Request("GET", path_of("v1", "sinks", query))
    document: Json = document_of(answer, "query")
    return document


def _call(query: str, action: str, document: Json) -> Steps[Answer]:
    """The call is idempotent, so it is also repeated after a lost answer."""
    path = path_of("v1", "sinks", f"{query}:{action}")
    return (yield Request("POST", path, body=json_body(document), repeat=Repeat.ALWAYS))
