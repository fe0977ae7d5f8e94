"""The page of the web console with the records of one partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.console.record_rows import Show
from kafkalog.console.views.records import Place, RecordsView, records_view
from kafkalog.server.api import api_of
from kafkalog.server.console.pages import page
from kafkalog.server.protocol.endpoint import Access, Action, Resource
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.parameters import (
    ChoiceParameter,
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

_OFFSET = IntegerParameter("offset", "The page begins with the first record from here on.", _ABSENT)
_BEFORE = IntegerParameter("before", "The page ends with the last record before this.", _ABSENT)
_TIMESTAMP = TextParameter(
    "timestamp",
    "The page begins with the first record at or after this time: ms since 1970 or ISO-8601.",
    schema=TIME_SCHEMA,
)
_COUNT = IntegerParameter("count", "Records a page.", 50, 1, 200)
_SHOW: ChoiceParameter[Show] = ChoiceParameter(
    "show",
    "Keys and values as text where they are printable UTF-8 and in hex elsewhere, or as one of "
    "the two.",
    {each.value: each for each in Show},
    Show.AUTO,
)


@page(
    ROUTES,
    "/console/topics/{topic}/partitions/{partition}/records",
    "consoleRecords",
    Access(Action.READ, Resource.TOPIC),
    RecordsView,
    parameters=(_OFFSET, _BEFORE, _TIMESTAMP, _SHOW, _COUNT),
    errors=(41001, 41601),
)
def records(request: web.Request, operations: Operations) -> RecordsView:
    """Console: records of a partition, by default the last ones.

    From an offset or a time on, or before an offset: one of the three at most. Off with
    console.records=false: 404.
    """
    if not api_of(request).config.console_records:
        raise ApiError(404, "The console shows no records: console.records is false.")
    return records_view(
        operations,
        topic_of(request),
        partition_of(request),
        _place_of(request),
        _SHOW.read(request),
        _COUNT.read(request),
    )


def _place_of(request: web.Request) -> Place:
    """ApiError 40005."""
    refuse_several(request, _OFFSET, _BEFORE, _TIMESTAMP)
    offset, before = _OFFSET.read(request), _BEFORE.read(request)
    timestamp = _TIMESTAMP.read(request)
    return Place(
        None if offset == _ABSENT else offset,
        None if before == _ABSENT else before,
        None if timestamp is None else parse_timestamp(timestamp),
    )
