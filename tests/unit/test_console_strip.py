"""Goal: pictures are to scale and say of each segment and of the cleaner what the planners say; a
what-if of any topic costs a bounded page.
Method: logs on a simulated disk and clock; pages beside the planners.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from kafkalog.broker.compaction.history import KEPT_CLEANS, KEPT_MS, CleaningHistory
from kafkalog.broker.retention.report import RetentionSimulation
from kafkalog.cleaner.stats import CleaningRun
from kafkalog.console import formatting
from kafkalog.console.drawings import (
    LEAST_BAR_WIDTH,
    LEAST_BLOCK_WIDTH,
    TIMELINE_WIDTH,
    WIDTH,
    Cell,
    Phase,
    Stretch,
    lay_out_strip,
    lay_out_timeline,
)
from kafkalog.console.segment_states import CleanRange, SegmentState, reason_of, state_of
from kafkalog.console.views.compaction import CleanerView, CompactedLogView, compaction_view
from kafkalog.console.views.retention import (
    CURVE_POINTS,
    DEPARTURES_SHOWN,
    PARTITIONS_SHOWN,
    RetentionView,
    retention_view,
)
from kafkalog.errors import CorruptBatch, LogDirOffline, UnknownTopic
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.retention.forecast import Departure, Due, Schedule, SegmentFate, explain
from kafkalog.log.retention.plan import Keeper, LogFacts, RetentionPolicy, Rule, SegmentFacts
from kafkalog.server.admin.cleaner import run_result
from kafkalog.server.protocol.parameters import parse_timestamp
from tests.sim.sim_clock import SimClock
from tests.sim.sim_threads import SimThreads
from tests.there import there
from tests.unit.test_compacted_logs import begun, cleaned
from tests.unit.test_console_views import calls_of, page_of

if TYPE_CHECKING:
    from kafkalog.broker.operations import Operations
    from tests.sim.sim_manager import SimManager


DAY = 86_400_000
NOW = 1_764_130_200_000  # 2025-11-26 04:10:00 UTC


def row(*sizes: int, state: SegmentState = SegmentState.KEPT) -> list[Cell]:
    """Segments of ten offsets each."""
    return [Cell(10 * at, 10 * at + 10, size, state) for at, size in enumerate(sizes)]


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


def test_a_reason_names_the_window_of_the_planner() -> None:
    newest_ms = NOW - (3 * 3_600_000 + 12 * 60_000)
    facts = LogFacts((SegmentFacts(0, 100, newest_ms), SegmentFacts(10, 50, NOW)), 150, 0, 20, 20)
    policy = RetentionPolicy(True, 7 * DAY, -1)
    fates = explain(facts, policy, NOW, Schedule(NOW + 60_000, 300_000, 60_000))
    due = there(fates[0].due)
    reason = reason_of(fates[0], policy, NOW, has_record_timestamp=True)
    assert reason == (
        "kept: newest record 3 h 12 min old, limit 7 d → earliest deletion "
        f"{formatting.timestamp(due.moment_ms)} (in 6 d 20 h), latest "
        f"{formatting.timestamp(due.latest_ms)}; "
        f"files gone by {formatting.timestamp(due.files_gone_ms)}"
    )


@pytest.mark.parametrize(
    ("newest", "older", "size_bytes", "policy", "cause"),
    [
        (1, 2, 9, (True, 7, -1), "newest record 1 d old, limit 7 d → earliest deletion "),
        (2, 1, 9, (True, 7, -1), "newest record 2 d old, limit 7 d; older segments are"),
        (8, 1, 9, (True, 7, -1), "older segments are deleted first → earliest deletion "),
        (1, 2, 9, (True, -1, 100), "older segments are deleted first; or once "),
        (1, 2, 0, (True, 7, -1), "older segments are deleted first"),
    ],
)
def test_a_segment_behind_others_is_kept_by_its_own_age(
    newest: int, older: int, size_bytes: int, policy: tuple[bool, int, int], cause: str
) -> None:
    """Only where that would not keep it, the older ones do; ages and limits here in days."""
    is_deleted, limit, limit_bytes = policy
    limits = RetentionPolicy(is_deleted, limit * DAY if limit >= 0 else -1, limit_bytes)
    segments = (
        SegmentFacts(0, 50, NOW - older * DAY),
        SegmentFacts(10, size_bytes, NOW - newest * DAY),
    )
    facts = LogFacts(segments, 50 + size_bytes, 0, 20, 20)
    fates = explain(facts, limits, NOW, Schedule(NOW + 60_000, 300_000, 60_000))
    assert fates[1].keeper is Keeper.OLDER_SEGMENT
    reason = reason_of(fates[1], limits, NOW, has_record_timestamp=True)
    assert reason.startswith(f"kept: {cause}")


def test_where_nothing_goes_nothing_goes_first() -> None:
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
    due = Due(INT64_MAX + 5, None, INT64_MAX + 9, INT64_MAX + 9)
    facts = SegmentFacts(0, 1, INT64_MAX)
    fate = SegmentFate(facts, rule, None if rule else keeper, due, 5)
    reason = reason_of(fate, RetentionPolicy(True, 1, 1), NOW, has_record_timestamp=False)
    assert reason.startswith("deletable: " if rule else "kept: ")


def test_widths_are_shares_of_the_bytes() -> None:
    strip = lay_out_strip(row(0, 100, 300), {})
    free = WIDTH - 3 * LEAST_BLOCK_WIDTH
    widths = [block.width for block in strip.blocks]
    assert widths == [LEAST_BLOCK_WIDTH + free * share for share in (0, 1 / 4, 3 / 4)]
    assert [block.x for block in strip.blocks] == [0.0, widths[0], widths[0] + widths[1]]


def test_neighbours_of_one_state_share_a_block_when_there_are_many() -> None:
    many = row(*[1] * 500) + row(*[1] * 500, state=SegmentState.DELETABLE)
    strip = lay_out_strip(many, {})
    assert strip.width == WIDTH
    assert len(strip.blocks) <= WIDTH / LEAST_BLOCK_WIDTH
    assert sum(block.segments for block in strip.blocks) == 1000
    states = [SegmentState.CLEAN, SegmentState.DIRTY] * 300
    mixed = [Cell(at, at + 1, 1, state) for at, state in enumerate(states)]
    assert [block.state for block in lay_out_strip(mixed, {}).blocks] == states
    assert lay_out_strip(mixed, {}).width == 600 * LEAST_BLOCK_WIDTH


def test_markers_stand_where_their_offset_is() -> None:
    strip = lay_out_strip(row(100, 100), {"start": 0, "middle": 15, "end": 20, "beyond": 21})
    assert [marker.name for marker in strip.markers] == ["start", "middle", "end"]
    assert [marker.x for marker in strip.markers] == [0.0, WIDTH * 0.75, WIDTH]
    gone = [Cell(5, None, 100, SegmentState.DELETING)]
    later = [Cell(10, 20, 100, SegmentState.ACTIVE)]
    strip = lay_out_strip(gone + later, {"gone": 7, "start": 10})
    assert [(marker.name, marker.x) for marker in strip.markers] == [("start", WIDTH / 2)]


@given(
    st.lists(st.tuples(st.integers(0, 1 << 40), st.sampled_from(list(SegmentState))), min_size=1)
)
def test_a_strip_is_whole(segments: list[tuple[int, SegmentState]]) -> None:
    pieces = [Cell(at, at + 1, size, state) for at, (size, state) in enumerate(segments)]
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
        (formatting.percent(0.5317), "53.2%"),
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
        (formatting.timestamp(NOW), "2025-11-26 04:10:00 UTC"),
        (formatting.timestamp(None), "never"),
        (formatting.timestamp(INT64_MAX), f"{INT64_MAX} ms"),
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
    assert shown == expected


@pytest.mark.parametrize("moment_ms", [0, NOW, NOW + 999, 253_402_300_799_999, INT64_MAX])
def test_what_a_field_says_is_read_as_the_same_moment(moment_ms: int) -> None:
    assert parse_timestamp(formatting.field(moment_ms)) == moment_ms


def seen(sim: SimManager, topic: str = "", page: int = 1, operation_id: str = "") -> CleanerView:
    return compaction_view(sim.operations, topic, page=page, hours=24, operation_id=operation_id)


def test_a_timeline_is_to_scale() -> None:
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
    assert (first.x, first.width) == (0, TIMELINE_WIDTH / 4)
    assert (second.x, second.width) == (TIMELINE_WIDTH / 4, LEAST_BAR_WIDTH)
    (last,) = picture.lanes[1].bars
    assert last.x + last.width == TIMELINE_WIDTH
    assert [tick.timestamp_ms for tick in picture.ticks] == list(range(0, 3_600_001, 600_000))
    assert picture.ticks[-1].x == TIMELINE_WIDTH


def test_a_timeline_begins_with_the_daemon() -> None:
    sim = begun()
    assert cleaned(sim).error is None
    started_ms = sim.operations.cleaning.describe().since_ms
    sim.clock.step_wall_ms(58 * 60_000 - (sim.clock.wall_ms() - started_ms))
    view = seen(sim)
    assert view.since_ms == view.timeline.ticks[0].timestamp_ms == started_ms
    assert view.hour_choices == [24]
    html = page_of(view)
    assert "Since the start of the daemon" in html
    assert "58 min ago" in html
    sim.clock.step_wall_ms(24 * HOUR_MS)
    later = seen(sim)
    assert later.since_ms == later.now_ms - 24 * HOUR_MS
    assert later.hour_choices == [1, 6, 24]
    assert "The last 24 hours: " in page_of(later)


def new_history() -> CleaningHistory:
    return CleaningHistory(SimThreads(SimClock(), 1, lambda *_: None).mutex(), since_ms=0)


def test_a_history_is_bounded() -> None:
    history = new_history()
    key = TopicPartition("t", 0)
    for moment in range(KEPT_CLEANS + 5):
        history.note(CleaningRun(key, 0, False, moment, moment))
    assert len(history.cleans(0)) == KEPT_CLEANS
    assert history.cleans(0)[0].started_ms == 5
    last_ms = KEPT_CLEANS + 4
    assert [each.ended_ms for each in history.cleans(KEPT_MS + last_ms)] == [last_ms]
    assert history.cleans(KEPT_MS + last_ms + 1) == []


def test_a_history_tells_why_not() -> None:
    history = new_history()
    fault = CorruptBatch("bad", file="/data/secret.log", position=7)
    run = CleaningRun(TopicPartition("t", 0), 1, False, 10, 20)
    for each in (run, run._replace(error=fault), run._replace(error=fault, is_aborted=True)):
        history.note(each)
    kept = history.cleans(0)
    assert [each.outcome for each in kept] == ["nothing_cleanable", "failed", "aborted"]
    assert {each.thread for each in kept} == {"kafka-log-cleaner-thread-1"}
    assert "secret" not in str(kept)


def test_a_page_is_the_cleaner_s_report() -> None:
    sim = begun()
    before = seen(sim)
    (log,) = before.logs
    (described,) = sim.operations.cleaning.describe().logs
    plan = there(described.status.to_clean)
    assert log.cleanable_bytes == plan.cleanable_bytes
    assert log.cleanable_ratio == plan.cleanable_ratio
    assert (log.rank, log.why_not) == (1, None)
    assert log.why == "waits for its turn: number 1"
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
    assert " in an open transaction" in html
    page_of(before)
    assert seen(sim, "t").title == "Compaction of t"
    with pytest.raises(UnknownTopic):
        seen(sim, "none")


def log_of(sim: SimManager, topic: str) -> CompactedLogView:
    return next(each for each in seen(sim).logs if each.topic == topic)


def test_why_a_log_waits() -> None:
    sim = begun()
    sim.operations.topics.create(
        "low", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
    )
    assert log_of(sim, "low").why_not == "nothing_cleanable"
    sim.operations.cleaning.pause("t", 0)
    paused = log_of(sim, "t")
    assert (paused.why_not, paused.operator_pauses, paused.rank) == ("paused", 1, None)
    assert not paused.can_be_tried
    sim.operations.cleaning.resume("t", 0)
    log = sim.operations.partition_log("t", 0)
    sim.manager.cleaning.states.note_failure(log, CorruptBatch("rotten", file="x", position=1))
    failed = log_of(sim, "t")
    assert failed.why_not == "waits_for_retry"
    assert failed.why.startswith("waits for a retry: failed 1 time: ")
    assert "Retry t-0" in page_of(seen(sim))


def test_what_the_filter_leaves_out_is_not_denied() -> None:
    sim = begun()
    sim.operations.topics.create("plain", 1)
    html = page_of(seen(sim, "plain"))
    assert "No log of plain is compacted: its cleanup.policy has no compact." in html
    assert "of no topic" not in html


def test_internal_logs_are_hidden_until_somebody_asks_for_them() -> None:
    sim = begun()
    sim.manager.group_offsets.create_topic()
    hidden = seen(sim)
    assert [each.name for each in hidden.by_topic] == ["t"]
    assert (hidden.total, hidden.internal_hidden) == (1, 1)
    html = page_of(hidden)
    assert "__consumer_offsets" not in html
    assert "1 internal topic hidden" in html
    assert '<details class="fold" open>' in html  # the only topic
    asked = seen(sim, "__consumer_offsets")
    assert (asked.total, asked.internal_hidden) == (50, 0)
    view = compaction_view(
        sim.operations, "", page=1, hours=24, operation_id="", with_internal=True
    )
    own, internal = view.by_topic
    assert (own.name, own.is_internal, internal.is_internal) == ("t", False, True)
    assert len(internal.logs) == view.total - 1 == 50
    assert own.cleanable_bytes == there(own.logs[0].cleanable_bytes)
    assert own.dirtiest_ratio == own.logs[0].cleanable_ratio
    assert own.why == "waits for its turn: number 1"
    html = page_of(view)
    assert "__consumer_offsets-0" in html
    assert "hide internal topics" in html


def test_nothing_is_offered_that_would_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = begun()
    assert seen(sim).logs[0].can_be_tried
    monkeypatch.setattr(type(sim.manager.cleaning.cleaner), "is_enabled", False)
    view = seen(sim)
    assert view.logs[0].cleanable_bytes
    assert view.logs[0].why_not == "cleaner_off"
    assert not view.logs[0].can_be_tried


def test_a_clean_is_not_called_a_trial() -> None:
    sim = begun()
    operation = sim.operations.cleaning.begin("t", 0, is_dry=False, result=run_result)
    running = page_of(seen(sim, operation_id=operation.operation_id))
    sim.threads.run_until(lambda: operation.ended_ms >= 0)
    for html in (running, page_of(seen(sim, operation_id=operation.operation_id))):
        assert "Clean of t-0: " in html
        assert "Nothing was changed" not in html


def test_cleans_of_threads_that_are_no_more_are_drawn() -> None:
    sim = begun()
    assert cleaned(sim).error is None
    view = seen(sim)
    other = view.model_copy(update={"threads": []})
    (lane,) = other.timeline.lanes
    assert lane.thread == view.cleans[0].thread
    assert lane.bars
    assert 'href="#clean-0"' in page_of(other)


def test_a_trial_changes_nothing() -> None:
    sim = begun()
    size_bytes = sim.operations.logs.describe("t", 0).size_bytes
    operation = sim.operations.cleaning.begin("t", 0, is_dry=True, result=run_result)
    running = seen(sim, operation_id=operation.operation_id)
    trial = there(running.trial)
    assert (trial.state, trial.partition, trial.sentence) == ("running", "t-0", None)
    assert ">Reload<" in page_of(running)
    sim.threads.run_until(lambda: operation.ended_ms >= 0)
    ended = seen(sim, operation_id=operation.operation_id)
    result = there(there(ended.trial).result)
    assert there(ended.trial).sentence == result.sentence
    assert result.records_before > result.records_after
    assert " superseded)" in result.sentence
    assert "would be removed." in page_of(ended)
    assert sim.operations.logs.describe("t", 0).size_bytes == size_bytes
    assert seen(sim).cleans == []
    assert seen(sim, operation_id="none").trial is None


HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


class Simulated:
    """Of ``partitions`` partitions ``segments`` go, one an hour each; partition 1 is offline."""

    def __init__(self, partitions: int, segments: int) -> None:
        self.partitions = partitions
        self.retention = self.topics = self
        self.departures = [self._departure(number) for number in range(segments)]

    @staticmethod
    def _departure(number: int) -> Departure:
        at = NOW_MS + HOUR_MS * (number + 1)
        due = Due(at, at, at, at + 1)
        return Departure(SegmentFacts(number, number + 1, at - HOUR_MS), Rule.TIME, due)

    def now_ms(self) -> int:
        return NOW_MS

    def partition_count(self, _: str) -> int:
        return self.partitions

    def describe(self, _: str) -> object:
        return SimpleNamespace(topic_id="A" * 22)

    def simulate(self, topic: str, partition: int, *_: object, **__: object) -> object:
        if partition == 1:
            raise LogDirOffline(f"{topic}-{partition} is offline")
        policy, schedule = RetentionPolicy(True, HOUR_MS, 1000), Schedule(NOW_MS, HOUR_MS, 0)
        return RetentionSimulation(NOW_MS, NOW_MS + 1, policy, schedule, self.departures, 1, 7)


def seen_what_if(partitions: int, segments: int) -> RetentionView:
    operations = cast("Operations", Simulated(partitions, segments))
    return retention_view(operations, "t", {}, 365)


@pytest.mark.slow
def test_a_large_topic_makes_a_page_of_a_bounded_size() -> None:
    partitions, segments = PARTITIONS_SHOWN + 50, 1_000
    views: list[RetentionView] = []
    models = calls_of(
        BaseModel.__init__.__code__, lambda: views.append(seen_what_if(partitions, segments))
    )
    # A departure is two models, a partition three.
    assert models <= PARTITIONS_SHOWN * (2 * DEPARTURES_SHOWN + 3) + CURVE_POINTS + 1
    (view,) = views
    served, of_each = partitions - 1, segments * (segments + 1) // 2
    assert (view.partition_count, len(view.partitions)) == (partitions, PARTITIONS_SHOWN)
    assert view.segments_going == served * segments
    assert (view.bytes_going, view.bytes_left) == (served * of_each, served * 7)
    assert view.partitions[1].fault is not None
    assert any("not served: 1 partition" in each for each in view.warnings)
    assert (len(view.curve), view.curve_steps) == (CURVE_POINTS, segments + 2)
    first, last = view.curve[0], view.curve[-1]
    assert (first.moment_ms, first.size_bytes) == (NOW_MS, view.bytes_going + view.bytes_left)
    assert (last.moment_ms, last.size_bytes) == (NOW_MS + 365 * 24 * HOUR_MS, view.bytes_left)
    for point in view.curve[1:-1]:
        gone = (point.moment_ms - NOW_MS) // HOUR_MS
        assert first.size_bytes - point.size_bytes == served * gone * (gone + 1) // 2
    assert "400 of 1,002 points" in page_of(view)


def test_a_small_topic_is_shown_whole() -> None:
    view = seen_what_if(1, 20)
    assert len(view.curve) == view.curve_steps == 22
    sizes = [point.size_bytes for point in view.curve]
    assert sizes == [*(sum(range(step, 21)) + 7 for step in range(1, 22)), 7]
    assert len(view.partitions[0].departures) == 20
    assert "after each check that deletes something" in page_of(view)
