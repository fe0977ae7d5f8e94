"""Console pages of topics, partitions, log directories, tasks and configs; the static files.

No address ends in the name of a topic, because ``a.json`` may be one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp import hdrs, web

from kafkalog.broker.operations import ConfigChange, Operations
from kafkalog.console.assets import ASSETS_PATH, all_assets
from kafkalog.console.formatting import plural, size
from kafkalog.console.views.configs import ConfigsView, configs_view
from kafkalog.console.views.daemon import (
    AboutView,
    LogDirsView,
    RunbooksView,
    RunbookView,
    TasksView,
    about_view,
    log_dirs_view,
    runbook_view,
    runbooks_view,
    tasks_view,
)
from kafkalog.console.views.overview import OverviewView, overview_view
from kafkalog.console.views.partition import PartitionView, partition_view
from kafkalog.console.views.retention import (
    LIMITS,
    RetentionsView,
    RetentionView,
    retention_view,
    retentions_view,
)
from kafkalog.console.views.topics import TopicOrder, TopicsView, TopicView, topic_view, topics_view
from kafkalog.server.api import api_of
from kafkalog.server.console.pages import INTERNAL, REFRESH, Done, form, page, prepared, redirect
from kafkalog.server.protocol.endpoint import CONSOLE_PREFIX, Access, Answer, Routes
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.parameters import (
    ChoiceParameter,
    FlagParameter,
    IntegerParameter,
    TextParameter,
    partition_of,
    topic_of,
)
from kafkalog.server.protocol.replies import bytes_reply

if TYPE_CHECKING:
    from collections.abc import Mapping

ROUTES = Routes("console", CONSOLE_PREFIX)
ASSET_ROUTES = Routes("console", ASSETS_PATH)


_PAGE = IntegerParameter("page", "Page of the list.", 1, 1, 1_000_000)
_NAME_CONTAINS = TextParameter("name_contains", "Only topics whose name holds this.", "")
_SORT = ChoiceParameter(
    "sort",
    "Order of the list: by name, or what is largest or oldest first.",
    {each.value: each for each in TopicOrder},
    TopicOrder.NAME,
)
_DAYS = 30
_HORIZON_DAYS = IntegerParameter("horizon_days", "How far to look ahead.", _DAYS, 0, 3650)
_CONFIGS = tuple(
    TextParameter(name, f"{name} to ask about; empty or absent: what the topic has.")
    for name in LIMITS
)

_ETAG = "ETag"
_KEPT_FOR_EVER = "public, max-age=31536000, immutable"
_ENTITY_TAG = re.compile(r'"([^"]*)"')


@page(ROUTES, "", "consoleOverview", Access.DESCRIBE_CLUSTER, is_live=True)
def overview(_: web.Request, operations: Operations) -> OverviewView:
    """Console: what needs attention; the traffic of the last hour, log directories, topics."""
    return overview_view(operations)


@ROUTES.endpoint(
    "GET /",
    "consoleSlash",
    Access.DESCRIBE_CLUSTER,
    {301: Answer("The console's address has no slash.", headers=(hdrs.LOCATION,))},
    parameters=(REFRESH,),
)
async def with_slash(request: web.Request) -> web.Response:
    """Console: the overview's address with a slash at the end redirects to it."""
    REFRESH.read(request)
    query = f"?{request.rel_url.raw_query_string}" if request.rel_url.raw_query_string else ""
    return redirect(f"..{CONSOLE_PREFIX}{query}", 301)


@page(
    ROUTES,
    "/topics",
    "consoleTopics",
    Access.DESCRIBE_TOPIC,
    parameters=(_NAME_CONTAINS, _SORT, INTERNAL, _PAGE),
)
def topics(request: web.Request, operations: Operations) -> TopicsView:
    """Console: the topics that the caller may see, a hundred a page."""
    name_contains = _NAME_CONTAINS.read(request) or ""
    sort, number = _SORT.read(request), _PAGE.read(request)
    with_internal = INTERNAL.read(request)
    return topics_view(operations, name_contains, sort, number, with_internal=with_internal)


@ROUTES.endpoint(
    "GET /topics/{topic}",
    "consoleTopicHome",
    Access.DESCRIBE_TOPIC,
    {303: Answer("The pages of the topic.", headers=(hdrs.LOCATION,))},
)
async def topic_home(request: web.Request) -> web.Response:
    """Console: the address of a topic leads to its pages, as people guess it."""
    return redirect(f"{quote(topic_of(request), safe='')}/partitions")


@page(
    ROUTES, "/topics/{topic}/partitions", "consoleTopic", Access.DESCRIBE_TOPIC, parameters=(_PAGE,)
)
def topic(request: web.Request, operations: Operations) -> TopicView:
    """Console: a topic with its partitions, what retention takes next of each, and its configs."""
    return topic_view(operations, topic_of(request), _PAGE.read(request))


@page(
    ROUTES,
    "/topics/{topic}/partitions/{partition}",
    "consolePartition",
    Access.DESCRIBE_TOPIC,
    parameters=(_PAGE,),
)
def partition(request: web.Request, operations: Operations) -> PartitionView:
    """Console: a partition's segments as strip and table, why and until when each is retained."""
    return partition_view(operations, topic_of(request), partition_of(request), _PAGE.read(request))


def _retention_again(request: web.Request, operations: Operations, refusal: str) -> RetentionView:
    return _limits_again(request, operations, request.query, refusal)


def _limits_again(
    request: web.Request, operations: Operations, typed: Mapping[str, str], refusal: str
) -> RetentionView:
    """The page of the limits as they are, with what was typed and why it was refused."""
    view = retention_view(operations, topic_of(request), {}, _DAYS)
    configs = {name: typed.get(name, "") for name in LIMITS}
    return view.model_copy(update={"configs": configs, "refusal": refusal})


@page(
    ROUTES,
    "/topics/{topic}/retention",
    "consoleRetention",
    Access.DESCRIBE_TOPIC,
    parameters=(*_CONFIGS, _HORIZON_DAYS),
    again=_retention_again,
)
def retention(request: web.Request, operations: Operations) -> RetentionView:
    """Console: what would go of a topic under other limits; nothing is changed."""
    configs = {each.name: text for each in _CONFIGS if (text := each.read(request))}
    return retention_view(operations, topic_of(request), configs, _HORIZON_DAYS.read(request))


@page(
    ROUTES,
    "/retention",
    "consoleRetentions",
    Access.DESCRIBE_CLUSTER,
    parameters=(_NAME_CONTAINS, INTERNAL, _PAGE),
    is_live=True,
)
def retentions(request: web.Request, operations: Operations) -> RetentionsView:
    """Console: the retention checks; limits, oldest record and what is over a limit, by topic."""
    name_contains, number = _NAME_CONTAINS.read(request) or "", _PAGE.read(request)
    with_internal = INTERNAL.read(request)
    return retentions_view(operations, name_contains, number, with_internal=with_internal)


@page(ROUTES, "/log-dirs", "consoleLogDirs", Access.DESCRIBE_CLUSTER)
def log_dirs(_: web.Request, operations: Operations) -> LogDirsView:
    """Console: the log directories, their space and largest partitions."""
    return log_dirs_view(operations)


@page(ROUTES, "/tasks", "consoleTasks", Access.DESCRIBE_CLUSTER)
def tasks(_: web.Request, operations: Operations) -> TasksView:
    """Console: what the background tasks do and did."""
    return tasks_view(operations)


@page(ROUTES, "/runbooks", "consoleRunbooks", Access.DESCRIBE_CLUSTER, can_refresh=False)
def runbook_index(_: web.Request, operations: Operations) -> RunbooksView:
    """Console: the runbooks by the severity of their alerts."""
    return runbooks_view(operations)


@page(
    ROUTES,
    "/runbooks/{runbook}",
    "consoleRunbook",
    Access.DESCRIBE_CLUSTER,
    errors=(404,),
    can_refresh=False,
)
def runbook(request: web.Request, operations: Operations) -> RunbookView:
    """Console: a runbook, which says what to do about an alert."""
    try:
        return runbook_view(operations, request.match_info["runbook"])
    except KeyError:
        raise ApiError(404, "There is no such runbook.") from None


@form(
    ROUTES,
    "/topics/{topic}/partitions/{partition}/retain",
    "consoleRetain",
    Access.DELETE_TOPIC,
    ("topic_id",),
    errors=(40002,),
)
async def retain(request: web.Request, fields: dict[str, str]) -> Done:
    """Console: a retention pass over one partition now, instead of at the next check.

    ``topic_id``: of the topic that the page showed; another one of that name is 404. Pages of other
    origins are refused.
    """
    api, topic_id = api_of(request), fields["topic_id"]
    name, number = topic_of(request), partition_of(request)
    outcome = await api.blocking(
        api.operations.retention.retain, name, number, dry_run=False, topic_id=topic_id
    )
    freed = size(sum(each.size_bytes for each in outcome.deleted))
    notice = f"Retention deleted {plural(len(outcome.deleted), 'segment')} of {freed}."
    return Done(f"{CONSOLE_PREFIX}/topics/{quote(name, safe='')}/partitions/{number}", notice)


@form(
    ROUTES,
    "/topics/{topic}/retention",
    "consoleSetLimits",
    Access.ALTER_TOPIC,
    ("topic_id", *LIMITS, "confirmation"),
    errors=(40002, 40401, 50302, 50303, 50701),
    again=_limits_again,
)
async def set_limits(request: web.Request, fields: dict[str, str]) -> Done:
    """Console: set limits of a topic, durable; an empty field leaves what the topic has.

    ``confirmation`` is its name; ``topic_id``: of the topic that the page showed, another one of
    that name is 404. Pages of other origins are refused.
    """
    api, name = api_of(request), topic_of(request)
    if fields["confirmation"] != name:
        raise ApiError(40002, f"Nothing was changed: type {name} to say that you mean it.")
    limits = {limit: fields[limit] for limit in LIMITS if fields[limit]}
    if not limits:
        raise ApiError(40002, "Nothing was changed: every field is empty.")
    changes = [ConfigChange(*limit) for limit in limits.items()]
    await api.blocking(
        api.operations.topics.alter_configs, name, changes, topic_id=fields["topic_id"]
    )
    given = ", ".join(f"{limit}={value}" for limit, value in limits.items())
    address = f"{CONSOLE_PREFIX}/topics/{quote(name, safe='')}/retention"
    return Done(address, f"{name} has {given} now.")


_FILE = {"type": "string", "format": "binary"}


@ASSET_ROUTES.endpoint(
    "GET /{digest}/{asset}",
    "consoleAsset",
    Access.OPEN,
    {
        200: Answer(
            "The file.",
            dict.fromkeys(("text/css", "text/javascript", "image/svg+xml", "text/plain"), _FILE),
            (_ETAG, "Cache-Control"),
        ),
        304: Answer("The client has it."),
    },
    errors=(404,),
)
async def asset(request: web.Request) -> web.Response:
    """A static file of the console by the digest of its bytes: it may be cached indefinitely."""
    await prepared(api_of(request))
    found = all_assets().get(request.match_info["asset"])
    if found is None or request.match_info["digest"] != found.digest:
        raise ApiError(404, "No such file of the console, or another version of it.")
    headers: dict[str, str] = {_ETAG: f'"{found.digest}"', hdrs.CACHE_CONTROL: _KEPT_FOR_EVER}
    if found.digest in _ENTITY_TAG.findall(request.headers.get(hdrs.IF_NONE_MATCH, "")):
        return web.Response(status=304, headers=headers)
    return bytes_reply(found.content, content_type=found.content_type, headers=headers)


_CONFIG_CONTAINS = TextParameter("name_contains", "Only configs whose name holds this.", "")
_ALL = FlagParameter("all", "Those too that have their defaults.")


@page(
    ROUTES,
    "/configs",
    "consoleConfigs",
    Access.DESCRIBE_CLUSTER,
    parameters=(_CONFIG_CONTAINS, _ALL),
)
def configs(request: web.Request, operations: Operations) -> ConfigsView:
    """Console: the daemon's configs beside their defaults, with the source of each value."""
    name_contains = _CONFIG_CONTAINS.read(request) or ""
    return configs_view(operations, None, name_contains, is_all=_ALL.read(request))


@page(
    ROUTES,
    "/topics/{topic}/configs",
    "consoleTopicConfigs",
    Access.DESCRIBE_TOPIC,
    parameters=(_CONFIG_CONTAINS, _ALL),
)
def topic_configs(request: web.Request, operations: Operations) -> ConfigsView:
    """Console: a topic's configs beside their defaults, with the source of each value."""
    name_contains = _CONFIG_CONTAINS.read(request) or ""
    return configs_view(operations, topic_of(request), name_contains, is_all=_ALL.read(request))


@page(ROUTES, "/about", "consoleAbout", Access.DESCRIBE_CLUSTER)
def about(_: web.Request, operations: Operations) -> AboutView:
    """Console: version, build, and the licences of what is delivered with it."""
    return about_view(operations)
