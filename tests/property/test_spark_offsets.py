"""Goal: whatever the lags, limits and splits, no offset is read twice, left out or behind the end.
Method: Hypothesis; the laws that the Kafka source's formulas keep.
"""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.topic_names import TopicPartition
from kafkalog.spark.logs.values import OffsetRange
from kafkalog.spark.offsets import document_of, offsets_of, rate_limited, split_ranges

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "c.d"]), st.integers(0, 40))
OFFSETS = st.one_of(st.integers(0, 50), st.integers(0, 2**62))
STARTS = st.dictionaries(PARTITIONS, st.tuples(OFFSETS, st.integers(-5, 2**62)), max_size=12)
RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 3000)), max_size=8)


@given(st.dictionaries(PARTITIONS, OFFSETS))
def test_text_and_back(offsets: dict[TopicPartition, int]) -> None:
    """A checkpoint loses nothing, and equal offsets have equal text."""
    text = json.dumps(document_of(offsets))
    assert offsets_of(json.loads(text)) == offsets
    assert json.dumps(document_of(dict(reversed(offsets.items())))) == text


@given(STARTS, st.integers(1, 2**62))
def test_a_limited_batch(lags: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    """Each partition goes on, none too far, and the sum keeps the limit."""
    start = {at: first for at, (first, _) in lags.items()}
    latest = {at: max(first + lag, 0) for at, (first, lag) in lags.items()}
    ends = rate_limited(limit, start, latest)
    behind = [at for at in latest if latest[at] > start[at]]
    for at in latest:
        if at in behind:
            assert start[at] < ends[at] <= latest[at]
        else:
            assert ends[at] == latest[at]
    total = sum(ends[at] - start[at] for at in behind)
    # Shares are doubles, as in the Kafka source: above 2^53 they are off by a little.
    assert total <= limit + len(behind) + (limit >> 50)


@given(RANGES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 500))
def test_splits_cover_exactly(
    sizes: list[tuple[int, int]], min_partitions: int | None, records_max: int | None
) -> None:
    """The parts of a partition are its range, in order, none empty or too large."""
    ranges = [
        OffsetRange("t", number, first, first + size) for number, (first, size) in enumerate(sizes)
    ]
    split = split_ranges(ranges, min_partitions, records_max)
    for wanted in ranges:
        parts = [each for each in split if each.partition == wanted.partition]
        at = wanted.from_offset
        for part in parts:
            assert part.from_offset == at < part.to_offset
            at = part.to_offset
        assert at == wanted.to_offset
    if records_max is not None:
        assert all(each.to_offset - each.from_offset <= records_max for each in split)
    full = sum(size > 0 for _, size in sizes)
    if min_partitions is None and records_max is None:
        assert len(split) == full
