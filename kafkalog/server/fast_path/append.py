"""Raw appends of the fast path: begun where it is certain that they are accepted.

What ``server/produce/batches.py`` would refuse, or check in a pool, is not begun here. What the
log's writer refuses is answered here in the one shape of errors.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import structlog
from aiohttp.helpers import rfc822_formatted_time

from kafkalog.broker.operations import Acks
from kafkalog.errors import KafkalogError
from kafkalog.server.produce.append import DURABILITIES
from kafkalog.server.produce.batches import answer_to, quick_records
from kafkalog.server.protocol.endpoint import PARTITION
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.replies import (
    add_standard_headers,
    encode_json,
    error_reply,
    serialized,
)

if TYPE_CHECKING:
    import asyncio

    from kafkalog.log.values import LogAppendInfo, ValidatedRecords
    from kafkalog.observe.metrics import Metrics
    from kafkalog.server.api import Api
    from kafkalog.server.fast_path.heads import AskedAppend

_log = structlog.get_logger("kafkalog.server")
_ROUTE = f"{PARTITION}/batches"
# As aiohttp writes the answer of the route.
_ANSWER = (
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nKafka-Durability: %s\r\n"
    "X-Content-Type-Options: nosniff\r\nServer: kafkalog\r\nX-Request-Id: %s\r\n"
    "Content-Length: %d\r\nDate: %s\r\n%s\r\n"
)
_CLOSING = "Connection: close\r\n"


class Asker(Protocol):
    """The connection that waits for an answer."""

    @property
    def is_finishing(self) -> bool:
        """Whether the daemon stops: an answer closes its connection."""

    def next_request_id(self) -> str:
        """For an answer."""

    def note_ended(self) -> None:
        """A request in work has its answer."""


class AppendCounts:
    """What the metrics are told of appends, once a turn of the loop: each figure has a lock."""

    def __init__(self, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        # constant after construction
        self._metrics = metrics
        self._loop = loop
        # owned by the event loop
        self._is_to_be_told = False
        self._begun: dict[str, tuple[int, int, int]] = {}  # records, bytes, requests by topic
        self._ended: dict[int, list[float]] = {}  # seconds by status

    def note_begun(self, topic: str, records: ValidatedRecords) -> None:
        """One was queued for a writer."""
        record_count, size_bytes, requests = self._begun.get(topic, (0, 0, 0))
        record_count += records.record_count
        self._begun[topic] = (record_count, size_bytes + records.size_bytes, requests + 1)
        self._tell_soon()

    def note_ended(self, status: int, seconds: float) -> None:
        """One was answered."""
        self._ended.setdefault(status, []).append(seconds)
        self._tell_soon()

    def _tell_soon(self) -> None:
        if not self._is_to_be_told:
            self._is_to_be_told = True
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._is_to_be_told = False
        for topic, (record_count, size_bytes, requests) in self._begun.items():
            self._metrics.traffic.observe_append(topic, record_count, size_bytes, requests)
        for status, seconds in self._ended.items():
            self._metrics.observe_http_many(_ROUTE, "POST", status, seconds)
        self._begun.clear()
        self._ended.clear()


class Append:
    """One append in work, an AppendOutcome; ``answer`` is empty until it has ended."""

    __slots__ = (
        "_acks",
        "_api",
        "_asked",
        "_asker",
        "_counts",
        "_size_bytes",
        "_started",
        "answer",
    )

    def __init__(
        self,
        asker: Asker,
        api: Api,
        counts: AppendCounts,
        asked: AskedAppend,
        acks: Acks,
        size_bytes: int,
    ) -> None:
        self._asker = asker
        self._api = api
        self._counts = counts
        self._asked = asked
        self._acks = acks
        self._size_bytes = size_bytes
        self._started = time.perf_counter()
        self.answer = b""

    def done(self) -> bool:
        """Whether nobody waits for the result: never, for the bounds are given back with it."""
        return False

    def set_result(self, info: LogAppendInfo) -> None:
        """It was appended."""
        asked = self._asked
        body = encode_json(answer_to(asked.topic, asked.partition, info))
        durability, request_id = DURABILITIES[self._acks], self._asker.next_request_id()
        closing = _CLOSING if self._asker.is_finishing else ""
        head = _ANSWER % (durability, request_id, len(body), rfc822_formatted_time(), closing)
        self._end(200, head.encode() + body)

    def set_exception(self, error: BaseException) -> None:
        """It was not, or nobody knows."""
        request_id = self._asker.next_request_id()
        if not isinstance(error, KafkalogError):
            _log.error("Unhandled error of an append", request_id=request_id, exc_info=error)
            error = ApiError(50000, "Internal error; quote the request id.")
        reply = error_reply(error, request_id)
        add_standard_headers(reply, request_id)
        self._end(reply.status, serialized(reply, closes=self._asker.is_finishing))

    def exception(self) -> None:
        """See AppendOutcome: the answer is made."""

    def _end(self, status: int, answer: bytes) -> None:
        api = self._api
        api.in_flight.release(self._size_bytes)
        api.state.requests_in_work -= 1
        self._counts.note_ended(status, time.perf_counter() - self._started)
        self.answer = answer
        self._asker.note_ended()


def begin_append(
    asker: Asker, api: Api, counts: AppendCounts, asked: AskedAppend, data: bytes | memoryview
) -> Append | None:
    """Hand the body to the log's writer; None, and nothing is changed: the ordinary way decides."""
    state, operations = api.state, api.operations
    if not api.is_open:
        return None
    try:
        log = operations.partition_log(asked.topic, asked.partition)
        records = quick_records(api, log, data)
        if records is None:
            return None
        acks = asked.acks or operations.default_acks(asked.topic)
        if acks is Acks.NONE:
            return None
        api.in_flight.reserve(len(data))
    except (KafkalogError, ApiError):
        return None
    state.requests_in_work += 1
    append = Append(asker, api, counts, asked, acks, len(data))
    api.append_to(append, log, records, acks)
    counts.note_begun(asked.topic, records)
    return append
