"""The spec of an endpoint, declared once beside its handler.

``/openapi.json``, the access rules and the tests over all routes read it. The handler's docstring
is the description, its first line the summary. A parameter object reads the request and describes
itself (``parameters.py``), so a default or a bound is stated once.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.server.protocol.media_types import is_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp.typedefs import Handler
    from msgspec import Struct
    from pydantic import BaseModel

    from kafkalog.server.protocol.json_schema import JsonSchema, NamedType
    from kafkalog.server.protocol.parameters import Parameter

    # Of a request, of an answer, or a schema spelt out.
    Model = type[BaseModel] | type[Struct] | NamedType | JsonSchema

__all__ = [
    "ADMINISTRATIVE",
    "AUTHENTICATED",
    "CONSOLE_PREFIX",
    "DEBUG_PREFIX",
    "METRICS_PATH",
    "NATIVE_PREFIX",
    "OPEN",
    "Access",
    "Action",
    "Answer",
    "Endpoint",
    "Resource",
    "endpoint",
    "endpoint_of",
]

_ATTRIBUTE = "__kafkalog_endpoint__"


@dataclass(frozen=True, slots=True)
class Access:
    """The right that a request needs; a topic or a group is the one that path or body names."""

    action: Action
    resource: Resource


ADMINISTRATIVE = frozenset((Action.CREATE, Action.DELETE, Action.ALTER, Action.CLUSTER))
"""Actions that change more than appended records: audited, and served on ``admin.port``."""

METRICS_PATH = "/metrics"

NATIVE_PREFIX = "/v1/"
"""Of kafkalog's own routes; the others answer as the proxies do."""

DEBUG_PREFIX = "/debug/"
"""Of diagnostic routes, which are served in every phase of the daemon."""

CONSOLE_PREFIX = "/console"
"""Of the pages for people; their addresses take no unknown parameter either."""

OPEN: None = None
"""The access of probes: everybody has it."""


class NoRight(enum.Enum):
    """An access without a right."""

    AUTHENTICATED = "authenticated"


AUTHENTICATED = NoRight.AUTHENTICATED
"""For what Kafka's Metadata gives every principal: the ids of cluster and broker."""


@dataclass(frozen=True, slots=True)
class Link:
    """What can be asked next: parameters of that operation by runtime expressions (OpenAPI)."""

    operation_id: str
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer: its bodies by media type, the headers worth naming, what follows."""

    description: str
    content: Mapping[str, Model] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One operation. ``errors`` are numbers of the register beyond those that follow from the rest.

    A body, a topic or partition in the path, and query parameters bring their own errors.
    """

    operation_id: str
    tag: str
    access: Access | NoRight | None
    answers: Mapping[int, Answer]
    parameters: tuple[Parameter, ...] = ()
    body: Mapping[str, Model] = field(default_factory=dict)  # by media type; empty: none is read
    is_body_required: bool = True
    errors: tuple[int, ...] = ()
    is_stream: bool = False  # a body may be longer than any that is read whole
    summary: str = ""
    description: str = ""
    right: Access | None = None  # of access, if it is one

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


H = TypeVar("H", bound="Handler")


def endpoint(
    operation_id: str,
    tag: str,
    access: Access | NoRight | None,
    answers: Mapping[int, Answer],
    *,
    parameters: tuple[Parameter, ...] = (),
    body: Mapping[str, Model] | None = None,
    is_body_required: bool = True,
    errors: tuple[int, ...] = (),
    is_stream: bool = False,
) -> Callable[[H], H]:
    """Attach the spec to a handler; put it below the decorator of the route."""

    def attach(handler: H) -> H:
        doc = (handler.__doc__ or "").strip()
        summary, _, rest = doc.partition("\n")
        spec = Endpoint(
            operation_id,
            tag,
            access,
            answers,
            parameters,
            body or {},
            is_body_required,
            errors,
            is_stream,
            summary,
            " ".join(line.strip() for line in rest.split("\n")).strip(),
            access if isinstance(access, Access) else None,
        )
        setattr(handler, _ATTRIBUTE, spec)
        return handler

    return attach


def endpoint_of(handler: object) -> Endpoint | None:
    """The spec of a handler; None without one, which a test refuses."""
    return getattr(handler, _ATTRIBUTE, None)
