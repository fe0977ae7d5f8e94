"""Delete records: a preview of what is deleted if the log starts at an offset, and its form.

Readers lose everything below the offset at once. The next retention check deletes files, and only
of whole segments; the planner says which, for the log as it would be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kafkalog.broker.topics.topics import is_closed_to_clients
from kafkalog.console.formatting import number
from kafkalog.console.view import Fragment, View
from kafkalog.console.views.offsets import record_at
from kafkalog.console.views.partition import ScheduleView
from kafkalog.log.retention.plan import Rule, plan

if TYPE_CHECKING:
    from kafkalog.broker.operations import Operations
    from kafkalog.broker.retention.report import SegmentReport
    from kafkalog.console.views.offsets import Question

SEGMENTS_SHOWN = 200


class DoomedSegment(Fragment):
    """A segment below the offset. ``is_whole``: its files are deleted, not only some records."""

    base_offset: int
    next_offset: int
    size_bytes: int
    is_whole: bool


class Preview(Fragment):
    """What deleting the records before ``offset`` does. ``segments``: the first SEGMENTS_SHOWN.

    bytes_freed         of the segments whose files the next retention check deletes
    bytes_kept          of the segment that is retained although its first record is deleted
    is_dividing         that segment also has records from the offset on; else it is the active one
    others_going        segments that the same check deletes by the limits of the topic
    unarchived_offsets  of the deleted ones; archive.hold keeps these from retention
    """

    offset: int
    offsets_going: int
    segments_going: int
    bytes_freed: int
    bytes_kept: int
    is_dividing: bool
    others_going: int
    unarchived_offsets: int
    segments: list[DoomedSegment]


class DeleteRecordsView(View):
    """``asked_`` fields are null when nothing was asked.

    refusal         why nothing would be deleted; there is no preview then
    confirmation    the text that must be typed to confirm
    """

    template: ClassVar[str] = "delete_records.html"
    heading: ClassVar[str] = "Delete records of {topic}-{partition}"

    topic: str
    topic_id: str
    partition: int
    log_start_offset: int
    high_watermark: int
    schedule: ScheduleView | None
    asked_offset: int | None
    asked_timestamp_ms: int | None
    refusal: str | None
    preview: Preview | None
    confirmation: str


def confirmation_of(topic: str, partition: int) -> str:
    """The text that must be typed to confirm: the partition that loses records."""
    return f"{topic}-{partition}"


def delete_records_view(
    operations: Operations, topic: str, partition: int, question: Question
) -> DeleteRecordsView:
    """Blocks: may read indexes. Raises UnknownTopic, UnknownPartition, or why it is not served."""
    # First, so that the id is not that of a topic recreated meanwhile.
    topic_id = operations.topics.describe(topic).topic_id
    report = operations.retention.describe(topic, partition)
    target = _target(operations, topic, partition, question, report)
    refusal = None if target is None else _refusal(report, topic, target)
    return DeleteRecordsView.of(
        report,
        report.facts,
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        asked_offset=question.offset,
        asked_timestamp_ms=question.timestamp_ms,
        refusal=refusal,
        preview=None if target is None or refusal is not None else _preview(report, target),
        confirmation=confirmation_of(topic, partition),
    )


def _target(
    operations: Operations, topic: str, partition: int, question: Question, report: SegmentReport
) -> int | None:
    """The new log start; None: nothing was asked."""
    if question.timestamp_ms is None:
        return question.offset
    found = record_at(operations, topic, partition, question.timestamp_ms)
    return report.facts.high_watermark if found is None else found.offset


def _refusal(report: SegmentReport, topic: str, target: int) -> str | None:
    facts = report.facts
    if is_closed_to_clients(topic):
        return "This is an internal topic of Kafka: clients cannot delete its records."
    if not report.policy.is_deleted:
        return "cleanup.policy of the topic has no delete: its records cannot be deleted."
    if target > facts.high_watermark:
        return (
            f"Offset {number(target)} is above the high watermark, {number(facts.high_watermark)}:"
            " records can be deleted only below it."
        )
    if target <= facts.log_start_offset:
        start = number(facts.log_start_offset)
        return f"No records are before offset {number(target)}: the log starts at {start}."
    return None


def _preview(report: SegmentReport, target: int) -> Preview:
    """The plan of the retention pass if the log started at the target."""
    would_be = plan(report.facts._replace(log_start_offset=target), report.policy, report.now_ms)
    whole = {each.base_offset for each in would_be.deletions if each.rule is Rule.START_OFFSET}
    below = [
        DoomedSegment.of(each, each.facts, is_whole=each.facts.base_offset in whole)
        for each in report.segments
        if each.facts.base_offset < target
    ]
    hold = report.facts.hold
    lost = target - report.facts.log_start_offset
    return Preview(
        offset=target,
        offsets_going=lost,
        segments_going=len(whole),
        bytes_freed=sum(each.size_bytes for each in below if each.is_whole),
        bytes_kept=sum(each.size_bytes for each in below if not each.is_whole),
        is_dividing=any(each.next_offset > target for each in below),
        others_going=len(would_be.deletions) - len(whole),
        unarchived_offsets=0 if hold is None else min(max(target - hold.offset, 0), lost),
        segments=below[:SEGMENTS_SHOWN],
    )
