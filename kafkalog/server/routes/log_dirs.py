"""``GET /v1/log-dirs``: what ``kafka-log-dirs --describe`` tells, and space (http-api.md N10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from kafkalog.server.answers_operation import LogDirsAnswer
from kafkalog.server.api import api_of
from kafkalog.server.endpoint import Access, Action, Answer, Resource, endpoint
from kafkalog.server.media_types import JSON
from kafkalog.server.parameters import ListParameter
from kafkalog.server.replies import bytes_reply

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkalog.manager.operations import Operations
    from kafkalog.manager.values import LogDirDescription, PartitionSize

ROUTES = web.RouteTableDef()
_TOPICS = ListParameter(
    "topics", "Only the partitions of these, a,b; none for unknown ones. Without it, all."
)
# The tool prints the class of the error that the broker answers for an offline directory.
_OFFLINE = "org.apache.kafka.common.errors.KafkaStorageException"


def _partition_json(partition: PartitionSize) -> dict[str, object]:
    """A copy on its way lags behind the one replica, and that behind nobody."""
    return {
        "partition": str(partition.topic_partition),
        "size": partition.size_bytes,
        "offsetLag": partition.offset_lag,
        "isFuture": partition.is_future,
    }


def _log_dir_json(log_dir: LogDirDescription) -> dict[str, object]:
    """The tool's fields; isCordoned and the bytes as in Kafka's protocol; ``reason`` is ours."""
    return {
        "error": None if log_dir.offline_reason is None else _OFFLINE,
        "reason": log_dir.offline_reason,
        "logDir": log_dir.path,
        "isCordoned": log_dir.is_cordoned,
        "totalBytes": log_dir.total_bytes,
        "usableBytes": log_dir.usable_bytes,
        "partitions": [_partition_json(partition) for partition in log_dir.partitions],
    }


def _document(operations: Operations, topics: Collection[str]) -> bytes:
    log_dirs = [_log_dir_json(log_dir) for log_dir in operations.log_dirs.describe(topics)]
    broker = {"broker": operations.node_id, "logDirs": log_dirs}
    return msgspec.json.encode({"version": 1, "brokers": [broker]})


@ROUTES.get("/v1/log-dirs")
@endpoint(
    "describeLogDirs",
    "operation",
    Access(Action.DESCRIBE, Resource.CLUSTER),
    {200: Answer("By directory.", {JSON: LogDirsAnswer})},
    parameters=(_TOPICS,),
)
async def log_dirs(request: web.Request) -> web.Response:
    """The log directories with their partitions, space and health; touches no disk."""
    api = api_of(request)
    # On the control pool, because it looks at every partition.
    body = await api.blocking(_document, api.operations, set(_TOPICS.read(request)))
    return bytes_reply(body, content_type=JSON)
