"""Heads of requests that the fast path knows: a head is recognised by its bytes alone.

aiohttp's parser reads a head when it comes for the first time. If it asks for something common in a
common way, its bytes are remembered without the one number that changes from request to request:
the length of the body, or the offset of a fetch. A later head with the same bytes around another
number asks for the same. So there is no second parser here that could understand a request
otherwise than the first. Owned by the event loop.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aiohttp import HttpVersion11, hdrs

from kafkalog.format.topic_names import topic_name_fault
from kafkalog.server.fetch.fetch import MAX_BYTES, MAX_WAIT_MS, MIN_BYTES, OFFSET
from kafkalog.server.protocol.media_types import OCTET_STREAM, RECORD_BATCHES, bare_type
from kafkalog.server.protocol.parameters import ACKS, ISOLATION, partition_number
from kafkalog.server.security.hosts import ALLOWED

if TYPE_CHECKING:
    from aiohttp.http import RawRequestMessage

    from kafkalog.broker.operations import Acks
    from kafkalog.server.security.authenticators import Authenticators
    from kafkalog.server.security.hosts import Hosts

# The parser of the daemon may be more lenient (llhttp takes a line feed before a request).
_PLAIN = re.compile(rb"(?:GET|POST) [!-~]+ HTTP/1\.1\r\n(?:[A-Za-z-]+:[ -~]*\r\n)+\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length: ?([0-9]{1,9})\r\n", re.IGNORECASE)
_OFFSET = re.compile(rb"GET /[^ ?]*\?(?:[a-z_]+=[0-9a-z_]+&)*offset=([0-9]{1,18})[& ]")
_LENGTH_DIGITS, _OFFSET_DIGITS = re.compile(rb"[0-9]{0,9}"), re.compile(rb"[0-9]{0,18}")
_APPEND = re.compile(
    r"/v1/topics/([A-Za-z0-9._-]+)/partitions/([0-9]+)/batches(?:\?acks=(all|-1|1))?"
)
_FETCH = re.compile(
    r"/v1/topics/([A-Za-z0-9._-]+)/partitions/([0-9]+)/batches"
    r"\?([a-z_]+=(?:[0-9]{1,18}|read_uncommitted)(?:&[a-z_]+=(?:[0-9]{1,18}|read_uncommitted))*)"
)
# What these say is looked at here, or means nothing to the routes of the fast path.
_COMMON_HEADERS = frozenset(
    (
        *(hdrs.HOST, hdrs.USER_AGENT, hdrs.ACCEPT, hdrs.ACCEPT_ENCODING),
        *(hdrs.CONTENT_TYPE, hdrs.CONTENT_LENGTH, hdrs.CONNECTION, hdrs.AUTHORIZATION),
    )
)
_BODY_TYPES = frozenset((RECORD_BATCHES, OCTET_STREAM))
_BOUNDS = (MAX_BYTES, MIN_BYTES, MAX_WAIT_MS)
_QUERY = frozenset(each.name for each in (OFFSET, *_BOUNDS))
# Of all heads of a kind that are remembered, beyond which all are dropped; of the longest; and of
# what stands beside each. A usual one has 250 bytes: there is room for those of 16,000 partitions.
_HEADS_BYTES = 8 << 20
_HEAD_BYTES = 2048
_MEANING_BYTES = 250
Meaning = TypeVar("Meaning")
# No head has it, so the place of the number is a part of what is compared.
_NUMBER = b"\0"


class AskedAppend(NamedTuple):
    """What a head asks for; ``mark``: of its credentials; ``acks`` None: the topic's default."""

    topic: str
    partition: int
    mark: bytes | None
    acks: Acks | None


class AskedFetch(NamedTuple):
    """What a head asks for, from the offset on that is its number."""

    topic: str
    partition: int
    mark: bytes | None
    max_bytes: int
    min_bytes: int
    max_wait_ms: int


class _Remembered(dict[bytes, Meaning]):
    """By head, and bounded by the bytes of all of them."""

    def __init__(self) -> None:
        super().__init__()
        self._size_bytes = 0

    def keep(self, head: bytes, meaning: Meaning) -> None:
        """It may be known already."""
        if head not in self:
            size_bytes = len(head) + _MEANING_BYTES
            self._size_bytes += size_bytes
            if self._size_bytes > _HEADS_BYTES:
                self.clear()
                self._size_bytes = size_bytes
        self[head] = meaning


class KnownHeads:
    """See the module."""

    def __init__(self, hosts: Hosts, authenticators: Authenticators | None) -> None:
        """With authenticators a head is kept as a digest only: it may hold a password."""
        self._hosts = hosts
        self._authenticators = authenticators
        self._known: _Remembered[AskedAppend | AskedFetch] = _Remembered()
        # Appends with bodies of one length have equal heads.
        self._appends: _Remembered[tuple[AskedAppend, int]] = _Remembered()

    def find(self, head: bytes) -> tuple[AskedAppend | AskedFetch, int] | None:
        """What a whole head asks for, and its number; None: it is not known."""
        known = self._appends.get(head)
        if known is not None:
            return known
        found = _number_in(head)
        if found is None:
            return None
        asked = self._known.get(self._key_of(head, found))
        if asked is None:
            return None
        number = int(found[1])
        if isinstance(asked, AskedFetch):
            return asked, number
        if self._authenticators is None:
            self._appends.keep(head, (asked, number))
        return asked, number

    def _key_of(self, head: bytes, found: re.Match[bytes]) -> bytes:
        start, end = found.span(1)
        key = head[:start] + _NUMBER + head[end:]
        return key if self._authenticators is None else self._authenticators.digest_of(key)

    @staticmethod
    def is_beginning(piece: bytes, head: bytes) -> bool:
        """Whether the piece is the beginning of a head like this known one."""
        found = _number_in(head)
        assert found is not None
        start, end = found.span(1)
        if len(piece) <= start:
            return head.startswith(piece)
        digits = _OFFSET_DIGITS if head.startswith(b"GET ") else _LENGTH_DIGITS
        rest = digits.sub(b"", piece[start:], count=1)
        return piece.startswith(head[:start]) and head[end:].startswith(rest)

    def learn(self, head: bytes, message: RawRequestMessage) -> None:
        """Remember the head of a request that was parsed, if it is of the common shape."""
        found = _number_in(head)
        if found is None or len(head) > _HEAD_BYTES:
            return
        header, mark = message.headers.get(hdrs.AUTHORIZATION), None
        if header is not None and self._authenticators is not None:
            mark = self._authenticators.mark_of(header)
        read = _append_by if message.method == hdrs.METH_POST else _fetch_by
        asked = read(message, mark)
        if asked is None or topic_name_fault(asked.topic) is not None:
            return
        if not self._is_common(message) or not _PLAIN.fullmatch(head):
            return
        self._known.keep(self._key_of(head, found), asked)

    def _is_common(self, message: RawRequestMessage) -> bool:
        """Whether nothing but method, path and type of the body decides what is done."""
        headers = message.headers
        names = {name.title() for name in headers}
        host = headers.get(hdrs.HOST)
        return (
            message.version == HttpVersion11
            and not (message.should_close or message.upgrade or message.chunked)
            and len(names) == len(headers)
            and names <= _COMMON_HEADERS
            and headers.get(hdrs.CONNECTION, "keep-alive").lower() == "keep-alive"
            and host is not None
            and self._hosts.fault_of_name(host) == ALLOWED
        )


def _number_in(head: bytes) -> re.Match[bytes] | None:
    """Its number: the offset of a GET, the length of another's body."""
    return _OFFSET.match(head) if head.startswith(b"GET ") else _LENGTH.search(head)


def _append_by(message: RawRequestMessage, mark: bytes | None) -> AskedAppend | None:
    path = _APPEND.fullmatch(message.path)
    if path is None or bare_type(message.headers.get(hdrs.CONTENT_TYPE, "")) not in _BODY_TYPES:
        return None
    partition = partition_number(path[2])
    if partition is None:
        return None
    acks = None if path[3] is None else ACKS.choices[path[3]]
    return AskedAppend(path[1], partition, mark, acks)


def _fetch_by(message: RawRequestMessage, mark: bytes | None) -> AskedFetch | None:
    path = _FETCH.fullmatch(message.path)
    if path is None or message.method != hdrs.METH_GET or hdrs.CONTENT_LENGTH in message.headers:
        return None
    partition = partition_number(path[2])
    pairs = [pair.partition("=") for pair in path[3].split("&")]
    query = {name: value for name, _, value in pairs}
    isolation = query.pop(ISOLATION.name, "read_uncommitted")
    is_usual = len(query) + (ISOLATION.name in path[3]) == len(pairs) and not isolation.isdigit()
    if partition is None or not is_usual or not query.keys() <= _QUERY:
        return None
    if not all(map(str.isdigit, query.values())):
        return None
    max_bytes, min_bytes, max_wait_ms = (
        int(query.get(each.name, each.default or 0)) for each in _BOUNDS
    )
    return AskedFetch(path[1], partition, mark, max_bytes, min_bytes, max_wait_ms)
