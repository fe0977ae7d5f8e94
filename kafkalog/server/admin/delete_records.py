"""``POST /v1/records:delete``: kafka-delete-records over HTTP."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter

from aiohttp import web

from kafkalog.errors import KafkalogError
from kafkalog.server.api import api_of, finish
from kafkalog.server.protocol.endpoint import Access, Answer, Routes
from kafkalog.server.protocol.errors import ApiError, FailedPartition, error_of
from kafkalog.server.protocol.json_schema import AnswerBody, PartitionAnswer, answer_of
from kafkalog.server.protocol.media_types import JSON, wants_plain_text
from kafkalog.server.protocol.replies import json_reply
from kafkalog.server.protocol.schemas import (
    MAX_PARTITIONS,
    DeleteRecordsEntry,
    DeleteRecordsFile,
    read_body,
)
from kafkalog.server.security.audit import note_failure, note_subject

ROUTES = Routes("operation")
# The tool prints the exception that Kafka's client makes of an error code.
_EXCEPTIONS = {
    "INVALID_TOPIC_EXCEPTION": (
        "InvalidTopicException",
        "The request attempted to perform an operation on an invalid topic.",
    ),
    "KAFKA_STORAGE_ERROR": (
        "KafkaStorageException",
        "Disk error when trying to access log file on the disk.",
    ),
    "OFFSET_OUT_OF_RANGE": (
        "OffsetOutOfRangeException",
        "The requested offset is not within the range of offsets maintained by the server.",
    ),
    "POLICY_VIOLATION": (
        "PolicyViolationException",
        "Request parameters do not satisfy the configured policy.",
    ),
    "UNKNOWN_TOPIC_OR_PARTITION": (
        "UnknownTopicOrPartitionException",
        "This server does not host this topic-partition.",
    ),
}


class DeletedRecords(PartitionAnswer):
    """The new log start of a partition."""

    low_watermark: int


class DeleteRecordsAnswer(AnswerBody):
    """In the order of the request."""

    partitions: list[DeletedRecords | FailedPartition]


def _check(file: DeleteRecordsFile) -> None:
    """The tool's own rules about its file, with its own messages."""
    if file.version != 1:
        raise ApiError(40002, f"Not supported version field value {file.version}")
    names = Counter((entry.topic, entry.partition) for entry in file.partitions)
    twice = [f"{topic}-{number}" for (topic, number), times in names.items() if times > 1]
    if twice:
        raise ApiError(
            40002, f"Offset json file contains duplicate topic partitions: {','.join(twice)}"
        )
    if not 1 <= len(file.partitions) <= MAX_PARTITIONS:
        raise ApiError(40002, f"Name 1 to {MAX_PARTITIONS} partitions.")


async def delete_one(
    request: web.Request, entry: DeleteRecordsEntry, topic_id: str | None = None
) -> int:
    """Move the log start of one partition: the new low watermark, durable. KafkalogError.

    ``topic_id``: UnknownTopic when another topic has the name by now. The end is on record.
    """
    subject = note_subject(
        request, topic=entry.topic, partition=entry.partition, offset=entry.offset
    )
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    on_done = functools.partial(finish, future)
    try:
        api_of(request).operations.submit_delete_records(
            entry.topic, entry.partition, entry.offset, on_done=on_done, topic_id=topic_id
        )
        low_watermark = await future
    except KafkalogError as error:
        note_failure(subject, error)
        raise
    subject["low_watermark"] = low_watermark
    return low_watermark


async def _outcome(request: web.Request, entry: DeleteRecordsEntry) -> int | KafkalogError:
    """The new low watermark or why not: one partition's failure is its own."""
    try:
        return await delete_one(request, entry)
    except KafkalogError as error:
        return error


def _tool_lines(entries: list[DeleteRecordsEntry], outcomes: list[int | KafkalogError]) -> str:
    """What kafka-delete-records.sh prints, a TAB between the two fields."""
    lines = ["Executing records delete operation", "Records delete operation completed:"]
    for entry, outcome in zip(entries, outcomes, strict=True):
        said = (
            f"low_watermark: {outcome}"
            if isinstance(outcome, int)
            else f"error: {_exception_text(outcome)}"
        )
        lines.append(f"partition: {entry.topic}-{entry.partition}\t{said}")
    return "\n".join(lines) + "\n"


def _exception_text(fault: KafkalogError) -> str:
    """Kafka's exception and sentence; ours where Kafka would not fail like this."""
    if fault.kafka_error not in _EXCEPTIONS:
        return fault.public_message
    name, message = _EXCEPTIONS[fault.kafka_error]
    return f"org.apache.kafka.common.errors.{name}: {message}"


@ROUTES.endpoint(
    "POST /v1/records:delete",
    "deleteRecords",
    Access.DELETE_TOPIC,
    Answer(
        "An entry each, or with Accept: text/plain the tool's lines.",
        {JSON: DeleteRecordsAnswer, "text/plain": {"type": "string"}},
    ),
    body=DeleteRecordsFile,
    errors=(40002,),
)
async def delete_records(request: web.Request) -> web.Response:
    """Move log start offsets, as kafka-delete-records does; durable before the answer.

    The body is the tool's file; -1 is the high watermark. A partition's failure is its own entry.
    """
    api = api_of(request)
    file = await read_body(DeleteRecordsFile, request, api, shape_error=40002)
    _check(file)
    outcomes = await asyncio.gather(*(_outcome(request, entry) for entry in file.partitions))
    if wants_plain_text(request.headers.get("Accept", "")):
        return web.Response(text=_tool_lines(file.partitions, list(outcomes)))
    entries = [
        DeletedRecords(entry.topic, entry.partition, outcome)
        if isinstance(outcome, int)
        else answer_of(FailedPartition, entry, error_of(outcome))
        for entry, outcome in zip(file.partitions, outcomes, strict=True)
    ]
    return json_reply(DeleteRecordsAnswer(entries))
