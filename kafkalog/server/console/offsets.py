"""The console page that finds the segment of an offset, and the offset of a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.console.views.offsets import OffsetsView, Question, offsets_view
from kafkalog.server.console.pages import page
from kafkalog.server.protocol.endpoint import Access, Action, Resource
from kafkalog.server.protocol.parameters import (
    IntegerParameter,
    TextParameter,
    parse_timestamp,
    partition_of,
    refuse_several,
    topic_of,
)
from kafkalog.server.protocol.schemas import TIME_SCHEMA

if TYPE_CHECKING:
    from kafkalog.broker.operations import Operations

ROUTES = web.RouteTableDef()
_ABSENT = -1
_OFFSET = IntegerParameter("offset", "The offset that is asked about.", _ABSENT)
_TIMESTAMP = TextParameter(
    "timestamp",
    "A time, for the first record at or after it: ms since 1970 or ISO-8601.",
    schema=TIME_SCHEMA,
)
QUESTION = (_OFFSET, _TIMESTAMP)
"""Parameters of pages that are about an offset or a time."""


def question_of(request: web.Request) -> Question:
    """What QUESTION says: one of the two, or none. ApiError 40005."""
    refuse_several(request, *QUESTION)
    offset, timestamp = _OFFSET.read(request), _TIMESTAMP.read(request)
    return Question(
        None if offset == _ABSENT else offset,
        None if timestamp is None else parse_timestamp(timestamp),
    )


@page(
    ROUTES,
    "/console/topics/{topic}/partitions/{partition}/offsets",
    "consoleOffsets",
    Access(Action.DESCRIBE, Resource.TOPIC),
    OffsetsView,
    parameters=QUESTION,
)
def offsets(request: web.Request, operations: Operations) -> OffsetsView:
    """Console: the segment, index entries and position of an offset, or of a time's first record.

    One of the two, or none for the offset axis alone.
    """
    question = question_of(request)
    return offsets_view(operations, topic_of(request), partition_of(request), question)
