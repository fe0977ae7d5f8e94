"""Answers of the native produce and of v3's, as the API's description has them."""

from __future__ import annotations

from typing import Literal

from kafkalog.server.answers import Body, EntryError, Receipt


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
    """What a request appended; ``errors`` names the first hundred of ``failed_count``."""

    count: int
    failed_count: int
    partitions: list[ProducedRange]
    errors: list[FailedRecord]
    durability: Literal["synced", "os"]
