"""Goal: a strip says of each segment what the planner says, each byte and marker in its place.
Method: states and layouts of made-up segments; the pure functions alone.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.console import formatting
from kafkalog.console.drawings import LEAST_BLOCK_WIDTH, WIDTH, lay_out_strip
from kafkalog.console.segment_states import CleanRange, SegmentState, reason_of, state_of
from kafkalog.format.integers import INT64_MAX
from kafkalog.log.retention.forecast import Due, Schedule, SegmentFate, explain
from kafkalog.log.retention.plan import Keeper, LogFacts, RetentionPolicy, Rule, SegmentFacts
from kafkalog.server.protocol.parameters import parse_timestamp

DAY = 86_400_000
NOW = 1_764_130_200_000  # 2025-11-26 04:10:00 UTC


class Piece(NamedTuple):
    """A segment as the strip sees it."""

    base_offset: int
    next_offset: int | None
    size_bytes: int
    state: SegmentState


def row(*sizes: int, state: SegmentState = SegmentState.KEPT) -> list[Piece]:
    """Segments of ten offsets each."""
    return [Piece(10 * at, 10 * at + 10, size, state) for at, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("base_offset", "next_offset", "rule", "clean", "is_active", "letter"),
    [
        (0, 10, None, None, False, "K"),
        (0, 10, None, None, True, "A"),
        (0, 10, Rule.TIME, None, False, "X"),
        (0, 10, Rule.SIZE, CleanRange(10, 20, False), True, "X"),
        (0, 10, None, CleanRange(10, 20, False), False, "C"),
        (0, 10, None, CleanRange(5, 20, False), False, "D"),
        (10, 20, None, CleanRange(10, 20, False), False, "D"),
        (20, 30, None, CleanRange(10, 20, False), False, "U"),
        (10, 20, None, CleanRange(10, 20, True), False, "~"),
        (0, 10, None, CleanRange(10, 20, True), False, "~"),
        (20, 30, None, CleanRange(10, 20, True), False, "U"),
    ],
)
def test_state(
    base_offset: int,
    next_offset: int,
    rule: Rule | None,
    clean: CleanRange | None,
    is_active: bool,
    letter: str,
) -> None:
    """What goes comes before where appends go, and that before how clean it is."""
    assert state_of(base_offset, next_offset, rule, clean, is_active=is_active).letter == letter


def test_every_state_has_a_letter_of_its_own() -> None:
    """Nobody has to tell states by colour."""
    assert len({each.letter for each in SegmentState}) == len(SegmentState)
    assert all(each.meaning for each in SegmentState)


def test_a_reason_names_the_window_of_the_planner() -> None:
    """The most asked question is answered: why is this still here, and until when."""
    newest_ms = NOW - (3 * 3_600_000 + 12 * 60_000)
    facts = LogFacts((SegmentFacts(0, 100, newest_ms), SegmentFacts(10, 50, NOW)), 150, 0, 20, 20)
    policy = RetentionPolicy(True, 7 * DAY, -1)
    fates = explain(facts, policy, NOW, Schedule(NOW + 60_000, 300_000, 60_000))
    due = fates[0].due
    assert due is not None
    reason = reason_of(fates[0], policy, NOW, has_record_timestamp=True)
    assert reason == (
        "kept: newest record 3 h 12 min old, limit 7 d → earliest deletion "
        f"{formatting.moment(due.moment_ms)} (in 6 d 20 h), latest "
        f"{formatting.moment(due.latest_ms)}; "
        f"files gone by {formatting.moment(due.files_gone_ms)}"
    )
    behind = reason_of(fates[1], policy, NOW, has_record_timestamp=True)
    assert behind.startswith("kept: older segments go first → earliest deletion ")


def test_where_nothing_goes_nothing_goes_first() -> None:
    """A log without ``delete`` in its policy is not said to wait for older segments."""
    segments = (SegmentFacts(0, 100, NOW), SegmentFacts(10, 50, NOW))
    policy = RetentionPolicy(False, 7 * DAY, -1)
    schedule = Schedule(NOW + 60_000, 300_000, 60_000)
    fates = explain(LogFacts(segments, 150, 0, 20, 20), policy, NOW, schedule)
    assert {reason_of(each, policy, NOW, has_record_timestamp=True) for each in fates} == {
        "kept: cleanup.policy has no delete"
    }


@pytest.mark.parametrize("keeper", list(Keeper))
@pytest.mark.parametrize("rule", [None, *Rule])
def test_every_fate_has_a_reason(keeper: Keeper, rule: Rule | None) -> None:
    """No fate leaves a page without words."""
    due = Due(INT64_MAX + 5, None, INT64_MAX + 9, INT64_MAX + 9)
    facts = SegmentFacts(0, 1, INT64_MAX)
    fate = SegmentFate(facts, rule, None if rule else keeper, due, 5)
    reason = reason_of(fate, RetentionPolicy(True, 1, 1), NOW, has_record_timestamp=False)
    assert reason.startswith("deletable: " if rule else "kept: ")


def test_widths_are_shares_of_the_bytes() -> None:
    """What is large looks large, and what is small can be hit."""
    strip = lay_out_strip(row(0, 100, 300), {})
    free = WIDTH - 3 * LEAST_BLOCK_WIDTH
    widths = [block.width for block in strip.blocks]
    assert widths == [
        LEAST_BLOCK_WIDTH,
        LEAST_BLOCK_WIDTH + free / 4,
        LEAST_BLOCK_WIDTH + free * 3 / 4,
    ]
    assert [block.x for block in strip.blocks] == [0.0, widths[0], widths[0] + widths[1]]


def test_neighbours_of_one_state_share_a_block_when_there_are_many() -> None:
    """20,000 segments fit the picture."""
    many = row(*[1] * 500) + row(*[1] * 500, state=SegmentState.DELETABLE)
    strip = lay_out_strip(many, {})
    assert strip.width == WIDTH
    assert len(strip.blocks) <= WIDTH / LEAST_BLOCK_WIDTH
    assert sum(block.segments for block in strip.blocks) == 1000
    states = [SegmentState.CLEAN, SegmentState.DIRTY] * 300
    mixed = [Piece(at, at + 1, 1, state) for at, state in enumerate(states)]
    assert [block.state for block in lay_out_strip(mixed, {}).blocks] == states
    assert lay_out_strip(mixed, {}).width == 600 * LEAST_BLOCK_WIDTH


def test_markers_stand_where_their_offset_is() -> None:
    """A marker in the middle of a segment's offsets stands in the middle of its block."""
    strip = lay_out_strip(row(100, 100), {"start": 0, "middle": 15, "end": 20, "beyond": 21})
    assert [marker.name for marker in strip.markers] == ["start", "middle", "end"]
    assert [marker.x for marker in strip.markers] == [0.0, WIDTH * 0.75, WIDTH]
    gone = [Piece(5, None, 100, SegmentState.DELETING)]
    later = [Piece(10, 20, 100, SegmentState.ACTIVE)]
    strip = lay_out_strip(gone + later, {"gone": 7, "start": 10})
    assert [(marker.name, marker.x) for marker in strip.markers] == [("start", WIDTH / 2)]


@given(
    st.lists(st.tuples(st.integers(0, 1 << 40), st.sampled_from(list(SegmentState))), min_size=1)
)
def test_a_strip_is_whole(segments: list[tuple[int, SegmentState]]) -> None:
    """No segment is lost or drawn twice."""
    pieces = [Piece(at, at + 1, size, state) for at, (size, state) in enumerate(segments)]
    strip = lay_out_strip(pieces, {})
    assert strip.blocks[0].x == 0.0
    for left, right in zip(strip.blocks, strip.blocks[1:], strict=False):
        assert right.x == pytest.approx(left.x + left.width)
        assert right.first == left.first + left.segments
    last = strip.blocks[-1]
    assert last.x + last.width == pytest.approx(strip.width)
    assert sum(block.size_bytes for block in strip.blocks) == sum(size for size, _ in segments)
    assert all(block.width >= LEAST_BLOCK_WIDTH for block in strip.blocks)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (formatting.size(0), "0 B"),
        (formatting.size(1023), "1023 B"),
        (formatting.size(1024), "1.0 KiB"),
        (formatting.size(1_048_575), "1.0 MiB"),
        (formatting.size(INT64_MAX), "8.0 EiB"),
        (formatting.size(-1), "unlimited"),
        (formatting.span(999), "999 ms"),
        (formatting.span(1_000), "1 s"),
        (formatting.span(258_400), "4 min 18 s"),
        (formatting.span(3_600_500), "1 h"),
        (formatting.span(7 * DAY), "7 d"),
        (formatting.span(-1), "unlimited"),
        (formatting.moment(NOW), "2025-11-26 04:10:00 UTC"),
        (formatting.moment(None), "never"),
        (formatting.moment(INT64_MAX), f"{INT64_MAX} ms"),
        (formatting.iso(NOW), "2025-11-26T04:10:00Z"),
        (formatting.iso(INT64_MAX), "9999-12-31T23:59:59Z"),
        (formatting.field(None), ""),
        (formatting.field(NOW), "2025-11-26T04:10:00Z"),
        (formatting.field(NOW + 999), "2025-11-26T04:10:00.999Z"),
        (formatting.field(NOW + 7), "2025-11-26T04:10:00.007Z"),
        (formatting.field(INT64_MAX), str(INT64_MAX)),
        (formatting.offset_range(3, 3), "no offsets"),
        (formatting.offset_range(3, 4), "offset 3"),
        (formatting.offset_range(0, 1_000), "offsets 0 to 999"),
        (formatting.relative(NOW + 258_400, NOW), "in 4 min 18 s"),
        (formatting.relative(NOW - 42_000, NOW), "42 s ago"),
        (formatting.relative(NOW + 1, NOW), "now"),
        (formatting.relative(None, NOW), "never"),
        (formatting.plural(1, "segment"), "1 segment"),
        (formatting.plural(0, "directory", "directories"), "0 directories"),
    ],
)
def test_words(shown: str, expected: str) -> None:
    """Numbers read as people say them, at their bounds too."""
    assert shown == expected


@pytest.mark.parametrize("moment_ms", [0, NOW, NOW + 999, 253_402_300_799_999, INT64_MAX])
def test_what_a_field_says_is_read_as_the_same_moment(moment_ms: int) -> None:
    """Who asks the same again asks about the same time."""
    assert parse_timestamp(formatting.field(moment_ms)) == moment_ms
