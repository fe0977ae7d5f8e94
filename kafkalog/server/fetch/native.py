"""Records of one partition or of several, merged: pages and streams."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from aiohttp import hdrs, web

from kafkalog.format.integers import INT64_MAX
from kafkalog.format.wire.record_writer import CHUNK_BYTES
from kafkalog.server.api import Api, api_of
from kafkalog.server.fetch.query import (
    ABSENT,
    MIN_BYTES,
    OF_ONE,
    OF_SEVERAL,
    OFFSET,
    OFFSETS,
    UNTIL_OFFSET,
    UNTIL_OFFSETS,
    RecordQuery,
    cursors_of,
    last_seen_of,
    partitions_of,
    positions_of,
)
from kafkalog.server.fetch.source import RecordSource, collect
from kafkalog.server.fetch.stream import COMPRESSIBLE, OFFERED, PAGES, STREAMS, RecordStream
from kafkalog.server.fetch.v2 import Header
from kafkalog.server.protocol.arrow import load_arrow
from kafkalog.server.protocol.bodies import GZIP_MIN_BYTES, GzipStream, gzipped
from kafkalog.server.protocol.endpoint import PARTITION, Access, Answer, Routes, event_stream
from kafkalog.server.protocol.json_schema import AnswerBody, NamedType
from kafkalog.server.protocol.media_types import (
    ARROW,
    EVENT_STREAM,
    JSON,
    NDJSON,
    accepts_gzip,
    negotiate,
)
from kafkalog.server.protocol.parameters import partition_of, topic_of, wrong_parameter
from kafkalog.server.protocol.replies import REQUEST_ID, add_standard_headers, bytes_reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aiohttp.http_writer import StreamWriter


ROUTES = Routes("fetch")
_PAGE_BYTES = 1 << 20
_PART_BYTES = 2 * CHUNK_BYTES  # a chunk of usual records is sent in one
_VARY = "Accept, Accept-Encoding"
_NOT_KEPT = {hdrs.CACHE_CONTROL: "no-store", hdrs.VARY: _VARY}
_ETAG = "ETag"
_HEADERS = (
    "Kafka-Base-Offset",
    "Kafka-Next-Offset",
    "Kafka-High-Watermark",
    "Kafka-Log-Start-Offset",
    "Kafka-Up-To-Date",
    _ETAG,
)


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


_ANSWERS = {
    200: Answer(
        "Records.",
        {
            JSON: NativeRecordPage,
            ARROW: {"type": "string", "format": "binary", "description": "An IPC stream."},
            NDJSON: {"type": "string", "description": "A record a line."},
            **event_stream(
                "A record; that all records were sent; the end, perhaps with an error.",
                ("record", "control", "end"),
                {"type": "string", "contentMediaType": JSON},
            ),
        },
        _HEADERS,
    ),
    204: Answer("A stream that came again has had everything: it need not come any more."),
    304: Answer("If-None-Match names the records of this closed range."),
}
_ERRORS = (406, 40602, 41001, 41601, 42903)


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request, understood."""

    request: web.Request
    api: Api
    query: RecordQuery
    media_type: str
    source: RecordSource
    is_merged: bool  # by its route, also when it names one partition

    @property
    def is_gzipped(self) -> bool:
        """Whether the client takes it, where it is worth it."""
        accepted = self.request.headers.get(hdrs.ACCEPT_ENCODING, "")
        return self.media_type in COMPRESSIBLE and accepts_gzip(accepted)


@ROUTES.endpoint(
    f"GET {PARTITION}/records",
    "readRecords",
    Access.READ_TOPIC,
    _ANSWERS,
    parameters=OF_ONE,
    errors=_ERRORS,
)
async def of_partition(request: web.Request) -> web.StreamResponse:
    """Records of one partition: a page, lines, or events that follow the log.

    The start is exactly one of offset, timestamp, tail and from. Accept chooses: application/json
    and application/vnd.apache.arrow.stream are a page, application/x-ndjson ends with what was
    readable unless it may wait for more, text/event-stream continues; its Last-Event-ID is a start
    before that of the query.
    """
    query, media_type = _query_of(request)
    api, topic, partition = api_of(request), topic_of(request), partition_of(request)
    offset, until = OFFSET.read(request), UNTIL_OFFSET.read(request)
    offsets = {} if offset == ABSENT else {partition: offset}
    cursors = await cursors_of(
        api,
        topic,
        query,
        [partition],
        offsets=offsets,
        seen=_seen(request, media_type, [partition]),
        until={} if until == INT64_MAX else {partition: until},
    )
    source = RecordSource(api, cursors, query.isolation)
    asked = _Asked(request, api, query, media_type, source, is_merged=False)
    tag = _tag_of(asked, offset, until)
    if tag and _is_known(request, tag):
        return web.Response(status=304, headers=_cacheable(tag))
    return await _answer(asked, tag)


@ROUTES.endpoint(
    "GET /v1/topics/{topic}/records",
    "readTopicRecords",
    Access.READ_TOPIC,
    _ANSWERS,
    parameters=OF_SEVERAL,
    errors=_ERRORS,
)
async def of_topic(request: web.Request) -> web.StreamResponse:
    """Records of several partitions in one answer; in order within each of them.

    As the records of one partition. The headers of a page name every partition,
    <partition>:<offset>,..., as the start does.
    """
    query, media_type = _query_of(request)
    api, topic = api_of(request), topic_of(request)
    offsets, until = positions_of(OFFSETS, request), positions_of(UNTIL_OFFSETS, request)
    partitions = partitions_of(request)
    if partitions is None:
        partitions = sorted(offsets) or list(range(api.operations.partition_count(topic)))
    if offsets and set(offsets) != set(partitions):
        raise wrong_parameter("offset", "offset names other partitions than partitions.")
    if not set(until) <= set(partitions):
        raise wrong_parameter("until_offset", "until_offset names a partition that is not read.")
    cursors = await cursors_of(
        api,
        topic,
        query,
        partitions,
        offsets=offsets,
        seen=_seen(request, media_type, partitions),
        until=until,
    )
    source = RecordSource(api, cursors, query.isolation)
    asked = _Asked(request, api, query, media_type, source, is_merged=True)
    return await _answer(asked, "")


def _query_of(request: web.Request) -> tuple[RecordQuery, str]:
    media_type = negotiate(request.headers.get(hdrs.ACCEPT, ""), OFFERED)
    return RecordQuery.read(request), media_type


def _seen(request: web.Request, media_type: str, partitions: Sequence[int]) -> dict[int, int]:
    """Where a stream continues; other answers have no event ids."""
    return last_seen_of(request, partitions) if media_type == EVENT_STREAM else {}


async def _answer(asked: _Asked, tag: str) -> web.StreamResponse:
    if asked.media_type in PAGES:
        return await _page(asked, tag)
    return await _stream(asked, tag)


# ---- pages


async def _page(asked: _Asked, tag: str) -> web.Response:
    api, query, source = asked.api, asked.query, asked.source
    if asked.media_type == ARROW:
        await load_arrow(api, 406)
    starts = [cursor.position for cursor in source.cursors]
    max_bytes = _PAGE_BYTES if query.max_bytes == ABSENT else query.max_bytes
    max_bytes = max(min(max_bytes, api.config.http_max_fetch_bytes), 1)
    writer = PAGES[asked.media_type](
        query.shape,
        query.bounds(max_bytes),
        max_decompressed_bytes=api.operations.max_decompressed_bytes,
    )
    body = await collect(
        api,
        source,
        writer,
        max_bytes=max_bytes,
        min_bytes=query.min_bytes,
        max_wait_ms=min(max(query.max_wait_ms, 0), api.config.http_max_wait_ms),
    )
    headers = (_cacheable(tag) if tag else _NOT_KEPT) | _place_headers(asked, starts)
    if asked.is_gzipped and len(body) >= GZIP_MIN_BYTES:
        body = await gzipped(api, body)
        headers[hdrs.CONTENT_ENCODING] = "gzip"
    return bytes_reply(body, content_type=asked.media_type, headers=headers)


def _place_headers(asked: _Asked, starts: Sequence[int]) -> dict[str, str]:
    """Where the page began and ended."""
    cursors = asked.source.cursors

    def listed(offsets: Sequence[int]) -> str:
        if not asked.is_merged:
            return str(offsets[0])
        numbers = [cursor.at.partition for cursor in cursors]
        return ",".join(
            f"{number}:{offset}" for number, offset in zip(numbers, offsets, strict=True)
        )

    headers = {
        "Kafka-Base-Offset": listed(starts),
        "Kafka-Next-Offset": listed([cursor.position for cursor in cursors]),
        "Kafka-High-Watermark": listed([cursor.high_watermark for cursor in cursors]),
        "Kafka-Log-Start-Offset": listed([cursor.log_start_offset for cursor in cursors]),
    }
    if all(cursor.position >= cursor.high_watermark for cursor in cursors):
        headers["Kafka-Up-To-Date"] = "true"
    return headers


# ---- closed ranges


def _tag_of(asked: _Asked, offset: int, until: int) -> str:
    """The tag of a range that can only change as a whole log does; empty for others.

    Weak: JSON and lines of the same records, gzipped or not, have the same one.
    """
    if offset == ABSENT or until == INT64_MAX or asked.media_type == EVENT_STREAM:
        return ""
    (cursor,) = asked.source.cursors
    log = asked.api.operations.partition_log(cursor.at.topic, cursor.at.partition)
    generation = log.local.generation
    if not log.log_start_offset <= offset <= until <= log.limit_of(asked.query.isolation):
        return ""
    return f'W/"{log.topic_id}:{cursor.at.partition}:{offset}-{until}:{generation}"'


def _is_known(request: web.Request, tag: str) -> bool:
    """Whether the client has it (RFC 9110, 13.1.2, weak comparison)."""
    given = request.headers.get(hdrs.IF_NONE_MATCH, "")
    opaque = tag.removeprefix("W/")
    tags = [each.strip().removeprefix("W/") for each in given.split(",")]
    return opaque in tags or "*" in tags


def _cacheable(tag: str) -> dict[str, str]:
    """Headers for caches: a client may keep the answer, and must ask again, as logs are cleaned."""
    return {_ETAG: tag, hdrs.CACHE_CONTROL: "private, no-cache", hdrs.VARY: _VARY}


# ---- streams


async def _stream(asked: _Asked, tag: str) -> web.StreamResponse:
    api, query, source, request = asked.api, asked.query, asked.source, asked.request
    is_events = asked.media_type == EVENT_STREAM
    if MIN_BYTES.name in request.query:
        raise wrong_parameter(MIN_BYTES.name, "A stream sends what there is: leave min_bytes out.")
    if is_events and source.is_done:
        return web.Response(status=204, headers=_NOT_KEPT)
    max_wait_ms: int | None = min(query.max_wait_ms, api.config.http_max_wait_ms)
    if query.max_wait_ms == ABSENT:
        max_wait_ms = None if is_events else 0
    if max_wait_ms == 0:
        source.stop_at_limits()
    writer = STREAMS[asked.media_type](
        query.shape,
        query.bounds(INT64_MAX if query.max_bytes == ABSENT else query.max_bytes),
        max_decompressed_bytes=api.operations.max_decompressed_bytes,
    )
    stream = RecordStream(
        api,
        source,
        writer,
        max_wait_ms=max_wait_ms,
        comes_again=is_events,
        is_merged=asked.is_merged,
        shared_shape=query.shape if _is_shared(asked) else None,
        request_id=request[REQUEST_ID],
    )
    with api.delayed_fetches.slot(), contextlib.closing(stream):
        pieces = stream.pieces()
        first = [await anext(pieces)]
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: asked.media_type})
        response.headers.update(_cacheable(tag) if tag else _NOT_KEPT)
        if asked.is_gzipped:
            response.headers[hdrs.CONTENT_ENCODING] = "gzip"
        return await _send(asked, response, stream, pieces, first.pop())


def _is_shared(asked: _Asked) -> bool:
    """Whether the stream has no bounds of its own: others get the same pieces."""
    has_until = any(cursor.until_offset is not None for cursor in asked.source.cursors)
    return asked.query.is_unbounded and not has_until


async def _send(
    asked: _Asked,
    response: web.StreamResponse,
    stream: RecordStream,
    pieces: AsyncIterator[bytes],
    piece: bytes | None,
) -> web.StreamResponse:
    """Reads proceed as fast as the client; what was written belongs to the transport alone.

    What is shared with other streams is written in parts: it is copied on its way, and a reader
    that stops has the copy of one part.
    """
    request = asked.request
    add_standard_headers(response, request[REQUEST_ID])
    await response.prepare(request)
    if request.method == hdrs.METH_HEAD:
        return response
    gzip = GzipStream(asked.api) if asked.is_gzipped else None
    writer = cast("StreamWriter", request.writer)
    try:
        while piece is not None:
            if gzip is not None and piece:
                piece = await gzip.step(piece)
            for start in range(0, size := len(piece), _PART_BYTES):
                await writer.write(piece[start : start + _PART_BYTES], drain=False)
                if start + _PART_BYTES >= size:
                    piece = b""
                if request.protocol.writing_paused:
                    with stream.waiting_for_reader():
                        await writer.drain()
            piece = await anext(pieces, None)
        await response.write_eof(b"" if gzip is None else gzip.end())
    except Exception:
        # A defect: the status was sent before, so only a broken connection can show it.
        if request.transport is not None:
            request.transport.abort()
        raise
    return response
