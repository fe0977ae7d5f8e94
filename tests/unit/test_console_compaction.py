"""Goal: the compaction page shows the cleaner as it is, and its picture is to scale.
Method: the pure layout by hand; a whole manager on the simulated disk whose cleaner really cleans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.compaction.history import KEPT_CLEANS, KEPT_MS, CleaningHistory
from kafkalog.cleaner.stats import CleaningRun
from kafkalog.console.drawings import LEAST_BAR_WIDTH, WIDTH, Phase, Stretch, lay_out_timeline
from kafkalog.console.views.compaction import CleanerView, compaction_view
from kafkalog.errors import CorruptBatch, UnknownTopic
from kafkalog.format.topic_names import TopicPartition
from kafkalog.server.admin.cleaner import run_result
from tests.sim.sim_clock import SimClock
from tests.sim.sim_threads import SimThreads
from tests.unit.test_cleaned_log_restarts import begun, cleaned
from tests.unit.test_console_views import page_of

if TYPE_CHECKING:
    from tests.sim.sim_manager import SimManager


def seen(sim: SimManager, topic: str = "", page: int = 1, operation_id: str = "") -> CleanerView:
    return compaction_view(sim.operations, topic, page=page, hours=24, operation_id=operation_id)


def test_a_timeline_is_to_scale() -> None:
    """Moments stand at their place; what is short is seen, what is older is cut or left out."""
    stretches = [
        Stretch("one", 0, Phase.MAP, -1_800_000, 900_000),
        Stretch("one", 0, Phase.COPY, 900_000, 900_001),
        Stretch("two", 1, Phase.RUNNING, 3_600_000, 3_600_000),
        Stretch("two", 2, Phase.SWAP, -2, -1),
        Stretch("gone", 3, Phase.MAP, 0, 1),
    ]
    picture = lay_out_timeline(["one", "two"], stretches, 0, 3_600_000)
    assert [lane.thread for lane in picture.lanes] == ["one", "two"]
    first, second = picture.lanes[0].bars
    assert (first.x, first.width) == (0, WIDTH / 4)
    assert (second.x, second.width) == (WIDTH / 4, LEAST_BAR_WIDTH)
    (last,) = picture.lanes[1].bars
    assert last.x + last.width == WIDTH
    assert [tick.moment_ms for tick in picture.ticks] == [600_000 * number for number in range(7)]
    assert picture.ticks[-1].x == WIDTH


def test_a_history_is_bounded() -> None:
    """Neither time nor number makes it grow."""
    history = CleaningHistory(SimThreads(SimClock(), 1, lambda *_: None).mutex())
    key = TopicPartition("t", 0)
    for moment in range(KEPT_CLEANS + 5):
        history.note(CleaningRun(key, 0, False, moment, moment))
    assert len(history.cleans(0)) == KEPT_CLEANS
    assert history.cleans(0)[0].started_ms == 5
    assert [each.ended_ms for each in history.cleans(KEPT_MS + KEPT_CLEANS + 4)] == [
        KEPT_CLEANS + 4
    ]
    assert history.cleans(KEPT_MS + KEPT_CLEANS + 5) == []


def test_a_history_tells_why_not() -> None:
    """An abort and a failure are not the same, and neither tells a file's name."""
    history = CleaningHistory(SimThreads(SimClock(), 1, lambda *_: None).mutex())
    fault = CorruptBatch("bad", file="/data/secret.log", position=7)
    run = CleaningRun(TopicPartition("t", 0), 1, False, 10, 20)
    for each in (run, run._replace(error=fault), run._replace(error=fault, is_aborted=True)):
        history.note(each)
    kept = history.cleans(0)
    assert [each.outcome for each in kept] == ["nothing_cleanable", "failed", "aborted"]
    assert {each.thread for each in kept} == {"kafka-log-cleaner-thread-1"}
    assert "secret" not in str(kept)


def test_a_page_is_the_cleaner_s_report() -> None:
    """Goal: dirtiness, turn and reason are the API's; the clean that ran is in the timeline.
    Method: a dirty log before and after a clean, beside ``describe``.
    """
    sim = begun()
    before = seen(sim)
    (log,) = before.logs
    (described,) = sim.operations.cleaning.describe().logs
    plan = described.standing.to_clean
    assert plan is not None
    assert (log.cleanable_bytes, log.cleanable_ratio) == (
        plan.cleanable_bytes,
        plan.cleanable_ratio,
    )
    assert (log.rank, log.why_not) == (1, None)
    assert log.why == "cleaned when its turn comes: number 1"
    assert log.can_be_tried
    assert before.cleans == []
    assert cleaned(sim).error is None
    after = seen(sim)
    (clean,) = after.cleans
    assert (clean.topic, clean.outcome) == ("t", "cleaned")
    assert clean.bytes_before > clean.bytes_after > 0
    assert after.logs[0].why_not == "nothing_cleanable"
    assert after.logs[0].last_success_ms == clean.ended_ms
    assert {Phase.MAP, Phase.COPY, Phase.SWAP} == set(after.phases)
    html = page_of(after)
    assert 'href="#clean-0"' in html
    assert 'id="clean-0"' in html
    assert "or in an open transaction" in html
    page_of(before)
    assert seen(sim, "t").title == "Compaction of t"
    with pytest.raises(UnknownTopic):
        seen(sim, "none")


def test_why_a_log_waits() -> None:
    """Every obstacle is said in words."""
    sim = begun()
    sim.operations.topics.create(
        "low", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
    )
    low = {each.topic: each for each in seen(sim).logs}["low"]
    assert low.why_not == "nothing_cleanable"
    sim.operations.cleaning.pause("t", 0)
    paused = {each.topic: each for each in seen(sim).logs}["t"]
    assert (paused.why_not, paused.operator_pauses, paused.rank) == ("paused", 1, None)
    assert not paused.can_be_tried
    sim.operations.cleaning.resume("t", 0)
    log = sim.operations.partition_log("t", 0)
    sim.manager.cleaning.states.note_failure(log, CorruptBatch("rotten", file="x", position=1))
    failed = {each.topic: each for each in seen(sim).logs}["t"]
    assert failed.why_not == "waits_for_retry"
    assert failed.why.startswith("tried again soon, it failed 1 time: ")
    assert "Retry t-0" in page_of(seen(sim))


def test_what_the_filter_leaves_out_is_not_denied() -> None:
    """The page of a topic that is not compacted says nothing of other topics."""
    sim = begun()
    sim.operations.topics.create("plain", 1)
    html = page_of(seen(sim, "plain"))
    assert "No log of plain is compacted: its cleanup.policy has no compact." in html
    assert "of no topic" not in html


def test_nothing_is_offered_that_would_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No button ends in a 409 that the page could have foreseen."""
    sim = begun()
    assert seen(sim).logs[0].can_be_tried
    monkeypatch.setattr(type(sim.manager.cleaning.cleaner), "is_enabled", False)
    view = seen(sim)
    assert view.logs[0].cleanable_bytes
    assert view.logs[0].why_not == "cleaner_off"
    assert not view.logs[0].can_be_tried


def test_a_clean_is_not_called_a_trial() -> None:
    """Nobody reads "nothing was changed" of a clean that changed the log."""
    sim = begun()
    operation = sim.operations.cleaning.begin("t", 0, is_dry=False, result=run_result)
    running = page_of(seen(sim, operation_id=operation.operation_id))
    sim.threads.run_until(lambda: operation.ended_ms >= 0)
    for html in (running, page_of(seen(sim, operation_id=operation.operation_id))):
        assert "Clean of t-0: " in html
        assert "Nothing was changed" not in html


def test_cleans_of_threads_that_are_no_more_are_drawn() -> None:
    """The picture has as many cleans as its heading counts."""
    sim = begun()
    assert cleaned(sim).error is None
    view = seen(sim)
    other = view.model_copy(update={"threads": []})
    (lane,) = other.timeline.lanes
    assert lane.thread == view.cleans[0].thread
    assert lane.bars
    assert 'href="#clean-0"' in page_of(other)


def test_a_trial_changes_nothing() -> None:
    """The page shows what a dry run found, and the log is as it was."""
    sim = begun()
    size_bytes = sim.operations.describe_log("t", 0).size_bytes
    operation = sim.operations.cleaning.begin("t", 0, is_dry=True, result=run_result)
    running = seen(sim, operation_id=operation.operation_id)
    assert running.trial is not None
    assert (running.trial.state, running.trial.partition) == ("running", "t-0")
    assert "Look again" in page_of(running)
    sim.threads.run_until(lambda: operation.ended_ms >= 0)
    ended = seen(sim, operation_id=operation.operation_id)
    assert ended.trial is not None
    assert ended.trial.result is not None
    assert ended.trial.sentence == ended.trial.result.sentence
    assert running.trial.sentence is None
    assert ended.trial.result.records_before > ended.trial.result.records_after
    assert " superseded)" in ended.trial.result.sentence
    assert "would go." in page_of(ended)
    assert sim.operations.describe_log("t", 0).size_bytes == size_bytes
    assert seen(sim).cleans == []
    assert seen(sim, operation_id="none").trial is None
