"""Goal: a native route reads every query parameter that it is sent, or says which one it does not.
Method: every /v1 route of the tables against a real daemon, with a parameter too many and with each
of its own twice; the routes of the proxies beside them, which pass by what they do not know.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from kafkalog.server.app import ROUTE_TABLES
from kafkalog.server.protocol.endpoint import NATIVE_PREFIX, endpoint_of
from kafkalog.server.protocol.parameters import ListParameter
from tests.integration.http_world import refused

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

NATIVE = [
    route
    for table in ROUTE_TABLES
    for route in table
    if isinstance(route, web.RouteDef) and route.path.startswith(NATIVE_PREFIX)
]


def asked(route: web.RouteDef) -> str:
    """Its path, of a partition that is not there: what it means is looked at behind the query."""
    return re.sub(r"\{[^}]*\}", "0", route.path)


@pytest.mark.parametrize("route", NATIVE, ids=lambda route: f"{route.method} {route.path}")
def test_no_parameter_is_passed_by(daemon: Daemon, route: web.RouteDef) -> None:
    """400 with the name, before anything is done."""
    promise = endpoint_of(route.handler)
    assert promise is not None
    path = asked(route)
    body = refused(daemon.request(route.method, f"{path}?no-such=1"), 400, 40005)
    assert body["details"] == {"parameter": "no-such"}
    for parameter in promise.parameters:
        twice = f"{path}?{parameter.name}=1&{parameter.name}=1"
        if isinstance(parameter, ListParameter):
            assert daemon.request(route.method, twice).status == 200
            continue
        body = refused(daemon.request(route.method, twice), 400, 40005)
        assert body["details"] == {"parameter": parameter.name}
        assert "is given more than once" in str(body["message"])


@pytest.mark.parametrize(
    ("query", "name", "words"),
    [
        ("?max_byte=1&offset=0", "max_byte", "did you mean max_bytes?"),
        ("?Offset=0", "Offset", "did you mean offset?"),
        ("?offset=0&=1", "", "there is offset, until_offset, "),
        ("?offset=0&" + "x" * 500, "x" * 80, "'" + "x" * 80 + "'"),
        ("?offset=0&%22%0a%00=1", '"\n\0', ""),
    ],
)
def test_the_refusal_helps(daemon: Daemon, query: str, name: str, words: str) -> None:
    """A slip of the pen costs one look."""
    if daemon.request("GET", "/topics/asked").status != 200:
        daemon.create_topic("asked")
    path = "/v1/topics/asked/partitions/0/records"
    body = refused(daemon.request("GET", path + query), 400, 40005)
    assert body["details"] == {"parameter": name}
    assert words in str(body["message"])
    assert daemon.request("GET", f"{path}?offset=0&").status == 200


def test_the_proxies_routes_pass_it_by(daemon: Daemon) -> None:
    """Clients of the REST proxies may send what those ignore."""
    (cluster,) = daemon.request("GET", "/v3/clusters").json["data"]
    topics = f"/v3/clusters/{cluster['cluster_id']}/topics"
    for path in ("/topics", "/brokers", topics, f"{topics}?page_size=5&page_size=5", "/livez"):
        sign = "&" if "?" in path else "?"
        assert daemon.request("GET", f"{path}{sign}no-such=1").status == 200
