"""Fetches, offset look-ups and tails. They change nothing, so they are always retried.

TailState is a continuous read of a partition; `client.Tail` and `async_client.AsyncTail` use it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kafkalog.client.errors import (
    ClientError,
    OffsetAboveLogEnd,
    OffsetBelowLogStart,
    OffsetOutOfRange,
    Refused,
    document_of,
    entry_failure,
    position_of,
)
from kafkalog.client.messages import BATCHES, BINARY, Answer, Request, given, json_body, path_of
from kafkalog.client.records import (
    NO_OFFSET,
    ConsumerRecord,
    FetchedBatches,
    FetchedRecords,
    Isolation,
    Place,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.client.retry import Steps


MAX_BYTES = 1 << 20
_TIMESTAMP_OF = {"latest": -1, "earliest": -2, "max_timestamp": -3}


def fetch_batches(
    topic: str,
    partition: int,
    offset: int,
    *,
    max_bytes: int = MAX_BYTES,
    min_bytes: int = 1,
    max_wait_ms: int = 0,
    isolation: Isolation = "read_uncommitted",
) -> Steps[FetchedBatches]:
    """Raw batches from the one that holds ``offset`` on; at least one when there is one.

    max_bytes    of the answer; a single batch may be larger
    min_bytes    wait until there are as many bytes ...
    max_wait_ms  ... but no longer than this; then the answer may be empty

    With read_committed the answer ends before the first open transaction, without batches of
    aborted ones: it may be empty although the position moves. Raises OffsetBelowLogStart,
    OffsetAboveLogEnd and other ClientErrors.
    """
    answer = yield Request(
        "GET",
        path_of("v1", "topics", topic, "partitions", partition, "batches"),
        {
            "offset": offset,
            "max_bytes": max_bytes,
            "min_bytes": min_bytes,
            "max_wait_ms": max_wait_ms,
            "isolation": isolation,
        },
        accept=BATCHES,
        wait_seconds=max_wait_ms / 1000,
    )
    return FetchedBatches(answer.body, position_of(answer, offset))


def fetch(
    topic: str,
    partition: int,
    offset: int,
    *,
    max_bytes: int = MAX_BYTES,
    min_bytes: int = 1,
    max_wait_ms: int = 0,
    isolation: Isolation = "read_uncommitted",
) -> Steps[FetchedRecords]:
    """Records from ``offset`` on; parameters and errors as ``fetch_batches``.

    With read_committed there are no records of open and aborted transactions, and ``min_bytes`` is
    1: only the daemon knows which were aborted, so the daemon decodes the records.
    """
    if isolation == "read_committed":
        return (
            yield from fetch_page(
                topic,
                partition,
                offset,
                max_bytes=max_bytes,
                max_wait_ms=max_wait_ms,
                isolation=isolation,
            )
        )
    fetched = yield from fetch_batches(
        topic, partition, offset, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_ms=max_wait_ms
    )
    if not fetched.data:
        return FetchedRecords((), fetched.position)
    from kafkalog.client.batches import consumer_records  # late: its import takes long

    records = consumer_records(topic, partition, fetched.data, offset)
    return FetchedRecords(tuple(records), fetched.position)


def fetch_page(
    topic: str,
    partition: int,
    offset: int,
    *,
    max_bytes: int = MAX_BYTES,
    max_wait_ms: int = 0,
    isolation: Isolation | None = None,
) -> Steps[FetchedRecords]:
    """Records from ``offset`` on, decoded by the daemon: for short-lived programs.

    Slower per record than ``fetch``, but imports nothing. Errors as there.
    """
    query: dict[str, str | int] = given(
        offset=offset, max_bytes=max_bytes, timeout=max_wait_ms, isolation=isolation
    )
    try:
        answer = yield Request(
            "GET",
            path_of("topics", topic, "partitions", partition, "records"),
            query,
            accept=BINARY,
            wait_seconds=max_wait_ms / 1000,
        )
    except Refused as failure:
        if "log_start_offset" not in failure.details:
            raise
        raise _out_of_range(failure, offset) from failure
    return FetchedRecords(page_records(answer), position_of(answer, offset))


def _out_of_range(failure: Refused, offset: int) -> ClientError:
    """The error for 400/40002, with which this route, as REST proxies, answers such an offset."""
    bounds = failure.details
    kind = OffsetBelowLogStart if offset < bounds["log_start_offset"] else OffsetAboveLogEnd
    body = {
        "error_code": failure.error_code,
        "kafka_error": "OFFSET_OUT_OF_RANGE",
        "details": bounds,
        "request_id": failure.request_id,
    }
    return kind(failure.message, status=failure.status, body=body, nothing_was_done=True)


def page_records(answer: Answer) -> tuple[ConsumerRecord, ...]:
    """The records of an answer in v2's format binary."""
    return tuple(_page_record(entry) for entry in document_of(answer))


def _page_record(entry: dict[str, Any]) -> ConsumerRecord:
    return ConsumerRecord(
        entry["topic"],
        entry["partition"],
        entry["offset"],
        entry["timestamp"],
        _decoded(entry["key"]),
        _decoded(entry["value"]),
        tuple((each["key"], _decoded(each["value"])) for each in entry.get("headers") or ()),
    )


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


# ---- offsets


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """The result of a look-up; offset, timestamp and epoch are -1 when nothing was found."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    leader_epoch: int
    error: ClientError | None = None


def offset_range(topic: str, partition: int) -> Steps[tuple[int, int]]:
    """Log start offset and high watermark: the first record, and the end for readers.

    Raises UnknownTopic, UnknownPartition and other ClientErrors.
    """
    answer = yield Request("GET", path_of("topics", topic, "partitions", partition, "offsets"))
    found = document_of(answer, "beginning_offset", "end_offset")
    return found["beginning_offset"], found["end_offset"]


def offset_at(
    topic: str, partition: int, at: Place | int, *, isolation: Isolation = "read_uncommitted"
) -> Steps[OffsetAt]:
    """The offset at a named place, or of the first record at or after a time (ms since 1970).

    Raises UnknownTopic, UnknownPartition and other ClientErrors.
    """
    answer = yield Request(
        "GET",
        path_of("v1", "topics", topic, "partitions", partition, "offsets"),
        {"spec": at, "isolation": isolation},
    )
    return _found(document_of(answer, "topic", "partition"))


def list_offsets(
    partitions: Iterable[tuple[str, int]],
    at: Place | int,
    *,
    isolation: Isolation = "read_uncommitted",
) -> Steps[list[OffsetAt]]:
    """``offset_at`` of several (topic, partition) in one request, in their order.

    The failure of a partition is the ``error`` of its entry. Raises ClientError when all failed.
    """
    timestamp = _TIMESTAMP_OF[at] if isinstance(at, str) else at
    wanted = [
        {"topic": topic, "partition": number, "timestamp": timestamp}
        for topic, number in partitions
    ]
    answer = yield Request(
        "POST", "/v1/offsets:list", {"isolation": isolation}, json_body({"partitions": wanted})
    )
    return [_found(entry) for entry in document_of(answer, "partitions")["partitions"]]


def _found(entry: dict[str, Any]) -> OffsetAt:
    return OffsetAt(
        entry["topic"],
        entry["partition"],
        entry.get("offset", NO_OFFSET),
        entry.get("timestamp", NO_OFFSET),
        entry.get("leader_epoch", NO_OFFSET),
        entry_failure(entry),
    )


OutOfRange = Literal["error", "earliest", "latest"]


@dataclass(slots=True)
class TailState:
    """One reader of one partition.

    start            an offset, or earliest or latest at the time of the first fetch
    on_out_of_range  when the position is not in the log any more (retention, delete-records, a
                     recreated topic): raise OffsetOutOfRange, or continue at its start or end
    is_endless       False: end at the end of the partition
    max_wait_ms      how long one fetch waits for records; it delays no record
    """

    topic: str
    partition: int
    start: int | Literal["earliest", "latest"]
    on_out_of_range: OutOfRange
    is_endless: bool
    max_wait_ms: int
    max_bytes: int = MAX_BYTES
    isolation: Isolation = "read_uncommitted"
    position: int | None = None
    """After the last record that was taken, where another tail can start; None before the first."""
    is_at_end: bool = False

    def next_page(self) -> Steps[FetchedRecords]:
        """The next records, or none. Raises ClientError; the call may then be repeated."""
        if self.position is None:
            self.position = yield from self._place(self.start)
        while True:
            steps = fetch(
                self.topic,
                self.partition,
                self.position,
                max_bytes=self.max_bytes,
                max_wait_ms=self.max_wait_ms if self.is_endless else 0,
                isolation=self.isolation,
            )
            try:
                return (yield from steps)
            except OffsetOutOfRange:
                if self.on_out_of_range == "error":
                    raise
                self.position = yield from self._place(self.on_out_of_range)

    def taken(self, page: FetchedRecords) -> Iterator[ConsumerRecord]:
        """Its records one by one; the position moves as they are taken."""
        for record in page.records:
            self.position = record.offset + 1
            yield record
        self.position = page.position.next_offset
        self.is_at_end = not self.is_endless and page.position.is_up_to_date

    def _place(self, place: int | str) -> Steps[int]:
        if isinstance(place, int):
            return place
        first, end = yield from offset_range(self.topic, self.partition)
        return first if place == "earliest" else end


class Reader:
    """Base of the tails of both clients."""

    def __init__(self, state: TailState) -> None:
        self._state = state

    @property
    def position(self) -> int | None:
        """After the last record that was taken; None before the first fetch."""
        return self._state.position
