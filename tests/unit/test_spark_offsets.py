"""Goal: offsets are the Kafka source's as text and as numbers: checkpoints can be exchanged.
Method: frozen text, and examples worked by hand from its formulas.
"""

from __future__ import annotations

import json

import pytest

from kafkalog.format.topic_names import TopicPartition
from kafkalog.spark.logs.values import OffsetRange
from kafkalog.spark.offsets import (
    WrongCheckpoint,
    document_of,
    lag_of,
    offsets_of,
    parse_offsets,
    rate_limited,
    split_ranges,
)

A0, A2, A10, B0 = (TopicPartition(*at) for at in (("a", 0), ("a", 2), ("a", 10), ("b", 0)))


def ranges(*sizes: int) -> list[OffsetRange]:
    """One partition each, from offset 100 on."""
    return [OffsetRange("t", number, 100, 100 + size) for number, size in enumerate(sizes)]


def shape(split: list[OffsetRange]) -> list[tuple[int, int]]:
    """(partition, offsets)."""
    return [(each.partition, each.to_offset - each.from_offset) for each in split]


def test_the_text_is_sorted_by_number() -> None:
    """Partition 10 stands behind 2, in whatever order they came."""
    document = document_of({B0: 4, A10: 3, A0: 1, A2: 2})
    assert json.dumps(document, separators=(",", ":")) == '{"a":{"0":1,"2":2,"10":3},"b":{"0":4}}'


def test_any_order_is_understood() -> None:
    """A checkpoint of the Kafka source, whose order is another."""
    assert offsets_of(json.loads('{"b":{"0":4},"a":{"10":3,"0":1}}')) == {A0: 1, A10: 3, B0: 4}


@pytest.mark.parametrize(
    "text",
    [
        "12345",
        "[1]",
        "null",
        '{"a":5}',
        '{"a":{"x":1}}',
        *(f'{{"a":{{"0":{number}}}}}' for number in ('"780"', "-5", "null", "1.5", "true")),
    ],
)
def test_a_checkpoint_that_is_none_of_ours_is_named(text: str) -> None:
    """An error that says what to do."""
    with pytest.raises(WrongCheckpoint, match=r"The checkpoint has .* new checkpointLocation"):
        offsets_of(json.loads(text))


def test_numbers_may_be_text() -> None:
    """What Jackson takes in the Kafka source."""
    assert parse_offsets("startingOffsets", '{"a":{"0":"5","2":-1}}') == {A0: 5, A2: -1}


def test_a_limit_is_shared_by_lag() -> None:
    """Floor of the share, ceiling below one, never behind the end."""
    start = {A0: 10, A2: 0, A10: 7, B0: 5}
    latest = {A0: 610, A2: 300, A10: 8, B0: 5}
    ends = rate_limited(100, start, latest)
    assert ends == {A0: 10 + 66, A2: 33, A10: 8, B0: 5}


def test_a_limit_above_the_lag_reads_all() -> None:
    """No offset behind the end."""
    assert rate_limited(1000, {A0: 0, B0: 50}, {A0: 10, B0: 90}) == {A0: 10, B0: 90}
    assert rate_limited(1, {A0: 10}, {A0: 10}) == {A0: 10}


def test_a_partition_that_went_back_stays_at_its_end() -> None:
    """An end below the start is left for who reports it."""
    assert rate_limited(5, {A0: 10, B0: 0}, {A0: 3, B0: 100}) == {A0: 3, B0: 5}


def test_lag_counts_new_partitions_from_zero() -> None:
    """MinOffsetsPerTrigger as the Kafka source counts."""
    assert lag_of({A0: 10}, {A0: 15, B0: 7}) == 12


def test_without_wishes_a_range_is_a_task() -> None:
    """As many tasks as partitions with anything in them."""
    assert shape(split_ranges(ranges(5, 0, 7), None, None)) == [(0, 5), (2, 7)]
    assert shape(split_ranges(ranges(5, 7), 2, None)) == [(0, 5), (1, 7)]


def test_large_ranges_are_split_to_the_wanted_count() -> None:
    """Skew is evened out, small ranges stay whole, rounding goes to the last part."""
    parts = shape(split_ranges(ranges(1, 1, 98), 10, None))
    assert parts[:2] == [(0, 1), (1, 1)]
    assert [size for _, size in parts[2:]] == [12, 12, 12, 12, 12, 12, 13, 13]
    assert shape(split_ranges(ranges(10), 4, None)) == [(0, 2), (0, 2), (0, 3), (0, 3)]
    assert shape(split_ranges(ranges(50, 50), 3, None)) == [(0, 25), (0, 25), (1, 25), (1, 25)]


def test_records_a_task_are_bounded() -> None:
    """MaxRecordsPerPartition, and minPartitions on top of it."""
    assert shape(split_ranges(ranges(10, 3), None, 4)) == [(0, 3), (0, 3), (0, 4), (1, 3)]
    split = split_ranges(ranges(10, 3), 8, 4)
    assert len(split) >= 7
    assert max(size for _, size in shape(split)) <= 4
