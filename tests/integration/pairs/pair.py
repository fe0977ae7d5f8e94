"""Pair: one request and the answer that it must get, as a row of a declaration table.

``row`` names what is asked: 1.1 media types, 1.2 error numbers, 1.3 Confluent's REST Proxy v2, 1.4
the Strimzi Bridge, 1.5 Redpanda's HTTP Proxy, 1.6 Karapace, 1.7 REST Proxy v3, 3.2 our error
numbers, 3.3 the v2 surface as their union, 3.4 dialects of consumer groups. A difference from them
is named by its row in docs/http-proxies.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.integration.daemon import BINARY, TEXT, V2

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BINARY", "CONFLUENT", "EMPTY", "JSON", "JSON_RECORDS", "STRIMZI", "TEXT", "V2", "Pair", "Step",
    "a_record", "error", "fault_of", "records",
]  # fmt: skip

JSON = "application/json"
JSON_RECORDS = "application/vnd.kafka.json.v2+json"
CONFLUENT: Mapping[str, object] = {"auto.offset.reset": "earliest", "auto.commit.enable": "false"}
STRIMZI: Mapping[str, object] = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
# The answer has no body.
EMPTY = b""


@dataclass(frozen=True)
class Step:
    """A request that must succeed before the pair's own."""

    method: str
    path: str
    body: object = None
    type: str = V2


@dataclass(frozen=True)
class Pair:
    """See the module. Paths may hold {cluster}, and {i}, the path of a consumer made for it.

    answer    a shape (``fault_of``); EMPTY: no body
    theirs    status, or status and error_code, of a proxy that answers otherwise
    differs   the row of docs/http-proxies.md that says so and why
    by        a principal: asked of a daemon with rules of access, "" is nobody
    """

    row: str
    method: str
    path: str
    status: int
    answer: object = EMPTY
    body: object = None
    type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    answer_headers: Mapping[str, object] = field(default_factory=dict)
    given: tuple[Step, ...] = ()
    consumer: Mapping[str, object] | None = None
    theirs: int | tuple[int, int] | None = None
    differs: str = ""
    by: str | None = None

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.row}: {self.method} {self.path} {self.status}"


def error(code: int, **more: object) -> dict[Any, object]:
    """The shape of an error."""
    return {
        "error_code": code,
        "message": re.compile(".+", re.DOTALL),
        "kafka_error": re.compile("[A-Z_]+"),
        "retriable": bool,
        "request_id": str,
        **more,
        ...: ...,
    }


def records(*values: object, **common: object) -> dict[str, object]:
    """The body of a produce."""
    return {"records": [{"value": value, **common} for value in values]}


def a_record(**known: object) -> dict[Any, object]:
    """The shape of a consumed record."""
    shape: dict[Any, object] = {
        "topic": str,
        "key": ...,
        "value": ...,
        "partition": int,
        "offset": int,
        "timestamp": int,
    }
    return {**shape, **known}


def fault_of(shape: object, value: object, at: str = "body") -> str | None:
    """Where a value differs from a shape; None: nowhere.

    A type (bool is no int), ``...`` for anything, a pattern, a set of alternatives, a list of one
    shape for any number of them but none, a tuple of shapes for exactly these, a dictionary of
    shapes by member (with the member ``...`` others may be there too), else the value itself.
    """
    if shape is ...:
        return None
    if isinstance(shape, type):
        is_it = isinstance(value, shape) and (shape is bool or not isinstance(value, bool))
    elif isinstance(shape, re.Pattern):
        is_it = isinstance(value, str) and shape.fullmatch(value) is not None
    elif isinstance(shape, frozenset):
        is_it = any(fault_of(each, value) is None for each in shape)
    elif isinstance(shape, dict | list | tuple):
        return _fault_inside(shape, value, at)
    else:
        is_it = value == shape and isinstance(value, bool) is isinstance(shape, bool)
    return None if is_it else f"{at} is {value!r}, not {shape!r}"


def _fault_inside(
    shape: dict[Any, object] | list[object] | tuple[object, ...], value: object, at: str
) -> str | None:
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{at} is {value!r}, no object"
        named = {name: each for name, each in shape.items() if name is not ...}
        if not (named.keys() <= value.keys() if ... in shape else named.keys() == value.keys()):
            return f"{at} has the members {sorted(value)}, not {sorted(named)}"
        faults = [fault_of(each, value[name], f"{at}.{name}") for name, each in named.items()]
    else:
        if not isinstance(value, list):
            return f"{at} is {value!r}, no array"
        shapes = shape * len(value) if isinstance(shape, list) else list(shape)
        if not value and isinstance(shape, list):
            return f"{at} is empty"
        if len(shapes) != len(value):
            return f"{at} has {len(value)} elements, not {len(shapes)}"
        faults = [
            fault_of(each, one, f"{at}[{number}]")
            for number, (each, one) in enumerate(zip(shapes, value, strict=True))
        ]
    return next((fault for fault in faults if fault is not None), None)
