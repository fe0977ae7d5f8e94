"""Answers of the produce routes."""

from __future__ import annotations

from typing import Literal

from kafkalog.server.protocol.errors import EntryError
from kafkalog.server.protocol.json_schema import AnswerBody, NamedType

Durability = Literal["synced", "os"]


class AppendAnswer(AnswerBody):
    """Where raw batches were appended; log_append_time is -1 with CreateTime."""

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool


class Receipt(AnswerBody, kw_only=True):
    """One record of a produce; partition and offset are null when it failed."""

    partition: int | None
    offset: int | None
    error_code: int | None
    error: str | None
    message: str | None = None


class ProduceAnswer(AnswerBody):
    """Receipts in request order."""

    offsets: list[Receipt]
    key_schema_id: None
    value_schema_id: None
    durability: Durability


class ProduceReceipt(Receipt, kw_only=True):
    """A line of the answer: its partition and offset, or why it was not appended.

    ``end_of_stream``: the daemon reads no further, and what has no receipt was not appended.
    """

    kafka_error: str | None = None
    retriable: bool | None = None
    details: dict[str, object] | None = None
    end_of_stream: bool | None = None


class ProducedRange(AnswerBody):
    """What went to one partition; others may have written between its first and last offset."""

    partition: int
    count: int
    base_offset: int
    last_offset: int


class FailedRecord(AnswerBody, kw_only=True):
    """A record that was not appended, by its number in the body; null: the stream was cut short."""

    index: int | None
    end_of_stream: bool | None = None
    error_code: int
    message: str
    kafka_error: str
    retriable: bool
    details: dict[str, object] | None = None
    validation_errors: list[str] | None = None
    record_errors: list[dict[str, object]] | None = None


class ProduceSummary(AnswerBody, kw_only=True):
    """What a request appended; ``errors`` names the first hundred of ``failed_count``.

    ``duplicate``: a producer's batch that was stored before; the offsets are those of then.
    """

    count: int
    failed_count: int
    partitions: list[ProducedRange]
    errors: list[FailedRecord]
    duplicate: bool = False
    durability: Durability


class V3Size(AnswerBody):
    """What was stored as key or value."""

    type: Literal["BINARY", "JSON", "STRING"]
    size: int


class V3Place(AnswerBody, kw_only=True):
    """Where a record of v3 was appended; the timestamp is that in the log, in UTC."""

    cluster_id: str
    topic_name: str
    partition_id: int
    offset: int
    timestamp: str
    key: V3Size | None = None
    value: V3Size | None = None


class V3Appended(V3Place, kw_only=True):
    """The receipt of a record that was appended."""

    error_code: Literal[200]


class V3NotAppended(EntryError, kw_only=True):
    """The receipt of a record that was not."""

    validation_errors: list[str] | None = None
    record_errors: list[dict[str, object]] | None = None


V3Receipt = NamedType(
    "V3Receipt",
    V3Appended | V3NotAppended,
    "One document of the answer, which has one for each record.",
)


class V3Success(V3Place, kw_only=True):
    """An entry that was appended."""

    id: str


class V3Failure(V3NotAppended, kw_only=True):
    """An entry that was not."""

    id: str


class V3BatchAnswer(AnswerBody):
    """Both in the order of the entries."""

    successes: list[V3Success]
    failures: list[V3Failure]
