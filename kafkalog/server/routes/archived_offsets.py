"""Archived offsets over HTTP: how far an archive has come, and that it has come further.

Who copies a topic elsewhere says so after each commit; with ``archive.hold`` retention waits for
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.server.answers_operation import ArchivedOffsetsAnswer, RaisedOffsetsAnswer
from kafkalog.server.api import api_of
from kafkalog.server.endpoint import Access, Action, Answer, Resource, endpoint
from kafkalog.server.error_map import ApiError
from kafkalog.server.in_flight import Body
from kafkalog.server.media_types import JSON
from kafkalog.server.parameters import topic_of
from kafkalog.server.replies import json_reply
from kafkalog.server.schemas import ArchivedOffsetsRequest, parse_body
from kafkalog.server.security.audit import note_subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.manager.operations import Operations

ROUTES = web.RouteTableDef()
_PATH = "/v1/topics/{topic}/archived-offsets"


@ROUTES.get(_PATH)
@endpoint(
    "listArchivedOffsets",
    "retention",
    Access(Action.DESCRIBE, Resource.TOPIC),
    {200: Answer("By partition.", {JSON: ArchivedOffsetsAnswer})},
)
async def archived_offsets(request: web.Request) -> web.Response:
    """How far each served partition is archived, and what ``archive.hold`` keeps for it."""
    api, topic = api_of(request), topic_of(request)
    return await api.blocking(_list, api.operations, topic)


def _list(operations: Operations, topic: str) -> web.Response:
    entries = [
        {
            "partition": each.partition,
            "archived_offset": each.archived_offset,
            "log_start_offset": each.log_start_offset,
            "high_watermark": each.high_watermark,
            "lag": each.lag,
            "held_segments": each.held.segments,
            "held_bytes": each.held.size_bytes,
        }
        for each in operations.archived_offsets(topic)
    ]
    return json_reply({"topic": topic, "partitions": entries})


@ROUTES.post(f"{_PATH}:raise")
@endpoint(
    "raiseArchivedOffsets",
    "retention",
    Access(Action.DELETE, Resource.TOPIC),
    {200: Answer("What holds now.", {JSON: RaisedOffsetsAnswer})},
    body={JSON: ArchivedOffsetsRequest},
    errors=(40002, 40402, 41602, 50003, 50302, 50303, 50304, 50701),
)
async def raise_archived_offsets(request: web.Request) -> web.Response:
    """Say that an archive has everything below these offsets: all or none, durable.

    A lower offset than the one in force changes nothing; the answer has the one that holds. With
    ``topic_id`` a topic that was made anew under the name is not taken for the archived one.
    """
    api, topic = api_of(request), topic_of(request)
    async with Body(request, api) as data:
        wanted = parse_body(ArchivedOffsetsRequest, data)
    for each in wanted.partitions:
        note_subject(request, partition=each.partition, offset=each.offset)
    offsets = {each.partition: each.offset for each in wanted.partitions}
    if len(offsets) < len(wanted.partitions):
        raise ApiError(40002, "Name each partition once.")
    return await api.blocking(_raise, api.operations, topic, offsets, wanted.topic_id)


def _raise(
    operations: Operations, topic: str, offsets: Mapping[int, int], topic_id: str | None
) -> web.Response:
    risen = operations.raise_archived_offsets(topic, offsets, topic_id)
    entries = [{"partition": number, "archived_offset": risen[number]} for number in sorted(risen)]
    return json_reply({"topic": topic, "partitions": entries})
