"""Appends without a producer id, of batches or of records; retried only if nothing was appended.

Use `producer.py` to append each record exactly once.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.client.admin import create_topic
from kafkalog.client.errors import (
    AccessDenied,
    ClientError,
    NotFound,
    OutcomeUnknown,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    document_of,
)
from kafkalog.client.messages import BATCHES, Repeat, Request, given, path_of
from kafkalog.client.records import NO_OFFSET, Acks, AppendReceipt, CodecName, ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.client.batches import OutgoingRecords
    from kafkalog.client.messages import Answer
    from kafkalog.client.retry import Steps
    from kafkalog.format.records.batch_builder import Int64s

BATCH_BYTES = 900_000
"""Below the default max.message.bytes (1,048,588) with room for what a codec cannot shrink."""


def append_batches(
    topic: str,
    partition: int,
    batches: bytes,
    *,
    acks: Acks | None = None,
    expected_offset: int | None = None,
) -> Steps[AppendReceipt]:
    """Append whole v2 record batches back to back, all or none.

    acks             all: durable; 1: in the page cache; 0: no answer; None: the daemon's default
    expected_offset  append only when this is the log end offset

    A single batch with a producer id is retried after a lost answer, because the daemon recognizes
    it; other appends are not. Raises ClientError. After OutcomeUnknown with an ``expected_offset``,
    a call with the same one cannot append twice (ExpectedOffsetMismatch).
    """
    answer = yield Request(
        "POST",
        path_of("v1", "topics", topic, "partitions", partition, "batches"),
        given(acks=acks, expected_offset=expected_offset),
        batches,
        BATCHES,
        repeat=Repeat.ALWAYS if is_idempotent(batches) else Repeat.IF_NOTHING_WAS_DONE,
    )
    return _receipt(topic, partition, answer)


def is_idempotent(batches: bytes) -> bool:
    """Whether the daemon would recognize a repetition: one batch with a producer id."""
    from kafkalog.format.records.record_batch import (  # not for a `topics list`
        MalformedBatch,
        read_header,
    )

    try:
        header = read_header(batches)
    except MalformedBatch:
        return False  # the daemon will refuse it
    return header.has_producer_id and header.size_bytes == len(batches)


def _receipt(topic: str, partition: int, answer: Answer) -> AppendReceipt:
    entry = document_of(answer, "base_offset", "last_offset") if answer.body else {}
    return AppendReceipt(
        topic,
        partition,
        entry.get("base_offset", NO_OFFSET),
        entry.get("last_offset", NO_OFFSET),
        entry.get("log_append_time", NO_OFFSET),
        entry.get("log_start_offset", NO_OFFSET),
        entry.get("duplicate", False),
        answer.headers.get("kafka-durability", "none"),
    )


def produce(
    topic: str,
    records: Sequence[ProducerRecord],
    *,
    partition: int | None = None,
    acks: Acks | None = None,
    codec: CodecName = "none",
    batch_bytes: int = BATCH_BYTES,
) -> Steps[tuple[AppendReceipt, ...]]:
    """Append records; returns one receipt for each batch, in the order of the appends.

    partition    None: by murmur2 of the key, as Java's producer; records without a key go together
                 to one partition that is served. Needs one more request; an unknown topic is then
                 created first, where appends create topics (auto.create.topics.enable)
    batch_bytes  limit of a batch before compression; at most the topic's max.message.bytes

    The order within a partition is kept. Raises ClientError, with the earlier receipts in
    ``appended``. A lost answer is raised as OutcomeUnknown and not retried; a producer retries.
    """
    found: Partitions | None = None
    if partition is None and records:
        found = yield from partitions_or_new(topic)
    receipts: list[AppendReceipt] = []
    for number, outgoing, rows in planned(records, partition, found, batch_bytes):
        try:
            batch = outgoing.batch(rows, codec)
            receipts.append((yield from append_batches(topic, number, batch, acks=acks)))
        except ClientError as failure:
            failure.appended = tuple(receipts)
            raise
    return tuple(receipts)


@dataclass(frozen=True, slots=True)
class Partitions:
    """The number of partitions of a topic, and which of them are served."""

    count: int
    served: tuple[int, ...]


def partitions_of(topic: str) -> Steps[Partitions]:
    """The partitions of a topic. Raises UnknownPartition for a topic without any."""
    answer = yield Request("GET", path_of("topics", topic, "partitions"))
    entries = document_of(answer)
    served = tuple(int(each["partition"]) for each in entries if "error_code" not in each)
    if not entries:
        raise UnknownPartition(f"Topic {topic} has no partitions.", nothing_was_done=True)
    return Partitions(len(entries), served)


def partitions_or_new(topic: str) -> Steps[Partitions]:
    """The partitions of a topic, which is created first where appends create topics, as in Kafka.

    Raises ClientError; UnknownTopic also when the daemon does not say whether they do.
    """
    try:
        return (yield from partitions_of(topic))
    except UnknownTopic:
        if not (yield from _creates_topics()):
            raise
    with suppress(TopicExists, OutcomeUnknown):  # another program was faster; or the look-up tells
        yield from create_topic(topic)
    return (yield from partitions_of(topic))


def _creates_topics() -> Steps[bool]:
    """Whether the daemon has auto.create.topics.enable; False when it does not say so."""
    try:
        answer = yield Request("GET", "/v1/configs", {"explain": "auto.create.topics.enable"})
        (config,) = document_of(answer, "configs")["configs"]
    except (AccessDenied, NotFound):
        return False
    is_enabled: bool = config["value"] == "true"
    return is_enabled


def planned(
    records: Sequence[ProducerRecord],
    partition: int | None,
    found: Partitions | None,
    batch_bytes: int,
) -> Iterator[tuple[int, OutgoingRecords, Int64s]]:
    """Partition, columns and rows of each batch."""
    if not records:
        return
    from kafkalog.client.batches import OutgoingRecords  # late: its import takes long

    outgoing = OutgoingRecords(records, time.time_ns() // 1_000_000)
    if partition is not None:
        parts = [(partition, outgoing.all_rows())]
    else:
        assert found is not None
        parts = outgoing.by_partition(found.count, found.served, random.random())
    for number, rows in parts:
        for some in outgoing.slices(rows, batch_bytes):
            yield number, outgoing, some
