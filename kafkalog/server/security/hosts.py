"""The hosts by which a request may name this daemon: protection against DNS rebinding.

A page whose own name resolves to this address has the same origin for its browser, which lets it
read every answer; only the name in ``Host`` differs. Without authentication only names are accepted
that nobody can register: addresses, names outside the public DNS, names of this machine, and
``http.allowed.hosts``. Owned by the event loop.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import hdrs
from yarl import URL

from kafkalog.server.protocol.origin import HOST
from kafkalog.server.security.authenticators import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from kafkalog.settings import ServerConfig

ALLOWED, MALFORMED, FOREIGN = 0, 40000, 421
"""The result of a check: no fault, or a number of the register."""

# Not in the public DNS: RFC 6761, RFC 6762, ICANN's resolution 2024.07.29.06, and Kubernetes'
# short form of svc.cluster.local, which is under the second.
_PRIVATE = (".localhost", ".local", ".internal", ".svc")
_PORT = re.compile(r":[0-9]*$")
_NAME = re.compile(r"[a-z0-9_~-]+(\.[a-z0-9_~-]+)*")
_KNOWN = 1024
_HOSTS_FILE = Path("/etc/hosts")


class Hosts:
    """See the module."""

    def __init__(self, names: Iterable[str], suffixes: Iterable[str], *, is_open: bool) -> None:
        """Names and suffixes, which begin with a dot, in lower case; ``is_open``: any is taken."""
        # constant after construction
        self._names = frozenset(names)
        self._suffixes = (*_PRIVATE, *suffixes)
        self._is_open = is_open
        self._fault_of = functools.lru_cache(maxsize=_KNOWN)(self._find_fault)

    @classmethod
    def of(cls, config: ServerConfig) -> Hosts:
        """By the configuration and the machine. Blocks on a local file."""
        allowed = [entry.lower() for entry in config.http_allowed_hosts]
        listening = (config.http_host, config.admin_host, config.metrics_host)
        asks_nobody = NONE in (config.http_auth or (NONE,))
        return cls(
            {*with_short_forms(machine_names()), *map(str.lower, listening), *allowed},
            [entry.removeprefix("*") for entry in allowed if entry.startswith(("*.", "."))],
            is_open="*" in allowed or not (allowed or asks_nobody),
        )

    def fault_of(self, request: web.Request) -> int:
        """ALLOWED, MALFORMED or FOREIGN: the host that the request is for.

        That of an absolute request target overrides the header's (RFC 9112, 3.2.2). What a proxy
        forwards for its clients is not checked: the names of a proxy are its own.
        """
        host = request.headers.get(hdrs.HOST)
        fault = ALLOWED if host is None else self.fault_of_name(host)  # HTTP/1.0 may leave it out
        if request.raw_path[:1] != "/" and "://" in request.raw_path and fault != MALFORMED:
            named = URL(request.raw_path, encoded=True).host_subcomponent
            return fault if named is None else self.fault_of_name(named)
        return fault

    def fault_of_name(self, host: str) -> int:
        """ALLOWED, MALFORMED or FOREIGN: a host as the header names it."""
        return self._fault_of(host)

    def _find_fault(self, host: str) -> int:
        if not HOST.fullmatch(host):
            return MALFORMED
        return ALLOWED if self._is_open or self._is_ours(_PORT.sub("", host)) else FOREIGN

    def _is_ours(self, host: str) -> bool:
        name = host.lower().removesuffix(".")  # of the DNS's root
        if name in self._names or not name or _is_address(name):
            return True
        if not _NAME.fullmatch(name):
            return False
        return "." not in name or name.endswith(self._suffixes)


def with_short_forms(names: Iterable[str]) -> set[str]:
    """The names, and what a resolver's search list makes of private ones.

    ``pod.service.namespace.svc.cluster.local`` is also ``pod.service`` in its namespace.
    """
    found = set(names)
    for name in names:
        if name.endswith(_PRIVATE):
            labels = name.split(".")
            found.update(".".join(labels[:count]) for count in range(1, len(labels)))
    return found


def _is_address(name: str) -> bool:
    """Whether it is an IPv4 address, or one of IPv6 in brackets."""
    try:
        if name.startswith("["):
            return name.endswith("]") and bool(ipaddress.IPv6Address(name[1:-1]))
        return bool(ipaddress.IPv4Address(name))
    except ValueError:
        return False


def machine_names() -> frozenset[str]:
    """In lower case. Blocks on a local file; asks no DNS, which others may answer."""
    text = ""
    with contextlib.suppress(OSError):  # a machine without the file has its host name alone
        text = _HOSTS_FILE.read_text(encoding="utf-8", errors="replace")
    return names_beside(socket.gethostname(), text)


def names_beside(host_name: str, hosts_text: str) -> frozenset[str]:
    """The host name, and the names of the lines of a hosts file (hosts(5)) that have it."""
    own = host_name.lower()
    names = {own}
    for line in hosts_text.lower().splitlines():
        _, *found = line.partition("#")[0].split() or ("",)
        if own in found:
            names.update(found)
    return frozenset(filter(None, names))
