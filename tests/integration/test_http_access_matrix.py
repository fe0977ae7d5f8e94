"""Goal: every route lets in whom its promise names, and nobody else.
Method: the route tables x {anonymous, denied, reader, writer, admin, federated: by a JWT} against a
running daemon; the topic of the questions does not exist, so that what is allowed ends in 404 and
changes nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from kafkalog.broker.access_rules import CLUSTER_NAME, Resource, parse_access_rules
from kafkalog.server.app import ROUTE_TABLES
from kafkalog.server.protocol.endpoint import Access, endpoint_of
from tests.integration.access_world import PRINCIPALS, RULES, access_settings, ask
from tests.integration.daemon import Daemon
from tests.integration.http_world import refused
from tests.integration.jwt_world import by_token, jwt_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.daemon import Answer

ROUTES = [route for table in ROUTE_TABLES for route in table if isinstance(route, web.RouteDef)]
# What stands for each part of a path.
PARTS = {"topic": "t-none", "group": "g-none", "sink": "s-none", "partition": "0"}
# Routes that name their topics in the body or not at all: what they are sent, to be allowed.
BODIES: dict[str, object] = {
    "POST /v1/offsets:list": {"partitions": [{"topic": "t-none", "partition": 0, "timestamp": -1}]},
    "POST /v1/records:delete": {"partitions": [{"topic": "t-none", "partition": 0, "offset": 0}]},
    "POST /v1/retention:run": {"partitions": [{"topic": "t-none", "partition": 0}]},
    "POST /v1/retention:simulate": {"topic": "t-none", "partition": 0, "horizon_ms": 1},
    "POST /admin/topics": {"topic_name": "t-none", "partitions_count": 0},
    "POST /v3/clusters/{cluster_id}/topics": {"topic_name": "t-none", "partitions_count": 0},
}
# Routes that answer to everybody what he may see of it.
FILTERED = {
    "GET /console/topics",
    "GET /console/topics.json",
    "GET /topics",
    "GET /v1/groups",
    "GET /v1/sinks",
    "GET /v3/clusters/{cluster_id}/consumer-groups",
    "GET /v3/clusters/{cluster_id}/topics",
    "GET /v3/clusters/{cluster_id}/topics/-/configs",
}
FEDERATED = "federated"
FEDERATED_RULES = """\
allow federated read,delete topic t-*
allow federated describe group g-*
allow federated describe sink s-*
allow federated alter cluster
"""
RULES_IN_FORCE = parse_access_rules(RULES + FEDERATED_RULES)


pytestmark = pytest.mark.gate  # every route, with one start


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    root = tmp_path_factory.mktemp("guarded")
    settings = access_settings(root, RULES + FEDERATED_RULES) | jwt_settings(root)
    with Daemon(root, **settings | {"http_auth": "basic,bearer,jwt"}) as daemon:
        yield daemon
        assert "Unhandled" not in daemon.log_path.read_text(), daemon.log_tail()


@pytest.fixture(scope="module")
def federated() -> dict[str, str]:
    """The header of the principal that a JWT names."""
    return by_token(FEDERATED)


@pytest.fixture(scope="module")
def cluster_id(guarded: Daemon) -> str:
    found = ask(guarded, "admin", "GET", "/v3/clusters").json["data"][0]["cluster_id"]
    assert isinstance(found, str)
    return found


def path_of(route: web.RouteDef, cluster_id: str) -> str:
    """A path that the route takes."""
    parts = PARTS | {"cluster_id": cluster_id}
    return re.sub(r"\{([a-z_]+)(:[^}]*)?\}", lambda found: parts.get(found[1], "other"), route.path)


def is_denied(answer: Answer) -> bool:
    """401 or 403, in the register's shape; also as the entry of an answer about several."""
    if answer.status == 200 and b'"error_code":40301' in answer.body:
        return True
    if answer.status not in (401, 403):
        return False
    refused(answer, answer.status, {401: 40101, 403: 40301}[answer.status])
    return True


def name(route: web.RouteDef) -> str:
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("route", ROUTES, ids=name)
def test_route(
    guarded: Daemon, cluster_id: str, federated: dict[str, str], route: web.RouteDef
) -> None:
    """Goal: as the promise says.
    Method: the rules decide what each principal must meet.
    """
    promise = endpoint_of(route.handler)
    path, body = path_of(route, cluster_id), BODIES.get(name(route))
    anonymous = ask(guarded, None, route.method, path, body)
    if promise is not None and promise.access is Access.OPEN:
        assert not is_denied(anonymous)
        return
    assert anonymous.status == 401, anonymous.body
    refused(anonymous, 401, 40101)
    if promise is None:
        return  # tests/unit/test_request_bodies.py wants a promise of every route
    right = promise.right
    if right is None:
        for principal in PRINCIPALS:
            assert ask(guarded, principal, route.method, path, body).status == 200
        assert guarded.request(route.method, path, body, federated).status == 200
        return
    action, resource = right.action, right.resource
    key = "" if resource is Resource.CLUSTER else resource.value
    named = PARTS.get(key, CLUSTER_NAME)
    is_in_path = resource is Resource.CLUSTER or f"{{{key}" in route.path
    for principal in (*PRINCIPALS, FEDERATED):
        if principal == FEDERATED:
            answer = guarded.request(route.method, path, body, federated)
        else:
            answer = ask(guarded, principal, route.method, path, body)
        if is_in_path or name(route) in BODIES:
            allowed = RULES_IN_FORCE.rights_of(principal).allow(action, resource, named)
            assert is_denied(answer) is not allowed, (principal, answer.status, answer.body)
        else:
            assert name(route) in FILTERED, f"{name(route)}: give it a body, or call it filtered"
            assert answer.status == 200, (principal, answer.body)


def test_an_unknown_path_tells_nothing_to_strangers(guarded: Daemon) -> None:
    """Nobody maps the API without credentials."""
    refused(ask(guarded, None, "GET", "/v1/nothing"), 401, 40101)
    refused(ask(guarded, "denied", "GET", "/v1/nothing"), 404, 404)
    refused(ask(guarded, None, "PATCH", "/topics"), 401, 40101)
