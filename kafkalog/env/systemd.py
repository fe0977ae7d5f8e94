"""ServiceManager: notifies systemd, or a compatible service manager, of this process's state.

One datagram of ``NAME=value`` lines to the socket that the environment names (sd_notify(3)); does
nothing without one. Never blocks: a datagram that does not fit into the receiver's queue is lost
and repeated in the next period. Owned by the event loop.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_USEC_PER_SECOND = 1_000_000
_NS_PER_USEC = 1_000


class ServiceManager:
    """See the module."""

    def __init__(self, address: str | None, watchdog_seconds: float | None) -> None:
        """address: of the socket; None: no service manager. watchdog_seconds: None: no watchdog."""
        # constant after construction
        if address is not None and address.startswith("@"):
            # In the abstract name space, whose names begin with a zero byte.
            address = f"\0{address[1:]}"
        self._address = address
        self._socket: socket.socket | None = None
        self.watchdog_seconds = watchdog_seconds
        if address is not None:
            kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            self._socket = socket.socket(socket.AF_UNIX, kind)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ServiceManager:
        """The one that started this process, by NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.

        Ignores an address of another family than AF_UNIX, which systemd gives to virtual machines,
        and the watchdog of another process.
        """
        address = environment.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            return cls(None, None)
        watchdog = environment.get("WATCHDOG_USEC", "")
        is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        seconds = int(watchdog) / _USEC_PER_SECOND if watchdog.isdecimal() and is_ours else None
        return cls(address, seconds or None)

    @property
    def is_there(self) -> bool:
        """Whether there is a service manager."""
        return self._socket is not None

    def notify(self, **states: str) -> None:
        """Send ``NAME=value`` for each; OSError when the receiver is gone or full."""
        if self._socket is None:
            return
        assert not any("\n" in value for value in states.values())
        text = "\n".join(f"{name}={value}" for name, value in states.items())
        assert self._address is not None
        self._socket.sendto(text.encode(), self._address)

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def usec(seconds: float) -> str:
    """As the protocol counts time."""
    return str(round(seconds * _USEC_PER_SECOND))


def monotonic_usec() -> str:
    """Now, as a reload is stamped."""
    return str(time.monotonic_ns() // _NS_PER_USEC)
