"""One fetch from one partition with long poll: shared by the raw and the JSON routes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalog.log.values import Isolation

if TYPE_CHECKING:
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import FetchDataInfo
    from kafkalog.server.api import Api


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
        info = await api.fetch(log, offset, max_bytes, isolation)
        left = deadline - loop.time()
        if len(info.data) >= min(min_bytes, max_bytes) or left <= 0 or api.stopping:
            break
        # The end can have moved since the read only if that ran on a pool: then read again at once.
        bound = (
            log.high_watermark if isolation is Isolation.HIGH_WATERMARK else log.last_stable_offset
        )
        if bound == _bound_seen(info, isolation):
            await api.delayed_fetches.wait(tp, left)
        log = api.operations.partition_log(tp.topic, tp.partition)  # may have moved or be deleted
    api.metrics.traffic.observe_fetch(tp.topic, len(info.data))
    return info


def _bound_seen(info: FetchDataInfo, isolation: Isolation) -> int:
    return info.high_watermark if isolation is Isolation.HIGH_WATERMARK else info.last_stable_offset


def fetch_headers(info: FetchDataInfo) -> dict[str, str]:
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
