"""An answer that is sent while it is written and follows the log, and the formats of records.

``RecordStream`` gives the pieces of the body one by one and keeps none: a request for the next one
means that the last was sent. While the client does not read, the current read is given up and
nothing is read from the disk, so a stalled client holds what the transport has of one piece; all
streams together are bounded by ``ReadSlots``. Appends wake a wait (``delayed_fetch.py``). An error
is reported in the stream, because its status was sent before. ``PAGES`` and ``STREAMS`` map media
types to writers. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol

from kafkalog.errors import KafkalogError, NotReady
from kafkalog.format.wire.record_text import ArrayRecords, EventRecords, LineRecords
from kafkalog.server.fetch.source import ReadChunks
from kafkalog.server.fetch.tail_cache import TailPiece
from kafkalog.server.protocol.arrow import arrow_records
from kafkalog.server.protocol.errors import ApiError, error_body
from kafkalog.server.protocol.media_types import ARROW, EVENT_STREAM, JSON, NDJSON

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable, Iterator, Mapping

    from kafkalog.format.wire.record_writer import Bounds, RecordShape, StreamWriter, WriterFactory
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.server.api import Api
    from kafkalog.server.fetch.source import RecordSource


KEEP_ALIVE_SECONDS = 15.0
_READ_BYTES = 128 << 10
_LARGE_READ_HELD_SECONDS = 1.0


class RecordStream:
    """See the module. Needs a place of ``DelayedFetches`` for as long as it is open."""

    def __init__(
        self,
        api: Api,
        source: RecordSource,
        writer: StreamWriter,
        *,
        max_wait_ms: int | None,
        comes_again: bool,
        is_merged: bool,
        shared_shape: RecordShape | None,
        request_id: str,
    ) -> None:
        """``max_wait_ms`` None: it follows the log without end.

        ``is_merged``: messages name the partitions; else there is one, and the path names it.
        ``shared_shape``: the format of records; None for a stream with its own bounds, which shares
        no pieces with others. ``comes_again``: its client takes a plain end as a reason to ask for
        the rest, so the end of ``http.stream.max.ms`` is no error.
        """
        self._api = api
        self._source = source
        source.slots = api.read_slots
        self._writer = writer
        writer.positions = {}
        self._max_wait_seconds = None if max_wait_ms is None else max_wait_ms / 1000
        self._comes_again = comes_again
        self._is_merged = is_merged
        # What pieces depend on beside their place, as one text: its hash is known after the first.
        self._tail_form: str | None = None
        if shared_shape is not None and not is_merged:
            self._tail_form = tail_form(source, writer, shared_shape)
        self._request_id = request_id
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._ends_at = now + api.config.http_stream_max_ms / 1000
        self._fed_at = now  # when there last was a record
        self._chunks: ReadChunks | None = None  # of the read at hand
        self._is_caught_up_sent = False  # that all was sent, since there last was a record
        self._is_over = False
        self._note_positions()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body; a piece may be empty.

        What fails before the first piece is raised, and can be answered as usual.
        """
        begin = self._writer.begin()  # before anything is read: it names where the stream begins
        if self._source.is_done:
            yield begin + self._finish()
            return
        yield begin + await self._next()
        try:
            while not self._is_over:
                yield await self._next()
        except (KafkalogError, ApiError) as error:
            yield self._writer.fail(self._failure(error))

    @contextlib.contextmanager
    def waiting_for_reader(self) -> Iterator[None]:
        """While the last piece is not taken: 300 KiB and what is inflated are not held for it.

        A large read costs too much to repeat for every wait of a reader that is merely slower,
        unless others wait for its place.
        """
        chunks = self._chunks
        if chunks is None or chunks.is_quick or self._source.is_waited_for:
            self._give_up_read()
            yield
            return
        timer = self._loop.call_later(_LARGE_READ_HELD_SECONDS, self._give_up_read)
        try:
            yield
        finally:
            timer.cancel()

    def close(self) -> None:
        """Its client is gone, or has everything. A pool's thread may still be at work for it."""
        self._source.release()

    def _give_up_read(self) -> None:
        """The part that was not sent is read again."""
        if self._chunks is not None:
            self._chunks.close()
            self._end_read()
            self._is_caught_up_sent = False  # also where no record was shown yet

    def _end_read(self) -> None:
        self._chunks = None
        self._source.release()

    async def _next(self) -> bytes:
        """The next piece, maybe an empty one."""
        if self._api.stopping:
            raise NotReady("The daemon is stopping; go on when it is back.")
        now = self._loop.time()
        if now >= self._ends_at:
            self._is_over = True
            if self._comes_again:
                return b""
            raise ApiError(40801, "The stream was open for http.stream.max.ms; go on from here.")
        if self._chunks is not None:
            await asyncio.sleep(0)  # a reader that keeps up does not keep the loop
            return await self._encode(self._chunks, now)
        if self._is_caught_up_sent:  # all was sent: check before anything is read
            if not self._source.has_moved():
                return await self._wait(now)
            piece = self._tail_piece(now)
            if piece is not None:
                return piece
        return await self._read(now)

    async def _read(self, now: float) -> bytes:
        """The next read's first chunk; what is to be said where there is nothing to read."""
        shared = self._shared_log()
        generation = "" if shared is None else shared.local.generation  # of before the read
        found = await self._source.read(_READ_BYTES)
        if found is None:
            return b"" if self._is_caught_up_sent else self._write_caught_up()
        self._note_positions()
        first, count = found[0].position, self._writer.count
        self._chunks = ReadChunks(self._api, self._writer, *found)
        data = await self._encode(self._chunks, now)
        count = self._writer.count - count
        if shared is not None and self._is_caught_up_sent and count:
            piece = TailPiece(data, count, found[0].position)
            self._api.tail_cache.keep(self._tail_key(first), shared, generation, piece)
        return data

    async def _encode(self, chunks: ReadChunks, now: float) -> bytes:
        """The next chunk of the current read, and the text that follows it."""
        chunk = await chunks.next()
        self._note_positions()
        if chunks.is_over:
            self._end_read()
        if chunk.record_count:
            self._fed_at, self._is_caught_up_sent = now, False
        if self._writer.is_full or self._source.is_done:
            return chunk.data + self._finish()
        if self._chunks is None and self._source.is_caught_up:
            return chunk.data + self._write_caught_up()
        return chunk.data

    async def _wait(self, now: float) -> bytes:
        """For records, a keep-alive's time at most; then nothing, or what keeps it alive."""
        left = self._ends_at - now
        if self._max_wait_seconds is not None:
            idle_left = self._fed_at + self._max_wait_seconds - now
            if idle_left <= 0:
                return self._finish()
            left = min(left, idle_left)
        is_woken = await self._api.delayed_fetches.wait_in_slot(
            self._source.keys, min(left, KEEP_ALIVE_SECONDS)
        )
        return b"" if is_woken or left < KEEP_ALIVE_SECONDS else self._writer.keep_alive()

    # ---- what others at the same place get too

    def _shared_log(self) -> UnifiedLog | None:
        """The one log that is read, if what it gives is shared."""
        if self._tail_form is None:
            return None
        (cursor,) = self._source.cursors
        return self._source.log_of(cursor)

    def _tail_key(self, position: int) -> Hashable:
        """All that the bytes from position to the end depend on, but the records."""
        (cursor,) = self._source.cursors
        return (self._tail_form, position, cursor.limit, cursor.high_watermark)

    def _tail_piece(self, now: float) -> bytes | None:
        """The piece that another stream got at this position, if this one has no own bounds."""
        if self._tail_form is None:
            return None
        (cursor,) = self._source.cursors
        log = self._source.refresh(cursor)
        piece = self._api.tail_cache.find(self._tail_key(cursor.position), log, cursor.position)
        if piece is None:
            return None
        cursor.position = piece.next_offset
        self._fed_at = now
        self._api.metrics.traffic.observe_fetch(cursor.at.topic, 0, piece.record_count)
        return piece.data

    def _note_positions(self) -> None:
        positions = self._writer.positions
        for cursor in self._source.cursors:
            positions[cursor.at.partition] = cursor.position

    def _write_caught_up(self) -> bytes:
        self._is_caught_up_sent = True
        return self._writer.caught_up(self._state() | {"up_to_date": True})

    def _finish(self) -> bytes:
        self._is_over = True
        self._note_positions()
        return self._writer.finish(self._state() | {"up_to_date": self._source.is_up_to_date})

    def _failure(self, error: KafkalogError | ApiError) -> dict[str, object]:
        self._note_positions()
        return {**error_body(error), "request_id": self._request_id, **self._state()}

    def _state(self) -> dict[str, object]:
        """Where each partition is."""
        states: list[dict[str, object]] = [
            {
                "partition": cursor.at.partition,
                "next_offset": cursor.position,
                "high_watermark": cursor.high_watermark,
            }
            for cursor in self._source.cursors
        ]
        if not self._is_merged:
            del states[0]["partition"]
            return states[0]
        return {"partitions": states}


def tail_form(source: RecordSource, writer: StreamWriter, shape: RecordShape) -> str:
    """Equal for streams that show the same records in the same bytes."""
    (cursor,) = source.cursors
    formats = f"{shape.key_format}|{shape.value_format}|{','.join(sorted(shape.fields))}"
    return f"{cursor.at}|{source.isolation.name}|{type(writer).__name__}|{formats}"


class StreamWriterFactory(Protocol):
    """A WriterFactory of streams."""

    def __call__(
        self, shape: RecordShape, bounds: Bounds, *, max_decompressed_bytes: int
    ) -> StreamWriter:
        """A writer for one answer."""


PAGES: Mapping[str, WriterFactory] = {JSON: ArrayRecords, ARROW: arrow_records}
STREAMS: Mapping[str, StreamWriterFactory] = {NDJSON: LineRecords, EVENT_STREAM: EventRecords}

OFFERED = (JSON, *STREAMS, ARROW)
"""In our order of preference, which decides when Accept leaves it open."""

COMPRESSIBLE = frozenset((JSON, NDJSON))
"""Gzip is worth it when it is accepted, and does not hold up what has to arrive now."""
