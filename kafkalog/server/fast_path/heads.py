"""Heads of requests that the fast path knows: a head is recognised by its bytes alone.

aiohttp's parser reads a head when it comes for the first time. If it asks for something common in a
common way, its bytes are remembered without the one number that changes from request to request:
the length of the body. A later head with the same bytes around another number asks for the same. So
there is no second parser here that could understand a request otherwise than the first. Owned by
the event loop.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import HttpVersion11, hdrs

from kafkalog.format.topic_names import topic_name_fault
from kafkalog.server.protocol.media_types import OCTET_STREAM, RECORD_BATCHES, bare_type
from kafkalog.server.protocol.parameters import ACKS, partition_number
from kafkalog.server.security.hosts import ALLOWED

if TYPE_CHECKING:
    from aiohttp.http import RawRequestMessage

    from kafkalog.broker.operations import Acks
    from kafkalog.server.security.hosts import Hosts

_LENGTH = re.compile(rb"\r\ncontent-length: ?([0-9]{1,9})\r\n", re.IGNORECASE)
_APPEND = re.compile(
    r"/v1/topics/([A-Za-z0-9._-]+)/partitions/([0-9]+)/batches(?:\?acks=(all|-1|1))?"
)
# What these say is looked at here, or means nothing to the routes of the fast path.
_COMMON_HEADERS = frozenset(
    (
        *(hdrs.HOST, hdrs.USER_AGENT, hdrs.ACCEPT, hdrs.ACCEPT_ENCODING),
        *(hdrs.CONTENT_TYPE, hdrs.CONTENT_LENGTH, hdrs.CONNECTION),
    )
)
_BODY_TYPES = frozenset((RECORD_BATCHES, OCTET_STREAM))
# Heads that are remembered, and the longest: a megabyte. Beyond, all are dropped.
_HEADS = 2048
_HEAD_BYTES = 512
# No head has it, so the place of the number is a part of what is compared.
_NUMBER = b"\0"


class AskedAppend(NamedTuple):
    """What a head asks for; ``acks`` None: the topic's default."""

    topic: str
    partition: int
    acks: Acks | None


class KnownHeads:
    """See the module."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._known: dict[bytes, AskedAppend] = {}

    def find(self, head: bytes) -> tuple[AskedAppend, int] | None:
        """What a whole head asks for, and the length of the body that follows; None: not known."""
        found = _LENGTH.search(head)
        if found is None:
            return None
        start, end = found.span(1)
        asked = self._known.get(head[:start] + _NUMBER + head[end:])
        return None if asked is None else (asked, int(head[start:end]))

    @staticmethod
    def is_beginning(piece: bytes, head: bytes) -> bool:
        """Whether the piece is the beginning of a head like this known one."""
        found = _LENGTH.search(head)
        assert found is not None
        start, end = found.span(1)
        if len(piece) <= start:
            return head.startswith(piece)
        rest = piece[start:].lstrip(b"0123456789")
        return piece.startswith(head[:start]) and head[end:].startswith(rest)

    def learn(self, head: bytes, message: RawRequestMessage) -> None:
        """Remember the head of a request that was parsed, if it is of the common shape."""
        found = _LENGTH.search(head)
        if found is None or len(head) > _HEAD_BYTES:
            return
        asked = self._asked_by(message)
        if asked is None:
            return
        if len(self._known) >= _HEADS:
            self._known.clear()
        start, end = found.span(1)
        assert message.headers[hdrs.CONTENT_LENGTH].encode() == head[start:end]
        self._known[head[:start] + _NUMBER + head[end:]] = asked

    def _asked_by(self, message: RawRequestMessage) -> AskedAppend | None:
        headers = message.headers
        names = {name.title() for name in headers}
        if (
            message.method != hdrs.METH_POST
            or message.version != HttpVersion11
            or message.should_close
            or message.upgrade
            or message.chunked
            or len(names) != len(headers)
            or not names <= _COMMON_HEADERS
            or headers.get(hdrs.CONNECTION, "keep-alive").lower() != "keep-alive"
        ):
            return None
        path = _APPEND.fullmatch(message.path)
        if path is None or bare_type(headers.get(hdrs.CONTENT_TYPE, "")) not in _BODY_TYPES:
            return None
        host, partition = headers.get(hdrs.HOST), partition_number(path[2])
        if host is None or self._hosts.fault_of_name(host) != ALLOWED:
            return None
        if partition is None or topic_name_fault(path[1]) is not None:
            return None
        return AskedAppend(path[1], partition, None if path[3] is None else ACKS.choices[path[3]])
