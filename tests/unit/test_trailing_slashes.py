"""Goal: a slash at the end of a proxies' path changes nothing: route, rights, label and answer.
Method: every route of the tables in both spellings; requests at a port.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from aiohttp import ClientSession, web
from aiohttp.test_utils import make_mocked_request

from kafkalog.server.app import ROUTE_TABLES, make_app
from kafkalog.server.protocol.endpoint import endpoint_of
from kafkalog.server.protocol.replies import RequestIds
from kafkalog.server.security.gate import AccessFiles, Filters
from kafkalog.settings import load_settings
from tests.made_api import api_over, listening
from tests.sim.sim_manager import SimManager

if TYPE_CHECKING:
    from aiohttp.web_urldispatcher import UrlMappingMatchInfo

ONE_PORT = load_settings(None, {}, {})
SETTINGS = load_settings(None, {}, {"http.port": "0", "admin.port": "0"})
PROXIES = re.compile(r"/(topics|brokers|consumers|admin|v3)\b")
PLACES = {"partition": "0", "broker": "1"}


def all_routes() -> list[tuple[str, str]]:
    """Method and path with every name filled in."""
    return [
        (route.method, re.sub(r"\{([a-z_]+)[^}]*\}", lambda at: PLACES.get(at[1], "x"), route.path))
        for table in ROUTE_TABLES
        for route in table
        if isinstance(route, web.RouteDef)
    ]


def test_every_route_of_the_proxies_takes_one() -> None:
    async def run() -> None:
        api = api_over(SimManager().start(), ONE_PORT, ThreadPoolExecutor(1))
        app = make_app(api, RequestIds("t"), Filters.of(api, AccessFiles(api.config)))

        async def found(method: str, path: str) -> UrlMappingMatchInfo:
            return await app.router.resolve(make_mocked_request(method, path))

        counted = 0
        for method, path in all_routes():
            if not PROXIES.match(path):
                continue
            # The description would have a path of its own, without the methods of the other one.
            assert not path.endswith("/"), path
            counted += 1
            bases = ("", "/kafka") if path.startswith("/v3/") else ("",)
            for base in bases:
                one, other = (
                    await found(method, base + path),
                    await found(method, base + path + "/"),
                )
                assert endpoint_of(one.handler) is not None
                assert endpoint_of(other.handler) is endpoint_of(one.handler), path
                assert dict(other) == dict(one)
                twice = await found(method, base + path + "//")
                assert twice.http_exception is not None, path
                assert twice.http_exception.status == 404
        assert counted > 70

    asyncio.run(run())


def test_others_take_none() -> None:
    async def run() -> None:
        with ThreadPoolExecutor(1) as pool:
            api = api_over(SimManager().start(), SETTINGS, pool)
            async with listening(api) as listeners, ClientSession() as client:
                for path in (
                    "/livez/",
                    "/v1/info/",
                    "/v1/tasks/",
                    "/openapi.json/",
                    "//",
                    "/kafka/",
                ):
                    async with client.get(f"http://127.0.0.1:{listeners[0].port}{path}") as answer:
                        assert answer.status == 404, path

    asyncio.run(run())


def test_answers_and_labels_are_the_same() -> None:
    """Also where the listener is another one, and for a method that the path does not have."""

    async def run() -> None:
        with ThreadPoolExecutor(1) as pool:
            sim = SimManager().start().with_topic("t", 2)
            api = api_over(sim, SETTINGS, pool)
            async with listening(api) as listeners, ClientSession() as client:

                async def ask(path: str, *, port: int = 0, method: str = "GET") -> tuple[int, str]:
                    url = f"http://127.0.0.1:{listeners[port].port}{path}"
                    async with client.request(method, url) as answer:
                        text = re.sub(r'"request_id":"[^"]*"', "", await answer.text())
                        return answer.status, text

                cluster = f"/v3/clusters/{api.cluster_id}"
                paths = (
                    *("/topics", "/topics/t", "/topics/t/partitions/1", "/brokers"),
                    *("/v3/clusters", cluster, f"{cluster}/topics", f"/kafka{cluster}/topics/t"),
                    *("/topics/none", "/consumers/g/instances/i/records"),
                )
                for path in paths:
                    assert await ask(path) == await ask(path + "/"), path
                assert (await ask("/topics/", method="POST"))[0] == 405
                for path in ("/admin/topics", "/admin/topics/"):
                    assert (await ask(path, method="POST"))[0] == 404
                    assert (await ask(path, method="POST", port=1))[0] == 415
            (family,) = api.metrics.http_requests.collect()
            routes = {sample.labels["route"] for sample in family.samples}
            assert {
                "/topics",
                "/topics/{topic}",
                "/kafka/v3/clusters/{cluster_id}/topics/{topic}",
            } <= routes
            assert not [route for route in routes if route.endswith("/")]

    asyncio.run(run())
