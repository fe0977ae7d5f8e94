"""Console pages of consumer groups: the list, a group, resets and deletions of its offsets.

No address ends in the name of a group, because ``a.json`` may be one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp import web

from kafkalog.broker.groups.groups import GroupSummary, ResetTarget
from kafkalog.broker.operations import Operations
from kafkalog.console.formatting import plural
from kafkalog.console.views.groups import (
    GroupOrder,
    GroupsView,
    GroupView,
    Member,
    ResetView,
    group_view,
    groups_view,
    members_of,
    reset_view,
)
from kafkalog.format.integers import INT64_MAX
from kafkalog.server.api import api_of
from kafkalog.server.console.pages import Done, form, page
from kafkalog.server.groups.groups import reset_offsets
from kafkalog.server.protocol.endpoint import Access, Routes
from kafkalog.server.protocol.errors import ApiError, FailedPartition
from kafkalog.server.protocol.parameters import (
    ChoiceParameter,
    IntegerParameter,
    TextParameter,
    checked_topic,
    group_of,
    parse_timestamp,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_GROUPS = "/console/groups"
ROUTES = Routes("console", _GROUPS)

_PAGE = IntegerParameter("page", "Page of the list.", 1, 1, 1_000_000)
_NAME_CONTAINS = TextParameter("name_contains", "Only groups whose name holds this.", "")
_OF_TOPIC = TextParameter("topic", "Only groups with a commit to this topic; empty: all.", "")
_SORT = ChoiceParameter(
    "sort",
    "Order of the list: by name, or the largest first.",
    {each.value: each for each in GroupOrder},
    GroupOrder.NAME,
)
_NUMBERED = {"shift": "a number of offsets: a whole one, as -100", "offset": "an offset, as 100"}
_TARGETS = {
    "earliest": "the log start",
    "latest": "the log end",
    "timestamp": "a time",
    "shift": "a number of offsets from where they were",
    "offset": "an offset",
}
_TO: ChoiceParameter[str | None] = ChoiceParameter(
    "to", "Where the offsets would go.", {each: each for each in _TARGETS}, None
)
_VALUE = TextParameter("value", "Of to=timestamp, shift or offset: the time or number.", "")
_TOPIC = TextParameter("topic", "Only partitions of this topic; empty: all with a commit.", "")
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_WRITES = (50003, 50302, 50303, 50701)


@page(
    ROUTES,
    "",
    "consoleGroups",
    Access.DESCRIBE_GROUP,
    parameters=(_NAME_CONTAINS, _OF_TOPIC, _SORT, _PAGE),
    gather=lambda request: api_of(request).operations.groups.summaries(),
)
def groups(
    request: web.Request, operations: Operations, summaries: list[GroupSummary]
) -> GroupsView:
    """Console: the groups that the caller may see, with their members and lag."""
    return groups_view(
        operations,
        summaries,
        _NAME_CONTAINS.read(request) or "",
        _PAGE.read(request),
        topic=_OF_TOPIC.read(request) or "",
        sort=_SORT.read(request),
    )


def _members(request: web.Request) -> list[Member]:
    return members_of(api_of(request).operations.groups, group_of(request))


@page(
    ROUTES,
    "/{group}/offsets",
    "consoleGroup",
    Access.DESCRIBE_GROUP,
    parameters=(_PAGE,),
    errors=(40405, 50303),
    gather=_members,
)
def group(request: web.Request, operations: Operations, members: list[Member]) -> GroupView:
    """Console: a group's members, and its commits beside the logs."""
    return group_view(operations, group_of(request), members, _PAGE.read(request))


def _reset_again(
    request: web.Request, operations: Operations, members: list[Member], refusal: str
) -> ResetView:
    name, topic = group_of(request), request.query.get("topic", "")
    typed = dict(request.query)
    return reset_view(operations, name, members, None, topic, refusal=refusal, typed=typed)


@page(
    ROUTES,
    "/{group}/reset",
    "consoleReset",
    Access.READ_GROUP,
    parameters=(_TO, _VALUE, _TOPIC),
    errors=(40002, 40401, 40405, 50303),
    asks_logs=True,
    can_refresh=False,
    gather=_members,
    again=_reset_again,
)
def reset(request: web.Request, operations: Operations, members: list[Member]) -> ResetView:
    """Console: what a reset of a group's offsets would do. Nothing is changed."""
    to = _TO.read(request)
    target = None if to is None else _target_of(to, _VALUE.read(request) or "")
    topic = _TOPIC.read(request) or ""
    if topic:
        checked_topic(topic)
    return reset_view(operations, group_of(request), members, target, topic)


@form(
    ROUTES,
    "/{group}/reset",
    "consoleResetNow",
    Access.READ_GROUP,
    ("to", "value", "topic"),
    errors=(40002, 40401, 40402, 40405, 40911, *_WRITES),
)
async def reset_now(request: web.Request, fields: Mapping[str, str]) -> Done:
    """Console: reset the offsets of a group without members, as the page before showed it.

    The latest offset and a time are looked up again. Pages of other origins are refused.
    Partitions whose offset cannot be told stay, and the answer is the error of the first of them.
    """
    name, topic = group_of(request), fields["topic"]
    topics = [checked_topic(topic)] if topic else None
    report = await reset_offsets(request, name, _target_of(fields["to"], fields["value"]), topics)
    failed = [each for each in report.offsets if isinstance(each, FailedPartition)]
    if failed:
        done, every = len(report.offsets) - len(failed), len(report.offsets)
        what = f"Only {done} of {every} partitions were reset" if done else "Nothing was reset"
        raise ApiError(failed[0].error_code, f"{what}: {failed[0].error}")
    what = plural(len(report.offsets), "partition")
    return Done(_page_of(name), f"The offsets of {what} were reset to {_TARGETS[fields['to']]}.")


@form(
    ROUTES,
    "/{group}/delete",
    "consoleDeleteGroup",
    Access.DELETE_GROUP,
    ("topic", "confirmation"),
    errors=(40002, 40405, 40911, *_WRITES),
)
async def delete(request: web.Request, fields: Mapping[str, str]) -> Done:
    """Console: delete the offsets of a group without members, of one topic or, without one, all.

    ``confirmation`` is the group's name. Pages of other origins are refused.
    """
    api, name, topic = api_of(request), group_of(request), fields["topic"]
    if fields["confirmation"] != name:
        raise ApiError(40002, f"Nothing was deleted: type {name} to say that you mean it.")
    operations = api.operations.groups
    operations.summary(name)
    operations.check_no_members(name)
    topics = [checked_topic(topic)] if topic else None
    await api.blocking(operations.offsets.delete, name, topics)
    if not operations.offsets.committed(name):
        return Done(_GROUPS, f"Group {name} was deleted.")
    return Done(_page_of(name), f"The offsets of {topic or 'all topics'} were deleted.")


def _page_of(name: str) -> str:
    return f"{_GROUPS}/{quote(name, safe='')}/offsets"


def _target_of(to: str, value: str) -> ResetTarget:
    """ApiError 40002: no target, or not its number."""
    if to in ("earliest", "latest"):
        return ResetTarget(to)
    value = value.strip()
    if to == "timestamp":
        return ResetTarget(to, parse_timestamp(value))
    least = 0 if to == "offset" else -INT64_MAX
    if to not in ("shift", "offset"):
        raise ApiError(40002, f"to is one of {', '.join(_TARGETS)}.")
    if not _INTEGER.fullmatch(value) or not least <= int(value) <= INT64_MAX:
        raise ApiError(40002, f"to={to} needs {_NUMBERED[to]}.")
    return ResetTarget(to, int(value))
