"""Exactly-once sinks: one query's batches, each written by many producers and committed at once.

What an attempt appends between its begin and the commit are whole transactional batches
(``append_batches``), with its producer and epoch, sequences from 0 in each partition.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalog.client.errors import BadAnswer, document_of
from kafkalog.client.messages import Json, Repeat, Request, json_body, path_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.client.messages import Answer
    from kafkalog.client.retry import Steps


@dataclass(frozen=True, slots=True)
class SinkProducer:
    """What an attempt writes into its batches."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class SinkWinner:
    """A producer whose batches are committed, and all (topic, partition) that it appended to.

    last_sequences   of its last record in each: nothing is committed then unless the daemon has it
                     and, sequences having no gaps, all before it
    """

    producer_id: int
    producer_epoch: int
    partitions: Sequence[tuple[str, int]]
    last_sequences: Mapping[tuple[str, int], int] = field(default_factory=dict)


def begin_sink(
    query: str, batch_id: int, partition_id: int, attempt: int = 0, *, run_id: str | None = None
) -> Steps[SinkProducer | None]:
    """Begin an attempt to write one partition of a batch; None: the batch is committed.

    run_id   of this life of who writes the query: what another run left open is aborted, and that
             run is refused from then on

    Each begin fences the former ones of the same attempt, but its own repetitions after a lost
    answer do not. Raises ProducerFenced when a later batch is open or committed, or another run has
    begun since.
    """
    wanted = {
        "batch_id": batch_id,
        "partition_id": partition_id,
        "attempt": attempt,
        "run_id": run_id,
        "call_id": str(uuid.uuid4()),
    }
    answer = yield from _called(query, "begin", wanted)
    document = document_of(answer, "state")
    if document["state"] == "committed":
        return None
    try:
        return SinkProducer(int(document["producer_id"]), int(document["producer_epoch"]))
    except KeyError as error:
        raise BadAnswer(f"A begin was answered without {error}.") from error


def commit_sink(
    query: str,
    batch_id: int,
    winners: Sequence[SinkWinner],
    *,
    is_last: bool = False,
    run_id: str | None = None,
) -> Steps[None]:
    """Show what the winners appended, and abort whatever else was begun of the batch.

    is_last   no batch of the query follows: the daemon keeps its name for some hours, no producer
    run_id    as its begins told it

    Of a batch that is committed nothing happens. Raises ProducerFenced, for a former run, too, and
    InvalidTxnState: nothing was committed.
    """
    entries = [
        {
            "producer_id": winner.producer_id,
            "producer_epoch": winner.producer_epoch,
            "partitions": _partitions_of(winner),
        }
        for winner in winners
    ]
    document = {
        "batch_id": batch_id,
        "winners": entries,
        "is_last": is_last,
        "run_id": run_id,
    }
    yield from _called(query, "commit", document)


def abort_sink(query: str, batch_id: int, *, run_id: str | None = None) -> Steps[None]:
    """Abort what was begun of a batch.

    run_id   as its begins told it

    Raises InvalidTxnState when it is committed, ProducerFenced for a former run: what is open is
    another's.
    """
    yield from _called(query, "abort", {"batch_id": batch_id, "run_id": run_id})


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


def _partitions_of(winner: SinkWinner) -> list[Json]:
    """``last_sequence`` only where it was told."""
    entries: list[Json] = []
    for at in winner.partitions:
        entry: Json = {"topic": at[0], "partition": at[1]}
        if at in winner.last_sequences:
            entry["last_sequence"] = winner.last_sequences[at]
        entries.append(entry)
    return entries


def _called(query: str, action: str, document: Json) -> Steps[Answer]:
    """Twice does what once does, so it is repeated after a lost answer, too."""
    path = path_of("v1", "sinks", f"{query}:{action}")
    return (yield Request("POST", path, body=json_body(document), repeat=Repeat.ALWAYS))
