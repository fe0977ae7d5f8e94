"""Offsets of one partition: where an offset is in the files, and which offset is at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from kafkalog.console.drawings import Axis, lay_out_axis
from kafkalog.console.formatting import number, offset_range, timestamp
from kafkalog.console.view import Fragment, View
from kafkalog.errors import OffsetOutOfRange
from kafkalog.format.disk.file_names import segment_file_name
from kafkalog.log.values import Isolation

if TYPE_CHECKING:
    from kafkalog.broker.operations import Operations
    from kafkalog.broker.retention.maintenance import LogDescription
    from kafkalog.log.values import TimestampOffset

SEGMENT_TICKS = 8


class Question(NamedTuple):
    """An offset, or a time whose first record is wanted; neither: nothing was asked."""

    offset: int | None = None
    timestamp_ms: int | None = None


class IndexEntryView(Fragment):
    """An entry of the offset index: the position of the batch that ends with the offset."""

    offset: int
    position: int


class TimeEntryView(Fragment):
    """An entry of the time index: no record up to the offset has a later timestamp."""

    timestamp_ms: int
    offset: int


class PlaceView(Fragment):
    """Where an offset is in the files; see ``OffsetPlace``.

    timestamp_ms  of the record at the time that was asked for
    position      null: no batch follows in the segment
    """

    offset: int
    timestamp_ms: int | None
    file: str
    base_offset: int
    next_offset: int
    is_active: bool
    segment_bytes: int
    leader_epoch: int
    index_entry: IndexEntryView
    time_entry: TimeEntryView | None
    position: int | None
    largest_timestamp_ms: int


class NamedOffset(Fragment):
    """A point of the axis; timestamp_ms: the largest one of the segment that starts there."""

    name: str
    offset: int
    timestamp_ms: int | None


class OffsetsView(View):
    """``note``: why nothing was found."""

    template: ClassVar[str] = "offsets.html"
    heading: ClassVar[str] = "Offsets of {topic}-{partition}"

    topic: str
    partition: int
    asked_offset: int | None
    asked_timestamp_ms: int | None
    note: str | None
    found: PlaceView | None
    log_start_offset: int
    log_end_offset: int
    points: list[NamedOffset]

    @property
    def axis(self) -> Axis:
        """The drawing."""
        points = [(each.name, each.offset) for each in self.points]
        return lay_out_axis(points, self.log_start_offset, self.log_end_offset)


def record_at(
    operations: Operations, topic: str, partition: int, timestamp_ms: int
) -> TimestampOffset | None:
    """The first record at or after a time that readers get. Blocks. Raises CorruptBatch."""
    log = operations.partition_log(topic, partition)
    return operations.list_offset(log, timestamp_ms, Isolation.HIGH_WATERMARK, may_block=True)


def offsets_view(
    operations: Operations, topic: str, partition: int, question: Question
) -> OffsetsView:
    """Blocks. Raises UnknownTopic, UnknownPartition, CorruptBatch, or why it is not served."""
    log = operations.logs.describe(topic, partition)
    note, found = _answer(operations, topic, partition, question)
    return OffsetsView.of(
        log,
        now_ms=operations.now_ms(),
        topic=topic,
        partition=partition,
        asked_offset=question.offset,
        asked_timestamp_ms=question.timestamp_ms,
        note=note,
        found=found,
        points=_points(operations, topic, partition, log, found),
    )


def _answer(
    operations: Operations, topic: str, partition: int, question: Question
) -> tuple[str | None, PlaceView | None]:
    """A note, or the place in the files."""
    offset, timestamp_ms = question.offset, None
    if question.timestamp_ms is not None:
        record = record_at(operations, topic, partition, question.timestamp_ms)
        if record is None:
            return f"No record at or after {timestamp(question.timestamp_ms)}.", None
        offset, timestamp_ms = record.offset, record.timestamp_ms
    if offset is None:
        return None, None
    try:
        place = operations.logs.locate(topic, partition, offset)
    except OffsetOutOfRange as outside:
        details = outside.details
        low, end = details["log_start_offset"], details["log_end_offset"]
        assert isinstance(low, int)
        assert isinstance(end, int)
        return f"The log has {offset_range(low, end)}; {number(offset)} is not in it.", None
    file = segment_file_name(place.base_offset, ".log")
    return None, PlaceView.of(place, offset=offset, timestamp_ms=timestamp_ms, file=file)


def _points(
    operations: Operations, topic: str, partition: int, log: LogDescription, found: PlaceView | None
) -> list[NamedOffset]:
    """Ascending: the named offsets, and some segments with their times."""
    named = {
        "log start": log.log_start_offset,
        "last stable": log.last_stable_offset,
        "high watermark": log.high_watermark,
        "log end": log.log_end_offset,
    }
    points = [NamedOffset(name=name, offset=at, timestamp_ms=None) for name, at in named.items()]
    if found is not None:
        asked = NamedOffset(name="asked", offset=found.offset, timestamp_ms=found.timestamp_ms)
        points.append(asked)
    segments = operations.retention.describe(topic, partition).segments
    step = -(-len(segments) // SEGMENT_TICKS)
    points += [
        NamedOffset(
            name="segment",
            offset=each.facts.base_offset,
            timestamp_ms=each.facts.largest_timestamp_ms,
        )
        for each in segments[:: max(step, 1)]
    ]
    return sorted(points, key=lambda each: each.offset)
