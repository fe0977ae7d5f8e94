"""Reads of an answer that has records of one or several partitions.

Each read takes another partition first, from its position; nothing is read ahead. The source knows
what was readable at the last read, so that a wait misses no append. ``collect`` makes a page: an
answer that is collected and sent whole, with long poll. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.errors import CorruptData, OffsetOutOfRange, UnsupportedMessageFormat
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.wire.record_writer import Chunk, RecordRead, UndecodableRecord
from kafkalog.server.protocol.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.format.wire.record_writer import RecordWriter
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import FetchDataInfo, Isolation
    from kafkalog.server.api import Api
    from kafkalog.server.fetch.delayed_fetch import ReadSlots


# Encoded on the event loop: larger data, also after inflating, is encoded on a pool.
_INLINE_BYTES = 256 << 10


@dataclass(slots=True)
class Cursor:
    """Where one partition is. ``until_offset`` None: no such bound."""

    at: TopicPartition
    position: int
    until_offset: int | None = None
    is_ended: bool = False  # by a bound that its writer met
    # as of the last read
    limit: int = field(default=INT64_MAX, init=False)  # the first offset that could not be read
    high_watermark: int = field(default=-1, init=False)
    log_start_offset: int = field(default=-1, init=False)

    @property
    def is_done(self) -> bool:
        """Nothing more of it belongs to the answer."""
        return self.is_ended or (
            self.until_offset is not None and self.position >= self.until_offset
        )

    @property
    def is_caught_up(self) -> bool:
        """Nothing more of it was readable at the last read."""
        return self.position >= self.limit


class RecordSource:
    """See the module. A read holds one of its slots until ``release``; a page needs none."""

    def __init__(self, api: Api, cursors: Sequence[Cursor], isolation: Isolation) -> None:
        self._api = api
        self.slots: ReadSlots | None = None
        self._slot: asyncio.Semaphore | None = None  # of the read that was given out
        self.isolation = isolation
        self._next = 0
        self.cursors = list(cursors)

    @property
    def is_done(self) -> bool:
        """Every partition has reached its bound."""
        return all(cursor.is_done for cursor in self.cursors)

    @property
    def is_caught_up(self) -> bool:
        """There was nothing more to read at the last read."""
        return all(cursor.is_done or cursor.is_caught_up for cursor in self.cursors)

    @property
    def is_up_to_date(self) -> bool:
        """There was nothing more in the log, whatever the bounds say."""
        return all(cursor.is_caught_up for cursor in self.cursors)

    @property
    def keys(self) -> list[TopicPartition]:
        """What a wait for more waits for."""
        return [cursor.at for cursor in self.cursors if not cursor.is_done]

    def has_moved(self) -> bool:
        """Whether more is readable than at the last read, which may have run on a pool.

        UnknownTopic, UnknownPartition, NotReady, LogDirOffline.
        """
        return any(
            self.log_of(cursor).limit_of(self.isolation) != cursor.limit
            for cursor in self.cursors
            if not cursor.is_done
        )

    def log_of(self, cursor: Cursor) -> UnifiedLog:
        """The log of a cursor, as it is served now; raises as ``has_moved``."""
        return self._api.operations.partition_log(cursor.at.topic, cursor.at.partition)

    def refresh(self, cursor: Cursor) -> UnifiedLog:
        """Note what is readable of a partition now; its log."""
        log = self.log_of(cursor)
        cursor.limit = log.limit_of(self.isolation)
        cursor.high_watermark = log.high_watermark
        cursor.log_start_offset = log.log_start_offset
        return log

    def stop_at_limits(self) -> None:
        """What is readable now bounds the answer."""
        for cursor in self.cursors:
            self.refresh(cursor)
            until = cursor.until_offset
            cursor.until_offset = cursor.limit if until is None else min(until, cursor.limit)

    async def read(self, max_bytes: int) -> tuple[Cursor, FetchDataInfo] | None:
        """The next batches; None when all partitions are done or caught up.

        OffsetBelowLogStart, OffsetAboveLogEnd, CorruptBatch, UnsupportedMessageFormat, and what
        ``has_moved`` raises.
        """
        count = len(self.cursors)
        for number in range(self._next, self._next + count):
            cursor = self.cursors[number % count]
            if not cursor.is_done:
                info = await self._read(cursor, max_bytes)
                if len(info.data):
                    self._next = (number + 1) % count
                    return cursor, info
        return None

    @property
    def is_waited_for(self) -> bool:
        """Whether others may need the slot that the last read has."""
        return self._slot is not None and self._slot.locked()

    def release(self) -> None:
        """Nothing of the last read is held any more."""
        if self._slot is not None:
            self._slot.release()
            self._slot = None

    async def _read(self, cursor: Cursor, max_bytes: int) -> FetchDataInfo:
        """As ``_read_now``, in a slot if there are any; an empty read releases it."""
        if self.slots is None:
            return await self._read_now(cursor, max_bytes)
        slot = self.slots.of(self.log_of(cursor))
        await slot.acquire()
        self._slot, info = slot, None
        try:
            info = await self._read_now(cursor, max_bytes)
        finally:
            if info is None or not len(info.data):
                self.release()
        return info

    async def _read_now(self, cursor: Cursor, max_bytes: int) -> FetchDataInfo:
        log = self.refresh(cursor)
        info = await self._api.fetch(log, cursor.position, max_bytes, self.isolation)
        self._api.metrics.traffic.observe_fetch(cursor.at.topic, len(info.data))
        cursor.high_watermark = info.high_watermark
        cursor.log_start_offset = info.log_start_offset
        return info


class ReadChunks:
    """The chunks of one read, encoded one by one as they are asked for; keeps its cursor."""

    def __init__(self, api: Api, writer: RecordWriter, cursor: Cursor, info: FetchDataInfo) -> None:
        until = INT64_MAX if cursor.until_offset is None else cursor.until_offset
        self.cursor = cursor
        self._api = api
        self.is_quick = len(info.data) <= _INLINE_BYTES
        self._end_offset = min(info.next_offset, until)
        self._chunks: Generator[Chunk, None, None] = writer.write(
            RecordRead(
                cursor.at.topic,
                cursor.at.partition,
                info.data,
                cursor.position,
                self._end_offset,
                [(each.producer_id, each.first_offset, each.last_offset) for each in info.aborted],
            )
        )

    @property
    def is_over(self) -> bool:
        """Whether the last chunk was given."""
        return self.cursor.is_ended or self.cursor.position >= self._end_offset

    async def next(self) -> Chunk:
        """The next chunk; its cursor moves after it. ApiError 40602."""
        if self.is_quick:
            return self._step()
        return await self._api.blocking(self._step)

    async def rest(self, parts: list[bytes]) -> None:
        """Add all further chunks to parts. ApiError 40602 after those before the record."""
        if self.is_quick:
            self._drain(parts)
        else:
            await self._api.blocking(self._drain, parts)

    def close(self) -> None:
        """Give up the read; another one continues at the cursor."""
        self._chunks.close()

    def _drain(self, parts: list[bytes]) -> None:
        while not self.is_over:
            parts.append(self._step().data)

    def _step(self) -> Chunk:
        """On the loop, or in a pool while the loop leaves this object alone."""
        try:
            chunk = next(self._chunks)
        except UndecodableRecord as error:
            raise self._undecodable(error) from error
        cursor = self.cursor
        cursor.position = max(cursor.position, chunk.next_offset)
        cursor.is_ended = chunk.is_end
        if self.is_over:
            # Here and now: a pool's thread may hold this object until after the next read began,
            # and what ends with it then would take the writer's memory from that one.
            self.close()
        self._api.metrics.traffic.observe_fetch(cursor.at.topic, 0, chunk.record_count)
        return chunk

    def _undecodable(self, error: UndecodableRecord) -> ApiError:
        at = self.cursor.at
        return ApiError(
            40602,
            f"The {error.part} at offset {error.offset} is not {error.embedded}; ask for another "
            f"{error.part}_format, or begin after it.",
            details={"topic": at.topic, "partition": at.partition, "offset": error.offset},
        )


async def collect(
    api: Api,
    source: RecordSource,
    writer: RecordWriter,
    *,
    max_bytes: int,
    min_bytes: int,
    max_wait_ms: int,
) -> bytes:
    """The body; the cursors of the source say where the next page begins.

    Reads until max_bytes of the log were read, control and aborted batches aside, or the writer is
    full; waits up to max_wait_ms until min_bytes were read, woken by appends. A record that is not
    representable ends the page, and is ApiError 40602 when it would be the first; so does a
    deletion that overtakes the page, and damage. What ``RecordSource.read`` raises.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max_wait_ms / 1000
    parts = [writer.begin()]
    read_bytes = 0
    while True:
        try:
            read_bytes += await _read_all(api, source, writer, parts, max_bytes - read_bytes)
        except ApiError as error:
            if error.entry.error_code != 40602 or not writer.count:
                raise
            break
        except (OffsetOutOfRange, CorruptData, UnsupportedMessageFormat):
            if not writer.count:
                raise
            break
        left = deadline - loop.time()
        is_full = writer.is_full or source.is_done or read_bytes >= min(min_bytes, max_bytes)
        if is_full or left <= 0 or api.stopping:
            break
        if not source.has_moved():
            await api.delayed_fetches.wait_any(source.keys, left)
    parts.append(writer.end())
    return b"".join(parts)


async def _read_all(
    api: Api, source: RecordSource, writer: RecordWriter, parts: list[bytes], max_bytes: int
) -> int:
    """What there is, up to max_bytes of the log; how many of them had records to show."""
    read_bytes = 0
    while read_bytes < max_bytes and not writer.is_full:
        found = await source.read(max_bytes - read_bytes)
        if found is None:
            break
        cursor, info = found
        count_before = writer.count
        chunks = ReadChunks(api, writer, cursor, info)
        await chunks.rest(parts)
        if writer.count > count_before:
            read_bytes += len(info.data)
    return read_bytes
