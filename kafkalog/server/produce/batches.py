"""Appends of raw record batches: no Python statement runs per record."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.broker.operations import Acks
from kafkalog.errors import KafkalogError, UnknownTopic
from kafkalog.format.records.record_batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    LOG_OVERHEAD,
    is_transactional,
)
from kafkalog.log.validator import validate
from kafkalog.log.values import AppendOrigin
from kafkalog.server.api import Api, api_of
from kafkalog.server.produce.append import durability_header, opened_topic, refuse_producer
from kafkalog.server.protocol.bodies import Body
from kafkalog.server.protocol.endpoint import PARTITION, Access, Answer, Routes
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.json_schema import PartitionAnswer
from kafkalog.server.protocol.media_types import OCTET_STREAM, RECORD_BATCHES, bare_type
from kafkalog.server.protocol.parameters import (
    ACKS,
    EXPECTED_OFFSET,
    FLUSH,
    acks_of,
    partition_of,
    topic_of,
)
from kafkalog.server.protocol.replies import json_reply

if TYPE_CHECKING:
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import LogAppendInfo, ValidatedRecords

ROUTES = Routes("produce")
# Checking a compressed or long body blocks the event loop for too long.
_INLINE_BYTES = 256 << 10
_ANY_BYTES = {"type": "string", "format": "binary"}
_BATCHES_BODY = {RECORD_BATCHES: _ANY_BYTES, OCTET_STREAM: _ANY_BYTES}
_APPEND_ERRORS = (
    40005,  # acks of a transactional batch
    *(40905, 40906, 40908, 41201),  # sequence, epoch, transaction, expected offset
    *(41301, 41303, 41304, 41305),  # sizes
    *(42209, 42210, 42211, 42212, 42213),  # the batch itself
    *(50003, 50302, 50701),
)


class AppendAnswer(PartitionAnswer):
    """Where raw batches were appended; log_append_time is -1 with CreateTime."""

    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool


def answer_to(topic: str, partition: int, info: LogAppendInfo) -> AppendAnswer:
    """What the client is told of an append."""
    return AppendAnswer(
        topic=topic,
        partition=partition,
        base_offset=info.first_offset,
        last_offset=info.last_offset,
        log_append_time=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
        duplicate=info.duplicate,
    )


def _is_quick(data: bytes | memoryview) -> bool:
    """Whether the check may run on the event loop: one batch, of moderate size, not compressed."""
    if not HEADER_BYTES <= len(data) <= _INLINE_BYTES:
        return len(data) < HEADER_BYTES  # refused at a glance
    is_one = int.from_bytes(data[8:12], "big", signed=True) + LOG_OVERHEAD == len(data)
    return is_one and not data[ATTRIBUTES_AT + 1] & 7


def _checked(api: Api, config: LogConfig, data: bytes | memoryview) -> ValidatedRecords:
    """The body as batches that keep every rule."""
    return validate(
        data,
        config,
        api.operations.now_ms(),
        AppendOrigin.CLIENT,
        max_decompressed_bytes=api.operations.max_decompressed_bytes,
    )


def quick_records(api: Api, log: UnifiedLog, data: bytes | memoryview) -> ValidatedRecords | None:
    """The body as batches; None when the check takes long or more than it decides.

    Raises what is wrong with them.
    """
    if len(data) < HEADER_BYTES or not _is_quick(data):
        return None
    records = _checked(api, log.config, data)
    is_open = any(is_transactional(batch.attributes) for batch in records.batches)
    return None if is_open else records


async def _validated(api: Api, config: LogConfig, data: bytes) -> ValidatedRecords:
    """The body as batches that keep every rule."""
    check = functools.partial(_checked, api, config, data)
    records = check() if _is_quick(data) else await api.blocking(check)
    if not records.batches:
        raise ApiError(42210, "The body holds no record batch.")
    return records


async def _log_of(
    api: Api, topic: str, partition: int, expected_offset: int | None, data: bytes
) -> UnifiedLog:
    """The log of the partition; its topic is created as by other appends, if the body is right.

    UnknownTopic, and what is wrong with the body.
    """
    topics = api.operations.topics
    try:
        opened = await opened_topic(api, topic, partition)
    except UnknownTopic:
        is_outside = partition >= topics.default_partition_count or expected_offset not in (None, 0)
        if is_outside or not api.config.auto_create_topics_enable:
            raise
        await _validated(api, topics.default_config, data)
        await api.blocking(topics.ensure, topic)
        opened = await opened_topic(api, topic, partition)
    return opened.log_of(partition)


def _acks_for(api: Api, log: UnifiedLog, records: ValidatedRecords, asked: Acks | None) -> Acks:
    """The acks of the request or the default. Of a transaction all: a commit needs each batch."""
    if not any(is_transactional(batch.attributes) for batch in records.batches):
        return asked or api.operations.default_acks(log.topic_partition.topic)
    if asked not in (None, Acks.ALL):
        raise ApiError(
            40005,
            "Transactional batches are appended with acks=all.",
            details={"parameter": "acks"},
        )
    return Acks.ALL


@ROUTES.endpoint(
    f"POST {PARTITION}/batches",
    "appendBatches",
    Access.WRITE_TOPIC,
    {
        200: Answer("Appended.", AppendAnswer, ("Kafka-Durability",)),
        202: Answer("acks=0: nobody waited.", headers=("Kafka-Durability",)),
    },
    parameters=(EXPECTED_OFFSET, FLUSH, ACKS),
    body=_BATCHES_BODY,
    errors=_APPEND_ERRORS,
)
async def append(request: web.Request) -> web.Response:
    """Append whole record batches, all or none.

    One or more Kafka v2 batches back to back; offsets and leader epoch are assigned. A producer id,
    epoch and sequence in the header make the append idempotent. An unknown topic is created first
    (auto.create.topics.enable). Transactional batches are taken with the producer and epoch of the
    newest begin of a sink, synced, until its batch is committed.
    """
    api = api_of(request)
    if bare_type(request.headers.get("Content-Type", "")) not in (RECORD_BATCHES, OCTET_STREAM):
        raise ApiError(415, f"Send {RECORD_BATCHES} or {OCTET_STREAM}.")
    refuse_producer(request)
    topic, partition = topic_of(request), partition_of(request)
    expected_offset, asked = EXPECTED_OFFSET.read_or_none(request), acks_of(request)
    async with Body(request, api) as data:
        log = await _log_of(api, topic, partition, expected_offset, data)
        try:
            records = await _validated(api, log.config, data)
        except (KafkalogError, ApiError) as refusal:
            api.metrics.traffic.observe_refusal(topic, refusal, len(data))
            raise
        acks = _acks_for(api, log, records, asked)
        future = api.append(log, records, acks, expected_offset)
        if acks is Acks.NONE:
            return web.Response(status=202, headers=durability_header(acks))
        info = await future
    return json_reply(answer_to(topic, partition, info), headers=durability_header(acks))
