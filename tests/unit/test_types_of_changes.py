"""Goal: what a page may send without a preflight (a text, a form) changes nothing.
Method: every changing route of the tables at an edge over a simulated manager, with each such type.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import Executor
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from aiohttp import ClientSession, web

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.errors import NotReady
from kafkalog.server.api import Phase
from kafkalog.server.app import ROUTE_TABLES, close_listeners, open_listeners
from kafkalog.server.protocol.endpoint import Action, Endpoint, endpoint_of
from kafkalog.server.protocol.replies import RequestIds
from kafkalog.server.security.gate import AccessFiles
from kafkalog.settings import load_settings
from tests.made_api import api_over
from tests.sim.sim_manager import DIRS, SimManager

if TYPE_CHECKING:
    from collections.abc import Iterable

SETTINGS = load_settings(None, {}, {"http.port": "0"})
JSON, V2 = "application/json", "application/vnd.kafka.v2+json"
SIMPLE = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b")
WRONG = (*SIMPLE, "text/plain;charset=UTF-8", "application/octet-stream", "text/json", "json", "")
PLACES = {"topic": "t", "partition": "0", "producer_id": "1", "broker": "1", "config": "a"}


class Closed(Executor):
    """In the place of threads: what comes so far was let in."""

    def submit(self, *_: object, **__: object) -> NoReturn:
        raise NotReady("no thread runs here")


class Asked(NamedTuple):
    """A request and what it was answered."""

    route: str
    content_type: str | None
    status: int
    said: str


def changing_routes() -> list[tuple[web.RouteDef, Endpoint]]:
    routes = [route for table in ROUTE_TABLES for route in table if isinstance(route, web.RouteDef)]
    found = []
    for route in routes:
        promise = endpoint_of(route.handler)
        if route.method not in ("GET", "HEAD") and promise is not None:
            found.append((route, promise))
    return found


def ask_all(
    asked: Iterable[tuple[web.RouteDef, str | None, bytes]],
) -> list[Asked]:
    """At one edge, one after the other."""

    async def run() -> list[Asked]:
        sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start()
        sim.operations.topics.create("t", 2)
        api = api_over(sim, SETTINGS, Closed())
        api.phase = Phase.SERVING
        listeners = await open_listeners(api, AccessFiles(SETTINGS.server), RequestIds("test"))
        base = f"http://127.0.0.1:{listeners[0].port}"
        places = {**PLACES, "cluster_id": api.cluster_id}
        found = []
        async with ClientSession(skip_auto_headers=("Content-Type",)) as client:
            for route, kind, body in asked:
                path = re.sub(r"\{([a-z_]+)[^}]*\}", lambda at: places.get(at[1], "x"), route.path)
                headers = {} if kind is None else {"Content-Type": kind}
                sent = client.request(route.method, base + path, data=body, headers=headers)
                async with sent as answer:
                    said = await answer.text()
                found.append(Asked(f"{route.method} {route.path}", kind, answer.status, said))
        await close_listeners(listeners, 5)
        return found

    return asyncio.run(run())


def is_judged(promise: Endpoint) -> bool:
    """All but those that read no body and change nothing that lasts: a consumer's end."""
    changes = promise.right is not None and promise.right.action is not Action.READ
    return bool(promise.body) or changes


def test_a_simple_type_is_refused() -> None:
    """415 at every route, but where the type is documented."""
    asked = [
        (route, kind, b'{"partitions":[]}')
        for route, promise in changing_routes()
        if is_judged(promise)
        for kind in (*WRONG, None)
        if kind is None or kind.partition(";")[0] not in promise.body
    ]
    assert len(asked) > 400
    wrong = [each for each in ask_all(asked) if each.status != 415]
    assert not wrong, (len(wrong), wrong[:5])


def test_json_types_are_taken() -> None:
    """With a body, with an empty one, with none and no type: no route refuses the type."""
    json_routes = [
        (route, promise)
        for route, promise in changing_routes()
        if not promise.body or JSON in promise.body or V2 in promise.body
    ]
    asked = [
        (route, kind, body)
        for route, promise in json_routes
        for kind, body in (
            ("Application/JSON ; charset=utf-8", b"{"),
            (V2 if V2 in promise.body else JSON, b"{"),
            *(((None, b""), (JSON, b"")) if not promise.is_body_required else ()),
        )
    ]
    assert not [each for each in ask_all(asked) if each.status == 415]


def test_a_body_that_nobody_reads() -> None:
    """A route that reads none takes a request without one, and without a type."""
    asked = [(route, None, b"") for route, promise in changing_routes() if not promise.body]
    assert len(asked) > 10
    assert not [each for each in ask_all(asked) if each.status == 415]
