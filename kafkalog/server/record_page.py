"""A page of records: an answer that is collected and sent whole, with long poll."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalog.errors import CorruptData, OffsetOutOfRange
from kafkalog.server.error_map import ApiError
from kafkalog.server.record_source import ReadChunks

if TYPE_CHECKING:
    from kafkalog.format.wire.record_writer import RecordWriter
    from kafkalog.server.api import Api
    from kafkalog.server.record_source import RecordSource


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
        except (OffsetOutOfRange, CorruptData):
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
