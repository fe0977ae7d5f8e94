"""Rate limits: requests and bytes per second of a principal, as token buckets.

A bucket holds one second's worth. A request is charged before it is served; its bytes and those of
the answer when it is answered, so a bucket may be overdrawn, and the next request waits. A stream
waits for its own debt while it runs. Anonymous clients are counted by address. A refused request
costs nothing. Owned by the event loop.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.replies import PRINCIPAL
from kafkalog.server.security.authenticators import ANONYMOUS

if TYPE_CHECKING:
    from kafkalog.settings import ServerConfig

_PAID_BYTES = web.RequestKey("paid_bytes", int)
# Principals that are remembered; one that is forgotten begins with a full bucket.
_REMEMBERED = 4096


class TokenBuckets:
    """One limit for each of many names. The clock is the caller's; 0 a second: no limit."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._buckets: dict[str, tuple[float, float]] = {}  # name -> (when in s, tokens then)

    def wait_seconds(self, name: str, now_seconds: float) -> int:
        """0 when there is a token left; else in how many seconds there will be one."""
        if not self._per_second:
            return 0
        tokens = self._tokens(name, now_seconds)
        if tokens > 0:
            return 0
        return max(1, math.ceil(-tokens / self._per_second))

    def spend(self, name: str, count: float, now_seconds: float) -> None:
        """Take count, also more than there is."""
        if not self._per_second:
            return
        tokens = self._tokens(name, now_seconds) - count
        if self._buckets.pop(name, None) is None and len(self._buckets) >= _REMEMBERED:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[name] = (now_seconds, tokens)  # last: the first is the longest unused

    def _tokens(self, name: str, now_seconds: float) -> float:
        """What the bucket holds now."""
        size = float(self._per_second)
        found = self._buckets.get(name)
        if found is None:
            return size
        then, tokens = found
        return min(size, tokens + (now_seconds - then) * size)


class RateLimits:
    """The limits of the configuration."""

    def __init__(self, config: ServerConfig) -> None:
        self._requests = TokenBuckets(config.http_max_requests_per_second)
        self._bytes = TokenBuckets(config.http_max_bytes_per_second)

    @staticmethod
    def of(config: ServerConfig) -> RateLimits | None:
        """None without a limit: then it costs nothing."""
        if config.http_max_requests_per_second or config.http_max_bytes_per_second:
            return RateLimits(config)
        return None

    def admit(self, request: web.Request) -> None:
        """Count a request; ApiError 42901 with Retry-After when its principal has to wait."""
        name, now_seconds = _name_of(request), time.monotonic()
        wait_seconds = max(
            self._requests.wait_seconds(name, now_seconds),
            self._bytes.wait_seconds(name, now_seconds),
        )
        if wait_seconds:
            raise ApiError(
                42901,
                "The rate is used up; nothing was done. Try again later.",
                headers={"Retry-After": str(wait_seconds)},
            )
        self._requests.spend(name, 1, now_seconds)

    def owed_seconds(self, request: web.Request) -> int:
        """How long a stream has to wait for what its body brought until now; 0: not at all."""
        name, now_seconds = _name_of(request), time.monotonic()
        total_bytes = request.content.total_bytes
        self._bytes.spend(name, total_bytes - request.get(_PAID_BYTES, 0), now_seconds)
        request[_PAID_BYTES] = total_bytes
        return self._bytes.wait_seconds(name, now_seconds)

    def answered(self, request: web.Request, response: web.StreamResponse) -> None:
        """Count the bytes of a body, as they came, and of its answer."""
        size_bytes = request.content.total_bytes - request.get(_PAID_BYTES, 0)
        body = response.body if isinstance(response, web.Response) else None
        if isinstance(body, (bytes, bytearray, memoryview)):
            size_bytes += len(body)
        else:  # a stream, which has ended
            size_bytes += response.body_length
        self._bytes.spend(_name_of(request), size_bytes, time.monotonic())


RATE_LIMITS = web.RequestKey("rate_limits", RateLimits)
"""What a request that streams is paced by; without limits it has none."""


def _name_of(request: web.Request) -> str:
    """Whose bucket it is; an address cannot be taken for a principal, which has no NUL."""
    principal: str | None = request.get(PRINCIPAL)
    if principal is None or principal == ANONYMOUS:
        return f"\0{request.remote or ''}"
    return principal
