"""Goal: an answer from a file is sent whole and in order, however little the socket takes.
Method: a socket that is a file and takes as much as the test says; a span of a real file.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hypothesis import given, settings, strategies as st

from kafkalog.env.system_filesystem import SystemFile
from kafkalog.log.values import FetchSpan
from kafkalog.server.fast_path.fetch import Sending, SendState

if TYPE_CHECKING:
    import socket
    from io import FileIO

    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.server.api import Api

HEAD, BODY = b"H" * 430, bytes(range(250)) * 40


class Narrow:
    """Takes so many bytes of each call of ``send``, 0 being none now; then everything."""

    def __init__(self, file: FileIO, takes: list[int]) -> None:
        self._file = file
        self._takes = takes

    def send(self, data: bytes, flags: int = 0) -> int:
        most = self._takes.pop(0) if self._takes else len(data)
        if not most:
            raise BlockingIOError
        assert flags >= 0
        return self._file.write(data[:most])

    def fileno(self) -> int:
        return self._file.fileno()

    def taken(self) -> bytes:
        return os.pread(self.fileno(), 1 << 20, 0)


@settings(deadline=None)
@given(st.lists(st.integers(0, 430), max_size=8))
def test_a_head_that_is_taken_in_parts_is_sent_whole(takes: list[int]) -> None:
    """Only behind it comes the body, and only behind that is it done."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "body"
        path.write_bytes(BODY)
        descriptor = os.open(path, os.O_RDONLY)
        file = SystemFile(descriptor, str(path), is_writable=False)
        span = FetchSpan(file, descriptor, 0, len(BODY), 0, 1, 1, 0)
        # Api and log are for what has left the page cache.
        sending = Sending(cast("Api", None), cast("UnifiedLog", None), span, HEAD)
        state = SendState.SOCKET_FULL
        with (Path(name) / "sent").open("w+b", buffering=0) as sent:
            narrow = Narrow(sent, takes)
            while state is SendState.SOCKET_FULL:
                assert narrow.taken() != HEAD + BODY
                assert (HEAD + BODY).startswith(narrow.taken())
                state = sending.send(cast("socket.socket", narrow))
            assert narrow.taken() == HEAD + BODY
        assert state is SendState.WHOLE
