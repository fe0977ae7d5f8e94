"""Raw appends of the fast path: begun where it is certain that they are accepted.

What ``server/produce/batches.py`` would refuse, or check in a pool, is not begun here. What the
log's writer refuses is answered here in the one shape of errors.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Protocol

from aiohttp.helpers import rfc822_formatted_time

from kafkalog.broker.directory.commands import AppendCommand
from kafkalog.broker.operations import Acks
from kafkalog.errors import NAMES_PATHS, KafkalogError
from kafkalog.format.records.record_batch import HEADER_BYTES, NO_PRODUCER_ID
from kafkalog.log.validator import is_small_and_usual
from kafkalog.server.produce.append import DURABILITIES
from kafkalog.server.produce.batches import answer_to, quick_records
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.replies import (
    CLOSING_STATUSES,
    add_standard_headers,
    encode_json,
    error_reply,
    serialized,
)

if TYPE_CHECKING:
    from aiohttp import web

    from kafkalog.broker.directory.commands import Command
    from kafkalog.log.values import LogAppendInfo
    from kafkalog.server.api import Api
    from kafkalog.server.fast_path.counts import Counts
    from kafkalog.server.fast_path.heads import AskedAppend

# As aiohttp writes the answer of the route.
_ANSWER = (
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nKafka-Durability: %s\r\n"
    "X-Content-Type-Options: nosniff\r\nServer: kafkalog\r\nX-Request-Id: %s\r\n"
    "Content-Length: %d\r\nDate: %s\r\n%s\r\n"
)
_CLOSING = "Connection: close\r\n"
# Of a batch's header: the greatest timestamp, the producer with epoch and sequence, the count.
_LAST_FIELDS, _LAST_FIELDS_AT = struct.Struct(">qq6si"), 35


class Asker(Protocol):
    """The connection that waits for an answer."""

    def next_request_id(self) -> str:
        """For an answer."""

    def note_ended(self, *, closes: bool) -> None:
        """A request in work has its result; ``closes``: its connection ends with it."""


class Append:
    """One append in work."""

    __slots__ = (
        "_acks",
        "_api",
        "_asked",
        "_asker",
        "_counts",
        "_info",
        "_names_paths",
        "_refusal",
        "_size_bytes",
        "_started",
        "has_ended",
    )

    def __init__(
        self,
        asker: Asker,
        api: Api,
        counts: Counts,
        asked: AskedAppend,
        acks: Acks,
        size_bytes: int,
        *,
        names_paths: bool,
    ) -> None:
        self._asker = asker
        self._api = api
        self._counts = counts
        self._names_paths = names_paths
        self._asked = asked
        self._acks = acks
        self._size_bytes = size_bytes
        self._started = time.perf_counter()
        self._info: LogAppendInfo | None = None
        self._refusal: web.Response | None = None
        self.has_ended = False

    def note_done(self, command: Command) -> None:
        """It was appended, or refused, or nobody knows."""
        written: LogAppendInfo | None = command.result  # type: ignore[assignment] # of an append
        if written is None:
            self._counts.note_append(self._asked.topic, 0, 0)
        else:
            size_bytes = written.size_bytes
            if written.duplicate:  # of it nothing is written, but Kafka counts it too
                assert isinstance(command, AppendCommand), "a small append has no producer"
                size_bytes = command.records.size_bytes
            self._counts.note_append(self._asked.topic, written.record_count, size_bytes)
        status = 200
        if command.error is None:
            self._info = written
        else:
            self._refusal = self._refused(command.error)
            status = self._refusal.status
        release(self._api, self._size_bytes)
        self._counts.note_append_ended(status, time.perf_counter() - self._started)
        self.has_ended = True
        self._asker.note_ended(closes=status in CLOSING_STATUSES)

    def _refused(self, error: KafkalogError) -> web.Response:
        request_id = self._asker.next_request_id()
        names_paths = NAMES_PATHS.set(self._names_paths)
        refusal = error_reply(error, request_id)
        NAMES_PATHS.reset(names_paths)
        add_standard_headers(refusal, request_id)
        return refusal

    def answer(self, *, closes: bool) -> bytes:
        """What is sent once it has ended; ``closes``: the connection ends behind it."""
        if self._refusal is not None:
            return serialized(self._refusal, closes=closes)
        assert self._info is not None
        asked = self._asked
        body = encode_json(answer_to(asked.topic, asked.partition, self._info))
        head = _ANSWER % (
            DURABILITIES[self._acks],
            self._asker.next_request_id(),
            len(body),
            rfc822_formatted_time(),
            _CLOSING if closes else "",
        )
        return head.encode() + body


def admit(api: Api, size_bytes: int, *, is_ahead: bool) -> bool:
    """Whether one request more is within the bounds, which count it from now until ``release``.

    ``is_ahead``: its client sent it before the last one was answered. Of these there may be as many
    as half of each bound takes: the ordinary way has one of a connection in work, so that a client
    that sends ahead takes nobody's place.
    """
    in_flight = api.in_flight
    if size_bytes > api.config.socket_request_max_bytes or not api.lets_in(is_ahead=is_ahead):
        return False
    if is_ahead and in_flight.used_bytes + size_bytes > in_flight.limit_bytes >> 1:
        return False
    try:
        in_flight.reserve(size_bytes)
    except ApiError:
        return False
    api.state.requests_in_work += 1
    return True


def release(api: Api, size_bytes: int) -> None:
    """Give back what ``admit`` counted."""
    api.in_flight.release(size_bytes)
    api.state.requests_in_work -= 1


def begin_append(
    asker: Asker,
    api: Api,
    counts: Counts,
    asked: AskedAppend,
    data: bytes | memoryview,
    *,
    names_paths: bool,
) -> Append | None:
    """Hand a body that was admitted to the log's writer.

    None, and nothing is changed: the ordinary way decides.
    """
    operations = api.operations
    try:
        log = operations.partition_log(asked.topic, asked.partition)
    except (KafkalogError, ApiError):
        return None
    acks = asked.acks or operations.default_acks(asked.topic)
    if acks is Acks.NONE:
        return None
    if len(data) > HEADER_BYTES:
        max_ms, producer_id, _, record_count = _LAST_FIELDS.unpack_from(data, _LAST_FIELDS_AT)
        has_no_producer = producer_id == NO_PRODUCER_ID
        if has_no_producer and is_small_and_usual(data, log.config, operations.now_ms()):
            append = Append(asker, api, counts, asked, acks, len(data), names_paths=names_paths)
            api.submit_small(log, data, record_count, max_ms, acks, append.note_done)
            return append
    try:
        records = quick_records(api, log, data)
    except (KafkalogError, ApiError):
        return None
    if records is None:
        return None
    append = Append(asker, api, counts, asked, acks, len(data), names_paths=names_paths)
    api.submit(log, records, acks, append.note_done)
    return append
