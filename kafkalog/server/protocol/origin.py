"""The scheme and host of links in answers.

Behind a proxy that ``http.trusted.proxies`` names, they are those of its Forwarded or X-Forwarded-*
headers, otherwise that of the Host header.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import TYPE_CHECKING

from aiohttp import hdrs

from kafkalog.server.api import api_of

if TYPE_CHECKING:
    from aiohttp import web

HOST = re.compile(r"[A-Za-z0-9._~:%\[\]-]{0,260}")
"""The syntax of a Host header."""

_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)+")
_SCHEMES = ("http", "https")


def origin_of(request: web.Request) -> str:
    """``scheme://host``, without a slash at the end."""
    config = api_of(request).config
    # HTTP/1.0 may leave it open; aiohttp would then ask the DNS.
    scheme, host = (
        request.scheme,
        request.headers.get("Host") or f"{config.http_host}:{config.http_port}",
    )
    if is_from_trusted_proxy(request):
        forwarded = _forwarded(request)
        scheme = forwarded.get("proto", "").lower() or scheme
        named = forwarded.get("host", "")
        if named and HOST.fullmatch(named):
            host = named
    return f"{scheme if scheme in _SCHEMES else 'http'}://{host}"


def path_of(request: web.Request) -> str:
    """The request's path as the client sent it.

    A trusted proxy's X-Forwarded-Path is all of it, as the Bridge takes it, or what the proxy took
    away in front.
    """
    own = request.rel_url.raw_path.rstrip("/")
    path = request.headers.get("X-Forwarded-Path", "").rstrip("/")
    if not _PATH.fullmatch(path) or not is_from_trusted_proxy(request):
        return own
    return path if path.endswith(own) else path + own


def is_of_other_page(request: web.Request) -> bool:
    """Whether a browser says that a page of another origin than this one sent the request.

    A browser sends credentials that it knows, and its own access to this network, along with what
    any page asks for; a form or a text needs no preflight. A request with neither Sec-Fetch-Site
    nor Origin is no browser's: programs are where they are by their own right.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = request.headers.get(hdrs.ORIGIN)
    return origin is not None and origin != origin_of(request)


def is_marked(request: web.Request) -> bool:
    """Whether a browser says that a page sent the request, be it this origin's own."""
    return "Sec-Fetch-Site" in request.headers or hdrs.ORIGIN in request.headers


def is_from_trusted_proxy(request: web.Request) -> bool:
    """Whether the other end of the connection is in ``http.trusted.proxies``."""
    networks = _networks(api_of(request).config.http_trusted_proxies)
    if not networks or request.remote is None:
        return False
    address = ipaddress.ip_address(request.remote)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped  # a listener of both kinds shows it so
    return any(address in network for network in networks)


def _forwarded(request: web.Request) -> dict[str, str]:
    """``proto`` and ``host`` of the first hop, by RFC 7239 or its predecessors."""
    standard = request.headers.get("Forwarded")
    if standard is not None:
        pairs = (pair.partition("=") for pair in standard.split(",")[0].split(";"))
        return {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
    return {
        name: request.headers.get(f"X-Forwarded-{name}", "").split(",")[0].strip()
        for name in ("proto", "host")
    }


@functools.lru_cache(maxsize=8)
def _networks(
    proxies: tuple[str, ...],
) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(ipaddress.ip_network(each, strict=False) for each in proxies)
