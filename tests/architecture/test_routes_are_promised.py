"""Goal: no route without a description, and none that somebody forgot to guard.
Method: the route tables of the application, handler by handler.
"""

from __future__ import annotations

import itertools

import pytest
from aiohttp import web

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.server.app import ROUTE_TABLES
from kafkalog.server.protocol.endpoint import Access, endpoint_of

ROUTES = [route for table in ROUTE_TABLES for route in table if isinstance(route, web.RouteDef)]
# What everybody may ask: probes, who answers here, what the API is, and files without data.
OPEN_PATHS = {
    "/",
    *(
        "/livez",
        "/readyz",
        "/healthz",
        "/ready",
        "/healthy",
        "/_health",
        "/status/ready",
        "/startupz",
    ),
    "/console/assets/{digest}/{asset}",
    *("/openapi.json", "/openapi.yaml", "/openapi", "/openapi/v3"),
}
# What whoever is known may ask without a right: ids, as they come with Kafka's Metadata.
WITHOUT_RIGHT = {"/brokers", "/v3/clusters", "/v3/clusters/{cluster_id}"}
CHANGING = {Action.WRITE, Action.CREATE, Action.DELETE, Action.ALTER, Action.CLUSTER}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_is_described_and_guarded(route: web.RouteDef) -> None:
    """A new route without a rule of access fails here.

    Its endpoint; only the paths named above are open to everybody, or to everybody who is known,
    and a way to change something is never guarded by the right to look. Of a group the right to
    read is the right to take part, as in Kafka.
    """
    promise = endpoint_of(route.handler)
    assert promise is not None, "no @endpoint"
    assert promise.summary, "the handler's docstring is the description"
    assert (promise.access is Access.OPEN) == (route.path in OPEN_PATHS)
    right = promise.right
    assert (promise.access is Access.AUTHENTICATED) == (route.path in WITHOUT_RIGHT)
    is_groups = right is not None and right.resource is Resource.GROUP
    if right is not None and route.method in ("PUT", "PATCH", "DELETE") and not is_groups:
        assert right.action in CHANGING
    if right is not None and right.resource is Resource.TOPIC:
        # The topics whose records may be looked at are a list of topics under another name.
        names_one = "{topic}" in route.path or route.path.startswith("/console/records")
        assert names_one or "topic" in route.path or promise.body or "/v1/" in route.path


def test_no_path_is_offered_twice() -> None:
    """Of two handlers of one path the second would never be asked."""
    ROUTES.sort(key=lambda route: (route.path, route.method))
    for (method, path), group in itertools.groupby(ROUTES, lambda r: (r.method, r.path)):
        assert len(list(group)) == 1, (method, path)
