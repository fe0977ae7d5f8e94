"""Path and query parameters: strings in, bounded numbers out; nothing hostile gets past here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkalog.errors import InvalidTopicName
from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.format.topic_partition import topic_name_fault
from kafkalog.log.values import Isolation
from kafkalog.manager.operations import Acks
from kafkalog.server.error_map import ApiError

if TYPE_CHECKING:
    from aiohttp import web

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_ACKS = {"all": Acks.ALL, "-1": Acks.ALL, "1": Acks.LEADER, "0": Acks.NONE}
_ISOLATION = {
    "read_uncommitted": Isolation.HIGH_WATERMARK,
    "read_committed": Isolation.LAST_STABLE,
}


def topic_of(request: web.Request) -> str:
    """The topic in the path, checked after decoding: no separators, no dots alone, no NUL."""
    name = request.match_info["topic"]
    fault = topic_name_fault(name)
    if fault is not None:
        raise InvalidTopicName(fault)
    return name


def partition_of(request: web.Request) -> int:
    """The partition in the path; what is no int32 >= 0 is 404, as in the Kafka REST ecosystem."""
    text = request.match_info["partition"]
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= INT32_MAX):
        raise ApiError(404, "A partition is a number from 0 to 2147483647.")
    return int(text)


def integer(
    request: web.Request,
    name: str,
    default: int | None = None,
    *,
    least: int = 0,
    most: int = INT64_MAX,
) -> int:
    """A query parameter; without default it is required."""
    text = request.query.get(name)
    if text is None or text == "":
        if default is not None:
            return default
        raise ApiError(40005, f"Query parameter '{name}' is required.", details={"parameter": name})
    if not _INTEGER.fullmatch(text) or not least <= int(text) <= most:
        raise ApiError(
            40005,
            f"Query parameter '{name}' must be a number from {least} to {most}.",
            details={"parameter": name},
        )
    return int(text)


def flag(request: web.Request, name: str) -> bool:
    """A query parameter that is true or false; absent is false."""
    text = request.query.get(name, "false").lower()
    if text not in ("true", "false"):
        raise ApiError(40005, f"Query parameter '{name}' must be true or false.")
    return text == "true"


def acks_of(request: web.Request) -> Acks | None:
    """``?acks=`` or header ``Kafka-Acks``: all, 1 or 0; None leaves it to topic and broker."""
    text = request.query.get("acks") or request.headers.get("Kafka-Acks")
    if text is None:
        return None
    found = _ACKS.get(text.strip().lower())
    if found is None:
        raise ApiError(40005, "acks must be all, 1 or 0.", details={"parameter": "acks"})
    return found


def isolation_of(request: web.Request) -> Isolation:
    """``?isolation=read_uncommitted`` (default) or ``read_committed``."""
    text = request.query.get("isolation", "read_uncommitted")
    found = _ISOLATION.get(text)
    if found is None:
        raise ApiError(40005, "isolation must be read_uncommitted or read_committed.")
    return found
