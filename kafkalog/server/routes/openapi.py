"""``GET /openapi.json`` and ``.yaml``: the API describes itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.server.endpoint import OPEN, Answer, endpoint
from kafkalog.server.media_types import JSON
from kafkalog.server.replies import bytes_reply

if TYPE_CHECKING:
    from collections.abc import Callable

# Makes the document at the first request: few ask for it.
DESCRIPTION: web.AppKey[Callable[[], bytes]] = web.AppKey("description")

ROUTES = web.RouteTableDef()
_YAML = "application/yaml"


@ROUTES.get("/openapi.json")
@ROUTES.get("/openapi")
@ROUTES.get("/openapi/v3")
@endpoint(
    "openapi",
    "description",
    OPEN,
    {200: Answer("OpenAPI 3.1.", {JSON: {"type": "object"}})},
)
async def openapi(request: web.Request) -> web.Response:
    """The API's own description."""
    return bytes_reply(request.app[DESCRIPTION](), content_type=JSON)


@ROUTES.get("/openapi.yaml")
@endpoint(
    "openapiYaml",
    "description",
    OPEN,
    {200: Answer("OpenAPI 3.1.", {_YAML: {"type": "object"}})},
)
async def openapi_yaml(request: web.Request) -> web.Response:
    """The same for tools that ask for YAML: every JSON text is one (YAML 1.2)."""
    return bytes_reply(request.app[DESCRIPTION](), content_type=_YAML)
