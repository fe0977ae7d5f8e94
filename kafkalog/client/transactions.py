"""Transactions that are open in a partition, and an end to one that nobody else ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.client.failures import BadAnswer, document_of
from kafkalog.client.messages import Json, Repeat, Request, json_body, path_of

if TYPE_CHECKING:
    from kafkalog.client.conversation import Steps


def describe_producers(topic: str, partition: int) -> Steps[list[Json]]:
    """What the log of a partition remembers of its producers, by id.

    ``current_transaction_start_offset`` is where the producer's open transaction begins, or None.
    Raises UnknownTopic, UnknownPartition.
    """
    answer = yield Request("GET", _path(topic, partition, "producers"))
    document = document_of(answer)
    producers = document.get("producers") if isinstance(document, dict) else None
    if not isinstance(producers, list):
        raise BadAnswer("The answer has no producers: it is not the daemon's.")
    return producers


def abort_transaction(topic: str, partition: int, start_offset: int) -> Steps[Json]:
    """Abort the transaction that begins at an offset, which an adopted directory brought along.

    Durable when this returns. Raises UnknownTopic, UnknownPartition, Conflict when none that is
    open begins there, or when it is a sink's.
    """
    answer = yield Request(
        "POST",
        _path(topic, partition, "transactions:abort"),
        body=json_body({"start_offset": start_offset}),
        repeat=Repeat.IF_NOTHING_WAS_DONE,
    )
    aborted: Json = document_of(answer)
    return aborted


def _path(topic: str, partition: int, what: str) -> str:
    return path_of("v1", "topics", topic, "partitions", partition, what)
