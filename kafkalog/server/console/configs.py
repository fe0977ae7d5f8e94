"""Console pages of the configs of daemon and topics, and of what runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.console.views.about import AboutView, about_view
from kafkalog.console.views.configs import ConfigsView, broker_configs_view, topic_configs_view
from kafkalog.server.console.pages import page
from kafkalog.server.protocol.endpoint import Access, Action, Resource
from kafkalog.server.protocol.parameters import FlagParameter, TextParameter, topic_of

if TYPE_CHECKING:
    from kafkalog.broker.operations import Operations

ROUTES = web.RouteTableDef()
_LOOK = Access(Action.DESCRIBE, Resource.CLUSTER)
_NAME_CONTAINS = TextParameter("name_contains", "Only configs whose name holds this.", "")
_ALL = FlagParameter("all", "Those too that have their defaults.")


@page(
    ROUTES,
    "/console/configs",
    "consoleConfigs",
    _LOOK,
    ConfigsView,
    parameters=(_NAME_CONTAINS, _ALL),
)
def configs(request: web.Request, operations: Operations) -> ConfigsView:
    """Console: the daemon's configs beside their defaults, with the source of each value."""
    name_contains = _NAME_CONTAINS.read(request) or ""
    return broker_configs_view(operations, name_contains, is_all=_ALL.read(request))


@page(
    ROUTES,
    "/console/topics/{topic}/configs",
    "consoleTopicConfigs",
    Access(Action.DESCRIBE, Resource.TOPIC),
    ConfigsView,
    parameters=(_NAME_CONTAINS, _ALL),
)
def topic_configs(request: web.Request, operations: Operations) -> ConfigsView:
    """Console: a topic's configs beside their defaults, with the source of each value."""
    name_contains = _NAME_CONTAINS.read(request) or ""
    is_all = _ALL.read(request)
    return topic_configs_view(operations, topic_of(request), name_contains, is_all=is_all)


@page(ROUTES, "/console/about", "consoleAbout", _LOOK, AboutView)
def about(_: web.Request, operations: Operations) -> AboutView:
    """Console: version, build, and the licences of what is delivered with it."""
    return about_view(operations)
