"""v2 produce: binary, json and text records with keys, headers and timestamps (http-api.md 3.3).

One request is one record batch a partition: request order is offset order. Nothing runs per record
in Python: columns, partitions, batches and receipts are made by C and by kernels.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from aiohttp import web

from kafkalog.errors import KafkalogError, UnknownTopic
from kafkalog.format.json_page import write_receipts
from kafkalog.manager.operations import Acks
from kafkalog.server.api import Api, api_of
from kafkalog.server.error_map import error_body
from kafkalog.server.in_flight import Body
from kafkalog.server.media_types import metadata_type, produce_format
from kafkalog.server.parameters import acks_of, flag, partition_of, topic_of
from kafkalog.server.produce_batches import PartitionBatch, make_batches
from kafkalog.server.produce_body import decode
from kafkalog.server.replies import bytes_reply

if TYPE_CHECKING:
    from kafkalog.log.values import LogAppendInfo

ROUTES = web.RouteTableDef()
_INLINE_BYTES = 256 << 10
_DURABILITY = {Acks.ALL: "synced", Acks.LEADER: "os"}


@ROUTES.post("/topics/{topic}")
async def produce(request: web.Request) -> web.Response:
    """Records go to their own partition, else by key (murmur2), else one partition for all."""
    return await _produce(request, None)


@ROUTES.post("/topics/{topic}/partitions/{partition}")
async def produce_to_partition(request: web.Request) -> web.Response:
    """The path's partition, unless a record names its own."""
    return await _produce(request, partition_of(request))


async def _produce(request: web.Request, partition: int | None) -> web.Response:
    api = api_of(request)
    embedded = produce_format(request.headers.get("Content-Type", ""))
    content_type = metadata_type(request.headers.get("Accept", ""))
    topic = topic_of(request)
    is_async = flag(request, "async")
    acks = Acks.NONE if is_async else acks_of(request)
    async with Body(request, api) as data:
        partition_count = await _partition_count(api, topic)
        acks = acks or api.operations.default_acks(topic)
        now_ms = api.operations.now_ms()
        null_key_partition = api.null_key_partition(partition_count)

        def prepare() -> tuple[int, list[PartitionBatch]]:
            records = decode(data, embedded, now_ms=now_ms, max_records=api.config.http_max_records)
            batches = make_batches(records, partition_count, partition, null_key_partition)
            return len(records), batches

        if len(data) <= _INLINE_BYTES:
            count, batches = prepare()
        else:
            count, batches = await api.blocking(prepare)
        outcomes = await _append_all(api, topic, batches, acks)
    if acks is Acks.NONE:
        status = 204 if is_async else 202
        return web.Response(status=status, headers={"Kafka-Durability": "none"})
    body, status = _answer(count, batches, outcomes, _DURABILITY[acks])
    return bytes_reply(body, content_type=content_type, status=status)


async def _partition_count(api: Api, topic: str) -> int:
    """Of the topic, which is created when the configuration says so (auto.create.topics.enable)."""
    try:
        return api.operations.partition_count(topic)
    except UnknownTopic:
        if not api.config.auto_create_topics_enable:
            raise
    await api.blocking(api.operations.ensure_topic, topic)
    return api.operations.partition_count(topic)


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


def _answer(
    count: int,
    batches: list[PartitionBatch],
    outcomes: list[LogAppendInfo | KafkalogError],
    durability: str,
) -> tuple[bytes, int]:
    """The v2 answer in request order; when all failed for one reason, that reason's status."""
    partitions = np.empty(count, dtype=np.int32)
    offsets = np.empty(count, dtype=np.int64)
    failures: dict[int, dict[str, object]] = {}
    codes: set[int] = set()
    for batch, outcome in zip(batches, outcomes, strict=True):
        partitions[batch.selection] = batch.partition
        if isinstance(outcome, KafkalogError):
            entry, body = error_body(outcome)
            codes.add(entry.error_code)
            failure = {
                "partition": None,
                "offset": None,
                "error_code": entry.error_code,
                "error": body["message"],
                "message": body["message"],
            }
            failures.update(dict.fromkeys(batch.selection.tolist(), failure))
        else:
            offsets[batch.selection] = np.arange(
                outcome.first_offset, outcome.first_offset + len(batch.selection)
            )
    tail = (
        b',"key_schema_id":null,"value_schema_id":null,"durability":"' + durability.encode() + b'"'
    )
    if not failures:
        return b"{" + write_receipts(partitions, offsets) + tail + b"}", 200
    receipts = [
        failures.get(index)
        or {
            "partition": int(partitions[index]),
            "offset": int(offsets[index]),
            "error_code": None,
            "error": None,
        }
        for index in range(count)
    ]
    status = 200
    if len(failures) == count and len(codes) == 1:
        first = next(outcome for outcome in outcomes if isinstance(outcome, KafkalogError))
        entry, body = error_body(first)
        status = entry.status
        del body["message"], body["error_code"]
        head = {"error_code": entry.error_code, "message": failures[0]["message"], **body}
        return msgspec.json.encode({**head, "offsets": receipts}), status
    return b'{"offsets":' + msgspec.json.encode(receipts) + tail + b"}", status
