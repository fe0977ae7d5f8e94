"""Form bodies: what a page's form sends, its fields by name, each once and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from kafkalog.server.error_map import ApiError
from kafkalog.server.in_flight import Body
from kafkalog.server.media_types import FORM, bare_type
from kafkalog.server.parameters import NO_PARTITION, partition_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from kafkalog.server.api import Api

_MOST_BYTES = 16 << 10


def form_schema(*names: str) -> Mapping[str, object]:
    """JSON Schema of a form with these fields."""
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": list(names),
        "additionalProperties": False,
    }


async def form_fields(request: web.Request, api: Api, *names: str) -> dict[str, str]:
    """The fields as sent, decoded; ApiError 415, 41302, and 40002 for anything but these fields."""
    if bare_type(request.headers.get("Content-Type", "")) != FORM:
        raise ApiError(415, f"Send {FORM}, as a form does.")
    async with Body(request, api, most_bytes=_MOST_BYTES) as data:
        text = data.decode("latin-1")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), errors="strict")
    except ValueError as error:
        raise ApiError(40002, "The body is no form.") from error
    fields = dict(pairs)
    if len(fields) < len(pairs) or fields.keys() != set(names):
        raise ApiError(40002, f"The form has the fields {', '.join(names)}, each of them once.")
    return fields


def partition_field(text: str) -> int:
    """The number of a partition; ApiError 40002."""
    number = partition_number(text)
    if number is None:
        raise ApiError(40002, NO_PARTITION)
    return number
