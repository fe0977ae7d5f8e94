"""Answers of the native produce and of v3's, as the API's description has them.

Bodies of answers about producers as the API's description has them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import RootModel

from kafkalog.server.admin.answers_logs import Body, EntryError, Receipt


class ProduceReceipt(Receipt):
    """A line of the answer: the record's place, or why it was not appended.

    ``end_of_stream``: the daemon reads no further, and what has no receipt was not appended.
    """

    kafka_error: str | None = None
    retriable: bool | None = None
    details: dict[str, object] | None = None
    end_of_stream: bool | None = None


class ProducedRange(Body):
    """What went to one partition; others may have written between its first and last offset."""

    partition: int
    count: int
    base_offset: int
    last_offset: int


class FailedRecord(EntryError):
    """A record that was not appended, by its number in the body; null: the stream was cut short."""

    index: int | None
    record_errors: list[dict[str, object]] | None = None
    validation_errors: list[str] | None = None
    end_of_stream: bool | None = None


class ProduceSummary(Body):
    """What a request appended; ``errors`` names the first hundred of ``failed_count``.

    ``duplicate``: a producer's batch that was stored before; the offsets are those of then.
    """

    count: int
    failed_count: int
    partitions: list[ProducedRange]
    errors: list[FailedRecord]
    durability: Literal["synced", "os"]
    duplicate: bool = False


class V3Size(Body):
    """What was stored as key or value."""

    type: Literal["BINARY", "JSON", "STRING"]
    size: int


class V3Place(Body):
    """Where a record of v3 was appended; the timestamp is that in the log, in UTC."""

    cluster_id: str
    topic_name: str
    partition_id: int
    offset: int
    timestamp: str
    key: V3Size | None = None
    value: V3Size | None = None


class V3Appended(V3Place):
    """The receipt of a record that was appended."""

    error_code: Literal[200]


class V3NotAppended(EntryError):
    """The receipt of a record that was not."""

    record_errors: list[dict[str, object]] | None = None
    validation_errors: list[str] | None = None


class V3Receipt(RootModel[V3Appended | V3NotAppended]):
    """One document of the answer; there are as many as records, each behind the other."""


class V3Success(V3Place):
    """An entry that was appended."""

    id: str


class V3Failure(V3NotAppended):
    """An entry that was not."""

    id: str


class V3BatchAnswer(Body):
    """Both in the order of the entries."""

    successes: list[V3Success]
    failures: list[V3Failure]


class ProducerAnswer(Body):
    """What a producer writes into its batches."""

    producer_id: int
    producer_epoch: int


class ProducerState(Body):
    """What a log remembers of a producer; -1 is none, the timestamp is its last batch's, in ms."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    current_transaction_start_offset: int | None


class AbortedTransactionAnswer(Body):
    """A transaction that has ended; committed records are readable below the last stable offset."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_stable_offset: int


class ProducersAnswer(Body):
    """All that the log of a partition remembers."""

    topic: str
    partition: int
    producers: list[ProducerState]
