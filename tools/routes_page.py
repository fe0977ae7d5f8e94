"""docs/reference/http-routes.md: every route with what its endpoint says, and a request by example.

Headings and summaries come from the endpoint specs, of which /openapi.json is made, too. The
requests are written in the page, below their headings; what they answer is written there by
``python -m tests.integration.documented_session docs/reference/http-routes.md``, and compared by a
test. A new route gets a heading without a request, which another test refuses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

from kafkalog.server.app import ROUTE_TABLES
from kafkalog.server.protocol.endpoint import endpoint_of
from kafkalog.server.protocol.openapi import described_path

if TYPE_CHECKING:
    from kafkalog.server.protocol.endpoint import Endpoint


class Group(NamedTuple):
    """Routes that a reader wants together: those that match the pattern, and no group before."""

    title: str
    sentence: str
    pattern: str


_V3 = r"/v3/clusters/\{cluster_id\}"
GROUPS = (
    Group(
        "Produce records",
        "These routes append JSON records or whole record batches.",
        r"POST /v1/(topics/.*/(records|batches)|producers.*)",
    ),
    Group(
        "Fetch records",
        "These routes read records as JSON, lines, events or record batches, and look offsets up.",
        r"GET /v1/topics/.*/(records|batches|offsets)|POST /v1/offsets:list",
    ),
    Group(
        "Delete records",
        "These routes delete the records of a partition before an offset.",
        r".*/records:delete",
    ),
    Group(
        "Topics and partitions",
        "Topics are created, changed and deleted by routes of v3.",
        rf"\w+ {_V3}/(topics(/\{{topic\}}(/partitions(?!.*reassignment).*)?)?|.*-replicas)",
    ),
    Group(
        "Configs",
        "Configs of topics and of the broker are read and changed by routes of v3.",
        r"\w+ /v[13]/(.*/)?(broker-)?configs.*",
    ),
    Group(
        "Consumer groups",
        "These routes show groups, and set, reset and delete their committed offsets.",
        r"\w+ /v1/groups.*",
    ),
    Group(
        "Exactly-once sinks",
        "A [sink](http-sinks.md) appends the batches of a streaming query exactly once.",
        r"\w+ /v1/sinks.*",
    ),
    Group(
        "Retention",
        "These routes show when and why a segment is deleted, and run a check.",
        r"\w+ /v1/(retention:.*|.*/(log:retain|segments(/\{base_offset\})?|archived-offsets.*))",
    ),
    Group(
        "Compaction",
        "These routes show what the log cleaner does, and clean, pause or retry a log.",
        r"\w+ /v1/(cleaner.*|.*/log:clean)",
    ),
    Group(
        "The log of a partition",
        "These routes inspect, roll, flush and repair one log.",
        r"\w+ /v1/topics/.*",
    ),
    Group(
        "Log directories, backups and tasks",
        "These routes show the directories, move partitions, back up, and list tasks.",
        r"\w+ /v1/(log-dirs|partition-moves|backups|operations|tasks).*",
    ),
    Group(
        "Health, metrics and description",
        "Probes and the scraper of Prometheus use these routes.",
        r"GET /(livez|startupz|healthz|readyz|metrics|v1/info|openapi\.(json|yaml))",
    ),
    Group(
        "v2: topics and records",
        "Clients of Confluent's REST Proxy v2 use these routes; the other proxies have many, too.",
        r"\w+ /(brokers|topics.*)|POST /",
    ),
    Group(
        "v2: consumers",
        "A [consumer instance](http-consumers.md) of a group is created, polled and deleted here.",
        r"\w+ /consumers/.*",
    ),
    Group(
        "v3: clusters and records",
        "Clients of Confluent's REST Proxy v3 use these routes beside those of topics and configs.",
        rf"\w+ /v3/clusters|\w+ {_V3}(/brokers.*)?|POST {_V3}/topics/.*/records(:batch)?",
    ),
    Group(
        "v3: consumer groups",
        "These routes show groups, their consumers and their lag.",
        rf"GET {_V3}/consumer-groups.*",
    ),
    Group(
        "v3: routes that a single node does not have",
        "These routes answer 501.",
        rf"\w+ {_V3}/(acls.*|topics/.*reassignment)",
    ),
    Group(
        "Strimzi Bridge",
        "Only the Bridge among the proxies has these routes.",
        r"GET /(|ready|healthy|openapi.*)|POST /admin/topics",
    ),
    Group("Karapace", "Only Karapace has this probe.", r"GET /_health"),
    Group("Redpanda", "Only Redpanda's HTTP Proxy has this probe.", r"GET /status/ready"),
    Group(
        "The console",
        "Pages of the [console](console.md) for people; most have a JSON view: add `.json`.",
        r"\w+ /console.*",
    ),
    Group("Diagnosis", "These routes are for the search of a defect.", r"\w+ /debug/.*"),
)
_SECTION = re.compile(r"^### `(.+?)`\n\n.*?\n\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
_TWIN = ".json"


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
    grouped: dict[str, list[str]] = {group.title: [] for group in GROUPS}
    for name in order:
        grouped[_group_of(name).title].append(name)
    parts = [introduction, _contents(grouped)]
    for group in GROUPS:
        parts.append(f"\n## {group.title}\n\n{group.sentence}\n")
        for name in grouped[group.title]:
            summary = " ".join(specs[name].summary.replace("``", "`").split())
            parts.append(f"\n### `{name}`\n\n{summary}\n\n{examples.get(name, '').rstrip()}\n")
    return "".join(parts)


def _group_of(name: str) -> Group:
    """ValueError for a route that no pattern matches."""
    for group in GROUPS:
        if re.fullmatch(group.pattern, name):
            return group
    raise ValueError(f"{name} is in no group of {__name__}: extend a pattern")


def _contents(grouped: dict[str, list[str]]) -> str:
    """A table with a line a group; a page of the console stands for its JSON twin."""
    lines = ["\n## Contents\n", "| Group | Routes |", "|---|---|"]
    for title, names in grouped.items():
        twins = {f"{name}{_TWIN}" for name in names}
        pages = [name for name in names if name not in twins]
        lines.append(f"| {_link(title)} | {', '.join(_link(f'`{name}`') for name in pages)} |")
    return "\n".join(lines) + "\n"


def _link(heading: str) -> str:
    """To a heading of the page, by the name that GitHub and MkDocs give it."""
    anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    return f"[{heading}](#{anchor})"
