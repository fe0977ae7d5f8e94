"""Goal: a page over many batches is the same whether a kernel or the caller steps over each.
Method: random plain, compressed, stamped and aborted batches, tiny outputs; a loop is the twin.
"""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.records.batch_builder import RecordColumns
from kafkalog.format.records.record import iterate_records
from kafkalog.format.records.record_batch import Codec, is_control, is_transactional, read_header
from kafkalog.format.wire.json_page import write_page
from kafkalog.format.wire.record_writer import PageBuffer
from tests.property.shaped_batches import ABORTED_PRODUCER, BatchShape, batch_shapes, batches_of

VALUES = st.lists(st.none() | st.text(max_size=30), min_size=1, max_size=4)
SHAPES = batch_shapes(VALUES, [Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP], 10**12)


def columns_of(values: list[str | None], offset: int) -> RecordColumns:
    """Without keys."""
    return RecordColumns.of([None] * len(values), values, 1000 + offset)


def plain_page(
    batches: list[bytes], from_offset: int, max_bytes: int, end_offset: int, aborted_last: int
) -> tuple[list[tuple[int, str | None, int]], int]:
    """(offset, value, timestamp of each record shown; next offset) record by record."""
    shown: list[tuple[int, str | None, int]] = []
    used, next_offset = 0, from_offset
    for batch in batches:
        header = read_header(batch)
        is_aborted = (
            is_transactional(header.attributes)
            and header.producer_id == ABORTED_PRODUCER
            and header.base_offset <= aborted_last
        )
        assert not is_control(header.attributes)
        if header.last_offset >= from_offset and not is_aborted:
            for record in iterate_records(batch):
                if record.offset >= end_offset:
                    return shown, next_offset
                if record.offset >= from_offset:
                    size = len(record.value or b"")
                    if shown and size > max_bytes - used:
                        return shown, next_offset
                    value = None if record.value is None else bytes(record.value).decode()
                    shown.append((record.offset, value, record.timestamp))
                    used += size
                next_offset = record.offset + 1
        next_offset = max(next_offset, header.next_offset)
    return shown, max(next_offset, end_offset)


@given(
    SHAPES,
    st.integers(0, 12),
    st.integers(0, 80) | st.just(1 << 20),
    st.integers(0, 25),
    st.integers(-1, 20),
    st.integers(1, 200),
)
def test_page_is_that_of_a_loop_over_records(
    shapes: list[BatchShape[str | None]],
    from_offset: int,
    max_bytes: int,
    end_offset: int,
    aborted_last: int,
    buffer_bytes: int,
) -> None:
    """M01: choice, order, timestamps and where the next fetch starts."""
    batches, _ = batches_of(shapes, columns_of)
    page = write_page(
        "t",
        0,
        b"".join(batches),
        from_offset,
        format="text",
        max_bytes=max_bytes,
        end_offset=end_offset,
        aborted=[(ABORTED_PRODUCER, 0, aborted_last)],
        buffer=PageBuffer(buffer_bytes),
    )
    mine = [(row["offset"], row["value"], row["timestamp"]) for row in json.loads(page.body)]
    expected, next_offset = plain_page(batches, from_offset, max_bytes, end_offset, aborted_last)
    assert mine == expected
    assert (page.next_offset, page.count) == (next_offset, len(expected))
