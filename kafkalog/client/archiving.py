"""What a job that archives topics tells the daemon: how far it has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.client.failures import BadAnswer, document_of
from kafkalog.client.messages import Json, Repeat, Request, json_body, path_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.client.conversation import Steps


def archived_offsets(topic: str) -> Steps[list[Json]]:
    """How far each served partition of a topic is archived, with its lag and what is held for it.

    Raises UnknownTopic.
    """
    answer = yield Request("GET", path_of("v1", "topics", topic, "archived-offsets"))
    return _partitions_of(document_of(answer))


def raise_archived_offsets(
    topic: str, offsets: Mapping[int, int], topic_id: str | None = None
) -> Steps[dict[int, int]]:
    """An archive has everything below these offsets of partitions: all or none; what holds now.

    topic_id   of the topic that was archived (`describe_topic`): another one that was made under
               the name meanwhile is UnknownTopic

    Durable when this returns; an offset below the one in force changes nothing. Raises
    UnknownTopic, UnknownPartition, OffsetAboveHighWatermark.
    """
    entries = [{"partition": number, "offset": offset} for number, offset in offsets.items()]
    body: Json = {"partitions": entries}
    if topic_id is not None:
        body["topic_id"] = topic_id
    answer = yield Request(
        "POST",
        path_of("v1", "topics", topic, "archived-offsets:raise"),
        body=json_body(body),
        repeat=Repeat.ALWAYS,
    )
    partitions = _partitions_of(document_of(answer))
    return {each["partition"]: each["archived_offset"] for each in partitions}


def _partitions_of(document: Json) -> list[Json]:
    """The entries of an answer. Raises BadAnswer."""
    entries = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise BadAnswer("The answer has no partitions: it is not the daemon's.")
    return entries
