"""Batches as chance shapes them: plain, compressed, stamped, transactional, with gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from hypothesis import strategies as st

from kafkalog.format.records.batch_builder import build_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis.strategies import SearchStrategy

    from kafkalog.format.records.batch_builder import RecordColumns
    from kafkalog.format.records.record_batch import Codec

R = TypeVar("R")
BatchShape = tuple[int, list[R], "Codec", int | None, int]
"""Offsets left out before it, records, codec, log append time in ms, producer id or -1."""

ABORTED_PRODUCER = 9


def batch_shapes(
    records: SearchStrategy[list[R]], codecs: Sequence[Codec], most_ms: int
) -> SearchStrategy[list[BatchShape[R]]]:
    """Up to six of them, some of the aborted producer."""
    return st.lists(
        st.tuples(
            st.integers(0, 3),
            records,
            st.sampled_from(codecs),
            st.none() | st.integers(0, most_ms),
            st.sampled_from([-1, -1, -1, 8, ABORTED_PRODUCER]),
        ),
        max_size=6,
    )


def batches_of(
    shapes: Sequence[BatchShape[R]], columns_of: Callable[[list[R], int], RecordColumns]
) -> tuple[list[bytes], int]:
    """(batches with rising offsets, offset behind the last).

    ``columns_of`` gets the records of a batch and the offset behind the batch before.
    """
    batches, offset = [], 0
    for gap, records, codec, stamp_ms, producer_id in shapes:
        batches.append(
            build_batch(
                columns_of(records, offset),
                base_offset=offset + gap,
                codec=codec,
                log_append_time_ms=stamp_ms,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                is_transactional=producer_id >= 0,
            )
        )
        offset += gap + len(records)
    return batches, offset
