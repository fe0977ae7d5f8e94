"""Records as text: a JSON array, lines of JSON, or the events of a stream (server-sent events).

Owns the framing of the three and their messages between records; ``PageWriter`` writes the records.
How a writer is used: ``record_writer.py``. Source: the event stream format of WHATWG HTML 9.2.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.format.wire.record_writer import (
    CHUNK_BYTES,
    Bounds,
    Chunk,
    Frame,
    PageBuffer,
    PageWriter,
    RecordRead,
    RecordShape,
    page_texts,
)
from kafkalog.kernels.json.output import EmbeddedKind, PageCell, PageStatus

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from kafkalog.format.wire.record_writer import PageTexts

_KINDS = {"base64": EmbeddedKind.BINARY, "json": EmbeddedKind.JSON, "text": EmbeddedKind.TEXT}
# The buffer grows for a record that is larger than a chunk.
_BUFFER_SLACK_BYTES = 16 << 10
_BOUND_REACHED = (PageStatus.PAGE_FULL, PageStatus.PAST_TIME)

_EVENT_ID = re.compile(r"[0-9]{1,10}:(?:-1|[0-9]{1,19})(?:,[0-9]{1,10}:(?:-1|[0-9]{1,19}))*")

RETRY_MS = 1000
"""How long an EventSource waits before it connects again."""


class ArrayRecords:
    """``application/json``: one array."""

    is_lines = False
    frame = Frame(between=b",")

    def __init__(
        self,
        shape: RecordShape,
        bounds: Bounds,
        *,
        max_decompressed_bytes: int,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        """See WriterFactory."""
        self.shape = shape
        self._chunk_bytes = chunk_bytes
        self._page = PageWriter(
            _KINDS[shape.key_format],
            _KINDS[shape.value_format],
            max_decompressed_bytes=max_decompressed_bytes,
            is_lines=self.is_lines,
        )
        state = self._page.state
        state[PageCell.MAX_RECORDS] = bounds.max_records
        state[PageCell.MAX_BYTES] = bounds.max_bytes
        state[PageCell.UNTIL_TIMESTAMP] = bounds.until_timestamp_ms
        state[PageCell.CHUNK_END] = chunk_bytes
        self._is_full = False

    @property
    def count(self) -> int:
        """See RecordWriter."""
        return int(self._page.state[PageCell.COUNT])

    @property
    def is_full(self) -> bool:
        """See RecordWriter."""
        state = self._page.state
        return self._is_full or bool(state[PageCell.COUNT] >= state[PageCell.MAX_RECORDS])

    def begin(self) -> bytes:
        """See RecordWriter."""
        return b"["

    def end(self) -> bytes:
        """See RecordWriter."""
        return b"]"

    def write(self, read: RecordRead) -> Generator[Chunk, None, None]:
        """See RecordWriter."""
        page = self._page
        buffer = PageBuffer(min(2 * len(read.batches), self._chunk_bytes) + _BUFFER_SLACK_BYTES)
        texts = self.texts_of(read)
        page.open(texts, read.batches, read.from_offset, read.end_offset, read.aborted, buffer)
        try:
            yield from self._chunks(read)
        finally:
            page.close()

    def _chunks(self, read: RecordRead) -> Iterator[Chunk]:
        """Of the read that the page has open."""
        page = self._page
        while True:
            mark = page.mark()
            status = page.run()
            fault = page.fault(status)
            if fault is not None:
                page.rewind(mark)
                page.state[PageCell.END_OFFSET] = fault.offset
                page.run()
                if page.state[PageCell.COUNT] > mark.state[PageCell.COUNT]:
                    yield self._chunk(mark.state[PageCell.COUNT], fault.offset)
                raise fault
            # Omitted batches may reach beyond the end, and begin before from_offset.
            is_whole = status in (PageStatus.BATCH_DONE, PageStatus.AT_END)
            reached = read.end_offset if is_whole else int(page.state[PageCell.NEXT_OFFSET])
            next_offset = max(min(reached, read.end_offset), read.from_offset)
            self._is_full = self._is_full or status is PageStatus.PAGE_FULL
            is_end = status in _BOUND_REACHED
            chunk = self._chunk(mark.state[PageCell.COUNT], next_offset, is_end=is_end)
            yield chunk
            if chunk.is_end or status is not PageStatus.CHUNK_FULL:
                return

    def _chunk(self, count_before: int, next_offset: int, *, is_end: bool = False) -> Chunk:
        count = self.count - int(count_before)
        return Chunk(self._page.take(), count, next_offset, is_end or self.is_full)

    def texts_of(self, read: RecordRead) -> PageTexts:
        """The text around the members of the read's records."""
        return page_texts(read.topic, read.partition, self.frame, self.shape.fields)


class LineRecords(ArrayRecords):
    """``application/x-ndjson``: one record a line; only the last may have an ``error_code``."""

    is_lines = True
    frame = Frame(after=b"\n")

    positions: dict[int, int]
    """See StreamWriter."""

    def begin(self) -> bytes:
        """Nothing."""
        return b""

    def end(self) -> bytes:
        """Nothing."""
        return b""

    def caught_up(self, state: Mapping[str, object]) -> bytes:
        """Nothing: lines are records."""
        return b""

    def keep_alive(self) -> bytes:
        """Nothing: not every reader of lines skips an empty one."""
        return b""

    def finish(self, state: Mapping[str, object]) -> bytes:
        """Nothing: the lines are complete."""
        return b""

    def fail(self, error: Mapping[str, object]) -> bytes:
        """The last line of a stream that ends before its bound."""
        return _json(error) + b"\n"


class EventRecords(LineRecords):
    """``text/event-stream``. Every event's id says what was seen last of each partition."""

    def begin(self) -> bytes:
        """The delay and the position of a reconnect, also for a client that has seen no event."""
        return f"retry: {RETRY_MS}\nid: {event_id(self.positions)}\n\n".encode()

    def caught_up(self, state: Mapping[str, object]) -> bytes:
        """A ``control`` event."""
        return self._event("control", state)

    def keep_alive(self) -> bytes:
        """A comment: both sides see that the connection is open."""
        return b": keep-alive\n\n"

    def finish(self, state: Mapping[str, object]) -> bytes:
        """An ``end`` event: the client closes the stream instead of reconnecting."""
        return self._event("end", state)

    def fail(self, error: Mapping[str, object]) -> bytes:
        """An ``end`` event that has an ``error_code``."""
        return self._event("end", error)

    def _event(self, name: str, data: Mapping[str, object]) -> bytes:
        head = f"event: {name}\nid: {event_id(self.positions)}\ndata: "
        return head.encode() + _json(data) + b"\n\n"

    def texts_of(self, read: RecordRead) -> PageTexts:
        """The id of a record: its own offset among the last ones of the other partitions."""
        positions = sorted(self.positions.items())
        before = [(number, at) for number, at in positions if number < read.partition]
        after = [(number, at) for number, at in positions if number > read.partition]
        own = f"{read.partition}:"
        frame = Frame(
            before=b"event: record\ndata: ",
            after=b"\n",
            id_before=f"id: {','.join([*map(_last_seen, before), own])}".encode(),
            id_after=f"{''.join(',' + _last_seen(each) for each in after)}\n\n".encode(),
        )
        return page_texts(read.topic, read.partition, frame, self.shape.fields)


def event_id(positions: Mapping[int, int]) -> str:
    """``<partition>:<offset seen last>`` of each partition, from the next wanted offsets.

    -1 where the log begins at 0 and nothing was seen.
    """
    return ",".join(map(_last_seen, sorted(positions.items())))


def _last_seen(position: tuple[int, int]) -> str:
    return f"{position[0]}:{position[1] - 1}"


def parse_event_id(text: str) -> dict[int, int] | None:
    """Next wanted offsets by partition, from an id; None when it is none of ours."""
    seen = offsets_by_partition(text) if _EVENT_ID.fullmatch(text) else None
    if seen is None or max(seen.values()) == INT64_MAX:
        return None
    return {number: offset + 1 for number, offset in seen.items()}


def offsets_by_partition(text: str) -> dict[int, int] | None:
    """Of ``<partition>:<offset>,...``, a text that was found to be of this form.

    None when it names a partition twice, or a number that no partition or offset can be.
    """
    pairs = [each.split(":") for each in text.split(",")]
    found = {int(number): int(offset) for number, offset in pairs}
    is_sound = len(found) == len(pairs) and max(found) <= INT32_MAX
    return found if is_sound and max(found.values()) <= INT64_MAX else None


def _json(message: Mapping[str, object]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()
