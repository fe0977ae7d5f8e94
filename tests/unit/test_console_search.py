"""Goal: the records of a topic come once each, by time, whatever the page's size and direction; a
search finds what a plain reader finds, in bounded steps, and stops when nobody waits.
Method: topics on a simulated disk; pages beside plain loops; attempts to break the tree of a value.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kafkalog.console.formatting import excerpt, hexdump
from kafkalog.console.json_tree import DEPTH_MAX, NODES_MAX, Node, json_tree
from kafkalog.console.views import topic_records as module
from kafkalog.console.views.record import read_record, record_view
from kafkalog.console.views.records import Show
from kafkalog.console.views.topic_records import (
    Order,
    Part,
    Search,
    TopicRecordsView,
    cursor_of,
    topic_records_view,
)
from kafkalog.env.clock import TimeSlice
from kafkalog.errors import UnknownPartition, UnknownTopic
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.record_batch import Codec
from tests.cleaning_daemon import NOW_MS
from tests.sim.sim_manager import SimManager, batch_of
from tests.there import there
from tests.unit.test_console_records import rotten
from tests.unit.test_console_views import page_of

Key = tuple[int, int]  # partition and offset


def many(partitions: int = 3, batches: int = 40, codec: Codec = Codec.NONE) -> SimManager:
    """A topic of batches of five records; the time goes on from batch to batch over partitions."""
    sim = SimManager().start().with_topic("t", partitions)
    for number in range(batches):
        values = [json.dumps({"n": 5 * number + row}).encode() for row in range(5)]
        keys = [b"User-%d" % (number % 7)] * 5
        stamps = [NOW_MS + 1_000 * number + row for row in range(5)]
        pairs = [(b"trace", b"T-%d" % number)] if number % 4 == 0 else []
        columns = RecordColumns.of(keys, values, stamps, [pairs] * 5)
        sim.produce("t", build_batch(columns, codec=codec), partition=number % partitions)
    return sim


def asked(sim: SimManager, search: Search = Search()) -> TopicRecordsView:  # noqa: B008
    return topic_records_view(sim.operations, "t", search, lambda: False)


def places(view: TopicRecordsView) -> list[Key]:
    return [(each.partition, each.offset) for each in view.records]


def whole(sim: SimManager, **search: object) -> list[TopicRecordsView]:
    """Page by page to the end."""
    views = [asked(sim, Search(**search))]  # type: ignore[arg-type] # by name
    while (cursor := views[-1].cursor) is not None:
        assert len(views) < 1_000
        views.append(asked(sim, Search(**search, cursor=cursor_of(cursor))))  # type: ignore[arg-type]
    return views


def pages(sim: SimManager, **search: object) -> list[Key]:
    return [place for view in whole(sim, **search) for place in places(view)]


def in_time(sim: SimManager, partitions: int = 3, batches: int = 40) -> list[Key]:
    """What ``many`` made, oldest first."""
    return [
        (number % partitions, 5 * (number // partitions) + row)
        for number in range(batches)
        for row in range(5)
    ]


@pytest.mark.parametrize("count", [1, 7, 50, 200])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_every_record_comes_once_by_time(count: int, codec: Codec) -> None:
    sim = many(codec=codec)
    oldest = in_time(sim)
    assert pages(sim, count=count, order=Order.OLDEST) == oldest
    assert pages(sim, count=count) == oldest[::-1]
    assert pages(sim, count=count, partition=1) == [each for each in oldest[::-1] if each[0] == 1]


def test_where_a_page_begins() -> None:
    """Newest first it begins with the last record up to the place, oldest first with the first."""
    sim = many()
    oldest = in_time(sim)
    at_ms = NOW_MS + 10_002  # the third record of the eleventh batch
    assert places(asked(sim, Search(timestamp_ms=at_ms)))[0] == oldest[52]
    view = asked(sim, Search(timestamp_ms=at_ms, order=Order.OLDEST))
    assert places(view) == oldest[52:102]
    view = asked(sim, Search(offset=3, order=Order.OLDEST))
    assert sorted(places(view))[0] == (0, 3)
    assert all(offset <= 3 for _, offset in places(asked(sim, Search(offset=3))))
    assert len(places(asked(sim, Search(offset=3)))) == 12
    assert places(asked(sim, Search(timestamp_ms=0))) == []
    assert places(asked(sim, Search(timestamp_ms=INT64_MAX)))[0] == oldest[-1]
    assert places(asked(sim, Search(offset=INT64_MAX, order=Order.OLDEST))) == []


@pytest.mark.parametrize(
    ("text", "part", "numbers"),
    [
        ("user-3", Part.KEY, [n for n in range(40) if n % 7 == 3]),
        ("USER-3", Part.ANY, [n for n in range(40) if n % 7 == 3]),
        ("user-3", Part.VALUE, []),
        ("t-1", Part.HEADERS, [12, 16]),
        ("TRACE", Part.HEADERS, list(range(0, 40, 4))),
        ("t-1", Part.KEY, []),
        ("never", Part.ANY, []),
    ],
)
@pytest.mark.parametrize("count", [3, 200])
def test_a_search_finds_what_is_there(
    text: str, part: Part, numbers: list[int], count: int
) -> None:
    sim, oldest = many(), in_time(many())
    wanted = [oldest[5 * number + row] for number in numbers for row in range(5)]
    assert pages(sim, text=text, part=part, count=count, order=Order.OLDEST) == wanted
    assert pages(sim, text=text, part=part, count=count) == wanted[::-1]


def test_a_search_goes_on_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops at its bytes, says how far it is, and the next step begins there."""
    sim = many()
    monkeypatch.setattr(module, "READ_BYTES", 600)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 100)
    views = whole(sim, text='"n": 0}')
    assert len(views) > 5
    assert all(view.is_stopped for view in views[:-1])
    assert not views[-1].is_stopped
    left = [view.offsets_left for view in views]
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0
    assert views[0].offsets_total == 200
    assert [place for view in views for place in places(view)] == [(0, 0)]
    assert ">Search on</a>" in page_of(views[0])
    assert ">Search on</a>" not in page_of(views[-1])


def test_a_search_has_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = many()
    monkeypatch.setattr(module, "READ_MS", 0)
    view = asked(sim, Search(text="never"))
    assert (view.is_stopped, view.scanned_bytes) == (True, 0)
    assert cursor_of(there(view.cursor)) == {0: 70, 1: 65, 2: 65}


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_the_time_of_a_search_is_not_that_of_the_wall_clock(jump_ms: int) -> None:
    """The clock is set while the search runs; it ends as if it had not been."""
    sim = many()

    def is_left() -> bool:
        sim.clock.step_wall_ms(jump_ms)
        sim.clock.advance_ms(1_500)
        return False

    view = topic_records_view(sim.operations, "t", Search(text="never", count=1), is_left)
    assert view.is_stopped
    assert 0 < view.scanned_records < 200


def test_the_time_of_a_search_begins_before_its_partitions_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sim = many()
    side = module._side

    def slow(*asked_for: Any) -> Any:
        sim.clock.advance_ms(1_000)
        return side(*asked_for)

    monkeypatch.setattr(module, "_side", slow)
    assert (asked(sim).scanned_bytes, asked(sim).is_stopped) == (0, True)


def test_a_search_gives_the_interpreter_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between batches, and within a large one; otherwise appends are many times slower."""
    small, large, asks = many(1, 40), SimManager().start().with_topic("t", 1), list[int]()
    columns = RecordColumns.of([None] * 2_000, [b"some"] * 2_000, NOW_MS)
    large.produce("t", build_batch(columns))
    monkeypatch.setattr(TimeSlice, "maybe_yield", lambda _: asks.append(1))
    asked(small, Search(text="never"))
    assert len(asks) >= 40
    asks.clear()
    asked(large, Search(text="some", part=Part.KEY, count=2_000))
    assert len(asks) >= 2_000 // 256


def test_a_search_that_nobody_waits_for_stops() -> None:
    sim, looks = many(), list[int]()

    def has_left() -> bool:
        looks.append(1)
        return len(looks) > 2

    view = topic_records_view(sim.operations, "t", Search(text="never", count=1), has_left)
    assert len(looks) == 3
    assert 0 < view.scanned_records < 200


def test_records_that_come_meanwhile_do_not_move_the_pages() -> None:
    sim = many()
    first = asked(sim, Search(count=10))
    sim.produce("t", build_batch(RecordColumns.of([b"k"], [b"v"], NOW_MS + 50_000)), partition=0)
    second = asked(sim, Search(count=10, cursor=cursor_of(there(first.cursor))))
    assert places(first) + places(second) == in_time(sim)[::-1][:20]


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("count", [1, 3, 50])
def test_a_rotten_batch_is_a_row_and_is_not_searched(order: Order, count: int) -> None:
    sim = rotten()
    every = [offset for _, offset in pages(sim, order=order, count=count)]
    assert sorted(every) == list(range(12))
    found = pages(sim, order=order, count=count, text="00")
    assert sorted(offset for _, offset in found) == [each for each in range(12) if each != 5]
    assert sum(view.unsearched for view in whole(sim, text="00", count=50)) == 1
    assert "1 batch could not be searched" in page_of(asked(sim, Search(text="none")))


def test_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones, until somebody chooses another."""
    monkeypatch.setattr(module, "PARTITIONS_READ", 2)
    sim = many()
    view = asked(sim, Search(count=200))
    assert {each.partition for each in view.records} == {0, 1}
    assert "these are the records of the first 2" in page_of(view)
    assert {each.partition for each in asked(sim, Search(partition=2)).records} == {2}
    with pytest.raises(UnknownPartition):
        asked(sim, Search(partition=3))
    with pytest.raises(UnknownTopic):
        topic_records_view(sim.operations, "none", Search(), lambda: False)


def test_what_is_no_cursor() -> None:
    for text in ("", "1", "1:", ":1", "a:1", "1:2,", "1:2,1:3", "-1:2", "1:99999999999999999999"):
        assert cursor_of(text) is None, text
    sim = many()
    assert places(asked(sim, Search(cursor={9: 1}))) == []
    assert places(asked(sim, Search(cursor={0: INT64_MAX}, count=1))) == [(0, 69)]


def test_hostile_bytes_are_text_on_the_page() -> None:
    sim = SimManager().start().with_topic("t", 1)
    values = [
        b"<script>alert(1)</script>",
        b'{"<b>": "</details><i>\\u202e"}',
        b"\x00\xff",
        None,
        b"",
    ]
    columns = RecordColumns.of([b"<img src=x>"] * 5, values, NOW_MS, [[(b"<h>", b"<v>")]] * 5)
    sim.produce("t", build_batch(columns))
    for text in ("", "script", "<b>", '"'):
        html = page_of(asked(sim, Search(text=text)))
        body = html[html.index("<main") :]
        for tag in ("<script", "<img", "<b>", "<i>", "<h>", "<v>"):
            assert tag not in body
        assert "\u202e" not in html
    html = page_of(asked(sim, Search(text="SCRIPT")))
    assert "&lt;<mark>script</mark>&gt;" in html
    for offset in range(6):
        for show in Show:
            page_of(record_view(sim.operations, "t", 0, offset, show))


def test_one_record_and_its_neighbours() -> None:
    sim = many(1, 2)
    view = record_view(sim.operations, "t", 0, 5, Show.AUTO)
    assert (view.previous_offset, view.next_offset, there(view.record).offset) == (4, 6, 5)
    assert there(there(view.record).key).text == "User-1"
    first = record_view(sim.operations, "t", 0, 0, Show.AUTO)
    assert (first.previous_offset, first.next_offset) == (None, 1)
    last = record_view(sim.operations, "t", 0, 9, Show.AUTO)
    assert (last.previous_offset, last.next_offset) == (8, None)
    outside = record_view(sim.operations, "t", 0, 99, Show.AUTO)
    assert (outside.record, outside.previous_offset) == (None, 9)
    assert "No record has this offset" in page_of(outside)
    assert there(there(read_record(sim.operations, "t", 0, 5)).value) == b'{"n": 5}'
    assert read_record(sim.operations, "t", 0, 10) is None
    rotten_one = record_view(rotten().operations, "t", 0, 5, Show.AUTO)
    assert there(rotten_one.record).fault is not None
    assert (rotten_one.previous_offset, rotten_one.next_offset) == (4, 6)


def texts(node: Node) -> object:
    """Back to what the tree was made of, numbers as they were written."""
    if node.kind == "object":
        return {json.loads(name): texts(each) for name, each in node.members}
    if node.kind == "array":
        return [texts(each) for _, each in node.members]
    return json.loads(node.text)


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("abc<>&\"'\\\n ü", max_size=9)
)


@given(
    st.recursive(
        LEAVES,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
        ),
        max_leaves=30,
    )
)
def test_a_tree_is_its_json(value: object) -> None:
    tree = json_tree(json.dumps(value, ensure_ascii=False))
    if isinstance(value, list | dict):
        assert texts(there(tree)) == value
    else:
        assert tree is None


def test_a_tree_keeps_what_is_written() -> None:
    tree = there(json_tree('{"a": 1.50, "a": 12345678901234567890123, "b": "x\\u202ey"}'))
    assert [(name, each.text) for name, each in tree.members] == [
        ('"a"', "1.50"),
        ('"a"', "12345678901234567890123"),
        ('"b"', '"x\\u202ey"'),
    ]
    for text in (
        *("[1", "[NaN]", "text", "1", '"a"', "[1] 2", "", " "),
        "[" * 100_000,
        "[" * (DEPTH_MAX + 2) + "]" * (DEPTH_MAX + 2),
        json.dumps([0] * NODES_MAX),
        "[" + "9" * 5_000_000 + "]",
    ):
        tree_or_none = json_tree(text)
        assert tree_or_none is None or len(text) > 4_000_000
    assert json_tree("[" * DEPTH_MAX + "]" * DEPTH_MAX) is not None


def test_lines_of_hex() -> None:
    data = bytes(range(0x3A, 0x4C))
    assert hexdump(data.hex(" ")).split("\n") == [
        "000000  3a 3b 3c 3d 3e 3f 40 41 42 43 44 45 46 47 48 49  :;<=>?@ABCDEFGHI",
        "000010  4a 4b" + " " * 42 + "  JK",
    ]
    assert hexdump("") == ""


@pytest.mark.parametrize("text", ["Zoë", 'say "hi"', "a\\b", "😀"])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_what_a_page_shows_is_found(text: str, *, is_ascii: bool) -> None:
    """JSON escapes what pages decode: the bytes of json.dumps hold no "Zoë"."""
    sim = SimManager().start().with_topic("t", 1)
    sim.produce("t", batch_of(json.dumps({"name": text}, ensure_ascii=is_ascii), "other"))
    view = asked(sim, Search(text=text, part=Part.VALUE))
    assert places(view) == [(0, 0)]
    assert "<mark>" in page_of(view)


def test_an_excerpt() -> None:
    assert excerpt('{"a":"Zo\\u00eb!"}', "zoë") == ('{"a":"', "Zo\\u00eb", '!"}')

    assert excerpt("abcDEF", "cd") == ("ab", "cD", "EF")
    assert excerpt("abc", "x") == ("abc", "", "")
    assert excerpt("abc", "") == ("abc", "", "")
    assert excerpt("Äİx", "X") == ("Äİ", "x", "")
    before, found, after = excerpt("x" * 99 + "needle" + "y", "NEEDLE")
    assert (before, found, after) == ("…" + "x" * 16, "needle", "y")
