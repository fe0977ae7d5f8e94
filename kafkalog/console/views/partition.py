"""One partition: offsets, segments as a strip and as a table, and why each is still here."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from kafkalog.broker.topics.topics import is_closed_to_clients
from kafkalog.cleaner.log_cleaner_manager import CleaningPhase
from kafkalog.console.drawings import lay_out_strip
from kafkalog.console.formatting import moment
from kafkalog.console.segment_states import CleanRange, SegmentState, reason_of, state_of
from kafkalog.console.view import Fragment, View, page_count
from kafkalog.log.retention.forecast import told_moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.broker.operations import Operations
    from kafkalog.broker.retention.report import SegmentReport
    from kafkalog.cleaner.log_cleaner_manager import CleaningStatus
    from kafkalog.console.drawings import Strip
    from kafkalog.log.inspect.segment_listing import IndexEntries, ListedSegment
    from kafkalog.log.local_log import DeletingSegment
    from kafkalog.log.retention.forecast import Due, Schedule, SegmentFate
    from kafkalog.log.retention.plan import RetentionPolicy

SEGMENTS_A_PAGE = 500


class DueView(Fragment):
    """When a segment goes; null: never, or nobody can know."""

    earliest_ms: int
    expected_ms: int | None
    latest_ms: int | None
    files_gone_ms: int | None


class SegmentView(Fragment):
    """One segment. What is null of a segment that is being deleted is not known any longer."""

    base_offset: int
    next_offset: int | None
    size_bytes: int
    state: SegmentState
    letter: str
    largest_timestamp_ms: int | None
    largest_timestamp_source: Literal["record", "file_mtime"] | None
    offset_index_entries: int | None
    time_index_entries: int | None
    rule: str | None
    keeper: str | None
    bytes_until: int | None
    due: DueView | None
    reason: str


class PolicyView(Fragment):
    """What limits the log; -1: nothing."""

    is_deleted: bool
    retention_ms: int
    retention_bytes: int


class ScheduleView(Fragment):
    """When the log is looked at."""

    next_check_ms: int | None
    check_interval_ms: int
    delete_delay_ms: int
    is_cleaners: bool


class CompactionView(Fragment):
    """How clean a compacted log is; ``fault``: why that is not known."""

    state: str
    pauses: int
    first_dirty_offset: int | None
    first_uncleanable_offset: int | None
    cleanable_ratio: float | None
    min_cleanable_ratio: float
    fault: str | None


class StateCount(Fragment):
    """How many segments are in a state, of the whole log."""

    state: SegmentState
    letter: str
    meaning: str
    segments: int
    size_bytes: int


class PartitionView(View):
    """See the module. ``segments`` are those of one page, oldest first.

    ``segment_count`` and ``size_bytes`` are of the served ones: what is being deleted is no more
    part of the log.
    """

    template: ClassVar[str] = "partition.html"

    topic: str
    topic_id: str
    partition: int
    directory: str
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    recovery_point: int
    leader_epoch: int
    size_bytes: int
    segment_count: int
    policy: PolicyView
    schedule: ScheduleView | None
    compaction: CompactionView | None
    states: list[StateCount]
    page: int
    pages: int
    segments: list[SegmentView]

    @property
    def title(self) -> str:
        """See View."""
        return f"{self.topic}-{self.partition}"

    @property
    def deletable(self) -> StateCount | None:
        """What a retention pass would take now, if it may be ordered; None: nothing."""
        if is_closed_to_clients(self.topic):
            return None
        found = [each for each in self.states if each.state is SegmentState.DELETABLE]
        return found[0] if found else None

    @property
    def strip(self) -> Strip:
        """The picture of this page's segments."""
        offsets = {
            "log start": self.log_start_offset,
            "recovery point": self.recovery_point,
            "high watermark": self.high_watermark,
        }
        compaction = self.compaction
        if compaction is not None and compaction.first_dirty_offset is not None:
            offsets["first dirty"] = compaction.first_dirty_offset
        if compaction is not None and compaction.first_uncleanable_offset is not None:
            offsets["first uncleanable"] = compaction.first_uncleanable_offset
        return lay_out_strip(self.segments, offsets)


def partition_view(operations: Operations, topic: str, partition: int, page: int) -> PartitionView:
    """Page ``page`` (from 1; the last one when there are fewer) of a served partition.

    Blocks: looks at the index files of what is shown. UnknownTopic, UnknownPartition, why it is
    not served.
    """
    # First: of no later topic than what is shown.
    topic_id = operations.topics.describe(topic).topic_id
    described = operations.describe_log(topic, partition)
    status = operations.cleaning.look(topic, partition)
    report = operations.describe_segments(topic, partition)
    states = _states_of(report, clean_range(status))
    pages = page_count(len(states), SEGMENTS_A_PAGE)
    shown = min(page, pages)
    first = (shown - 1) * SEGMENTS_A_PAGE
    last, deleting = first + SEGMENTS_A_PAGE, len(report.deleting)
    # Of what is shown alone, because it costs files and sentences.
    of_page = slice(max(0, first - deleting), max(0, last - deleting))
    listed = report.segments[of_page]
    served = zip(
        listed,
        report.fates[of_page],
        operations.count_index_entries(topic, partition, listed),
        states[deleting:][of_page],
        strict=True,
    )
    return PartitionView(
        now_ms=report.now_ms,
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        directory=described.directory,
        log_start_offset=report.facts.log_start_offset,
        high_watermark=report.facts.high_watermark,
        last_stable_offset=described.last_stable_offset,
        log_end_offset=report.facts.log_end_offset,
        recovery_point=described.recovery_point,
        leader_epoch=described.leader_epoch,
        size_bytes=report.facts.size_bytes,
        segment_count=len(report.segments),
        policy=policy_view(report.policy),
        schedule=schedule_view(report.schedule),
        compaction=_compaction(status),
        states=_state_counts(report, states),
        page=shown,
        pages=pages,
        segments=[_deleting(each) for each in report.deleting[first:last]]
        + [_served(*each, report) for each in served],
    )


def clean_range(status: CleaningStatus | None) -> CleanRange | None:
    """Of a compacted log; None of another, and where the disk failed at the look."""
    if status is None or status.to_clean is None:
        return None
    return CleanRange(
        status.to_clean.first_dirty_offset,
        status.to_clean.first_uncleanable_offset,
        status.state.phase is CleaningPhase.IN_PROGRESS,
    )


def _states_of(report: SegmentReport, clean: CleanRange | None) -> list[SegmentState]:
    """Of all: those whose files wait for their deletion, then the served ones by offset."""
    served = [
        state_of(
            listed.facts.base_offset,
            listed.next_offset,
            fate.rule,
            clean,
            is_active=listed.is_active,
        )
        for listed, fate in zip(report.segments, report.fates, strict=True)
    ]
    return [SegmentState.DELETING] * len(report.deleting) + served


def _deleting(segment: DeletingSegment) -> SegmentView:
    return SegmentView(
        base_offset=segment.base_offset,
        next_offset=None,
        size_bytes=segment.size_bytes,
        state=SegmentState.DELETING,
        letter=SegmentState.DELETING.letter,
        largest_timestamp_ms=None,
        largest_timestamp_source=None,
        offset_index_entries=None,
        time_index_entries=None,
        rule=None,
        keeper=None,
        bytes_until=None,
        due=None,
        reason=f"gone for readers; files gone at {moment(segment.files_gone_ms)}",
    )


def _served(
    listed: ListedSegment,
    fate: SegmentFate,
    entries: IndexEntries,
    state: SegmentState,
    report: SegmentReport,
) -> SegmentView:
    return SegmentView(
        base_offset=listed.facts.base_offset,
        next_offset=listed.next_offset,
        size_bytes=listed.facts.size_bytes,
        state=state,
        letter=state.letter,
        largest_timestamp_ms=listed.facts.largest_timestamp_ms,
        largest_timestamp_source="record" if listed.has_record_timestamp else "file_mtime",
        offset_index_entries=entries.offset_index_entries,
        time_index_entries=entries.time_index_entries,
        rule=fate.rule and fate.rule.value,
        keeper=fate.keeper and fate.keeper.value,
        bytes_until=fate.bytes_until,
        due=due_view(fate.due),
        reason=reason_of(
            fate, report.policy, report.now_ms, has_record_timestamp=listed.has_record_timestamp
        ),
    )


def due_view(due: Due | None) -> DueView | None:
    """None for never: a moment that no timestamp can say is none."""
    if due is None or told_moment(due.moment_ms) is None:
        return None
    return DueView(
        earliest_ms=due.moment_ms,
        expected_ms=told_moment(due.expected_ms),
        latest_ms=told_moment(due.latest_ms),
        files_gone_ms=told_moment(due.files_gone_ms),
    )


def policy_view(policy: RetentionPolicy) -> PolicyView:
    """As the topic's configuration has it."""
    return PolicyView(**policy._asdict())


def schedule_view(schedule: Schedule | None) -> ScheduleView | None:
    """None: no task looks at the log."""
    if schedule is None:
        return None
    known = schedule._replace(next_check_ms=told_moment(schedule.next_check_ms))
    return ScheduleView(**known._asdict())


def _compaction(status: CleaningStatus | None) -> CompactionView | None:
    if status is None:
        return None
    plan = status.to_clean
    return CompactionView(
        state=status.state.phase.value,
        pauses=status.state.pauses,
        first_dirty_offset=plan and plan.first_dirty_offset,
        first_uncleanable_offset=plan and plan.first_uncleanable_offset,
        cleanable_ratio=plan and plan.cleanable_ratio,
        min_cleanable_ratio=status.log.config.min_cleanable_dirty_ratio,
        fault=status.fault and status.fault.public_message,
    )


def _state_counts(report: SegmentReport, states: Sequence[SegmentState]) -> list[StateCount]:
    """Those that occur, in the order of the legend."""
    sizes = {state: list[int]() for state in SegmentState}
    every = [each.size_bytes for each in report.deleting]
    every += [each.facts.size_bytes for each in report.segments]
    for state, size_bytes in zip(states, every, strict=True):
        sizes[state].append(size_bytes)
    return [
        StateCount(
            state=state,
            letter=state.letter,
            meaning=state.meaning,
            segments=len(found),
            size_bytes=sum(found),
        )
        for state, found in sizes.items()
        if found
    ]
