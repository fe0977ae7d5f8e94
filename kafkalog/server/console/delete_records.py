"""Console pages that delete records: a preview, then the deletion."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp import web

from kafkalog.console.views.delete_records import (
    DeleteRecordsView,
    confirmation_of,
    delete_records_view,
)
from kafkalog.format.integers import INT64_MAX
from kafkalog.server.admin.delete_records import delete_one
from kafkalog.server.api import api_of
from kafkalog.server.console.offsets import QUESTION, question_of
from kafkalog.server.console.pages import (
    FORM_DONE,
    form_done,
    form_fields,
    form_schema,
    page,
    refuse_other_origins,
)
from kafkalog.server.protocol.endpoint import Access, Action, Resource, endpoint
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.media_types import FORM
from kafkalog.server.protocol.parameters import partition_of, topic_of
from kafkalog.server.protocol.schemas import DeleteRecordsEntry

if TYPE_CHECKING:
    from kafkalog.broker.operations import Operations

ROUTES = web.RouteTableDef()
_ADDRESS = "/console/topics/{topic}/partitions/{partition}/delete-records"
_FIELDS = ("topic_id", "offset", "confirmation")
_OFFSET_TEXT = re.compile(r"[0-9]{1,19}")


@page(
    ROUTES,
    _ADDRESS,
    "consoleDeleteRecords",
    Access(Action.DESCRIBE, Resource.TOPIC),
    DeleteRecordsView,
    parameters=QUESTION,
    can_refresh=False,
)
def delete_records(request: web.Request, operations: Operations) -> DeleteRecordsView:
    """Console: what would go if the records before an offset or a time were deleted.

    One of the two, or none for the questions alone. Nothing is changed.
    """
    question = question_of(request)
    return delete_records_view(operations, topic_of(request), partition_of(request), question)


@ROUTES.post(_ADDRESS)
@endpoint(
    "consoleDeleteRecordsNow",
    "console",
    Access(Action.DELETE, Resource.TOPIC),
    FORM_DONE,
    body={FORM: form_schema(*_FIELDS)},
    errors=(40907, 41001, 41602, 50003),
)
async def delete_records_now(request: web.Request) -> web.Response:
    """Console: delete the records before an offset; ``confirmation`` is <topic>-<partition>.

    ``topic_id``: of the topic that the page showed; another one of that name is 404. An offset
    that is below the log start by now is 410.
    Pages of other origins are refused.
    """
    refuse_other_origins(request)
    api, topic, partition = api_of(request), topic_of(request), partition_of(request)
    fields = await form_fields(request, api, *_FIELDS)
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
    return form_done(request, f"/console/topics/{quote(topic, safe='')}/partitions/{partition}")
