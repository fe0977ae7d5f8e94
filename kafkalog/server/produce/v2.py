"""v2 produce: binary, json and text records with keys, headers and timestamps.

One request is one record batch a partition: request order is offset order. Nothing runs per record
in Python: columns, partitions, batches and receipts are made by C and by kernels.
"""

from __future__ import annotations

import msgspec
from aiohttp import hdrs, web

from kafkalog.broker.groups.consumers import Dialect
from kafkalog.broker.operations import Acks
from kafkalog.server.api import Api, api_of
from kafkalog.server.produce.append import (
    DURABILITIES,
    INLINE_BYTES,
    Durability,
    PartitionBatch,
    PartitionTarget,
    Receipt,
    Terms,
    append_all,
    durability_header,
    mixed_receipts,
    prepare,
    prepare_for,
    refuse_producer,
    results_of,
)
from kafkalog.server.produce.json_body import Formats
from kafkalog.server.protocol.bodies import Body
from kafkalog.server.protocol.endpoint import Access, Answer, Routes, in_v2
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.json_schema import AnswerBody
from kafkalog.server.protocol.media_types import (
    EMBEDDED_TYPES,
    JSON,
    bare_type,
    metadata_type,
    produce_format,
)
from kafkalog.server.protocol.parameters import ACKS, FlagParameter, partition_of, topic_of
from kafkalog.server.protocol.replies import REQUEST_ID, bytes_reply, error_reply
from kafkalog.server.protocol.schemas import ProduceRequest

ROUTES = Routes("produce")
_TAIL = b',"key_schema_id":null,"value_schema_id":null,"durability":"%b"}'
_ASYNC = FlagParameter("async", "Answer 204 at once, as acks=0.")
_DIALECTS = {
    "application/vnd.kafka.text.v2+json": Dialect.STRIMZI,
    "application/vnd.kafka.json+json": Dialect.KARAPACE,
    "application/vnd.kafka.binary+json": Dialect.KARAPACE,
}
_BODY = dict.fromkeys((*EMBEDDED_TYPES, JSON), ProduceRequest)


class ProduceAnswer(AnswerBody):
    """Receipts in request order."""

    offsets: list[Receipt]
    key_schema_id: None
    value_schema_id: None
    durability: Durability


_ANSWERS = {
    200: Answer("A receipt each.", in_v2(ProduceAnswer)),
    202: Answer("acks=0: nobody waited.", headers=("Kafka-Durability",)),
    204: Answer("async=true: nobody waited.", headers=("Kafka-Durability",)),
}
_ERRORS = (406, 422, 41301, 41304, 41305, 42211, 42212, 42214, 40402, 50003, 50303, 50302, 50701)
_TAILS = {acks: _TAIL % durability.encode() for acks, durability in DURABILITIES.items()}


@ROUTES.endpoint(
    "POST /topics/{topic}",
    "produce",
    Access.WRITE_TOPIC,
    _ANSWERS,
    parameters=(_ASYNC, ACKS),
    body=_BODY,
    errors=_ERRORS,
)
async def produce(request: web.Request) -> web.Response:
    """Append records to a topic.

    Each goes to its own partition, else by its key (murmur2 as Java's producer), else one partition
    for all of the request.
    """
    return await _produce(request, None)


@ROUTES.endpoint(
    "POST /topics/{topic}/partitions/{partition}",
    "produceToPartition",
    Access.WRITE_TOPIC,
    _ANSWERS,
    parameters=(_ASYNC, ACKS),
    body=_BODY,
    errors=_ERRORS,
)
async def produce_to_partition(request: web.Request) -> web.Response:
    """Append records to a partition; a record's own partition wins."""
    return await _produce(request, partition_of(request))


def _dialect_of(api: Api, request: web.Request) -> Dialect:
    """As configured, else the one whose proxy alone has the media type."""
    configured = api.config.http_v2_dialect
    if configured != "auto":
        return Dialect(configured)
    media_type = bare_type(request.headers.get(hdrs.CONTENT_TYPE, ""))
    return _DIALECTS.get(media_type, Dialect.CONFLUENT)


def _in_dialect(error: ApiError, dialect: Dialect) -> ApiError:
    """The status of a wrong shape: 422, the Bridge's 400, Karapace's 400 for a wrong type alone.

    A key or value that its format cannot have is 422 in the Bridge too.
    """
    is_wrong_type = error.message.startswith("Expected ")  # msgspec's words
    is_of_data = error.message.endswith((".key`", ".value`"))
    is_bad = dialect is Dialect.KARAPACE and is_wrong_type
    is_bad |= dialect is Dialect.STRIMZI and not is_of_data
    if error.entry.error_code != 422 or not is_bad:
        return error
    return ApiError(400, error.message, validation_errors=error.validation_errors)


async def _produce(request: web.Request, partition: int | None) -> web.Response:
    api = api_of(request)
    refuse_producer(request)
    embedded = produce_format(request.headers.get(hdrs.CONTENT_TYPE, ""))
    content_type = metadata_type(request.headers.get(hdrs.ACCEPT, ""))
    topic = topic_of(request)
    is_async = _ASYNC.read(request)
    acks = Acks.NONE if is_async else ACKS.read(request)
    async with Body(request, api) as data:
        formats, now_ms = Formats(embedded, embedded), api.operations.now_ms()

        async def prepared(target: PartitionTarget) -> tuple[int, list[PartitionBatch]]:
            arguments = data, formats, now_ms, api.config.http_max_records, target
            if len(data) <= INLINE_BYTES:
                return prepare(*arguments)
            return await api.blocking(prepare, *arguments)

        try:
            count, batches, opened = await prepare_for(api, topic, partition, prepared)
        except ApiError as error:
            raise _in_dialect(error, _dialect_of(api, request)) from error
        default_acks = api.operations.broker_acks if opened is None else opened.default_acks
        terms = Terms(acks or default_acks, partition)
        appended = await append_all(api, opened, batches, terms)
        if terms.acks is Acks.NONE:
            status = 204 if is_async else 202
            return web.Response(status=status, headers=durability_header(Acks.NONE))
        results = results_of(count, appended)
    if not results.faults:
        body = results.receipts()
    else:
        receipts = mixed_receipts(results)
        reason = results.one_reason()
        if reason is not None:
            return error_reply(reason, request[REQUEST_ID], is_v2=True, extra={"offsets": receipts})
        body = b'"offsets":' + msgspec.json.encode(receipts)
    body = b"{" + body + _TAILS[terms.acks]
    return bytes_reply(body, content_type=content_type)
