"""Console pages of one partition's records: the records, look-ups of offsets, deletions."""

from __future__ import annotations

import re
from urllib.parse import quote

from aiohttp import web

from kafkalog.broker.operations import Operations
from kafkalog.console.views.delete_records import (
    DeleteRecordsView,
    confirmation_of,
    delete_records_view,
)
from kafkalog.console.views.offsets import OffsetsView, Question, offsets_view
from kafkalog.console.views.records import Place, RecordsView, Show, records_view
from kafkalog.format.integers import INT64_MAX
from kafkalog.server.admin.delete_records import delete_one
from kafkalog.server.api import api_of
from kafkalog.server.console.pages import form, page
from kafkalog.server.protocol.endpoint import Access, Routes
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.parameters import (
    ChoiceParameter,
    IntegerParameter,
    TimeParameter,
    partition_of,
    refuse_several,
    topic_of,
)
from kafkalog.server.protocol.schemas import DeleteRecordsEntry

ROUTES = Routes("console", "/console/topics/{topic}/partitions/{partition}")


_ABSENT = -1

_FROM_OFFSET = IntegerParameter(
    "offset", "The page begins with the first record from here on.", _ABSENT
)
_BEFORE = IntegerParameter("before", "The page ends with the last record before this.", _ABSENT)
_FROM_TIMESTAMP = TimeParameter(
    "timestamp",
    "The page begins with the first record at or after this time: ms since 1970 or ISO-8601.",
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
    "/records",
    "consoleRecords",
    Access.READ_TOPIC,
    parameters=(_FROM_OFFSET, _BEFORE, _FROM_TIMESTAMP, _SHOW, _COUNT),
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
    refuse_several(request, _FROM_OFFSET, _BEFORE, _FROM_TIMESTAMP)
    return Place(
        _FROM_OFFSET.read_or_none(request),
        _BEFORE.read_or_none(request),
        _FROM_TIMESTAMP.read(request),
    )


_OFFSET = IntegerParameter("offset", "The offset that is asked about.", _ABSENT)
_TIMESTAMP = TimeParameter(
    "timestamp", "A time, for the first record at or after it: ms since 1970 or ISO-8601."
)
QUESTION = (_OFFSET, _TIMESTAMP)
"""Parameters of pages that are about an offset or a time."""


def question_of(request: web.Request) -> Question:
    """The parameters QUESTION: one of the two, or none. ApiError 40005."""
    refuse_several(request, *QUESTION)
    return Question(_OFFSET.read_or_none(request), _TIMESTAMP.read(request))


@page(ROUTES, "/offsets", "consoleOffsets", Access.DESCRIBE_TOPIC, parameters=QUESTION)
def offsets(request: web.Request, operations: Operations) -> OffsetsView:
    """Console: the segment, index entries and position of an offset, or of a time's first record.

    One of the two, or none for the offset axis alone.
    """
    question = question_of(request)
    return offsets_view(operations, topic_of(request), partition_of(request), question)


_OFFSET_TEXT = re.compile(r"[0-9]{1,19}")


@page(
    ROUTES,
    "/delete-records",
    "consoleDeleteRecords",
    Access.DESCRIBE_TOPIC,
    parameters=QUESTION,
    can_refresh=False,
)
def delete_records(request: web.Request, operations: Operations) -> DeleteRecordsView:
    """Console: what would go if the records before an offset or a time were deleted.

    One of the two, or none for the questions alone. Nothing is changed.
    """
    question = question_of(request)
    return delete_records_view(operations, topic_of(request), partition_of(request), question)


@form(
    ROUTES,
    "/delete-records",
    "consoleDeleteRecordsNow",
    Access.DELETE_TOPIC,
    ("topic_id", "offset", "confirmation"),
    errors=(40907, 41001, 41602, 50003),
)
async def delete_records_now(request: web.Request, fields: dict[str, str]) -> str:
    """Console: delete the records before an offset; ``confirmation`` is <topic>-<partition>.

    ``topic_id``: of the topic that the page showed; another one of that name is 404. An offset
    that is below the log start by now is 410.
    Pages of other origins are refused.
    """
    topic, partition = topic_of(request), partition_of(request)
    if fields["confirmation"] != confirmation_of(topic, partition):
        wanted = confirmation_of(topic, partition)
        raise ApiError(40002, f"Nothing was deleted: type {wanted} to say that you mean it.")
    offset = fields["offset"]
    if not _OFFSET_TEXT.fullmatch(offset) or int(offset) > INT64_MAX:
        raise ApiError(40002, "An offset is a whole number.")
    entry = DeleteRecordsEntry(topic=topic, partition=partition, offset=int(offset))
    low_watermark = await delete_one(request, entry, fields["topic_id"])
    if low_watermark > entry.offset:
        begins = f"{topic}-{partition} already begins at {low_watermark}"
        raise ApiError(41001, f"Nothing was deleted: {begins}, after offset {offset}.")
    return f"/console/topics/{quote(topic, safe='')}/partitions/{partition}"
