"""Every page of the console, found among the routes: a new one is judged without being named."""

from __future__ import annotations

from aiohttp import web

from kafkalog.server.app import ROUTE_TABLES
from kafkalog.server.endpoint import CONSOLE_PREFIX

_TWIN = ".json"


def page_addresses(*topics: str) -> list[str]:
    """Of each page, of each topic's first partition where it is about one."""
    paths = {
        route.path
        for table in ROUTE_TABLES
        for route in table
        if isinstance(route, web.RouteDef)
        and route.method == "GET"
        and route.path.startswith(CONSOLE_PREFIX)
    }
    pages = sorted(path for path in paths if path + _TWIN in paths)
    return list(
        dict.fromkeys(page.format(topic=topic, partition=0) for page in pages for topic in topics)
    )
