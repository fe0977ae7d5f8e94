"""Audit lines: one for each request that was denied or that administers or destroys something.

They go to the logger ``audit`` as the other log lines do, whatever ``log.level`` is: who, from
where, what, and how it ended. What an endpoint does is what it promises (``endpoint.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from kafkalog.observe.logging import AUDIT
from kafkalog.server.api import PRINCIPAL
from kafkalog.server.endpoint import ADMINISTRATIVE, endpoint_of
from kafkalog.server.replies import REQUEST_ID

if TYPE_CHECKING:
    from aiohttp import web

_log = structlog.get_logger(AUDIT)
_DENIALS = (401, 403)
_PATH_CHARS = 300


def audit(request: web.Request, status: int, error: Exception | None) -> None:
    """Write the line of an answered request, if it gets one; no body or credentials are in it."""
    promise = endpoint_of(request.match_info.handler)
    access = promise.access if promise is not None else None
    is_denied = status in _DENIALS
    if not is_denied and (access is None or access.action not in ADMINISTRATIVE):
        return
    _log.info(
        "Denied" if is_denied else "Administered",
        principal=request.get(PRINCIPAL, ""),
        address=request.remote or "",
        operation=promise.operation_id if promise is not None else "",
        method=request.method,
        path=request.path[:_PATH_CHARS],
        status=status,
        reason=getattr(error, "message", "") if error is not None else "",
        request_id=request[REQUEST_ID],
    )
