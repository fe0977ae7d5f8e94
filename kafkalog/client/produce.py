"""Appends without a producer id: one try more only where nothing was appended.

Whole batches, or records that become batches here. `producer.py` is the way to append each record
exactly once.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.client.errors import ClientError, UnknownPartition, document_of
from kafkalog.client.messages import BATCHES, Repeat, Request, path_of
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

    acks             all: durable; 1: in the page cache; 0: nobody knows; None: the daemon's default
    expected_offset  append only when this is the log end offset

    A single batch that carries a producer id is tried again after a lost answer: the daemon knows
    it. Anything else is not. Raises ClientError; after OutcomeUnknown with an ``expected_offset``
    a call with the same one cannot append twice (ExpectedOffsetMismatch).
    """
    query: dict[str, str | int] = {}
    if acks is not None:
        query["acks"] = acks
    if expected_offset is not None:
        query["expected_offset"] = expected_offset
    answer = yield Request(
        "POST",
        path_of("v1", "topics", topic, "partitions", partition, "batches"),
        query,
        batches,
        BATCHES,
        repeat=Repeat.ALWAYS if is_known_again(batches) else Repeat.IF_NOTHING_WAS_DONE,
    )
    return _receipt(topic, partition, answer)


def is_known_again(batches: bytes) -> bool:
    """Whether the daemon would take the same bytes for a repetition: one batch with an id."""
    from kafkalog.format.records.record_batch import (  # not for a `topics list`
        MalformedBatch,
        read_header,
    )

    try:
        header = read_header(batches)
    except MalformedBatch:
        return False  # the daemon says what is wrong with it
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
    """Append records: one receipt for each batch that they became, in the order of the appends.

    partition    None: by murmur2 of the key as Java's producer; those without key together to one
                 partition that is served. Costs one request more, for the number of partitions
    batch_bytes  where a batch ends, before compression; at most the topic's max.message.bytes

    Order is kept within a partition. Raises ClientError; what was appended before is in its
    ``appended``. A lost answer is raised as OutcomeUnknown and not tried again: use a producer.
    """
    found: Partitions | None = None
    if partition is None and records:
        found = yield from partitions_of(topic)
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
    """How many a topic has, and which of them are served."""

    count: int
    served: tuple[int, ...]


def partitions_of(topic: str) -> Steps[Partitions]:
    """What choosing a partition needs to know."""
    answer = yield Request("GET", path_of("topics", topic, "partitions"))
    entries = document_of(answer)
    served = tuple(int(each["partition"]) for each in entries if "error_code" not in each)
    if not entries:
        raise UnknownPartition(f"Topic {topic} has no partitions.", nothing_was_done=True)
    return Partitions(len(entries), served)


def planned(
    records: Sequence[ProducerRecord],
    partition: int | None,
    found: Partitions | None,
    batch_bytes: int,
) -> Iterator[tuple[int, OutgoingRecords, Int64s]]:
    """Partition, columns and rows of every batch that the records become."""
    if not records:
        return
    from kafkalog.client.batches import OutgoingRecords  # see there: late, because it is slow

    outgoing = OutgoingRecords(records, time.time_ns() // 1_000_000)
    if partition is not None:
        parts = [(partition, outgoing.all_rows())]
    else:
        assert found is not None
        parts = outgoing.by_partition(found.count, found.served, random.random())
    for number, rows in parts:
        for some in outgoing.slices(rows, batch_bytes):
            yield number, outgoing, some
