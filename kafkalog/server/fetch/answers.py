"""Answers with records, and with offsets found by time."""

from __future__ import annotations

from kafkalog.server.protocol.json_schema import AnswerBody, NamedType


class OffsetAnswer(AnswerBody):
    """A look-up's result; offset and timestamp (ms) are -1 when nothing was found."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    leader_epoch: int


class FailedOffset(AnswerBody, kw_only=True):
    """A look-up that failed."""

    topic: str
    partition: int
    error_code: int
    message: str
    kafka_error: str
    retriable: bool
    details: dict[str, object] | None = None


class OffsetList(AnswerBody):
    """In the order asked."""

    partitions: list[OffsetAnswer | FailedOffset]


class Header(AnswerBody):
    """A record header; the value is base64."""

    key: str
    value: str | None


class FetchedRecord(AnswerBody, kw_only=True):
    """A record; key and value in the format asked for."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: object
    value: object
    headers: list[Header] | None = None


RecordPage = NamedType("RecordPage", list[FetchedRecord], "Records in offset order.")


class ShownRecord(AnswerBody, kw_only=True):
    """A record's members, those that ``fields`` names; headers only where there are some.

    Key and value are any JSON, text or base64, as their formats say; null is a null.
    """

    topic: str | None = None
    key: object = None
    value: object = None
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    headers: list[Header] | None = None


NativeRecordPage = NamedType(
    "NativeRecordPage", list[ShownRecord], "In offset order within each partition."
)
