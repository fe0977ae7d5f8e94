"""Goal: every row of a data frame is one record of the right partition, in order, in small batches.
Method: random rows in random Arrow batches; each batch that comes out is built and decoded again;
a plain loop says where each record belongs. Rows are told apart by their timestamps.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kafkalog.client.produce import Partitions
from kafkalog.format.records.batch_builder import build_batch
from kafkalog.format.records.record import iterate_records
from kafkalog.format.records.record_batch import Codec
from kafkalog.spark.sink.write import BatchPlanner, blocks
from tests.naive.records import partition_of

NOW = 1_700_000_000_000
PAIR = pa.struct([("key", pa.utf8()), ("value", pa.binary())])
TYPES = {
    "topic": pa.utf8(),
    "key": pa.binary(),
    "value": pa.utf8(),
    "headers": pa.list_(PAIR),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
TOPICS = {"a": Partitions(1, (0,)), "b": Partitions(3, (0, 2)), "c": Partitions(5, ())}
TEXT = st.text(max_size=40)


class Fixed:
    """Chance that always falls on one number, or on the last one."""

    def __init__(self, number: int) -> None:
        self._number = number

    def below(self, bound: int) -> int:
        return min(self._number, bound - 1)

    def uuid_bytes(self) -> bytes:
        return bytes(16)


class Row(NamedTuple):
    """A row without its timestamp."""

    topic: str
    key: bytes | None
    value: str | None
    headers: list[dict[str, Any]] | None
    partition: int | None


ROWS = st.lists(
    st.builds(
        Row,
        st.sampled_from(sorted(TOPICS)),
        st.none() | st.binary(max_size=9),
        st.none() | TEXT,
        st.none()
        | st.lists(
            st.builds(
                lambda name, value: {"key": name, "value": value},
                TEXT,
                st.none() | st.binary(max_size=5),
            ),
            max_size=3,
        ),
        st.none() | st.just(0),
    ),
    max_size=25,
)


def frame(rows: list[Row], columns: set[str], size: int) -> list[pa.RecordBatch]:
    """The rows in Arrow batches of so many, each with a number as its timestamp."""
    whole = pa.record_batch(
        {
            name: pa.array(
                [number * 1000 for number in range(len(rows))]
                if name == "timestamp"
                else [getattr(row, name) for row in rows],
                kind,
            )
            for name, kind in TYPES.items()
            if name in columns
        }
    )
    return [whole.slice(start, size) for start in range(0, len(rows), size)]


@given(
    ROWS,
    st.sets(st.sampled_from(["topic", "key", "headers", "partition"])),
    st.integers(1, 9),
    st.sampled_from([1, 500, 1 << 20]),
    st.sampled_from([1, 200, 1 << 20]),
    st.integers(0, 4),
    st.sampled_from(list(Codec)),
)
def test_every_row_is_one_record_in_its_place(
    rows: list[Row],
    columns: set[str],
    size: int,
    block_bytes: int,
    batch_bytes: int,
    chance: int,
    codec: Codec,
) -> None:
    """M10: all fields, the partition by column, key or turn, the order of the rows, the bound."""
    topic = None if "topic" in columns else "b"
    written = columns | {"value", "timestamp"}
    planner = BatchPlanner(
        topic, sorted(written), TOPICS.__getitem__, batch_bytes=batch_bytes, random=Fixed(chance)
    )
    found: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for block in blocks(frame(rows, written, size), block_bytes):
        for batch in planner.batches(block, NOW):
            data = build_batch(batch.columns, batch.rows, codec=codec)
            records = list(iterate_records(data))
            assert len(records) == 1 or codec is not Codec.NONE or len(data) <= batch_bytes + 61
            found[batch.topic, batch.partition] += records
    for (at_topic, partition), records in found.items():
        numbers = [record.timestamp for record in records]
        assert numbers == sorted(numbers)
        for record in records:
            row = rows[record.timestamp]
            assert at_topic == (topic or row.topic)
            assert partition in places(row, columns, at_topic)
            assert (record.key, record.value, record.headers) == stored(row, columns)
    assert sorted(r.timestamp for records in found.values() for r in records) == list(
        range(len(rows))
    )


def places(row: Row, columns: set[str], topic: str) -> tuple[int, ...]:
    """Partitions in which a row may be found: one, or any that is served."""
    partitions = TOPICS[topic]
    if "partition" in columns and row.partition is not None:
        return (row.partition,)
    if "key" in columns and row.key is not None:
        return (partition_of(row.key, partitions.count),)
    return partitions.served or tuple(range(partitions.count))


def stored(row: Row, columns: set[str]) -> tuple[Any, ...]:
    headers = (row.headers or []) if "headers" in columns else []
    return (
        row.key if "key" in columns else None,
        None if row.value is None else row.value.encode(),
        tuple((each["key"].encode(), each["value"]) for each in headers),
    )


@pytest.mark.parametrize(
    ("rows", "expected"), [(10, [2, 0, 2, 0]), (5, [2, 2, 0, 0]), (20, [0, 2, 0, 2, 0, 2, 0, 2])]
)
def test_rows_without_key_take_turns(rows: int, expected: list[int]) -> None:
    """A batch of ten rows to each served partition, however many a block has, from chance on."""
    planner = BatchPlanner("b", ["value"], TOPICS.__getitem__, batch_bytes=1000, random=Fixed(1))
    block = pa.record_batch({"value": pa.array(["x" * 64] * rows)})
    sent = [batch.partition for _ in range(4) for batch in planner.batches(block, NOW)]
    assert sent == expected


def test_rows_have_the_moment_when_they_have_no_timestamp() -> None:
    stamps = pa.array([5_000, None], pa.timestamp("us", "UTC"))
    values = pa.array(["a", "b"])
    found = []
    for block in (
        pa.record_batch({"value": values, "timestamp": stamps}),
        pa.record_batch({"value": values}),
    ):
        planner = BatchPlanner(
            "a", block.schema.names, TOPICS.__getitem__, batch_bytes=1000, random=Fixed(0)
        )
        (batch,) = planner.batches(block, NOW)
        records = iterate_records(build_batch(batch.columns, batch.rows))
        found.append([record.timestamp for record in records])
    assert found == [[5, NOW], [NOW, NOW]]
