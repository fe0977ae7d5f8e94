"""Goal: a read that is over leaves its writer alone, whoever still holds it.
Method: two reads through one writer, as a stream or a page has them; a pool's thread lets go of a
call, and of the read that it belonged to, some time after its result was taken.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog.format.records.record import Record
from kafkalog.format.topic_names import TopicPartition
from kafkalog.format.wire.record_text import LineRecords
from kafkalog.format.wire.record_writer import Bounds, Chunk, RecordShape
from kafkalog.log.values import FetchDataInfo
from kafkalog.server.fetch.source import Cursor, ReadChunks
from tests.naive.cleaning_logs import TIME
from tests.naive.stored_batches import stored_batch

API: Any = SimpleNamespace(
    metrics=SimpleNamespace(traffic=SimpleNamespace(observe_fetch=lambda *_: None))
)


def info(offset: int, value: bytes) -> FetchDataInfo:
    data = stored_batch([Record(offset, TIME, None, value)])
    return FetchDataInfo(data, offset, offset + 1, 0, 9, 9, 9)


@pytest.mark.parametrize("size", [10, 200_000])
def test_a_read_that_is_over_takes_nothing_from_the_next_one(size: int) -> None:
    """Records of the second read went missing, and bytes of no record came in their place."""
    shape = RecordShape(value_format="text", fields=frozenset({"offset"}))
    writer = LineRecords(shape, Bounds(), max_decompressed_bytes=1 << 20)
    cursor = Cursor(TopicPartition("t", 0), 0)
    read: ReadChunks | None = ReadChunks(API, writer, cursor, info(0, b"a" * size))
    assert read is not None
    chunks: list[Chunk] = [read._step()]
    assert read.is_over
    following = ReadChunks(API, writer, cursor, info(1, b"b" * size))
    begun = following._chunks  # its writer has opened it when it is asked for the first chunk
    page = writer._page
    run = page.run

    def while_another_thread_lets_go() -> Any:
        nonlocal read
        read = None
        return run()

    page.run = while_another_thread_lets_go  # type: ignore[method-assign]
    chunks.append(following._step())
    assert begun is following._chunks
    assert b"".join(chunk.data for chunk in chunks) == b'{"offset":0}\n{"offset":1}\n'
    assert [chunk.record_count for chunk in chunks] == [1, 1]
