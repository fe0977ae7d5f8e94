"""Failed tries: how often an address may present wrong credentials before it has to wait.

A try counts when it begins, so that many at once are no way around; one that succeeds is given
back. The clock is the caller's. Owned by the event loop.
"""

from __future__ import annotations

import ipaddress
import math

_WINDOW_SECONDS = 60.0
# Addresses that are remembered: some hundred kilobytes; the oldest are forgotten first.
_ADDRESSES = 4096
_IPV6_SITE_BITS = 64  # one customer has that many addresses to himself


class FailedTries:
    """See the module. A window begins with an address's first failure."""

    def __init__(self, tries_per_minute: int) -> None:
        self._limit = tries_per_minute
        self._windows: dict[str, tuple[float, int]] = {}  # site -> (begin in s, tries)

    def begin(self, address: str, now_seconds: float) -> int:
        """Count a try; 0, or in how many seconds the next one is let in when they are used up."""
        site = _site_of(address)
        begin, tries = self._windows.get(site, (now_seconds, 0))
        if now_seconds - begin >= _WINDOW_SECONDS:
            begin, tries = now_seconds, 0
        if tries >= self._limit:
            return max(1, math.ceil(begin + _WINDOW_SECONDS - now_seconds))
        if site not in self._windows and len(self._windows) >= _ADDRESSES:
            del self._windows[next(iter(self._windows))]
        self._windows[site] = (begin, tries + 1)
        return 0

    def succeeded(self, address: str) -> None:
        """The try that was counted last was none."""
        site = _site_of(address)
        begin, tries = self._windows.get(site, (0.0, 0))
        if tries > 1:
            self._windows[site] = (begin, tries - 1)
        else:
            self._windows.pop(site, None)


def _site_of(address: str) -> str:
    """What counts as one address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address  # a socket of another kind
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), _IPV6_SITE_BITS), strict=False))
