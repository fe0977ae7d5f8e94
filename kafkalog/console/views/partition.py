"""One partition: its offsets, its segments as a strip and a table, and why each is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AliasChoices, BeforeValidator, Field

from kafkalog.broker.topics.topics import is_closed_to_clients
from kafkalog.cleaner.log_cleaner_manager import CleaningPhase
from kafkalog.console.drawings import Cell, lay_out_strip
from kafkalog.console.formatting import timestamp
from kafkalog.console.segment_states import CleanRange, SegmentState, reason_of, state_of
from kafkalog.console.view import EnumValue, Fragment, Timestamp, View, page_of
from kafkalog.log.retention.forecast import timestamp_or_none

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.broker.operations import Operations
    from kafkalog.broker.retention.report import SegmentReport
    from kafkalog.cleaner.log_cleaner_manager import CleaningStatus
    from kafkalog.console.drawings import Strip
    from kafkalog.log.inspect.segment_listing import IndexEntries, ListedSegment
    from kafkalog.log.retention.forecast import Due, SegmentFate

SEGMENTS_A_PAGE = 500


class DueView(Fragment):
    """When a segment is deleted; null: never, or not foreseeable."""

    earliest_ms: int = Field(validation_alias=AliasChoices("earliest_ms", "moment_ms"))
    expected_ms: Timestamp
    latest_ms: Timestamp
    files_gone_ms: Timestamp


def _foreseen(due: Due | None) -> Due | None:
    """None for never, which is a time that no timestamp can hold."""
    return None if due is None or timestamp_or_none(due.moment_ms) is None else due


Foreseen = Annotated[DueView | None, BeforeValidator(_foreseen)]


class DepartureView(Fragment):
    """A segment that retention would delete, and when."""

    base_offset: int
    size_bytes: int
    rule: EnumValue
    due: Foreseen


class SegmentView(Fragment):
    """One segment. Of a segment that is being deleted most is not known any more."""

    base_offset: int
    next_offset: int | None
    size_bytes: int
    state: SegmentState
    letter: str
    largest_timestamp_ms: int | None
    largest_timestamp_source: Literal["record", "file_mtime"] | None
    offset_index_entries: int | None
    time_index_entries: int | None
    rule: EnumValue | None
    keeper: EnumValue | None
    bytes_until: int | None
    due: Foreseen
    reason: str


class PolicyView(Fragment):
    """The limits of the log; -1: none."""

    is_deleted: bool
    retention_ms: int
    retention_bytes: int


class ScheduleView(Fragment):
    """When the log is checked."""

    next_check_ms: Timestamp
    check_interval_ms: int
    delete_delay_ms: int
    is_cleaners: bool


class CompactionView(Fragment):
    """How far a compacted log is cleaned; ``fault``: why that is not known."""

    state: EnumValue
    pauses: int
    first_dirty_offset: int | None
    first_uncleanable_offset: int | None
    cleanable_ratio: float | None
    min_cleanable_ratio: float
    fault: str | None


class StateCount(Fragment):
    """How many segments of the whole log are in a state."""

    state: SegmentState
    letter: str
    meaning: str
    segments: int
    size_bytes: int


class PartitionView(View):
    """``segments`` are those of one page, oldest first.

    ``segment_count`` and ``size_bytes`` do not count segments that are being deleted: these are no
    longer part of the log.
    """

    template: ClassVar[str] = "partition.html"
    heading: ClassVar[str] = "{topic}-{partition}"

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
    def deletable(self) -> StateCount | None:
        """What a retention pass would delete now, if one may be requested; None: nothing."""
        if is_closed_to_clients(self.topic):
            return None
        found = [each for each in self.states if each.state is SegmentState.DELETABLE]
        return found[0] if found else None

    @property
    def strip(self) -> Strip:
        """The drawing of this page's segments."""
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
        cells = [
            Cell(each.base_offset, each.next_offset, each.size_bytes, each.state)
            for each in self.segments
        ]
        return lay_out_strip(cells, offsets)


def partition_view(operations: Operations, topic: str, partition: int, page: int) -> PartitionView:
    """Page ``page`` (from 1; the last one when there are fewer) of a served partition.

    Blocks: reads the sizes of index files. Raises UnknownTopic, UnknownPartition, or the reason why
    the partition is not served.
    """
    # First, so that the id is not that of a topic recreated meanwhile.
    topic_id = operations.topics.describe(topic).topic_id
    described = operations.logs.describe(topic, partition)
    status = operations.cleaning.inspect(topic, partition)
    report = operations.retention.describe(topic, partition)
    states = _states_of(report, status)
    shown = page_of(len(states), SEGMENTS_A_PAGE, page)
    deleting = len(report.deleting)
    # Only of the segments on the page, because it reads files and makes sentences.
    of_page = slice(max(0, shown.first - deleting), max(0, shown.end - deleting))
    listed = report.segments[of_page]
    served = zip(
        listed,
        report.fates[of_page],
        operations.retention.count_index_entries(topic, partition, listed),
        states[deleting:][of_page],
        strict=True,
    )
    return PartitionView.of(
        report,
        report.facts,
        described,
        shown,
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        segment_count=len(report.segments),
        compaction=status
        and CompactionView.of(
            status.to_clean,
            status.state,
            state=status.state.phase,
            min_cleanable_ratio=status.log.config.min_cleanable_dirty_ratio,
            fault=status.fault and status.fault.public_message,
        ),
        states=_state_counts(report, states),
        segments=[
            SegmentView.of(
                each,
                SegmentState.DELETING,
                state=SegmentState.DELETING,
                reason=f"deleted for readers; files gone at {timestamp(each.files_gone_ms)}",
            )
            for each in report.deleting[shown.first : shown.end]
        ]
        + [_served(*each, report) for each in served],
    )


def _states_of(report: SegmentReport, status: CleaningStatus | None) -> list[SegmentState]:
    """Of all segments: those whose files wait for deletion, then the others by offset."""
    clean = None  # of a log that is not compacted, and when reading it failed
    if status is not None and status.to_clean is not None:
        clean = CleanRange(
            status.to_clean.first_dirty_offset,
            status.to_clean.first_uncleanable_offset,
            status.state.phase is CleaningPhase.IN_PROGRESS,
        )
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


def _served(
    listed: ListedSegment,
    fate: SegmentFate,
    entries: IndexEntries,
    state: SegmentState,
    report: SegmentReport,
) -> SegmentView:
    return SegmentView.of(
        listed,
        listed.facts,
        entries,
        fate,
        state,
        state=state,
        largest_timestamp_source="record" if listed.has_record_timestamp else "file_mtime",
        reason=reason_of(
            fate, report.policy, report.now_ms, has_record_timestamp=listed.has_record_timestamp
        ),
    )


def _state_counts(report: SegmentReport, states: Sequence[SegmentState]) -> list[StateCount]:
    """The states that occur, in the order of the legend."""
    sizes = {state: list[int]() for state in SegmentState}
    every = [each.size_bytes for each in report.deleting]
    every += [each.facts.size_bytes for each in report.segments]
    for state, size_bytes in zip(states, every, strict=True):
        sizes[state].append(size_bytes)
    return [
        StateCount.of(state, state=state, segments=len(found), size_bytes=sum(found))
        for state, found in sizes.items()
        if found
    ]
