"""Stateless JSON fetch by partition and offset, with long poll.

``format=auto`` is for people who do not know how records were stored: each key and value as JSON,
text or base64, as it is. Such a page is made of a binary one, in Python, on a control thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from aiohttp import web

from kafkalog import errors
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.wire.json_page import JsonPage, write_page
from kafkalog.format.wire.readable import Mark, readable
from kafkalog.format.wire.record_writer import UndecodableRecord
from kafkalog.server.api import api_of
from kafkalog.server.fetch.fetch import fetch
from kafkalog.server.protocol.endpoint import Access, Answer, Routes
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.json_schema import AnswerBody, NamedType, PartitionAnswer
from kafkalog.server.protocol.media_types import EMBEDDED_TYPES, EmbeddedFormat, fetch_format
from kafkalog.server.protocol.parameters import (
    ISOLATION,
    IntegerParameter,
    TextParameter,
    partition_of,
    topic_of,
)
from kafkalog.server.protocol.replies import bytes_reply

if TYPE_CHECKING:
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import FetchDataInfo, Isolation
    from kafkalog.server.api import Api

ROUTES = Routes("fetch")
_INLINE_BYTES = 256 << 10
_AUTO = "auto"
_AUTO_RECORDS_MAX = 10_000
_FORMAT = TextParameter(
    "format",
    "binary, json, text or auto (each key and value as it is), when Accept leaves it open.",
    schema={"type": "string", "enum": [*(each.value for each in EmbeddedFormat), _AUTO]},
)
_OFFSET = IntegerParameter("offset", "The first record wanted.")
_PAGE_BYTES = 1 << 20
_MAX_BYTES = IntegerParameter(
    "max_bytes", "Bytes of keys and values, but at least one record.", _PAGE_BYTES
)
_COUNT = IntegerParameter("count", "At most so many records.", 1, least=1)


class Header(AnswerBody):
    """A record header; the value is base64."""

    key: str
    value: str | None


class FetchedRecord(PartitionAnswer, kw_only=True):
    """A record; key and value in the format asked for.

    With format=auto, key_format and value_format are json for a JSON string and base64 for bytes
    that are no text.
    """

    offset: int
    timestamp: int
    key: object
    value: object
    headers: list[Header] | None = None
    key_format: Mark | None = None
    value_format: Mark | None = None


RecordPage = NamedType("RecordPage", list[FetchedRecord], "Records in offset order.")


_RECORDS = Answer(
    "Records in offset order.",
    dict.fromkeys(EMBEDDED_TYPES, RecordPage),
    ("Kafka-Next-Offset", "Kafka-High-Watermark", "Kafka-Log-Start-Offset"),
)
_TIMEOUT = IntegerParameter("timeout", "How long to wait for a record, in ms.", 0)


class _Bounds(NamedTuple):
    """Of a page."""

    max_bytes: int
    max_records: int
    max_decompressed_bytes: int


def _format_of(request: web.Request) -> tuple[EmbeddedFormat | None, str]:
    """By Accept, or by ``?format=`` when Accept leaves it open; None is auto."""
    accept = request.headers.get("Accept", "")
    asked = _FORMAT.read(request)
    if asked is None:
        return fetch_format(accept)
    if asked == _AUTO:
        return None, f"application/vnd.kafka.{EmbeddedFormat.JSON.value}.v2+json"
    try:
        embedded = EmbeddedFormat(asked)
    except ValueError:
        raise ApiError(40601, "format must be binary, json, text or auto.") from None
    return embedded, f"application/vnd.kafka.{embedded.value}.v2+json"


class _Shown(msgspec.Struct, omit_defaults=True):
    """A record of a page of ``format=auto``, with its members in the order of other pages."""

    topic: str
    key: msgspec.Raw
    value: msgspec.Raw
    partition: int
    offset: int
    timestamp: int
    headers: object = None
    key_format: Mark | None = None
    value_format: Mark | None = None


_SHOWN = msgspec.json.Decoder(list[_Shown])
_BASE64 = msgspec.json.Decoder(bytes | None)


def _auto_page(log: UnifiedLog, info: FetchDataInfo, offset: int, bounds: _Bounds) -> JsonPage:
    """As ``_page``, from a binary one."""
    page = _page(log, info, offset, EmbeddedFormat.BINARY, bounds)
    shown = _SHOWN.decode(page.body)
    for each in shown:
        each.key, each.key_format = _readable(each.key)
        each.value, each.value_format = _readable(each.value)
    return JsonPage(msgspec.json.encode(shown), page.next_offset, page.count)


def _readable(encoded: msgspec.Raw) -> tuple[msgspec.Raw, Mark | None]:
    text, mark = readable(_BASE64.decode(encoded))
    return msgspec.Raw(text.encode()), mark


def _page(
    log: UnifiedLog, info: FetchDataInfo, offset: int, embedded: EmbeddedFormat, bounds: _Bounds
) -> JsonPage:
    tp = log.topic_partition
    aborted = [(a.producer_id, a.first_offset, a.last_offset) for a in info.aborted]
    try:
        return write_page(
            tp.topic,
            tp.partition,
            info.data,
            offset,
            format=embedded.value,
            max_bytes=bounds.max_bytes,
            max_decompressed_bytes=bounds.max_decompressed_bytes,
            max_records=bounds.max_records,
            end_offset=info.next_offset,
            aborted=aborted,
        )
    except UndecodableRecord as error:
        raise ApiError(
            40602,
            f"The {error.part} at offset {error.offset} is not valid {embedded.value};"
            " ask for application/vnd.kafka.binary.v2+json or format=auto.",
            details={"topic": tp.topic, "partition": tp.partition, "offset": error.offset},
        ) from error


@ROUTES.endpoint(
    "GET /topics/{topic}/partitions/{partition}/records",
    "fetchRecords",
    Access.READ_TOPIC,
    {200: _RECORDS},
    parameters=(_OFFSET, _MAX_BYTES, _TIMEOUT, _FORMAT, ISOLATION),
    errors=(406, 40601, 40602, 42903),
)
async def records(request: web.Request) -> web.Response:
    """Records of one partition from an offset on, with long poll."""
    wait_ms = min(_TIMEOUT.read(request), api_of(request).config.http_max_wait_ms)
    return await _answer(request, _MAX_BYTES.read(request), INT64_MAX, wait_ms)


@ROUTES.endpoint(
    "GET /topics/{topic}/partitions/{partition}/messages",
    "fetchMessages",
    Access.READ_TOPIC,
    {200: _RECORDS},
    parameters=(_OFFSET, _COUNT, _FORMAT, ISOLATION),
    errors=(406, 40601, 40602),
)
async def messages(request: web.Request) -> web.Response:
    """As the records of one partition: the path and the count of the v1 API."""
    return await _answer(request, _PAGE_BYTES, _COUNT.read(request), 0)


async def _answer(
    request: web.Request, max_bytes: int, max_records: int, wait_ms: int
) -> web.Response:
    embedded, content_type = _format_of(request)
    api = api_of(request)
    try:
        log = api.operations.partition_log(topic_of(request), partition_of(request))
    except errors.UnknownTopic as error:
        # The ecosystem's stateless fetch has one number for what is not there.
        raise ApiError(40402, error.message, details=error.details) from error
    offset = _OFFSET.read(request)
    if embedded is None:
        max_bytes, max_records = min(max_bytes, _PAGE_BYTES), min(max_records, _AUTO_RECORDS_MAX)
    bounds = _Bounds(
        max(min(max_bytes, api.config.http_max_fetch_bytes), 1),
        max_records,
        api.operations.max_decompressed_bytes,
    )
    isolation = ISOLATION.read(request)
    try:
        info, page = await _first_page(api, log, offset, embedded, bounds, wait_ms, isolation)
    except errors.OffsetOutOfRange as error:
        # The ecosystem's stateless fetch answers 400/40002 here.
        raise ApiError(40002, error.message, details=error.details) from error
    next_offset = page.next_offset if page is not None else info.next_offset
    return bytes_reply(
        page.body if page is not None else b"[]",
        content_type=content_type,
        headers={
            "Kafka-Next-Offset": str(next_offset),
            "Kafka-High-Watermark": str(info.high_watermark),
            "Kafka-Log-Start-Offset": str(info.log_start_offset),
            "Cache-Control": "no-store",
        },
    )


async def _first_page(
    api: Api,
    log: UnifiedLog,
    offset: int,
    embedded: EmbeddedFormat | None,
    bounds: _Bounds,
    wait_ms: int,
    isolation: Isolation,
) -> tuple[FetchDataInfo, JsonPage | None]:
    """The first page with a record in it: control and aborted batches are stepped over."""
    while True:
        info = await fetch(
            api,
            log,
            offset,
            max_bytes=bounds.max_bytes,
            min_bytes=1,
            max_wait_ms=wait_ms,
            isolation=isolation,
        )
        if not len(info.data):
            return info, None
        if embedded is None:
            page = await api.blocking(_auto_page, log, info, offset, bounds)
        elif len(info.data) <= _INLINE_BYTES:
            page = _page(log, info, offset, embedded, bounds)
        else:
            page = await api.blocking(_page, log, info, offset, embedded, bounds)
        if page.count or info.next_offset >= info.high_watermark:
            return info, page
        offset = page.next_offset
