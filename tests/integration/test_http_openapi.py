"""Goal: the daemon describes its API, and a native route reads every query parameter that it is
sent, or says which one it does not.
Method: the document of a running daemon against its answers; every /v1 route of the tables.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import jsonschema_rs
import pytest
from aiohttp import web
from ruamel.yaml import YAML

from kafkalog.server.app import ROUTE_TABLES
from kafkalog.server.protocol.endpoint import NATIVE_PREFIX, endpoint_of
from kafkalog.server.protocol.parameters import ListParameter
from tests.integration.http_world import refused
from tests.integration.stream_world import EVENTS, parse_events

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon


@pytest.mark.parametrize("path", ["/openapi.json", "/openapi", "/openapi/v3"])
def test_the_document_is_served(daemon: Daemon, path: str) -> None:
    answer = daemon.request("GET", path)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json["openapi"] == "3.1.0"
    assert path in answer.json["paths"]


def test_yaml_is_the_same_document(daemon: Daemon) -> None:
    answer = daemon.request("GET", "/openapi.yaml")
    assert answer.headers["Content-Type"] == "application/yaml"
    document = daemon.request("GET", "/openapi.json").json
    assert YAML(typ="safe").load(answer.body) == document


def test_an_answer_has_the_fields_that_are_declared(daemon: Daemon) -> None:
    """The readiness probe, required fields and none besides."""
    schemas = daemon.request("GET", "/openapi.json").json["components"]["schemas"]
    body = daemon.request("GET", "/readyz").json
    declared = schemas["Readiness"]
    assert set(declared["required"]) <= body.keys() <= declared["properties"].keys()


def test_each_event_of_a_stream_is_as_declared(daemon: Daemon) -> None:
    daemon.create_topic("declared")
    daemon.produce_text("declared", "a", "b")
    path = "/v1/topics/{topic}/partitions/{partition}/records"
    asked_for = path.format(topic="declared", partition=0)
    asked_for += "?value_format=text&from=earliest&until_offset=2"
    events = parse_events(daemon.request("GET", asked_for, headers={"Accept": EVENTS}).body)
    assert [event.name for event in events] == ["record", "record", "end"]
    paths = daemon.request("GET", "/openapi.json").json["paths"]

    def declared_at(path: str) -> jsonschema_rs.Validator:
        content = paths[path]["get"]["responses"]["200"]["content"]
        return jsonschema_rs.validator_for(content[EVENTS]["schema"])

    for name, event_id, data in events:
        declared_at(path).validate({"event": name, "id": event_id, "data": json.dumps(data)})
    for names in ("traffic", "health"):  # test_console_threads sees them sent
        declared_at("/console/events").validate({"event": "news", "data": names})


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
    if daemon.request("GET", "/topics/asked").status != 200:
        daemon.create_topic("asked")
    path = "/v1/topics/asked/partitions/0/records"
    body = refused(daemon.request("GET", path + query), 400, 40005)
    assert body["details"] == {"parameter": name}
    assert words in str(body["message"])
    assert daemon.request("GET", f"{path}?offset=0&").status == 200


def test_the_proxies_routes_pass_it_by(daemon: Daemon) -> None:
    """Clients of the REST proxies may send what those ignore."""
    topics = f"{daemon.cluster()}/topics"
    for path in ("/topics", "/brokers", topics, f"{topics}?page_size=5&page_size=5", "/livez"):
        sign = "&" if "?" in path else "?"
        assert daemon.request("GET", f"{path}{sign}no-such=1").status == 200
