"""aiohttp's HTTP parser in Python, made as strict as the one in C.

It is used with ``AIOHTTP_NO_EXTENSIONS`` and on platforms without wheels. Where the two differ it
does as llhttp, so that a daemon behind a proxy reads a request in one way only.

This relies on aiohttp's http_parser, checked against 3.14: ``_payload_parser`` is the current body,
its ``_type`` says how it ends, ``_chunk`` which part of a chunk follows, ``_chunk_tail`` is a line
without its end, and ``_chunk_size`` the rest of a chunk. Owned by the event loop.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aiohttp.http_exceptions import BadHttpMessage, BadHttpMethod, TransferEncodingError
from aiohttp.http_parser import ChunkState, HttpRequestParserPy, ParseState

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.http_parser import RawRequestMessage

# The line of a chunk's size, or how it begins: a size of 64 bits, an extension, half a line end.
_SIZE_LINE = re.compile(rb"0*[0-9A-Fa-f]{1,16}(?:;[^\0\n\r]*)?\r?")
_SIZE_END = 1 << 64


class PureRequestParser(HttpRequestParserPy):
    """See the module."""

    def parse_message(self, lines: list[bytes]) -> RawRequestMessage:
        """Refuse a method in small letters, which aiohttp would raise."""
        method, _, _ = lines[0].partition(b" ")
        if method != method.upper():
            raise BadHttpMethod(method.decode("latin-1"))
        return super().parse_message(lines)

    def _is_chunked_te(self, te: str) -> bool:
        """Refuse what is not chunked alone: aiohttp looks at the last coding of a list."""
        if te.strip(" \t").lower() != "chunked":
            raise BadHttpMessage("Transfer-Encoding is not chunked alone")
        return super()._is_chunked_te(te)

    def feed_data(
        self, data: bytes, *args: object, **kwargs: object
    ) -> tuple[list[tuple[RawRequestMessage, StreamReader]], bool, bytes]:
        """Refuse at once what can become no size of a chunk, and one of more than 64 bits."""
        fed = super().feed_data(data, *args, **kwargs)  # type: ignore[arg-type] # unchanged
        body = self._payload_parser
        if body is None or body._type is not ParseState.PARSE_CHUNKED:
            return fed
        is_size = body._chunk is ChunkState.PARSE_CHUNKED_SIZE and body._chunk_tail
        if is_size and not _SIZE_LINE.fullmatch(body._chunk_tail):
            raise TransferEncodingError("no size of a chunk")
        # The part of the chunk in the same piece is subtracted already.
        if body._chunk_size + len(data) > _SIZE_END:
            raise TransferEncodingError("a chunk of more than 64 bits")
        return fed
