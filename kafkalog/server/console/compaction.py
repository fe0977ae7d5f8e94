"""The console page of the cleaner, and its form actions."""

from __future__ import annotations

from urllib.parse import urlencode

from aiohttp import web

from kafkalog.broker.operations import Operations
from kafkalog.console.views.compaction import CleanerView, compaction_view
from kafkalog.server.admin.cleaner import run_result
from kafkalog.server.api import api_of
from kafkalog.server.console.pages import INTERNAL, Done, form, page
from kafkalog.server.protocol.endpoint import Access, Routes
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.parameters import (
    NO_PARTITION,
    IntegerParameter,
    TextParameter,
    partition_number,
)
from kafkalog.server.security.audit import note_subject

_COMPACTION = "/console/compaction"
ROUTES = Routes("console", _COMPACTION)

_PAGE = IntegerParameter("page", "Page of the list.", 1, 1, 1_000_000)
_TOPIC = TextParameter("topic", "Only the logs of this topic.", "")
_HOURS = IntegerParameter("hours", "How far back the timeline goes.", 24, 1, 24)
_OPERATION = TextParameter("operation", "The trial whose end is shown.", "")
_OUT_OF_SERVICE = (50010, 50302, 50303, 50701)  # a partition answers with its own error
_FIELDS = ("topic", "partition")


@page(
    ROUTES,
    "",
    "consoleCompaction",
    Access.DESCRIBE_CLUSTER,
    parameters=(_TOPIC, INTERNAL, _PAGE, _HOURS, _OPERATION),
    errors=(40401,),
    asks_logs=True,
)
def compaction(request: web.Request, operations: Operations) -> CleanerView:
    """Console: the cleaner's threads as a timeline; of each compacted log whether it is next."""
    return compaction_view(
        operations,
        _TOPIC.read(request) or "",
        page=_PAGE.read(request),
        hours=_HOURS.read(request),
        operation_id=_OPERATION.read(request) or "",
        with_internal=INTERNAL.read(request),
    )


@form(
    ROUTES,
    "/try",
    "consoleTryClean",
    Access.OPERATE_CLUSTER,
    _FIELDS,
    errors=(40002, 40401, 40402, 40907, 40910, *_OUT_OF_SERVICE),
)
async def try_clean(request: web.Request, fields: dict[str, str]) -> Done:
    """Console: a dry run of a clean; the page that follows shows its end.

    Pages of other origins are refused.
    """
    api = api_of(request)
    topic, partition = _partition_named(request, fields)
    begin = api.operations.cleaning.begin
    operation = await api.blocking(begin, topic, partition, is_dry=True, result=run_result)
    return Done(f"{_COMPACTION}?{urlencode({'operation': operation.operation_id})}")


@form(
    ROUTES,
    "/retry",
    "consoleRetryClean",
    Access.OPERATE_CLUSTER,
    _FIELDS,
    errors=(40002, 40401, 40402, 40907, *_OUT_OF_SERVICE),
)
async def retry_clean(request: web.Request, fields: dict[str, str]) -> Done:
    """Console: let the cleaner try a partition again that failed or is uncleanable.

    Pages of other origins are refused.
    """
    topic, partition = _partition_named(request, fields)
    api = api_of(request)
    await api.blocking(api.operations.cleaning.retry, topic, partition)
    return Done(_COMPACTION, f"The cleaner tries {topic}-{partition} again.")


def _partition_named(request: web.Request, fields: dict[str, str]) -> tuple[str, int]:
    """By the form's fields."""
    topic, partition = fields["topic"], partition_number(fields["partition"])
    if partition is None:
        raise ApiError(40002, NO_PARTITION)
    note_subject(request, topic=topic, partition=partition)
    return topic, partition
