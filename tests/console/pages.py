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
    "/console/topics/orders/retention?retention.ms=2d",
    "/console/topics/events/records?text=paid&count=5",
    "/console/topics/events/records?text=never&in=key",
    "/console/topics/events/partitions/0/records/1?show=hex",
    "/console/topics/events/partitions/0/records/99",
    "/console/topics/events/produce?partition=0&offset=0",
    "/console/groups/billing/reset?to=earliest",
    "/console/groups?name_contains=none",
]


def page_addresses(*topics: str) -> list[str]:
    """Of each page, of each topic's first partition where it is about one, of its first record."""
    paths = {
        route.path
        for table in ROUTE_TABLES
        for route in table
        if isinstance(route, web.RouteDef)
        and route.method == "GET"
        and route.path.startswith(CONSOLE_PREFIX)
    }
    pages = sorted(path for path in paths if path + _TWIN in paths)
    names = {"partition": 0, "offset": 0, "group": "billing", "runbook": "disk-full"}
    return list(
        dict.fromkeys(page.format(topic=topic, **names) for page in pages for topic in topics)
    )
