"""Every page of the console, found among the routes: a new one is judged without being named."""

from __future__ import annotations

from aiohttp import web

from kafkalog.server.app import ROUTE_TABLES
from kafkalog.server.protocol.endpoint import CONSOLE_PREFIX

_TWIN = ".json"


# Pages that answer a question: with one, so that what they then show is judged too.
ANSWERED = [
    "/console/compaction?topic=profiles&hours=1",
    "/console/configs?all=true",
    "/console/topics/profiles/configs",
    "/console/topics/profiles/partitions/0/records?offset=0&show=hex",
    "/console/topics/orders/partitions/0/offsets?offset=2",
    "/console/topics/orders/partitions/0/delete-records?offset=3",
    "/console/topics/orders/partitions/0/delete-records?offset=0",
]


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
        dict.fromkeys(
            page.format(topic=topic, partition=0, runbook="disk-full")
            for page in pages
            for topic in topics
        )
    )
