"""Goal: the wizard's preview is what deleting then does.
Method: a simulated log of several segments: the preview of each offset beside the log afterwards.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.values import ConfigChange
from kafkalog.console.rendering import render_json
from kafkalog.console.segment_states import SegmentState
from kafkalog.console.views.delete_records import DeleteRecordsView, delete_records_view
from kafkalog.console.views.offsets import Question
from kafkalog.console.views.partition import partition_view
from kafkalog.format.topic_names import GROUP_OFFSETS_TOPIC
from kafkalog.log.segment.log_segment import LogSegment
from tests.unit.test_archived_offsets import filled as held
from tests.unit.test_console_views import STILL, page_of
from tests.unit.test_group_offsets import T0, commit, world
from tests.unit.test_overtaken_reads import once_before
from tests.unit.test_retention import MINUTE, bases, fill, put, started

if TYPE_CHECKING:
    from tests.sim.sim_manager import SimManager


def seen(sim: SimManager, question: Question) -> DeleteRecordsView:
    return delete_records_view(sim.operations, "t", 0, question)


def filled() -> SimManager:
    """Segments of one record at the offsets 0 to 3, and an active one with offsets 4 and 5."""
    sim = started()
    sim.operations.topics.create("t", 1, {"retention.ms": "-1"})
    fill(sim, 4)
    put(sim)
    put(sim)
    return sim


@pytest.mark.parametrize("offset", [1, 2, 4, 5, 6])
def test_what_is_shown_is_what_happens(offset: int) -> None:
    """The segments, the bytes and the log start that were told."""
    sim = filled()
    view = seen(sim, Question(offset=offset))
    preview = view.preview
    assert preview is not None
    assert view.refusal is None
    assert preview.offsets_going == offset
    before, size_bytes = bases(sim), sim.operations.describe_log("t", 0).size_bytes
    assert f"Delete {offset} offset" in page_of(view)
    sim.delete_records("t", offset)
    sim.clock.advance_ms(5 * MINUTE)
    log = sim.operations.describe_log("t", 0)
    gone = [each for each in before if each not in bases(sim)]
    assert [each.base_offset for each in preview.segments if each.is_whole] == gone
    assert preview.segments_going == len(gone)
    assert log.size_bytes == size_bytes - preview.bytes_freed
    assert log.log_start_offset == offset


def test_a_time() -> None:
    """A time stands for its first record, and one behind all for the high watermark."""
    sim = filled()
    start_ms = sim.operations.describe_segments("t", 0).segments[2].facts.largest_timestamp_ms
    by_time = seen(sim, Question(timestamp_ms=start_ms)).preview
    assert by_time is not None
    assert by_time.offset == 2
    all_of_it = seen(sim, Question(timestamp_ms=sim.clock.wall_ms() + 86_400_000)).preview
    assert all_of_it is not None
    assert all_of_it.offset == 6


def test_a_time_whose_segment_goes_meanwhile_is_looked_up_again() -> None:
    """A race with retention never turns "older than" into everything."""
    sim = filled()
    listed = sim.operations.describe_segments("t", 0).segments

    def overtake() -> None:
        sim.delete_records("t", 2)
        sim.clock.advance_ms(10 * MINUTE)
        assert bases(sim)[0] == 2

    once_before(LogSegment, "find_offset_by_timestamp", overtake)
    view = seen(sim, Question(timestamp_ms=listed[1].facts.largest_timestamp_ms))
    assert view.preview is not None
    assert view.preview.offset == 2


def test_what_stays_is_called_by_its_name() -> None:
    """No segment is said to be divided that is not, and nothing else of the pass is left out."""
    sim = filled()
    divided, whole = (seen(sim, Question(offset=offset)) for offset in (5, 6))
    assert "the segment that the offset divides stays" in page_of(divided)
    html = page_of(whole)
    assert "the active segment, which appends go to, stays" in html
    assert "stays: appends go to it" in html
    assert "divides" not in html
    assert "has offsets 0 to 5." in html
    assert "offset 0 to" not in html
    sim.operations.topics.alter_configs("t", [ConfigChange("retention.bytes", "0")])
    with_limit = seen(sim, Question(offset=1))
    assert with_limit.preview is not None
    assert (with_limit.preview.segments_going, with_limit.preview.others_going) == (1, 4)
    assert "4 segments more go with the same check" in page_of(with_limit)


def test_records_that_no_archive_has() -> None:
    """Who deletes what a hold keeps from retention is told before."""
    sim = held()
    sim.operations.raise_archived_offsets("t", {0: 3})
    expected = {3: 0, 4: 1}
    for offset, unarchived in expected.items():
        view = seen(sim, Question(offset=offset))
        assert view.preview is not None
        assert view.preview.unarchived_offsets == unarchived
        assert ("not archived yet" in page_of(view)) is (unarchived > 0)


def test_what_would_be_refused() -> None:
    """Nobody types a confirmation for what cannot be."""
    sim = filled()
    for offset in (0, 7):
        view = seen(sim, Question(offset=offset))
        assert view.refusal is not None
        assert view.preview is None
        assert 'method="post"' not in page_of(view)
    assert "6: that is the most" in (seen(sim, Question(offset=7)).refusal or "")
    nothing = seen(sim, Question())
    assert (nothing.refusal, nothing.preview) == (None, None)
    page_of(nothing)
    sim.operations.topics.create("kept", 1, {"cleanup.policy": "compact"})
    kept = delete_records_view(sim.operations, "kept", 0, Question(offset=0))
    assert kept.refusal is not None
    assert "has no delete" in kept.refusal


def test_nothing_is_deleted_from_kafka_s_own_topics() -> None:
    """Nobody types a confirmation that ends as a 400, nor is a deletion offered."""
    sim = world()
    commit(sim, "g", {T0: 1})
    for number in range(4):
        view = delete_records_view(sim.operations, GROUP_OFFSETS_TOPIC, number, Question(offset=1))
        assert view.refusal == "The topic is one of Kafka's own: clients delete nothing from it."
    page = partition_view(sim.operations, GROUP_OFFSETS_TOPIC, 0, 1)
    shown = page.states[0].model_copy(update={"state": SegmentState.DELETABLE})
    assert page.model_copy(update={"states": [shown]}).deletable is None
    other = partition_view(sim.operations, "t", 0, 1)
    assert other.model_copy(update={"states": [shown]}).deletable == shown


def test_the_form_is_for_who_may() -> None:
    """With an administrative port the page only shows."""
    view = seen(filled(), Question(offset=3))
    assert json.loads(render_json(view))["confirmation"] == "t-0"
    html = page_of(view)
    assert '<input type="hidden" name="offset" value="3">' in html
    assert "Type <code>t-0</code>" in html
    assert 'method="post"' not in page_of(view, STILL._replace(is_administered=False))
