"""Native produce: JSON lines or array, an Arrow stream, one record as it is.

Lines and Arrow streams are appended while they arrive, in bounded memory. A client that asks for
lines in Accept gets a receipt for each record on the same connection, before it sends the next.
Arrays, single records, and lines with a producer are read whole and appended together or refused: a
retry of a producer must be the same batch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import hdrs, web

from kafkalog.broker.operations import Acks
from kafkalog.format.records.batch_builder import NO_PRODUCER, RecordColumns
from kafkalog.format.wire.json_documents import Lines
from kafkalog.server.api import Api, api_of
from kafkalog.server.produce.append import (
    INLINE_BYTES,
    PartitionBatch,
    PartitionTarget,
    Terms,
    append_all,
    default_acks,
    durability_header,
    make_batches,
    prepare_for,
    producer_of,
    results_of,
)
from kafkalog.server.produce.arrow_body import ArrowStream
from kafkalog.server.produce.json_body import (
    DecodedRecords,
    Formats,
    NativeDialect,
    columns_of,
    parse_array,
    parse_documents,
    parse_lines,
)
from kafkalog.server.produce.stream import (
    ProduceReceipt,
    ProduceStream,
    ProduceSummary,
    Receipts,
    Summary,
    last_line,
    receipt_lines,
    silent_reply,
)
from kafkalog.server.protocol.arrow import load_arrow
from kafkalog.server.protocol.bodies import Body
from kafkalog.server.protocol.endpoint import PARTITION, Access, Answer, Routes
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.media_types import (
    ARROW,
    JSON,
    NDJSON,
    OCTET_STREAM,
    TEXT,
    EmbeddedFormat,
    bare_type,
    check_charset,
    wants_receipts,
)
from kafkalog.server.protocol.parameters import (
    ACKS,
    EXPECTED_OFFSET,
    FLUSH,
    ChoiceParameter,
    acks_of,
    partition_of,
    topic_of,
)
from kafkalog.server.protocol.replies import bytes_reply
from kafkalog.server.protocol.schemas import NativeRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from kafkalog.server.produce.json_body import AnyRecord, Fault
    from kafkalog.server.produce.stream import ResponseWriter
    from kafkalog.server.protocol.endpoint import Model

ROUTES = Routes("produce")
_FORMATS = {"json": EmbeddedFormat.JSON, "text": EmbeddedFormat.TEXT}
_FORMATS["base64"] = EmbeddedFormat.BINARY
_KEY_FORMAT: ChoiceParameter[EmbeddedFormat | None] = ChoiceParameter(
    "key_format",
    "Format of keys in JSON, text by default: json (any, stored as sent), text or base64. "
    "Also of the header Kafka-Key.",
    _FORMATS,
    None,
)
_VALUE_FORMAT: ChoiceParameter[EmbeddedFormat | None] = ChoiceParameter(
    "value_format",
    "Format of values in JSON, json by default. Not for a record that is sent as it is.",
    _FORMATS,
    None,
)
_KEY_HEADER, _HEADER_PREFIX = b"kafka-key", b"kafka-header-"
_ANY_BYTES = {"type": "string", "format": "binary"}
_BODY: dict[str, Model] = {
    NDJSON: NativeRecord,
    JSON: {"type": "array", "items": {"$ref": "#/components/schemas/NativeRecord"}},
    TEXT: {"type": "string"},
    OCTET_STREAM: _ANY_BYTES,
    ARROW: {
        **_ANY_BYTES,
        "description": "An IPC stream: value; key, headers, timestamp, partition.",
    },
}
_ANSWERS = {
    200: Answer(
        "What was appended where, and what was not; as lines, a receipt each.",
        {JSON: ProduceSummary, NDJSON: ProduceReceipt},
        ("Kafka-Durability",),
    ),
    202: Answer("acks=0: nobody waited.", headers=("Kafka-Durability",)),
}
_ERRORS = (
    *(406, 408, 40402, 42902, 42903),
    *(41301, 41304, 41305, 42211, 42212, 42214),
    *(50003, 50302, 50303, 50304, 50701, 50702),
)


class _Options(NamedTuple):
    """The options of a request."""

    api: Api
    topic: str
    terms: Terms
    formats: Formats
    wants_receipt_lines: bool


@ROUTES.endpoint(
    "POST /v1/topics/{topic}/records",
    "produceRecords",
    Access.WRITE_TOPIC,
    _ANSWERS,
    parameters=(_KEY_FORMAT, _VALUE_FORMAT, FLUSH, ACKS),
    body=_BODY,
    errors=_ERRORS,
    is_stream=True,
)
async def produce(request: web.Request) -> web.StreamResponse:
    """Append records to a topic.

    Each goes to its own partition, else by its key (murmur2 as Java's producer), else those that
    come together to one partition. Lines are appended as they come.
    """
    return await _produce(request, None, None)


@ROUTES.endpoint(
    f"POST {PARTITION}/records",
    "produceRecordsToPartition",
    Access.WRITE_TOPIC,
    _ANSWERS,
    parameters=(_KEY_FORMAT, _VALUE_FORMAT, EXPECTED_OFFSET, FLUSH, ACKS),
    body=_BODY,
    errors=(*_ERRORS, 40905, 40906, 40908, 41201),
    is_stream=True,
)
async def produce_to_partition(request: web.Request) -> web.StreamResponse:
    """Append records to a partition; a record's own partition wins.

    With expected_offset the first record gets that offset and the others follow without a gap.
    With the headers Kafka-Producer-Id, Kafka-Producer-Epoch and Kafka-Base-Sequence they are one
    batch of this partition that can be sent again without harm.
    """
    return await _produce(request, partition_of(request), EXPECTED_OFFSET.read_or_none(request))


async def _produce(
    request: web.Request, partition: int | None, expected_offset: int | None
) -> web.StreamResponse:
    api, topic = api_of(request), topic_of(request)
    content_type = request.headers.get(hdrs.CONTENT_TYPE, "")
    media_type = bare_type(content_type)
    take = _TAKERS.get(media_type)
    if take is None:
        raise ApiError(415, f"Send one of: {', '.join(_TAKERS)}.")
    if media_type in (JSON, NDJSON):  # what is not parsed is stored as it is, in any charset
        check_charset(content_type)
    wants_receipt_lines = wants_receipts(request.headers.get(hdrs.ACCEPT, ""))
    acks = acks_of(request)
    if acks is Acks.NONE and wants_receipt_lines:
        raise ApiError(40005, "acks=0 has no receipts; ask for JSON, or for acks=1.")
    acks = acks or default_acks(api, topic, partition)
    if acks is Acks.NONE and wants_receipt_lines:
        acks = Acks.LEADER  # only the topic's default: receipts have offsets
    formats = Formats(
        _KEY_FORMAT.read(request) or EmbeddedFormat.TEXT,
        _VALUE_FORMAT.read(request) or EmbeddedFormat.JSON,
    )
    terms = Terms(acks, partition, expected_offset, producer_of(request))
    if terms.producer is not NO_PRODUCER and partition is None:
        raise ApiError(40005, "A producer's records need a partition in the path.")
    return await take(request, _Options(api, topic, terms, formats, wants_receipt_lines))


async def _take_lines(request: web.Request, options: _Options) -> web.StreamResponse:
    """Records in lines, appended as they arrive."""
    if options.terms.producer is not NO_PRODUCER:
        return await _take_whole(request, options, parse_lines)
    dialect = NativeDialect(options.formats)

    async def append(writer: ResponseWriter) -> Fault | None:
        stream = ProduceStream(options.api, options.topic, options.terms, dialect, writer)
        return await stream.run(request, Lines())

    return await _tell(request, options, append)


async def _take_arrow(request: web.Request, options: _Options) -> web.StreamResponse:
    """Records in an Arrow stream, appended as its messages arrive."""
    if _KEY_FORMAT.read(request) is not None or _VALUE_FORMAT.read(request) is not None:
        raise ApiError(40005, "key_format and value_format are of records in JSON.")
    if options.terms.producer is not NO_PRODUCER:
        raise ApiError(40005, "A producer's records come in JSON: those of Arrow are many batches.")
    formats = await load_arrow(options.api, 415)

    async def append(writer: ResponseWriter) -> Fault | None:
        stream = ArrowStream(options.api, options.topic, options.terms, formats, writer)
        return await stream.append(request)

    return await _tell(request, options, append)


async def _tell(
    request: web.Request,
    options: _Options,
    append: Callable[[ResponseWriter], Awaitable[Fault | None]],
) -> web.StreamResponse:
    """Run ``append``; the answer is receipts or a summary, as Accept asks."""
    acks = options.terms.acks
    if options.wants_receipt_lines:
        receipts = Receipts(
            request, NDJSON, acks, lambda group: receipt_lines(group.results), is_eager=True
        )
        fault = await append(receipts)
        return await receipts.end(b"" if fault is None else last_line(fault))
    summary = Summary()
    fault = await append(summary)
    return summary.reply(request, acks, fault)


async def _take_whole(
    request: web.Request, options: _Options, parse: Callable[..., Sequence[AnyRecord]]
) -> web.StreamResponse:
    """A body that ``parse`` reads whole, all records of the right shape or none."""
    api, formats = options.api, options.formats
    max_records, now_ms = api.config.http_max_records, api.operations.now_ms()

    def decode(data: bytes) -> DecodedRecords | None:
        records = parse(data, formats, max_records=max_records)
        return columns_of(records, formats, now_ms=now_ms) if records else None

    async with Body(request, api) as data:
        if len(data) <= INLINE_BYTES:
            return await _append(request, options, decode(data))
        return await _append(request, options, await api.blocking(decode, data))


async def _take_one(request: web.Request, options: _Options) -> web.StreamResponse:
    """The body is the value of one record; its key and headers are in those of the request."""
    if _VALUE_FORMAT.read(request) is not None:
        raise ApiError(40005, "value_format is of records in JSON; this one is taken as it is.")
    key: bytes | None = None
    headers: list[tuple[bytes, bytes | None]] = []
    for name, value in request.raw_headers:
        lowered = name.lower()
        if lowered == _KEY_HEADER:
            if key is not None:
                raise ApiError(400, "Kafka-Key may be sent once.")
            key = _key_bytes(value, options.formats.key)
        elif lowered.startswith(_HEADER_PREFIX):
            headers.append((name[len(_HEADER_PREFIX) :], value))
    async with Body(request, options.api) as data:
        now_ms = options.api.operations.now_ms()
        columns = RecordColumns.of([key], [data], now_ms, [headers] if headers else None)
        return await _append(request, options, DecodedRecords(columns, None))


def _key_bytes(text: bytes, key_format: EmbeddedFormat) -> bytes | None:
    """The key in a header; ApiError 400 when it is not in its format."""
    if key_format is EmbeddedFormat.TEXT:
        return text
    quoted = text if key_format is EmbeddedFormat.JSON else b'"%b"' % text
    formats = Formats(key_format, EmbeddedFormat.JSON)
    columns = columns_of(
        parse_documents((b'{"key":%b}' % quoted,), formats), formats, now_ms=0
    ).columns
    return columns.keys.tobytes() if not columns.null_key_count else None


async def _append(
    request: web.Request, options: _Options, records: DecodedRecords | None
) -> web.StreamResponse:
    """Records that were read whole: a batch a partition, and the answer."""
    api, topic, terms = options.api, options.topic, options.terms
    if terms.producer is not NO_PRODUCER:
        named = None if records is None else records.partitions
        if named is not None and ((named >= 0) & (named != terms.partition)).any():
            raise ApiError(422, "A producer's records all go to the partition in the path.")

    async def prepared(target: PartitionTarget) -> tuple[None, list[PartitionBatch]]:
        return None, [] if records is None else make_batches(records, target, terms.producer)

    _, batches, opened = await prepare_for(api, topic, terms.partition, prepared)
    appended = await append_all(api, opened, batches, terms)
    if terms.acks is Acks.NONE:
        return silent_reply()
    results = results_of(0 if records is None else len(records), appended)
    if options.wants_receipt_lines:
        headers = durability_header(terms.acks)
        return bytes_reply(receipt_lines(results), content_type=NDJSON, headers=headers)
    summary = Summary()
    summary.add(results)
    return summary.reply(request, terms.acks)


# How a body of each media type is taken.
_TAKERS: Mapping[str, Callable[[web.Request, _Options], Awaitable[web.StreamResponse]]] = {
    NDJSON: _take_lines,
    JSON: partial(_take_whole, parse=parse_array),
    TEXT: _take_one,
    OCTET_STREAM: _take_one,
    ARROW: _take_arrow,
}
