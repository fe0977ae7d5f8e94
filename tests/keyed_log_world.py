"""Logs of keyed records for tests of the cleaner: every kind of batch, as hypothesis strategies."""

from __future__ import annotations

from hypothesis import strategies as st

from kafkalog.cleaner.record_batches import RecordBatches
from tests.naive.record_filter import (
    DELETE,
    DELETE_EMPTY,
    RETAIN_EMPTY,
    KeyedBatch,
    KeyedRecord,
    Order,
)

NOW_MS = 1_700_000_000_000
KEYS = (b"", b"a", b"b", b"c" * 55, b"d" * 56, b"e" * 119, b"f" * 120, None)
"""Around the sizes at which MD5 takes another block."""
VALUES = st.none() | st.binary(max_size=3) | st.just(b"v" * 200)
HEADERS = st.lists(
    st.tuples(st.binary(max_size=2), st.none() | st.binary(max_size=2)), max_size=2
).map(tuple)
STAMPS = st.just(-1) | st.integers(NOW_MS - 100, NOW_MS + 100) | st.integers(0, 2**62)


@st.composite
def batches_at(
    draw: st.DrawFn, base_offset: int, keys: st.SearchStrategy[bytes | None]
) -> KeyedBatch:
    """A batch from base_offset on, with gaps, and with LogAppendTime, horizon, producer or not."""
    span = draw(st.integers(1, 6))
    deltas = draw(st.lists(st.integers(0, span - 1), unique=True, max_size=span).map(sorted))
    is_control = draw(st.integers(0, 9)) == 0
    is_log_append_time = draw(st.booleans())
    largest = draw(STAMPS)
    records = tuple(
        KeyedRecord(
            offset=base_offset + delta,
            timestamp=largest if is_log_append_time else draw(STAMPS),
            key=draw(keys),
            value=draw(VALUES),
            headers=draw(HEADERS),
        )
        for delta in deltas
    )
    if records and not is_log_append_time:
        largest = max(record.timestamp for record in records)
    return KeyedBatch(
        base_offset=base_offset,
        last_offset=base_offset + span - 1,
        records=records,
        codec=0 if is_control or not records else draw(st.sampled_from([0, 0, 1, 2, 3, 4])),
        is_log_append_time=is_log_append_time,
        is_transactional=is_control or draw(st.booleans()),
        is_control=is_control,
        horizon=draw(st.sampled_from([None, None, NOW_MS - 1, NOW_MS, NOW_MS + 1]))
        if records
        else None,
        base_timestamp=records[0].timestamp if records else -1,
        max_timestamp=largest,
        producer=draw(st.sampled_from([(-1, -1, -1), (7, 2, 2**31 - 2)])),
        leader_epoch=draw(st.integers(0, 3)),
    )


@st.composite
def logs(draw: st.DrawFn) -> list[list[KeyedBatch]]:
    """Chunks of batches; few keys, so that most records are superseded."""
    some = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
    keys = st.sampled_from(some)
    offset = draw(st.integers(0, 3))
    chunks = []
    for _ in range(draw(st.integers(1, 3))):
        chunk = []
        for _ in range(draw(st.integers(0, 4))):
            chunk.append(draw(batches_at(offset, keys)))
            offset = chunk[-1].last_offset + 1 + draw(st.sampled_from([0, 0, 3]))
        chunks.append(chunk)
    return chunks


@st.composite
def orders_for(draw: st.DrawFn, batch: KeyedBatch) -> Order:
    """Aborted data is not mapped in pass 1 and goes in pass 2; a marker may go or stay."""
    discards = draw(st.integers(0, 3)) == 0
    return Order(
        retention=draw(st.sampled_from([DELETE, DELETE_EMPTY, DELETE_EMPTY, RETAIN_EMPTY])),
        discards=discards,
        marks_empty_transaction=batch.is_control and draw(st.booleans()),
    )


def record_batches(chunk: list[KeyedBatch]) -> RecordBatches:
    """As read from a file."""
    data = b"".join(batch.encode() for batch in chunk)
    return RecordBatches.of(data, file="a.log", position=0, max_decompressed_bytes=1 << 20)
