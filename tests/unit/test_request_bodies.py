"""Goal: a body is worked on while it comes, is taken as its schema has it, and its description in
the API is whole; what a page may send without a preflight changes nothing.
Method: bodies cut anywhere, every schema, every route of the tables.
"""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import Executor
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, NoReturn, cast

import pytest
from aiohttp import ClientSession, StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request
from openapi_spec_validator import validate

from kafkalog import __version__
from kafkalog.broker.access_rules import Action
from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.errors import NotReady
from kafkalog.format.wire.json_documents import Lines
from kafkalog.server.api import Phase
from kafkalog.server.app import ROUTE_TABLES, close_listeners, open_listeners
from kafkalog.server.fetch.delayed_fetch import DelayedFetches
from kafkalog.server.protocol.bodies import BodyStream, DocumentStream, InFlightBytes
from kafkalog.server.protocol.endpoint import Endpoint, endpoint_of
from kafkalog.server.protocol.errors import REGISTER, ApiError
from kafkalog.server.protocol.openapi import describe, described_path, error_numbers
from kafkalog.server.protocol.replies import RequestIds
from kafkalog.server.protocol.schemas import DeleteUntil, PartitionsCount, parse_body
from kafkalog.server.security.gate import AccessFiles
from kafkalog.settings import ServerConfig, load_settings
from tests.made_api import api_over
from tests.sim.sim_manager import DIRS, SimManager

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kafkalog.server.api import Api


LIMIT_BYTES = 10_000


class World:
    """A request's body and the edge around it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        protocol = BaseProtocol(loop)
        protocol.connection_made(asyncio.Transport())
        self.content = StreamReader(protocol, 1 << 16, loop=loop)
        self.request = make_mocked_request("POST", "/", {}, payload=self.content)
        self.in_flight = InFlightBytes(LIMIT_BYTES)
        self.delayed_fetches = DelayedFetches(loop, 1)
        self.edge = SimpleNamespace(
            in_flight=self.in_flight,
            delayed_fetches=self.delayed_fetches,
            config=ServerConfig(socket_request_max_bytes=1000),
            stopping=False,
            refusal=lambda: NotReady("stopping"),
        )
        self.api = cast("Api", self.edge)

    def documents(self, body: BodyStream) -> DocumentStream:
        return DocumentStream(self.request, self.api, body, Lines())


def in_world(test: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    """Runs the test in a loop of its own; nothing is held when it is over."""

    async def run() -> None:
        world = World()
        await test(world)
        assert world.in_flight.used_bytes == 0
        assert world.delayed_fetches.waiting_count == 0

    return lambda: asyncio.run(run())


def code_of(refusal: pytest.ExceptionInfo[ApiError]) -> int:
    return refusal.value.entry.error_code


@in_world
async def test_groups_are_bounded_and_let_go(world: World) -> None:
    with BodyStream(world.request, world.api) as body:
        documents = world.documents(body)
        world.content.feed_data(b"1\n" * 3000 + b"{")
        counts = []
        for _ in range(2):
            group = await documents.next()
            assert group is not None
            counts.append(len(group.documents))
            body.release(group.size_bytes)
        assert counts == [2000, 1000]
        assert world.in_flight.used_bytes == 1
        world.content.feed_data(b"}")
        world.content.feed_eof()
        group = await documents.next()
        assert group is not None
        assert group.documents == [b"{}"]
        assert documents.is_empty
        assert await documents.next() is None


def test_whole_documents_come_before_the_fault() -> None:
    async def test(world: World, first: bytes, second: bytes) -> None:
        with BodyStream(world.request, world.api) as body:
            documents = world.documents(body)
            world.content.feed_data(first)
            group = await documents.next()
            assert group is not None
            assert group.documents == [b"{}"]
            world.content.feed_data(second)
            with pytest.raises(ApiError) as refusal:
                await documents.next()
            assert code_of(refusal) == 41302

    in_world(partial(test, first=b"{}\n" + b"x" * 900, second=b"x" * 200))()
    in_world(partial(test, first=b"{}\n" + b"x" * 1100, second=b"x"))()


@in_world
async def test_the_bound_of_all_bodies(world: World) -> None:
    deadline = asyncio.get_running_loop().time() + 60
    with BodyStream(world.request, world.api) as body:
        world.content.feed_data(b"x" * (LIMIT_BYTES + 1))
        assert len(await body.chunk(deadline)) == LIMIT_BYTES + 1
    world.in_flight.reserve(LIMIT_BYTES)
    with BodyStream(world.request, world.api) as body:
        world.content.feed_data(b"x")
        with pytest.raises(ApiError) as refusal:
            await body.chunk(deadline)
        assert code_of(refusal) == 42902
    world.in_flight.release(LIMIT_BYTES)


@in_world
async def test_a_stream_lives_a_day(world: World) -> None:
    """V3's longest stream; what is there is read, what would be waited for is not."""
    deadline = asyncio.get_running_loop().time() + 60
    with BodyStream(world.request, world.api, life_seconds=0) as body:
        world.content.feed_data(b"x")
        assert await body.chunk(deadline) == b"x"
        with pytest.raises(ApiError, match="a day old") as refusal:
            await body.chunk(deadline)
        assert code_of(refusal) == 408


@in_world
async def test_a_stop_wakes_who_waits(world: World) -> None:
    deadline = asyncio.get_running_loop().time() + 60
    with BodyStream(world.request, world.api) as body:
        waiting = asyncio.create_task(body.chunk(deadline))
        await asyncio.sleep(0)
        world.edge.stopping = True
        world.delayed_fetches.wake_all()
        with pytest.raises(NotReady):
            await waiting
        with pytest.raises(ApiError) as refusal, BodyStream(world.request, world.api):
            pass
        assert code_of(refusal) == 42903


@in_world
async def test_a_stop_meets_a_wait_that_just_ended(world: World) -> None:
    loop = asyncio.get_running_loop()
    stopped = loop.create_future()

    def stop() -> None:
        try:
            world.delayed_fetches.wake_all()
        except RuntimeError as error:
            stopped.set_exception(error)
        else:
            stopped.set_result(None)

    with BodyStream(world.request, world.api) as body:
        deadline = loop.time() - 1
        waiting = asyncio.create_task(body.chunk(deadline))
        loop.call_soon(loop.call_soon, stop)  # behind the timer of the one who waits
        with pytest.raises(ApiError) as refusal:
            await waiting
        assert code_of(refusal) == 408
        await stopped


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3", 3),
        ("3.0", 3),
        ("3e2", 300),
        ("9007199254740992.0", 1 << 53),
        ("9223372036854775807", (1 << 63) - 1),
    ],
)
def test_whole_numbers(text: str, number: int) -> None:
    """1.0 is an integer in JSON Schema."""
    body = b'{"partitions_count": %s}' % text.encode()
    assert parse_body(PartitionsCount, body).partitions_count == number


@pytest.mark.parametrize("text", ["3.5", '"3"', "true", "null", "9007199254740994.0", "[3]"])
def test_what_is_no_whole_number(text: str) -> None:
    """A float above 2^53 may have been another number when it was written."""
    with pytest.raises(ApiError) as refusal:
        parse_body(PartitionsCount, b'{"partitions_count": %s}' % text.encode())
    assert refusal.value.entry.error_code == 422
    assert refusal.value.message.startswith("partitions_count: ")


@pytest.mark.parametrize("offset", ["-2", "-2.0", "9223372036854775808"])
def test_bounds_hold_for_both_spellings(offset: str) -> None:
    with pytest.raises(ApiError):
        parse_body(DeleteUntil, b'{"offset": %s}' % offset.encode())


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


def ask_all(asked: Iterable[tuple[web.RouteDef, str | None, bytes]]) -> list[Asked]:
    async def run() -> list[Asked]:
        sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start().with_topic("t", 2)
        api = api_over(sim, SETTINGS, Closed())
        api.state.phase = Phase.SERVING
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
    asked = [
        (route, kind, b'{"partitions":[]}')
        for route, promise in changing_routes()
        if is_judged(promise)
        for kind in (WRONG if promise.takes_any_type else (*WRONG, None))
        if kind is None or kind.partition(";")[0] not in promise.body
    ]
    assert len(asked) > 400
    wrong = [each for each in ask_all(asked) if each.status != 415]
    assert not wrong, (len(wrong), wrong[:5])


def test_json_types_are_taken() -> None:
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
    asked = [(route, None, b"") for route, promise in changing_routes() if not promise.body]
    assert len(asked) > 10
    assert not [each for each in ask_all(asked) if each.status == 415]


DOCUMENT = json.loads(json.dumps(describe(ROUTE_TABLES, version=__version__)))


def test_the_document_is_valid() -> None:
    validate(DOCUMENT)


def test_what_is_made_leads_to_what_can_be_asked_of_it() -> None:
    operations = {
        each["operationId"]: {parameter["name"] for parameter in each["parameters"]}
        for item in DOCUMENT["paths"].values()
        for each in item.values()
    }
    links = [
        link
        for item in DOCUMENT["paths"].values()
        for each in item.values()
        for response in each["responses"].values()
        for link in response.get("links", {}).values()
    ]
    assert len(links) >= 10
    for link in links:
        assert link["parameters"].keys() <= operations[link["operationId"]]


def test_references_lead_to_components() -> None:
    components = DOCUMENT["components"]
    found = set()

    def walk(value: object) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                found.add(value["$ref"])
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    walk(DOCUMENT)
    assert found
    places = [name.removeprefix("#/components/").split("/") for name in found]
    assert {kind for kind, _ in places} == {"schemas", "responses"}
    assert all(name in components[kind] for kind, name in places)
    shared = {name for kind, name in places if kind == "responses"}
    assert shared == components["responses"].keys()


def test_the_description_fits_in_a_mebibyte() -> None:
    """Tools cut longer ones (schemathesis does)."""
    assert len(json.dumps(DOCUMENT)) < 768 << 10


def test_every_error_number_has_its_status() -> None:
    for table in ROUTE_TABLES:
        for route in table:
            assert isinstance(route, web.RouteDef)
            promise = endpoint_of(route.handler)
            if promise is None:
                continue
            operation = DOCUMENT["paths"][described_path(route.path)][route.method.lower()]
            responses = operation["responses"]
            for number in error_numbers(route.path, promise):
                status = str(REGISTER[number].status)
                response = responses[status]
                if "$ref" in response:
                    response = DOCUMENT["components"]["responses"][response["$ref"].split("/")[-1]]
                assert f"{number}: " in response["description"], (route.path, number)
            assert promise.summary, route.path


def test_parameters_say_what_they_take() -> None:
    operation = DOCUMENT["paths"]["/v1/topics/{topic}/partitions/{partition}/batches"]["get"]
    by_name = {each["name"]: each for each in operation["parameters"]}
    assert by_name["offset"]["required"]
    assert by_name["offset"]["schema"]["minimum"] == 0
    assert by_name["max_bytes"]["schema"]["default"] == 1 << 20
    assert by_name["topic"]["in"] == "path"
    assert by_name["isolation"]["schema"]["enum"] == ["read_uncommitted", "read_committed"]
