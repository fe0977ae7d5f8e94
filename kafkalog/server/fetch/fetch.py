"""Fetches from one partition with long poll, and the route of raw batches."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.format.records.batch_scan import committed_batches
from kafkalog.log.values import Isolation
from kafkalog.server.api import api_of
from kafkalog.server.protocol.endpoint import PARTITION, Access, Answer, Routes
from kafkalog.server.protocol.media_types import RECORD_BATCHES
from kafkalog.server.protocol.parameters import ISOLATION, IntegerParameter, partition_of, topic_of
from kafkalog.server.protocol.replies import bytes_reply

if TYPE_CHECKING:
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import FetchDataInfo, FetchSpan
    from kafkalog.server.api import Api

ROUTES = Routes("fetch")
_ANY_BYTES = {"type": "string", "format": "binary"}
_FETCH_HEADERS = (
    "Kafka-Base-Offset",
    "Kafka-Next-Offset",
    "Kafka-High-Watermark",
    "Kafka-Log-Start-Offset",
    "Kafka-Up-To-Date",
)
OFFSET = IntegerParameter(
    "offset",
    "Read from the batch that holds this offset.",
    advice=" The first and the end: offsets?spec=earliest and spec=latest of the partition.",
)
MAX_BYTES = IntegerParameter("max_bytes", "At most this much, but at least one batch.", 1 << 20)
MIN_BYTES = IntegerParameter("min_bytes", "Wait until this much is there.", 1)
MAX_WAIT_MS = IntegerParameter("max_wait_ms", "How long to wait for min_bytes.", 0)


async def fetch(
    api: Api,
    log: UnifiedLog,
    offset: int,
    *,
    max_bytes: int,
    min_bytes: int,
    max_wait_ms: int,
    isolation: Isolation,
) -> FetchDataInfo:
    """Read from offset; wait up to max_wait_ms for min_bytes, woken by appends.

    Raises OffsetBelowLogStart, OffsetAboveLogEnd, CorruptBatch, LogDirOffline.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max_wait_ms / 1000
    tp = log.topic_partition
    while True:
        info = await api.fetch(
            log, offset, max_bytes, isolation, remembers=api.config.remembers_checked_batches
        )
        left = deadline - loop.time()
        if len(info.data) >= min(min_bytes, max_bytes) or left <= 0 or api.stopping:
            break
        # The end can have moved since the read only if that ran on a pool: then read again at once.
        is_plain = isolation is Isolation.HIGH_WATERMARK
        seen = info.high_watermark if is_plain else info.last_stable_offset
        if log.limit_of(isolation) == seen:
            await api.delayed_fetches.wait_any((tp,), left)
        log = api.operations.partition_log(tp.topic, tp.partition)  # may have moved or be deleted
    api.metrics.traffic.observe_fetch(tp.topic, len(info.data))
    return info


def fetch_headers(info: FetchDataInfo | FetchSpan) -> dict[str, str]:
    """Headers of every native fetch answer."""
    headers = {
        "Kafka-Base-Offset": str(info.base_offset),
        "Kafka-Next-Offset": str(info.next_offset),
        "Kafka-High-Watermark": str(info.high_watermark),
        "Kafka-Log-Start-Offset": str(info.log_start_offset),
        "Cache-Control": "no-store",
    }
    if info.next_offset >= info.high_watermark:
        headers["Kafka-Up-To-Date"] = "true"
    return headers


@ROUTES.endpoint(
    f"GET {PARTITION}/batches",
    "fetchBatches",
    Access.READ_TOPIC,
    {
        200: Answer("Whole batches.", {RECORD_BATCHES: _ANY_BYTES}, _FETCH_HEADERS),
        204: Answer("The wait ended empty, or all was aborted.", headers=_FETCH_HEADERS),
    },
    parameters=(OFFSET, MAX_BYTES, MIN_BYTES, MAX_WAIT_MS, ISOLATION),
    errors=(41001, 41601, 42903),
)
async def read(request: web.Request) -> web.Response:
    """Raw batches from the one that holds an offset on, with long poll.

    With read_committed those of aborted transactions are left out; ``Kafka-Next-Offset`` is
    after them, also when nothing is left (204).
    """
    api = api_of(request)
    log = api.operations.partition_log(topic_of(request), partition_of(request))
    info: FetchDataInfo = await fetch(
        api,
        log,
        OFFSET.read(request),
        max_bytes=min(MAX_BYTES.read(request), api.config.http_max_fetch_bytes),
        min_bytes=MIN_BYTES.read(request),
        max_wait_ms=min(MAX_WAIT_MS.read(request), api.config.http_max_wait_ms),
        isolation=ISOLATION.read(request),
    )
    headers = fetch_headers(info)
    data = info.data
    if info.aborted:
        aborted = [(each.producer_id, each.first_offset, each.last_offset) for each in info.aborted]
        data = committed_batches(data, aborted)
    if not len(data):
        return web.Response(status=204, headers=headers)
    return bytes_reply(data, content_type=RECORD_BATCHES, headers=headers)
