"""List-offsets by time, earliest, latest and max timestamp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.errors import KafkalogError
from kafkalog.server.api import Api, api_of
from kafkalog.server.protocol.endpoint import PARTITION, Access, Routes
from kafkalog.server.protocol.errors import ApiError, EntryError, error_of
from kafkalog.server.protocol.json_schema import AnswerBody, PartitionAnswer, answer_of
from kafkalog.server.protocol.parameters import (
    ISOLATION,
    TIME_SCHEMA,
    TextParameter,
    parse_timestamp,
    partition_of,
    topic_of,
)
from kafkalog.server.protocol.schemas import ListOffsetsRequest

if TYPE_CHECKING:
    from kafkalog.log.values import Isolation

ROUTES = Routes("offsets")
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
NAMED_OFFSETS = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}
_SPEC = TextParameter(
    "spec",
    "earliest, latest, max_timestamp, or a time: ms since 1970 or ISO-8601.",
    "latest",
    schema={"anyOf": [{"type": "string", "enum": list(NAMED_OFFSETS)}, TIME_SCHEMA]},
)


class OffsetAnswer(PartitionAnswer):
    """A look-up's result; offset and timestamp (ms) are -1 when nothing was found."""

    offset: int
    timestamp: int
    leader_epoch: int


class FailedOffset(EntryError, kw_only=True):
    """A look-up that failed."""

    topic: str
    partition: int


class OffsetList(AnswerBody):
    """In the order asked."""

    partitions: list[OffsetAnswer | FailedOffset]


async def look_up(
    api: Api, topic: str, partition: int, timestamp_ms: int, isolation: Isolation
) -> OffsetAnswer:
    """The answer to one look-up; -1 and -1 when nothing is found. KafkalogError."""
    log = api.operations.partition_log(topic, partition)
    found = await api.offset_at(log, timestamp_ms, isolation)
    if found is None:
        return OffsetAnswer(topic, partition, offset=-1, timestamp=-1, leader_epoch=-1)
    return OffsetAnswer(
        topic,
        partition,
        offset=found.offset,
        timestamp=found.timestamp_ms,
        leader_epoch=log.epochs.epoch_for(found.offset),
    )


@ROUTES.endpoint(
    f"GET {PARTITION}/offsets",
    "getOffset",
    Access.DESCRIBE_TOPIC,
    "What was found.",
    parameters=(_SPEC, ISOLATION),
)
async def offset_of(request: web.Request) -> OffsetAnswer:
    """The offset at a named place or a time of one partition.

    The first whose timestamp is at or after the time; nothing found is -1, -1.
    """
    spec = _SPEC.read(request) or ""
    timestamp_ms = NAMED_OFFSETS.get(spec)
    if timestamp_ms is None:
        timestamp_ms = parse_timestamp(spec, _SPEC.name, NAMED_OFFSETS)
    answer = await look_up(
        api_of(request),
        topic_of(request),
        partition_of(request),
        timestamp_ms,
        ISOLATION.read(request),
    )
    return answer


@ROUTES.endpoint(
    "POST /v1/offsets:list",
    "listOffsets",
    Access.DESCRIBE_TOPIC,
    "An entry each, in the order asked.",
    parameters=(ISOLATION,),
)
async def list_offsets(request: web.Request, wanted: ListOffsetsRequest) -> OffsetList:
    """The offsets at times of several partitions.

    Timestamps as in Kafka's ListOffsets: -1 latest, -2 earliest, -3 max timestamp, or ms.
    """
    api = api_of(request)
    isolation = ISOLATION.read(request)
    answers: list[OffsetAnswer | FailedOffset] = []
    for entry in wanted.partitions:
        try:
            if entry.timestamp < MAX_TIMESTAMP:
                raise ApiError(40002, "timestamp must be -1, -2, -3 or milliseconds since 1970.")
            answers.append(
                await look_up(api, entry.topic, entry.partition, entry.timestamp, isolation)
            )
        except (KafkalogError, ApiError) as error:
            answers.append(answer_of(FailedOffset, entry, error_of(error)))
    return OffsetList(answers)
