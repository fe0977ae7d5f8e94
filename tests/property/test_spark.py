"""Goal: records of a log directory for Spark are those that a loop finds, and no offset is read
twice, left out or after the end.
Method: logs, lags, limits and splits by chance.
"""

from __future__ import annotations

import json
import random

import pyarrow as pa
from hypothesis import given, strategies as st

from kafkalog.format.topic_names import TopicPartition
from kafkalog.spark.logs.directory import DirectoryLogs
from kafkalog.spark.logs.values import Access, Bounds, OffsetRange
from kafkalog.spark.offsets import document_of, offsets_of, rate_limited, split_ranges, topic_ids_of
from tests.cleaner_world import DIRECTORY, CleanerWorld
from tests.naive.cleaning_logs import make_log
from tests.spark_reads import SPARK_SCHEMA, plain_rows, read_rows

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "c.d"]), st.integers(0, 40))
OFFSETS = st.one_of(st.integers(0, 50), st.integers(0, 2**62))
STARTS = st.dictionaries(PARTITIONS, st.tuples(OFFSETS, st.integers(-5, 2**62)), max_size=12)
RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 3000)), max_size=8)


@given(st.dictionaries(PARTITIONS, OFFSETS))
def test_text_and_back(offsets: dict[TopicPartition, int]) -> None:
    text = json.dumps(document_of(offsets))
    assert offsets_of(json.loads(text)) == offsets
    assert json.dumps(document_of(dict(reversed(offsets.items())))) == text
    ids = {at.topic: f"{number}-_aA" for number, at in enumerate(sorted(offsets))}
    document = json.loads(json.dumps(document_of(offsets, ids | {"not read": "x"})))
    assert (offsets_of(document), topic_ids_of(document)) == (offsets, ids)


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


SEEDS = st.integers(0, 1 << 32)
CHUNK_BYTES = st.sampled_from([1, 100, 700, 1 << 20])
TARGET_BYTES = st.sampled_from([1, 300, 2_000, 1 << 30])
UNCOMMITTED, COMMITTED = Access(paths=("/logs",)), Access(paths=("/logs",), read_committed=True)


def log_by(seed: int) -> CleanerWorld:
    return CleanerWorld(make_log(random.Random(seed)).segments)


def range_in(chance: random.Random, bounds: Bounds) -> OffsetRange:
    """Any part of it; half of the time all."""
    start, end = bounds
    if chance.random() < 0.5:
        start, end = sorted(chance.randint(start, end) for _ in range(2))
    return OffsetRange("orders", 0, start, end)


@given(SEEDS, CHUNK_BYTES, TARGET_BYTES)
def test_rows_are_those_of_a_loop_over_batches(
    seed: int, chunk_bytes: int, target_bytes: int
) -> None:
    world, chance = log_by(seed), random.Random(seed)
    logs = DirectoryLogs(UNCOMMITTED, world.disk)
    bounds = logs.bounds("orders", 0)
    assert bounds == (world.log.segments.first.base_offset, world.log.log_end_offset)
    wanted = range_in(chance, bounds)
    pieces = logs.pieces(wanted, target_bytes)
    offsets = [each.range.from_offset for each in pieces]
    ends = [each.range.to_offset for each in pieces]
    if wanted.from_offset < wanted.to_offset:
        assert [wanted.from_offset, *ends] == [*offsets, wanted.to_offset]
        assert all(start < end for start, end in zip(offsets, ends, strict=True))
    else:
        assert not pieces
    rows = read_rows(world.disk, pieces, UNCOMMITTED, chunk_bytes=chunk_bytes)
    assert rows == plain_rows(world.batches(), wanted)


@given(SEEDS, CHUNK_BYTES, TARGET_BYTES)
def test_read_committed_ends_before_open_transactions_and_leaves_out_aborted_ones(
    seed: int, chunk_bytes: int, target_bytes: int
) -> None:
    world, chance = log_by(seed), random.Random(seed)
    logs = DirectoryLogs(COMMITTED, world.disk)
    bounds = logs.bounds("orders", 0)
    assert bounds.end_offset == max(bounds.log_start_offset, world.log.last_stable_offset)
    wanted = range_in(chance, bounds)
    rows = read_rows(
        world.disk, logs.pieces(wanted, target_bytes), COMMITTED, chunk_bytes=chunk_bytes
    )
    assert rows == plain_rows(world.batches(), wanted, world.aborted())


@given(SEEDS, st.integers(0, 1 << 32), TARGET_BYTES)
def test_indexes_are_hints(seed: int, damage: int, target_bytes: int) -> None:
    """Cut, filled with anything or missing: the rows are the same."""
    world, chance = log_by(seed), random.Random(damage)
    for name in world.disk.list_dir(DIRECTORY):
        if name.endswith((".index", ".timeindex")) and chance.random() < 0.8:
            path = f"{DIRECTORY}/{name}"
            size = chance.choice((0, 8, 24, 96))
            world.disk.unlink(path)
            if chance.random() < 0.9:
                world.disk.open_write(path).pwrite(chance.randbytes(size + chance.randrange(3)), 0)
    logs = DirectoryLogs(UNCOMMITTED, world.disk)
    wanted = range_in(chance, logs.bounds("orders", 0))
    pieces = logs.pieces(wanted, target_bytes)
    rows = read_rows(world.disk, pieces, UNCOMMITTED, chunk_bytes=1 << 20)
    assert rows == plain_rows(world.batches(), wanted)


@given(SEEDS, st.integers(-400, 20_000))
def test_the_first_record_at_a_time_is_that_of_a_loop(seed: int, since_ms: int) -> None:
    world = log_by(seed)
    logs = DirectoryLogs(UNCOMMITTED, world.disk)
    wanted_ms = 1_700_000_000_000 + since_ms
    stamps = [
        (header.max_timestamp if header.attributes & 8 else record.timestamp, record.offset)
        for batch in world.batches()
        for header in [batch.header]
        for record in batch.records
    ]
    expected = next((offset for stamp, offset in stamps if stamp >= wanted_ms), None)
    assert logs.offset_at("orders", 0, wanted_ms) == expected


@given(SEEDS, st.lists(st.sampled_from(SPARK_SCHEMA.names), min_size=1, unique=True))
def test_any_columns_in_any_order(seed: int, names: list[str]) -> None:
    world = log_by(seed)
    logs = DirectoryLogs(UNCOMMITTED, world.disk)
    wanted = OffsetRange("orders", 0, *logs.bounds("orders", 0))
    schema = pa.schema([SPARK_SCHEMA.field(name) for name in names])
    rows = read_rows(
        world.disk, logs.pieces(wanted, 1 << 30), UNCOMMITTED, chunk_bytes=500, schema=schema
    )
    plain = plain_rows(world.batches(), wanted)
    assert rows == [{name: row[name] for name in names} for row in plain]
