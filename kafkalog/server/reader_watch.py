"""ReaderWatch: ends a connection whose client takes nothing of its answer for too long.

What was taken is what the client's kernel has acknowledged (``tcpi_bytes_acked`` of Linux's
TCP_INFO): our own buffer stands still while megabytes of the kernel's drain, so it would have a
slow reader look like a dead one. A reader at 1 KB/s with the buffers that Linux gives it is heard
of every 66 s on the loopback device, every few seconds elsewhere. Owned by the event loop.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

# Looks a stall: a reader is cut at most this share of the time too late.
_LOOKS = 4
# struct tcp_info of linux/tcp.h: since 4.1 it has the field.
_BYTES_ACKED = struct.Struct("=Q")
_BYTES_ACKED_AT = 120
_TCP_INFO_BYTES = _BYTES_ACKED_AT + _BYTES_ACKED.size


class ReaderWatch:
    """See the module. ``begin`` while there is something to take, ``end`` once there is not."""

    __slots__ = (
        "_cut",
        "_loop",
        "_since",
        "_stall_seconds",
        "_taken_before",
        "_taken_bytes",
        "_timer",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        taken_bytes: Callable[[], int],
        stall_seconds: float,
        cut: Callable[[], None],
    ) -> None:
        """``taken_bytes`` only grows; ``cut`` is called once it has not for ``stall_seconds``."""
        self._loop = loop
        self._taken_bytes = taken_bytes
        self._stall_seconds = stall_seconds
        self._cut = cut
        self._timer: asyncio.TimerHandle | None = None
        self._taken_before = 0
        self._since = 0.0

    def begin(self) -> None:
        """From now on the client has to take something."""
        self.end()
        self._taken_before, self._since = self._taken_bytes(), self._loop.time()
        self._look_later()

    def end(self) -> None:
        """It has taken everything, or is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(self._stall_seconds / _LOOKS, self._look)

    def _look(self) -> None:
        self._timer = None
        taken, now = self._taken_bytes(), self._loop.time()
        if taken != self._taken_before:
            self._taken_before, self._since = taken, now
        elif now - self._since >= self._stall_seconds:
            self._cut()
            return
        self._look_later()


def taken_bytes(transport: asyncio.Transport) -> int:
    """How much the peer has acknowledged; where no kernel tells, how much ours has taken."""
    found: socket.socket | None = transport.get_extra_info("socket")
    if found is not None and hasattr(socket, "TCP_INFO"):
        info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        if len(info) == _TCP_INFO_BYTES:
            return int(_BYTES_ACKED.unpack_from(info, _BYTES_ACKED_AT)[0])
    return -transport.get_write_buffer_size()
