"""Console pages of records: of a topic with a search, of a partition, one alone; look-ups of
offsets, deletions.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from aiohttp import hdrs, web

from kafkalog.broker.operations import Operations
from kafkalog.console.views.delete_records import (
    DeleteRecordsView,
    confirmation_of,
    delete_records_view,
)
from kafkalog.console.views.offsets import OffsetsView, Question, offsets_view
from kafkalog.console.views.record import RecordView, read_record, record_view
from kafkalog.console.views.records import Place, RecordsView, Show, records_view
from kafkalog.console.views.topic_records import (
    Order,
    Part,
    Search,
    TopicRecordsView,
    cursor_of,
    topic_records_view,
)
from kafkalog.console.views.topics import PickTopicView, pick_topic_view
from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.server.admin.delete_records import delete_one
from kafkalog.server.api import api_of
from kafkalog.server.console.pages import INTERNAL, PAGE_HEADERS, Done, form, has_left, page
from kafkalog.server.protocol.endpoint import Access, Answer, Routes
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.media_types import OCTET_STREAM
from kafkalog.server.protocol.parameters import (
    TIME_SCHEMA,
    ChoiceParameter,
    IntegerParameter,
    TextParameter,
    TimeParameter,
    parse_timestamp,
    partition_of,
    refuse_several,
    topic_of,
    wrong_parameter,
)
from kafkalog.server.protocol.replies import bytes_reply
from kafkalog.server.protocol.schemas import DeleteRecordsEntry

TOPIC_ROUTES = Routes("console", "/console")
ROUTES = Routes("console", "/console/topics/{topic}/partitions/{partition}")


_ABSENT = -1
_OFFSET_TEXT = re.compile(r"[0-9]{1,19}")

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
    _check_shown(request)
    return records_view(
        operations,
        topic_of(request),
        partition_of(request),
        _place_of(request),
        _SHOW.read(request),
        _COUNT.read(request),
    )


def _check_shown(request: web.Request) -> None:
    """ApiError 404 with console.records=false."""
    if not api_of(request).config.console_records:
        raise ApiError(404, "The console shows no records: console.records is false.")


def _place_of(request: web.Request) -> Place:
    """ApiError 40005."""
    refuse_several(request, _FROM_OFFSET, _BEFORE, _FROM_TIMESTAMP)
    return Place(
        _FROM_OFFSET.read_or_none(request),
        _BEFORE.read_or_none(request),
        _FROM_TIMESTAMP.read(request),
    )


# ---- of a topic
#
# A form sends its empty fields too, so that these parameters take an empty text for none.

_TOPIC_CONTAINS = TextParameter("name_contains", "Only topics whose name holds this.", "")
_PAGE = IntegerParameter("page", "Page of the list.", 1, 1, 1_000_000)
_PARTITION = TextParameter("partition", "Only this partition; empty: all.", "")
_ORDER: ChoiceParameter[Order] = ChoiceParameter(
    "order", "Which records come first.", {each.value: each for each in Order}, Order.NEWEST
)
_TEXT = TextParameter("text", "Only records that hold this; case of ASCII letters is ignored.", "")
_IN: ChoiceParameter[Part] = ChoiceParameter(
    "in", "Where the text is looked for.", {each.value: each for each in Part}, Part.ANY
)
_START_OFFSET = TextParameter("offset", "The offset at which each partition begins.", "")
_START_TIME = TextParameter(
    "timestamp", "The time at which the page begins.", "", {"anyOf": [{"const": ""}, TIME_SCHEMA]}
)
_CURSOR = TextParameter("cursor", "Where the page before ended, as it said.", "")
_TOPIC_COUNT = IntegerParameter("count", "Records a page.", 25, 1, 200)
_MOST_TEXT = 500


@page(
    TOPIC_ROUTES,
    "/records",
    "consolePickTopic",
    Access.DESCRIBE_TOPIC,
    parameters=(_TOPIC_CONTAINS, INTERNAL, _PAGE),
)
def pick_topic(request: web.Request, operations: Operations) -> PickTopicView:
    """Console: the topics whose records can be looked at."""
    _check_shown(request)
    name_contains, number = _TOPIC_CONTAINS.read(request) or "", _PAGE.read(request)
    with_internal = INTERNAL.read(request)
    return pick_topic_view(operations, name_contains, number, with_internal=with_internal)


@page(
    TOPIC_ROUTES,
    "/topics/{topic}/records",
    "consoleTopicRecords",
    Access.READ_TOPIC,
    parameters=(
        *(_PARTITION, _ORDER, _TEXT, _IN, _START_OFFSET, _START_TIME, _CURSOR),
        *(_SHOW, _TOPIC_COUNT),
    ),
    errors=(40402,),
    is_long=True,
)
def topic_records(request: web.Request, operations: Operations) -> TopicRecordsView:
    """Console: records of all partitions of a topic, or those that hold a text.

    A page reads 64 MiB or 2 s at most; ``cursor`` is where the next one goes on. A request that is
    cancelled stops. Off with console.records=false: 404.
    """
    _check_shown(request)
    return topic_records_view(
        operations, topic_of(request), _search_of(request), lambda: has_left(request)
    )


def _search_of(request: web.Request) -> Search:
    """ApiError 40005."""
    text, cursor = _TEXT.read(request) or "", _CURSOR.read(request) or ""
    offset, timestamp = _START_OFFSET.read(request), _START_TIME.read(request)
    if len(text) > _MOST_TEXT:
        raise wrong_parameter("text", f"text has {_MOST_TEXT} characters at most.")
    positions = cursor_of(cursor) if cursor else None
    if cursor and positions is None:
        raise wrong_parameter("cursor", "cursor is that of a page before.")
    if offset and timestamp:
        raise wrong_parameter("timestamp", "Give one of offset, timestamp.")
    return Search(
        _number_in(request, _PARTITION, INT32_MAX),
        _ORDER.read(request),
        text,
        _IN.read(request),
        _number_in(request, _START_OFFSET, INT64_MAX),
        parse_timestamp(timestamp) if timestamp else None,
        positions,
        _TOPIC_COUNT.read(request),
        _SHOW.read(request),
    )


def _number_in(request: web.Request, parameter: TextParameter, most: int) -> int | None:
    """The number that a parameter holds; None of an empty one. ApiError 40005."""
    text = parameter.read(request)
    if not text:
        return None
    if not _OFFSET_TEXT.fullmatch(text) or int(text) > most:
        raise wrong_parameter(
            parameter.name, f"Query parameter '{parameter.name}' must be a number from 0 to {most}."
        )
    return int(text)


# ---- one record

_RECORD = "/records/{offset}"
_BINARY = Answer("The bytes.", {OCTET_STREAM: {"type": "string", "format": "binary"}})


def _offset_in(request: web.Request) -> int:
    """The offset in the path; what is none is 404."""
    text = request.match_info["offset"]
    if not _OFFSET_TEXT.fullmatch(text) or int(text) > INT64_MAX:
        raise ApiError(404, "An offset is a whole number.")
    return int(text)


@page(
    ROUTES, _RECORD, "consoleRecord", Access.READ_TOPIC, parameters=(_SHOW,), errors=(41001, 41601)
)
def record(request: web.Request, operations: Operations) -> RecordView:
    """Console: one record, with up to 256 KiB of its value. Off with console.records=false: 404."""
    _check_shown(request)
    topic, partition = topic_of(request), partition_of(request)
    return record_view(operations, topic, partition, _offset_in(request), _SHOW.read(request))


@ROUTES.endpoint(
    f"GET {_RECORD}/value",
    "consoleRecordValue",
    Access.READ_TOPIC,
    {200: _BINARY},
    errors=(404, 41001, 41601, 42902),
)
async def value(request: web.Request) -> web.Response:
    """Console: the value of a record as a file. Off with console.records=false: 404."""
    _check_shown(request)
    api, topic, partition = api_of(request), topic_of(request), partition_of(request)
    offset = _offset_in(request)
    directory = api.operations.partition_log(topic, partition).parent_dir
    found = await api.pools.console.run(
        directory, lambda: read_record(api.operations, topic, partition, offset)
    )
    if found is None or found.value is None:
        raise ApiError(404, "No record has this offset, or it has no value.")
    name = f"{topic}-{partition}-{offset}"
    headers = {
        **PAGE_HEADERS,
        hdrs.CONTENT_DISPOSITION: f'attachment; filename="{name}"',
        "X-Content-Type-Options": "nosniff",
    }
    return bytes_reply(found.value, content_type=OCTET_STREAM, headers=headers)


# ---- offsets

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
async def delete_records_now(request: web.Request, fields: dict[str, str]) -> Done:
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
    notice = f"Records were deleted: {topic}-{partition} begins at offset {low_watermark:,} now."
    return Done(f"/console/topics/{quote(topic, safe='')}/partitions/{partition}", notice)
