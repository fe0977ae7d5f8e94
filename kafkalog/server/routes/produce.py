"""v2 produce: binary, json and text records with keys, headers and timestamps (http-api.md 3.3).

One request is one record batch a partition: request order is offset order. Nothing runs per record
in Python: columns, partitions, batches and receipts are made by C and by kernels.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import msgspec
import numpy as np
from aiohttp import hdrs, web

from kafkalog.errors import KafkalogError, UnknownTopic
from kafkalog.format.json_page import write_receipt, write_receipts
from kafkalog.log.values import LogAppendInfo
from kafkalog.manager.operations import Acks
from kafkalog.server.answers import ProduceAnswer
from kafkalog.server.api import Api, api_of
from kafkalog.server.endpoint import Access, Action, Answer, Resource, endpoint
from kafkalog.server.error_map import error_body
from kafkalog.server.in_flight import Body
from kafkalog.server.media_types import EMBEDDED_TYPES, JSON, V2_JSON, metadata_type, produce_format
from kafkalog.server.parameters import ACKS, FlagParameter, partition_of, topic_of
from kafkalog.server.produce_batches import PartitionBatch, prepare
from kafkalog.server.replies import REQUEST_ID, bytes_reply, error_reply
from kafkalog.server.schemas import ProduceRequest

if TYPE_CHECKING:
    from kafkalog.server.media_types import EmbeddedFormat

ROUTES = web.RouteTableDef()
_INLINE_BYTES = 256 << 10
_TAIL = b',"key_schema_id":null,"value_schema_id":null,"durability":"%b"}'
_ASYNC = FlagParameter("async", "Answer 204 at once, as acks=0.")
_WRITE = Access(Action.WRITE, Resource.TOPIC)
_BODY = dict.fromkeys((*EMBEDDED_TYPES, JSON), ProduceRequest)
_ANSWERS = {
    200: Answer("A receipt each.", dict.fromkeys((V2_JSON, JSON), ProduceAnswer)),
    202: Answer("acks=0: nobody waited.", headers=("Kafka-Durability",)),
    204: Answer("async=true: nobody waited.", headers=("Kafka-Durability",)),
}
_ERRORS = (406, 422, 41301, 41304, 41305, 42211, 42212, 42214, 40402, 50003, 50303, 50302, 50701)
_SYNCED_TAIL, _WRITTEN_TAIL = _TAIL % b"synced", _TAIL % b"os"


@ROUTES.post("/topics/{topic}")
@endpoint(
    "produce",
    "produce",
    _WRITE,
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


@ROUTES.post("/topics/{topic}/partitions/{partition}")
@endpoint(
    "produceToPartition",
    "produce",
    _WRITE,
    _ANSWERS,
    parameters=(_ASYNC, ACKS),
    body=_BODY,
    errors=_ERRORS,
)
async def produce_to_partition(request: web.Request) -> web.Response:
    """Append records to a partition; a record's own partition wins."""
    return await _produce(request, partition_of(request))


async def _produce(request: web.Request, partition: int | None) -> web.Response:
    api = api_of(request)
    embedded = produce_format(request.headers.get(hdrs.CONTENT_TYPE, ""))
    content_type = metadata_type(request.headers.get(hdrs.ACCEPT, ""))
    topic = topic_of(request)
    is_async = _ASYNC.read(request)
    acks = Acks.NONE if is_async else ACKS.read(request)
    async with Body(request, api) as data:
        count, batches = await _prepare(api, topic, partition, data, embedded)
        acks = acks or api.operations.default_acks(topic)
        outcomes = await _append_all(api, topic, batches, acks)
    if acks is Acks.NONE:
        status = 204 if is_async else 202
        return web.Response(status=status, headers={"Kafka-Durability": "none"})
    failures = _failures(batches, outcomes)
    if not failures:
        body = _receipts(count, batches, outcomes)
    else:
        receipts = _mixed_receipts(count, batches, outcomes, failures)
        reason = _one_reason(outcomes)
        if reason is not None:
            extra: dict[str, object] = {"offsets": receipts}
            return error_reply(reason, request[REQUEST_ID], is_v2=True, extra=extra)
        body = b'"offsets":' + msgspec.json.encode(receipts)
    body = b"{" + body + (_SYNCED_TAIL if acks is Acks.ALL else _WRITTEN_TAIL)
    return bytes_reply(body, content_type=content_type)


async def _prepare(
    api: Api, topic: str, partition: int | None, data: bytes, embedded: EmbeddedFormat
) -> tuple[int, list[PartitionBatch]]:
    """(record count, one batch a partition) of a body; the topic exists on return.

    It is created when the configuration says so (auto.create.topics.enable), but not for a body
    that is refused, nor for one that names only partitions that the new topic would not have.
    Differs from Kafka there, whose clients create it by asking for metadata before they know that
    they will refuse themselves.
    """
    operations = api.operations
    try:
        partition_count = operations.partition_count(topic)
    except UnknownTopic:
        if not api.config.auto_create_topics_enable:
            raise
        expected_count = operations.topics.default_partition_count
        place = (expected_count, partition, api.null_key_partition(topic, expected_count))
        prepared = await _batches(api, data, embedded, place)
        if all(batch.partition >= expected_count for batch in prepared[1]):
            raise
        await api.blocking(operations.topics.ensure, topic)
        partition_count = operations.partition_count(topic)
        if partition_count == expected_count:
            return prepared
    place = (partition_count, partition, api.null_key_partition(topic, partition_count))
    return await _batches(api, data, embedded, place)


async def _batches(
    api: Api, data: bytes, embedded: EmbeddedFormat, place: tuple[int, int | None, int]
) -> tuple[int, list[PartitionBatch]]:
    """``prepare``, of a large body on the control pool."""
    arguments = (data, embedded, api.operations.now_ms(), api.config.http_max_records, place)
    if len(data) <= _INLINE_BYTES:
        return prepare(*arguments)
    return await api.blocking(prepare, *arguments)


async def _append_all(
    api: Api, topic: str, batches: list[PartitionBatch], acks: Acks
) -> list[LogAppendInfo | KafkalogError]:
    """Every partition's outcome; one that fails does not hold back the others."""
    outcomes: list[LogAppendInfo | KafkalogError | asyncio.Future[LogAppendInfo]] = []
    for batch in batches:
        try:
            log = api.operations.partition_log(topic, batch.partition)
            records = batch.validate(
                log.config, api.operations.now_ms(), api.operations.max_decompressed_bytes
            )
            future = api.append(log, records, acks)
            api.metrics.observe_append(topic, records.record_count, records.size_bytes)
            if acks is Acks.NONE:
                future.add_done_callback(asyncio.Future.exception)
            outcomes.append(future)
        except KafkalogError as error:
            outcomes.append(error)
    if acks is Acks.NONE:
        return []
    finished: list[LogAppendInfo | KafkalogError] = []
    for outcome in outcomes:
        if isinstance(outcome, asyncio.Future):
            try:
                finished.append(await outcome)
            except KafkalogError as error:
                finished.append(error)
        else:
            finished.append(outcome)
    return finished


Outcome = LogAppendInfo | KafkalogError


def _receipts(count: int, batches: list[PartitionBatch], outcomes: list[Outcome]) -> bytes:
    """``"offsets":[...]`` in request order, when every record was appended."""
    if len(batches) == 1:
        assert isinstance(outcomes[0], LogAppendInfo)
        first = outcomes[0].first_offset
        if count == 1:
            return write_receipt(batches[0].partition, first)
        one_partition = np.full(count, batches[0].partition, dtype=np.int64)
        return write_receipts(one_partition, np.arange(first, first + count, dtype=np.int64))
    partitions = np.empty(count, dtype=np.int32)
    offsets = np.empty(count, dtype=np.int64)
    for batch, outcome in zip(batches, outcomes, strict=True):
        assert isinstance(outcome, LogAppendInfo)
        partitions[batch.selection] = batch.partition
        offsets[batch.selection] = outcome.first_offset + np.arange(len(batch.selection))
    return write_receipts(partitions, offsets)


def _failures(
    batches: list[PartitionBatch], outcomes: list[Outcome]
) -> dict[int, dict[str, object]]:
    """What each partition that failed says for each of its records, by partition."""
    failures: dict[int, dict[str, object]] = {}
    for batch, outcome in zip(batches, outcomes, strict=True):
        if isinstance(outcome, KafkalogError):
            entry, body = error_body(outcome)
            failures[batch.partition] = {
                "partition": None,
                "offset": None,
                "error_code": entry.error_code,
                "error": body["message"],
                "message": body["message"],
            }
    return failures


def _mixed_receipts(
    count: int,
    batches: list[PartitionBatch],
    outcomes: list[Outcome],
    failures: dict[int, dict[str, object]],
) -> list[dict[str, object]]:
    """Receipts in request order when some failed: a statement a record does no harm here."""
    receipts: list[dict[str, object]] = [{}] * count
    for batch, outcome in zip(batches, outcomes, strict=True):
        for number, index in enumerate(batch.selection.tolist()):
            receipts[index] = failures.get(batch.partition) or {
                "partition": batch.partition,
                "offset": cast("LogAppendInfo", outcome).first_offset + number,
                "error_code": None,
                "error": None,
            }
    return receipts


def _one_reason(outcomes: list[Outcome]) -> KafkalogError | None:
    """The error that every partition met, if it is one number for all."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, KafkalogError)]
    codes = {error_body(error)[0].error_code for error in errors}
    return errors[0] if len(errors) == len(outcomes) and len(codes) == 1 else None
