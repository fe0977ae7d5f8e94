"""Goal: a plan reads what options and filters want, no more, and says what is missing.
Method: logs as lists (`tests/naive/spark_logs.py`); ranges are compared as numbers.
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import KafkalogError, UnknownPartition, UnknownTopic
from kafkalog.format.topic_names import TopicPartition
from kafkalog.spark.logs.values import DataLost, OffsetRange
from kafkalog.spark.offsets import ColumnFilter, Wanted, narrowed
from kafkalog.spark.option_values import InvalidOption
from kafkalog.spark.options import batch_options, stream_options
from kafkalog.spark.planning import (
    OffsetReader,
    PartitionsGone,
    StreamOffset,
    batch_ranges,
    pieces_of,
    trigger_pieces,
    trigger_ranges,
)
from tests.naive.spark_logs import NaiveLog, NaiveLogs

if TYPE_CHECKING:
    from kafkalog.spark.options import SourceOptions

A0, A1, B0 = (TopicPartition(*at) for at in (("a", 0), ("a", 1), ("b", 0)))
TEN = [1000 * number for number in range(10)]


def logs() -> NaiveLogs:
    """Topic a: offsets 0 to 10 and 5 to 15, a second apart; topic b: nothing yet."""
    return NaiveLogs({"a": {0: NaiveLog(0, TEN), 1: NaiveLog(5, TEN)}, "b": {0: NaiveLog()}})


def batch(**given: str) -> SourceOptions:
    return batch_options({"path": "/data", "subscribe": "a"} | given)


def ranges_of(logs: NaiveLogs, options: SourceOptions, wanted: Wanted) -> list[OffsetRange]:
    return batch_ranges(logs, options, wanted, OffsetReader(logs, options).partitions())


def planned(options: SourceOptions, *filters: ColumnFilter) -> list[tuple[str, int, int]]:
    """(partition, from, to)."""
    wanted = Wanted()
    for each in filters:
        wanted, _ = narrowed(wanted, each)
    ranges = ranges_of(logs(), options, wanted)
    return [(f"{each.topic}-{each.partition}", each.from_offset, each.to_offset) for each in ranges]


def test_all_of_a_topic() -> None:
    assert planned(batch()) == [("a-0", 0, 10), ("a-1", 5, 15)]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"subscribe": "a,b"}, ["a-0", "a-1", "b-0"]),
        ({"subscribepattern": "[ab]"}, ["a-0", "a-1", "b-0"]),
        ({"subscribepattern": "^(?!a).*"}, ["b-0"]),
        ({"subscribepattern": "$"}, ["a-0", "a-1", "b-0"]),
        ({"subscribepattern": "none"}, []),
        ({"assign": '{"b":[0],"a":[1]}'}, ["a-1", "b-0"]),
    ],
)
def test_subscriptions(given: dict[str, str], names: list[str]) -> None:
    options = batch_options({"path": "/data"} | given)
    assert [str(at) for at in OffsetReader(logs(), options).partitions()] == names


def test_what_is_not_there_is_named() -> None:
    several = NaiveLogs({"orders": {0: NaiveLog(), 3: NaiveLog()}, "clicks": {0: NaiveLog()}})
    slip = batch_options({"path": "/data", "subscribe": "order"})
    with pytest.raises(UnknownTopic, match=r"no topic order; did you mean orders.$"):
        OffsetReader(several, slip).partitions()
    far = batch_options({"path": "/data", "subscribe": "zzz"})
    with pytest.raises(UnknownTopic, match=r"no topic zzz; existing topics: clicks, orders$"):
        OffsetReader(several, far).partitions()
    number = batch_options({"path": "/data", "assign": '{"orders":[0,1]}'})
    with pytest.raises(UnknownPartition, match="no partition orders-1: orders has 0, 3"):
        OffsetReader(several, number).partitions()


def test_offsets_and_extremes() -> None:
    options = batch(startingoffsets='{"a":{"0":-2,"1":7}}', endingoffsets='{"a":{"0":4,"1":-1}}')
    assert planned(options) == [("a-0", 0, 4), ("a-1", 7, 15)]


def test_each_partition_must_be_named() -> None:
    with pytest.raises(InvalidOption, match="startingOffsets lacks a-1 and names b-0, not subscr"):
        planned(batch(startingoffsets='{"a":{"0":1},"b":{"0":1}}'))


def test_times() -> None:
    times = batch(startingtimestamp="2500", endingtimestamp="7000")
    assert planned(times) == [("a-0", 3, 7), ("a-1", 8, 12)]
    by_partition = batch(
        startingoffsetsbytimestamp='{"a":{"0":1000,"1":0}}',
        endingoffsetsbytimestamp='{"a":{"0":99999,"1":1}}',
    )
    assert planned(by_partition) == [("a-0", 1, 10), ("a-1", 5, 6)]


def test_a_start_behind_every_record() -> None:
    with pytest.raises(InvalidOption, match=r"startingTimestamp: a-0 has no record .* 99999 ms"):
        planned(batch(startingtimestamp="99999"))
    latest = batch(startingtimestamp="99999", startingoffsetsbytimestampstrategy="latest")
    assert planned(latest) == [("a-0", 10, 10), ("a-1", 15, 15)]


def test_a_start_behind_the_end() -> None:
    with pytest.raises(InvalidOption, match="begins at offset 99 of a-0, after its end 10"):
        planned(batch(startingoffsets='{"a":{"0":99,"1":5}}'))


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


FILTERS: list[tuple[ColumnFilter, bool, list[tuple[str, int, int]]]] = [
    (ColumnFilter("EqualTo", "partition", 1), True, [("a-1", 5, 15)]),
    (ColumnFilter("In", "partition", (0, 7)), True, [("a-0", 0, 10)]),
    (ColumnFilter("LessThan", "partition", 1), True, [("a-0", 0, 10)]),
    (ColumnFilter("GreaterThanOrEqual", "partition", 1), True, [("a-1", 5, 15)]),
    (ColumnFilter("EqualTo", "topic", "b"), True, []),
    (ColumnFilter("In", "topic", ("a", "b")), True, [("a-0", 0, 10), ("a-1", 5, 15)]),
    (ColumnFilter("StringStartsWith", "topic", "b"), True, []),
    (ColumnFilter("EqualTo", "offset", 6), True, [("a-0", 6, 7), ("a-1", 6, 7)]),
    (ColumnFilter("GreaterThan", "offset", 8), True, [("a-0", 9, 10), ("a-1", 9, 15)]),
    (ColumnFilter("GreaterThanOrEqual", "offset", 12), True, [("a-0", 12, 12), ("a-1", 12, 15)]),
    (ColumnFilter("LessThan", "offset", 7), True, [("a-0", 0, 7), ("a-1", 5, 7)]),
    (ColumnFilter("LessThanOrEqual", "offset", -5), True, [("a-0", 0, 0), ("a-1", 5, 5)]),
    (ColumnFilter("In", "offset", (6, 8)), False, [("a-0", 6, 9), ("a-1", 6, 9)]),
    (ColumnFilter("In", "offset", (6,)), True, [("a-0", 6, 7), ("a-1", 6, 7)]),
    (ColumnFilter("GreaterThan", "timestamp", at(2.0005)), False, [("a-0", 2, 10), ("a-1", 7, 15)]),
    (ColumnFilter("EqualTo", "timestamp", at(3)), False, [("a-0", 3, 10), ("a-1", 8, 15)]),
    (ColumnFilter("In", "timestamp", (at(4), at(3))), False, [("a-0", 3, 10), ("a-1", 8, 15)]),
    (ColumnFilter("GreaterThan", "timestamp", at(99)), False, [("a-0", 10, 10), ("a-1", 15, 15)]),
    (ColumnFilter("LessThan", "timestamp", at(3)), False, [("a-0", 0, 10), ("a-1", 5, 15)]),
    (ColumnFilter("IsNotNull", "offset"), True, [("a-0", 0, 10), ("a-1", 5, 15)]),
    (ColumnFilter("IsNotNull", "key"), False, [("a-0", 0, 10), ("a-1", 5, 15)]),
    (ColumnFilter("EqualTo", "key", b"x"), False, [("a-0", 0, 10), ("a-1", 5, 15)]),
    (ColumnFilter("EqualTo", "offset", None), False, [("a-0", 0, 10), ("a-1", 5, 15)]),
    (ColumnFilter("EqualTo", "partition", None), False, [("a-0", 0, 10), ("a-1", 5, 15)]),
    (ColumnFilter("StringContains", "partition", "1"), False, [("a-0", 0, 10), ("a-1", 5, 15)]),
    (ColumnFilter("Not", "", None), False, [("a-0", 0, 10), ("a-1", 5, 15)]),
]


@pytest.mark.parametrize(("given", "is_done", "ranges"), FILTERS, ids=lambda each: str(each)[:70])
def test_filters(given: ColumnFilter, is_done: bool, ranges: list[tuple[str, int, int]]) -> None:
    """Done with what left out exactly the others, narrower where that is certain."""
    assert narrowed(Wanted(), given)[1] is is_done
    assert planned(batch(), given) == ranges


def test_filters_add_up() -> None:
    assert planned(
        batch(),
        ColumnFilter("EqualTo", "partition", 1),
        ColumnFilter("GreaterThan", "timestamp", at(1)),
        ColumnFilter("GreaterThan", "offset", 2),
        ColumnFilter("LessThan", "offset", 9),
    ) == [("a-1", 6, 9)]


def test_pieces() -> None:
    some = logs()
    some.offsets_a_piece = 3
    ranges = [OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 5, 5), OffsetRange("b", 0, 0, 5)]
    sizes = [
        piece.range.to_offset - piece.range.from_offset
        for piece in pieces_of(some, batch(minpartitions="3"), ranges, {})
    ]
    assert sizes == [3, 2, 3, 2, 3, 2]


def stream(fails: bool) -> SourceOptions:
    return stream_options(
        {"path": "/data", "subscribepattern": ".*", "failondataloss": str(fails).lower()}
    )


def test_a_trigger() -> None:
    some = logs()
    some.logs["c"] = {0: NaiveLog(0, TEN)}
    new = TopicPartition("c", 0)
    ranges = trigger_ranges(some, stream(fails=True), {A0: 3, A1: 5}, {A0: 9, A1: 5, new: 4})
    assert ranges == [
        OffsetRange("a", 0, 3, 9),
        OffsetRange("a", 1, 5, 5),
        OffsetRange("c", 0, 0, 4),
    ]


Losses = tuple[dict[TopicPartition, int], dict[TopicPartition, int], str, type[KafkalogError]]
LOSSES: list[Losses] = [
    ({A0: 3, B0: 7}, {A0: 9}, r"deleted.*: b-0 \(read up to 7\)", PartitionsGone),
    (
        {A0: 3},
        {A0: 9, TopicPartition("x", 0): 5},
        r"deleted.*: x-0 \(read up to 0\)",
        PartitionsGone,
    ),
    ({A0: 3}, {A0: 9, A1: 6}, r"a-1 \[0, 5\) are missing.* was added while", DataLost),
    ({A0: 12}, {A0: 9}, r"a-0 \[9, 12\) are missing.* read up to", DataLost),
]


@pytest.mark.parametrize(("start", "end", "message", "kind"), LOSSES)
def test_losses_end_a_query_or_are_told(
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    message: str,
    kind: type[KafkalogError],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With failOnDataLoss=false a warning, and the rest is read."""
    with pytest.raises(kind, match=message) as caught:
        trigger_ranges(logs(), stream(fails=True), start, end)
    assert "failOnDataLoss=false" in str(caught.value)
    with caplog.at_level(logging.WARNING):
        ranges = trigger_ranges(logs(), stream(fails=False), start, end)
    (record,) = caplog.records
    assert record.name == "kafkalog.spark"
    assert re.search(message, record.getMessage())
    assert all(each.from_offset <= each.to_offset for each in ranges)
    assert OffsetRange("a", 0, 3, 9) in ranges or start == {A0: 12}


def test_a_topic_that_is_gone_later_is_told() -> None:
    options = stream_options({"path": "/data", "subscribe": "a,x", "failondataloss": "false"})
    reader = OffsetReader(logs(), options)
    assert reader.partitions(missing_is_an_error=False) == [A0, A1]
    with pytest.raises(UnknownTopic, match="no topic x"):
        reader.partitions()


def test_a_partition_that_goes_while_it_is_asked() -> None:
    reader = OffsetReader(logs(), stream(fails=True))
    assert reader.latest([A0, TopicPartition("x", 0)]) == {A0: 10}
    assert reader.earliest([TopicPartition("a", 9), A1]) == {A1: 5}


class Deleting(NaiveLogs):
    """A topic is listed and gone at the next question."""

    def topics(self) -> dict[str, list[int]]:
        found = super().topics()
        self.logs.pop("a", None)
        return found


def test_a_topic_deleted_during_a_plan_is_not_passed_over() -> None:
    wanted = {"path": "/data", "subscribe": "a,b"}
    with pytest.raises(PartitionsGone, match=r"deleted.*: a-0 .*, a-1"):
        ranges_of(Deleting(logs().logs), batch_options(wanted), Wanted())
    options = batch_options(wanted | {"failondataloss": "false"})
    assert ranges_of(Deleting(logs().logs), options, Wanted()) == [OffsetRange("b", 0, 0, 0)]


def test_a_recreated_topic_is_not_read_on(caplog: pytest.LogCaptureFixture) -> None:
    """DataLost, or its new partitions from their starts and fewer of them; other topics go on."""
    some = logs()
    some.ids = {"a": "now", "b": "same"}
    start = StreamOffset({A0: 3, A1: 9, B0: 0, TopicPartition("a", 2): 5}, some.ids | {"a": "old"})
    end = StreamOffset({A0: 9, B0: 0}, some.ids)
    with pytest.raises(DataLost, match=r"a-0 from offset 3 on are missing.*was old, it is now now"):
        trigger_pieces(some, stream(fails=True), start, end)
    with caplog.at_level(logging.WARNING):
        pieces = trigger_pieces(some, stream(fails=False), start, end)
    assert [(str(each.range), each.topic_id) for each in pieces] == [("a-0 [0, 9)", "now")]
    assert len(caplog.records) == 1


def test_a_planned_batch_of_a_recreated_topic_reads_nothing_of_it() -> None:
    some = logs()
    start, end = ({A0: first, B0: 0} for first in (3, 9))
    some.ids = {"a": "now"}
    planned = StreamOffset(end, {"a": "planned"})
    for begun in ({"a": "planned"}, {}):
        with pytest.raises(DataLost, match="was planned, it is now now"):
            trigger_pieces(some, stream(fails=True), StreamOffset(start, begun), planned)
        assert trigger_pieces(some, stream(fails=False), StreamOffset(start, begun), planned) == []
    unknown = StreamOffset(end, {})
    (piece,) = trigger_pieces(some, stream(fails=True), StreamOffset(start, {}), unknown)
    assert piece.topic_id == "now"
