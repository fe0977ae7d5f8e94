"""The names that this machine gives itself: its host name, and what /etc/hosts has beside it."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

_HOSTS = Path("/etc/hosts")


def machine_names() -> frozenset[str]:
    """In lower case. Blocks on a local file; asks no DNS, which others may answer."""
    text = ""
    with contextlib.suppress(OSError):  # a machine without the file has its host name alone
        text = _HOSTS.read_text(encoding="utf-8", errors="replace")
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
