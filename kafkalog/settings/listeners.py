"""``listeners=http://HOST:PORT``: what of Kafka's key means something to kafkalog.

Confluent's REST Proxy is configured by it, and a Kafka user looks for it. Addresses of Kafka's
protocol open nothing here. Pure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_HTTP_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_ADDRESS = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]*):([0-9]{1,5})/?", re.IGNORECASE)


class HttpListener(NamedTuple):
    """``host`` "" is every address; ``others`` are the addresses of other protocols."""

    is_tls: bool
    host: str
    port: str
    others: tuple[str, ...]


def http_listener(text: str) -> HttpListener | None:
    """The address for HTTP in a value of ``listeners``; None: there is none.

    ValueError says why there cannot be such an address.
    """
    entries = [entry for part in text.split(",") if (entry := part.strip())]
    ours = [entry for entry in entries if _HTTP_SCHEME.match(entry)]
    if not ours:
        return None
    if len(ours) > 1:
        raise ValueError(
            "names more than one address for HTTP: leave one, and set admin.port and metrics.port "
            "for those ports"
        )
    found = _ADDRESS.fullmatch(ours[0])
    if found is None:
        raise ValueError(f"{ours[0]} is not http://HOST:PORT")
    scheme, host, port = found.groups()
    others = tuple(entry for entry in entries if entry != ours[0])
    host = "" if host == "*" else host.strip("[]")
    return HttpListener(scheme.lower() == "https", host, port, others)
