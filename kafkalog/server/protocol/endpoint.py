"""Routes, each declared once above its handler with all that is said about it.

``/openapi.json``, the access rules and the tests over all routes read it. The handler's docstring
is the description, its first line the summary. A parameter object reads the request and describes
itself (``parameters.py``), so a default or a bound is stated once.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from aiohttp import hdrs, web

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.server.api import api_of
from kafkalog.server.protocol.media_types import (
    EVENT_STREAM,
    JSON,
    V2_JSON,
    is_json,
    metadata_or_own_type,
    metadata_type,
)
from kafkalog.server.protocol.replies import json_reply
from kafkalog.server.protocol.schemas import read_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aiohttp.typedefs import Handler
    from msgspec import Struct
    from pydantic import BaseModel

    from kafkalog.server.api import Api
    from kafkalog.server.protocol.json_schema import JsonSchema, NamedType
    from kafkalog.server.protocol.parameters import Parameter
    from kafkalog.server.protocol.schemas import Schema

    Class = type[BaseModel] | type[Struct] | NamedType
    # Of a request, of an answer, or a schema spelt out.
    Model = Class | JsonSchema
    # By media type, JSON alone, or none.
    Content = Class | Mapping[str, Model] | None

_ATTRIBUTE = "__kafkalog_endpoint__"


class Right(NamedTuple):
    """Of a principal; a topic or a group is the one that path or body names."""

    action: Action
    resource: Resource


class Access(enum.Enum):
    """What a request needs: a right, to be known, or nothing."""

    OPEN = "open"  # probes
    AUTHENTICATED = "authenticated"  # what Kafka's Metadata gives: the ids of cluster and broker
    CREATE_TOPIC = Right(Action.CREATE, Resource.TOPIC)
    DESCRIBE_TOPIC = Right(Action.DESCRIBE, Resource.TOPIC)
    READ_TOPIC = Right(Action.READ, Resource.TOPIC)
    WRITE_TOPIC = Right(Action.WRITE, Resource.TOPIC)
    ALTER_TOPIC = Right(Action.ALTER, Resource.TOPIC)
    DELETE_TOPIC = Right(Action.DELETE, Resource.TOPIC)
    DESCRIBE_GROUP = Right(Action.DESCRIBE, Resource.GROUP)
    READ_GROUP = Right(Action.READ, Resource.GROUP)
    DELETE_GROUP = Right(Action.DELETE, Resource.GROUP)
    DESCRIBE_SINK = Right(Action.DESCRIBE, Resource.SINK)
    WRITE_SINK = Right(Action.WRITE, Resource.SINK)
    DESCRIBE_CLUSTER = Right(Action.DESCRIBE, Resource.CLUSTER)
    WRITE_CLUSTER = Right(Action.WRITE, Resource.CLUSTER)
    ALTER_CLUSTER = Right(Action.ALTER, Resource.CLUSTER)
    OPERATE_CLUSTER = Right(Action.CLUSTER, Resource.CLUSTER)


ADMINISTRATIVE = frozenset((Action.CREATE, Action.DELETE, Action.ALTER, Action.CLUSTER))
"""Actions that change more than appended records: audited, and served on ``admin.port``."""

PARTITION = "/v1/topics/{topic}/partitions/{partition}"
"""Where kafkalog's own routes about a partition begin."""

CLUSTER = "/v3/clusters/{cluster_id}"
"""Where the routes of v3 begin."""

METRICS_PATH = "/metrics"

NATIVE_PREFIX = "/v1/"
"""Of kafkalog's own routes; the others answer as the proxies do."""

DEBUG_PREFIX = "/debug/"
"""Of diagnostic routes, which are served in every phase of the daemon."""

CONSOLE_PREFIX = "/console"
"""Of the pages for people; their addresses take no unknown parameter either."""


@dataclass(frozen=True, slots=True)
class Link:
    """What can be asked next: parameters of that operation by runtime expressions (OpenAPI)."""

    operation_id: str
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer: its bodies by media type, the headers worth naming, what follows."""

    description: str
    body: Content = None
    headers: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()

    @property
    def content(self) -> Mapping[str, Model]:
        """The bodies by media type."""
        return by_media_type(self.body)


def by_media_type(content: Content) -> Mapping[str, Model]:
    """As OpenAPI has it."""
    if content is None:
        return {}
    return content if isinstance(content, Mapping) else {JSON: content}


def event_stream(description: str, names: tuple[str, ...], data: JsonSchema) -> Mapping[str, Model]:
    """Server-sent events. The schema is one event's: OpenAPI before 3.2 has none for a stream."""
    event: JsonSchema = {
        "type": "object",
        "description": f"Each event. {description}",
        "properties": {"event": {"enum": list(names)}, "id": {"type": "string"}, "data": data},
        "required": ["event", "data"],
    }
    return {EVENT_STREAM: event}


def in_v2(model: Model) -> Mapping[str, Model]:
    """An answer of a v2 route, in the proxies' type or in JSON, as the client accepts."""
    return {V2_JSON: model, JSON: model}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One operation. ``errors`` are numbers of the register beyond those that follow from the rest.

    A body, a topic or partition in the path, and query parameters bring their own errors.
    """

    operation_id: str
    tag: str
    access: Access
    answers: Mapping[int, Answer]
    parameters: tuple[Parameter, ...] = ()
    body: Mapping[str, Model] = field(default_factory=dict)  # by media type; empty: none is read
    is_body_required: bool = True
    errors: tuple[int, ...] = ()
    is_stream: bool = False  # a body may be longer than any that is read whole
    summary: str = ""
    description: str = ""
    right: Right | None = None  # of access, if it is one
    # A Content-Type that is missing, or an Accept that names none of ours, means the route's own.
    takes_any_type: bool = False
    # No body is read; one that says something asks for what would not be done.
    refuses_body: bool = False

    @property
    def takes_json_alone(self) -> bool:
        """Whether it is of the control plane, whose bodies are JSON or absent.

        Routes of records judge their own types. The end of a consumer reads no body, and changes
        nothing that lasts: some clients send one of any type.
        """
        right = self.right
        if right is None or (right.action, right.resource) == (Action.WRITE, Resource.TOPIC):
            return False
        if not self.body:
            return right.action is not Action.READ
        return all(map(is_json, self.body))


H = TypeVar("H", bound="Callable[..., object]")


class Routes:
    """The routes of one part of the API, each declared above its handler.

    A function returns its JSON answer, None for 204, or a response of aiohttp. Its annotations say
    the model of a body (``wanted``), which it gets, and that of an answer of which only the
    description is given. A coroutine function runs on the event loop. A plain one may wait for a
    lock or the disk: it runs on the control pool, and also gets the operations of its principal.
    ``path`` is before that of each route, ``errors`` are of all; ``is_v2``: of the proxies, whose
    media type bodies and answers may have; ``takes_any_type`` is Endpoint's; ``look_up`` fails when
    what the path names is not there, which is said before the body is read.
    """

    def __init__(
        self,
        tag: str,
        path: str = "",
        *,
        errors: tuple[int, ...] = (),
        is_v2: bool = False,
        takes_any_type: bool = False,
        look_up: Callable[[web.Request], object] | None = None,
    ) -> None:
        self._tag = tag
        self._path = path
        self._errors = errors
        self._is_v2 = is_v2
        self._takes_any_type = takes_any_type
        self._look_up = look_up
        self._routes: list[web.RouteDef] = []

    def __iter__(self) -> Iterator[web.RouteDef]:
        return iter(self._routes)

    def endpoint(  # noqa: PLR0913 - the parts of a spec, by name
        self,
        route: str,
        operation_id: str,
        access: Access,
        answers: str | Answer | Mapping[int, Answer],
        *,
        tag: str = "",
        aliases: tuple[str, ...] = (),
        parameters: tuple[Parameter, ...] = (),
        body: Content = None,
        is_body_required: bool = True,
        errors: tuple[int, ...] = (),
        is_stream: bool = False,
        on_sink_pool: bool = False,
    ) -> Callable[[H], H]:
        """Serve a route, ``GET /v1/tasks``, by the function below and attach its spec to it.

        ``on_sink_pool``: a plain function runs there, for it waits for other calls of its sink.
        """
        method, _, rest_of_path = route.partition(" ")
        paths = [self._path + each for each in (rest_of_path, *aliases)]

        def attach(make: H) -> H:
            summary, _, rest = (make.__doc__ or "").strip().partition("\n")
            model = annotated(make, "wanted")
            read = {V2_JSON: model} if self._is_v2 and model is not None else model
            spec = Endpoint(
                operation_id,
                tag or self._tag,
                access,
                self._answers_of(answers, make),
                parameters,
                by_media_type(body or read),
                is_body_required,
                (*self._errors, *errors),
                is_stream,
                summary,
                " ".join(line.strip() for line in rest.split("\n")).strip(),
                access.value if isinstance(access.value, Right) else None,
                self._takes_any_type,
                refuses_body=(
                    method != hdrs.METH_GET
                    and paths[0].startswith(NATIVE_PREFIX)
                    and not (body or read)
                ),
            )
            handler = _handler_of(make, spec, model, self._look_up, on_sink_pool=on_sink_pool)
            setattr(handler, _ATTRIBUTE, spec)
            self._routes += [web.RouteDef(method, each, handler, {}) for each in paths]
            return make

        return attach

    def _answers_of(
        self, answers: str | Answer | Mapping[int, Answer], make: Callable[..., object]
    ) -> Mapping[int, Answer]:
        """By status; a description alone is that of the annotated model, or of 204."""
        if isinstance(answers, str):
            model = annotated(make, "return")
            if model is None:
                return {204: Answer(answers)}
            answers = Answer(answers, in_v2(model) if self._is_v2 else model)
        return {200: answers} if isinstance(answers, Answer) else answers


def annotated(make: Callable[..., object], name: str) -> type[Any] | None:
    """The class of its module that the annotation is; None for None, or without annotation."""
    text = make.__annotations__.get(name, "None")
    model: type[Any] | None = None if text == "None" else make.__globals__[text]
    return model


def _handler_of(
    make: Callable[..., Any],
    spec: Endpoint,
    model: type[Schema] | None,
    look_up: Callable[[web.Request], object] | None,
    *,
    on_sink_pool: bool,
) -> Handler:
    """The handler of aiohttp that a function above is, or that answers with what it returns."""

    async def body_of(request: web.Request, api: Api) -> tuple[Schema, ...]:
        if model is None:
            return ()
        if look_up is not None:
            look_up(request)
        return (await read_body(model, request, api, is_required=spec.is_body_required),)

    if inspect.iscoroutinefunction(make):
        if model is None and make.__annotations__["return"].endswith("Response"):
            return make

        @functools.wraps(make)
        async def on_loop(request: web.Request) -> web.StreamResponse:
            body = await body_of(request, api_of(request))
            return _reply(request, spec, await make(request, *body))

        return on_loop

    @functools.wraps(make)
    async def on_pool(request: web.Request) -> web.StreamResponse:
        api = api_of(request)
        arguments = (request, api.operations, *await body_of(request, api))
        # Encoded there as well: an answer may have many thousand entries.
        run = api.run_on_sink_pool if on_sink_pool else api.blocking
        return await run(lambda: _reply(request, spec, make(*arguments)))

    return on_pool


def _reply(request: web.Request, spec: Endpoint, answer: object) -> web.StreamResponse:
    """The first answer of the spec, in the type that the client accepts; without one 204."""
    if isinstance(answer, web.StreamResponse):
        return answer
    if answer is None:
        return web.Response(status=204)
    status, said = next(iter(spec.answers.items()))
    content_type = JSON
    if V2_JSON in said.content:
        choose = metadata_or_own_type if spec.takes_any_type else metadata_type
        content_type = choose(request.headers.get(hdrs.ACCEPT, ""))
    return json_reply(answer, content_type=content_type, status=status)


def endpoint_of(handler: object) -> Endpoint | None:
    """The spec of a handler; None without one."""
    return getattr(handler, _ATTRIBUTE, None)
