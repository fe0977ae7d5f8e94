"""docs/reference/http-routes.md: every route with what its endpoint says, and a request by example.

Headings and summaries come from the endpoint specs, of which /openapi.json is made, too. The
requests are written in the page, below their headings; what they answer is written there by
``python -m tests.integration.documented_session docs/reference/http-routes.md``, and compared by a
test. A new route gets a heading without a request, which another test refuses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.server.app import ROUTE_TABLES
from kafkalog.server.protocol.endpoint import endpoint_of
from kafkalog.server.protocol.openapi import described_path

if TYPE_CHECKING:
    from kafkalog.server.protocol.endpoint import Endpoint

GROUPS = {
    "metadata": "Topics, as the proxies show them",
    "topics": "Topics",
    "produce": "Produce",
    "fetch": "Fetch",
    "offsets": "Offsets",
    "partitions": "Partitions of v3",
    "configs": "Configs",
    "clusters": "Cluster and broker",
    "consumers": "Consumers",
    "groups": "Consumer groups",
    "v3": "Consumer groups of v3",
    "sinks": "Exactly-once sinks",
    "retention": "Retention",
    "cleaner": "Compaction",
    "logs": "One log",
    "operation": "Operation",
    "probes": "Probes and metrics",
    "description": "The description of the API",
    "debug": "Diagnosis",
    "console": "The console",
    "unsupported": "Routes of v3 that a single node does not have",
}
_SECTION = re.compile(r"^### `(.+?)`\n\n.*?\n\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)


def routes() -> dict[str, Endpoint]:
    """The endpoint of each route, by its method and path."""
    found = {}
    for table in ROUTE_TABLES:
        for route in table:
            spec = endpoint_of(route.handler) if isinstance(route, web.RouteDef) else None
            if spec is not None:
                found[f"{route.method} {described_path(route.path)}"] = spec
    return found


def routes_page(page: str) -> str:
    """The page with the routes of now, in its own order within a group; new ones at the end."""
    introduction = page.partition("\n## ")[0]
    examples = dict(_SECTION.findall(page))
    specs = routes()
    order = [*(each for each in examples if each in specs), *sorted(specs.keys() - examples.keys())]
    parts = [introduction]
    for tag, title in GROUPS.items():
        parts.append(f"\n## {title}\n")
        for name in order:
            if specs[name].tag == tag:
                summary = " ".join(specs[name].summary.replace("``", "`").split())
                parts.append(f"\n### `{name}`\n\n{summary}\n\n{examples.get(name, '').rstrip()}\n")
    return "".join(parts)
