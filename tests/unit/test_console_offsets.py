"""Goal: an offset's place is the one that a fetch uses, and the axis is to scale.
Method: the layout by hand; places beside the segments and indexes of a simulated log.
"""

from __future__ import annotations

import pytest

from kafkalog.console.drawings import WIDTH, lay_out_axis
from kafkalog.console.views.offsets import OffsetsView, Question, offsets_view
from kafkalog.errors import UnknownSegment
from kafkalog.log.inspect import segment_listing
from tests.cleaning_daemon import NOW_MS, keyed_batch
from tests.sim.sim_manager import SimManager
from tests.unit.test_cleaned_log_restarts import SEGMENTS, begun, cleaned
from tests.unit.test_console_views import page_of


def test_an_axis_is_to_scale() -> None:
    """A point at its share of the offsets, no label over another, none outside."""
    axis = lay_out_axis([("end", 100), ("start", 0), ("near", 1), ("beyond", 101)], 0, 100)
    assert [(tick.name, tick.x) for tick in axis.ticks] == [
        ("start", 0),
        ("near", WIDTH / 100),
        ("end", WIDTH),
    ]
    assert [tick.row for tick in axis.ticks] == [0, 1, 0]
    assert [tick.is_left for tick in axis.ticks] == [False, False, True]
    assert axis.rows == 2
    assert [tick.x for tick in lay_out_axis([("only", 5)], 5, 5).ticks] == [0]


def seen(sim: SimManager, question: Question) -> OffsetsView:
    return offsets_view(sim.operations, "t", 0, question)


def stepped() -> SimManager:
    """A log of several segments whose timestamps rise by a second a batch, two records each."""
    sim = SimManager().start()
    sim.operations.topics.create("t", 1, SEGMENTS | {"index.interval.bytes": "0"})
    for number in range(12):
        moment_ms = NOW_MS + 1_000 * number
        sim.produce("t", keyed_batch(("a", "v" * 40), ("b", "w"), timestamp_ms=moment_ms))
    return sim


def test_every_offset_has_its_place() -> None:
    """Goal: segment, index entry and position of each offset are those of the files.
    Method: every offset of a log with several segments, beside the segments' own look-ups.
    """
    sim = stepped()
    log = sim.operations.partition_log("t", 0)
    segments = log.segments.values
    assert len(segments) > 2
    for offset in range(log.log_end_offset):
        found = seen(sim, Question(offset=offset)).found
        assert found is not None
        segment = log.segments.floor(offset)
        assert segment is not None
        assert found.base_offset == segment.base_offset
        assert found.is_active is (segment is segments[-1])
        assert found.base_offset <= offset < found.next_offset
        entry = segment.floor_entry(offset)
        assert (found.index_entry.offset, found.index_entry.position) == (
            entry.offset,
            entry.position,
        )
        assert found.position is not None
        assert found.index_entry.position <= found.position < found.segment_bytes
        if found.time_entry is not None:
            assert found.time_entry.offset <= offset
    view = seen(sim, Question(offset=3))
    assert {each.name for each in view.points} >= {"log start", "log end", "asked", "segment"}
    html = page_of(view)
    assert "00000000000000000000.log" in html


def test_a_time_leads_to_its_record() -> None:
    """As list-offsets answers."""
    sim = stepped()
    for number in range(12):
        found = seen(sim, Question(timestamp_ms=NOW_MS + 1_000 * number - 1)).found
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (2 * number, NOW_MS + 1_000 * number)
    late = seen(sim, Question(timestamp_ms=NOW_MS + 11_001))
    assert late.found is None
    assert late.note is not None
    page_of(late)


def test_what_is_no_place() -> None:
    """An offset outside is told in words; one that compaction took has no byte."""
    sim = begun()
    assert cleaned(sim).error is None
    assert seen(sim, Question()).found is None
    assert seen(sim, Question(offset=1_000)).note == (
        "The log has offsets 0 to 23: 1,000 is not in it."
    )
    hole, behind = (seen(sim, Question(offset=offset)).found for offset in (3, 15))
    assert hole is not None
    assert behind is not None
    assert hole.position is None  # the segment of 2 and 3 has nothing behind it
    assert behind.position is not None
    end = seen(sim, Question(offset=24)).found
    assert end is not None
    assert end.position is None
    assert end.is_active
    page_of(seen(sim, Question(offset=24)))


def test_a_segment_that_goes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that deletion overtakes takes no directory offline; a lost file does."""
    sim = stepped()
    log = sim.operations.partition_log("t", 0)
    taken = log.segments.first

    def gone(_: object, __: int) -> int:
        log.segments.remove([taken])
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(segment_listing, "position_of", gone)
    with pytest.raises(UnknownSegment):
        sim.operations.locate("t", 0, 0)
    assert sim.operations.readiness().offline_dirs == 0
