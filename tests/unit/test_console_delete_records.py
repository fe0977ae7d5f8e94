"""Goal: the wizard's preview is what deleting then does.
Method: a simulated log of several segments: the preview of each offset beside the log afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.ui.delete_records_view import DeleteRecordsView, delete_records_view
from kafkalog.ui.offsets_view import Question
from tests.unit.test_console_views import STILL, page_of
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
    """Goal: the segments, the bytes and the log start that were told.
    Method: preview, delete, the next retention check.
    """
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
    """Goal: a time stands for its first record, and one behind all for the high watermark.
    Method: the moment of the third segment, and of tomorrow.
    """
    sim = filled()
    start_ms = sim.operations.describe_segments("t", 0).segments[2].facts.largest_timestamp_ms
    by_time = seen(sim, Question(timestamp_ms=start_ms)).preview
    assert by_time is not None
    assert by_time.offset == 2
    all_of_it = seen(sim, Question(timestamp_ms=sim.clock.wall_ms() + 86_400_000)).preview
    assert all_of_it is not None
    assert all_of_it.offset == 6


def test_what_would_be_refused() -> None:
    """Goal: nobody types a confirmation for what cannot be.
    Method: above the high watermark, at the log start, a compacted topic, no question.
    """
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


def test_the_form_is_for_who_may() -> None:
    """Goal: with an administrative port the page only shows.
    Method: the same view in both frames; the confirmation is not filled in.
    """
    view = seen(filled(), Question(offset=3))
    html = page_of(view)
    assert '<input type="hidden" name="offset" value="3">' in html
    assert "Type <code>t-0</code>" in html
    assert 'method="post"' not in page_of(view, STILL._replace(is_administered=False))
