"""Answers: JSON bodies, errors in the one shape, the headers every answer carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from kafkalog.server.error_map import ApiError, error_body
from kafkalog.server.media_types import JSON, V2_JSON

if TYPE_CHECKING:
    from kafkalog import errors

_ENCODER = msgspec.json.Encoder()


def json_reply(
    value: object,
    *,
    content_type: str = JSON,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> web.Response:
    """One JSON document."""
    return bytes_reply(
        _ENCODER.encode(value), content_type=content_type, status=status, headers=headers
    )


def bytes_reply(
    body: bytes | bytearray | memoryview,
    *,
    content_type: str,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> web.Response:
    """A body that is ready."""
    all_headers = {"Content-Type": content_type, "X-Content-Type-Options": "nosniff"}
    if headers:
        all_headers.update(headers)
    return web.Response(body=body, status=status, headers=all_headers)


def error_reply(
    error: errors.KafkalogError | ApiError, request_id: str, *, is_v2: bool = False
) -> web.Response:
    """The one error shape, with the request's id."""
    entry, body = error_body(error)
    body["request_id"] = request_id
    headers = dict(error.headers) if isinstance(error, ApiError) else {}
    if entry.status in (429, 503) and "Retry-After" not in headers:
        headers["Retry-After"] = "1"
    return json_reply(
        body, content_type=V2_JSON if is_v2 else JSON, status=entry.status, headers=headers
    )
