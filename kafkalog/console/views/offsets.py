"""Offsets of one partition: where one lies in the files, and which one belongs to a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from kafkalog.console.drawings import Axis, lay_out_axis
from kafkalog.console.formatting import moment, number, offset_range
from kafkalog.console.view import Fragment, View
from kafkalog.errors import OffsetOutOfRange
from kafkalog.format.disk.file_names import segment_file_name
from kafkalog.log.values import Isolation

if TYPE_CHECKING:
    from kafkalog.broker.operations import Operations
    from kafkalog.broker.retention.maintenance import LogDescription

SEGMENT_TICKS = 8


class Question(NamedTuple):
    """An offset, or the time whose first record it is; neither: nothing is asked yet."""

    offset: int | None = None
    timestamp_ms: int | None = None


class IndexEntryView(Fragment):
    """An entry of the offset index: the batch that ends with the offset begins at the position."""

    offset: int
    position: int


class TimeEntryView(Fragment):
    """An entry of the time index: up to the offset nothing is later than the timestamp."""

    timestamp_ms: int
    offset: int


class PlaceView(Fragment):
    """Where an offset lies. See ``OffsetPlace``; timestamp_ms: of the record a time was asked for.

    position null: no batch follows in the segment.
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
    """A point of the axis; timestamp_ms: the largest of the segment that begins there."""

    name: str
    offset: int
    timestamp_ms: int | None


class OffsetsView(View):
    """See the module. ``note``: why nothing was found."""

    template: ClassVar[str] = "offsets.html"

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
    def title(self) -> str:
        """See View."""
        return f"Offsets of {self.topic}-{self.partition}"

    @property
    def axis(self) -> Axis:
        """The picture."""
        points = [(each.name, each.offset) for each in self.points]
        return lay_out_axis(points, self.log_start_offset, self.log_end_offset)


def offsets_view(
    operations: Operations, topic: str, partition: int, question: Question
) -> OffsetsView:
    """Blocks: may read. UnknownTopic, UnknownPartition, why it is not served, CorruptBatch."""
    log = operations.describe_log(topic, partition)
    note, found = _answer(operations, topic, partition, question)
    return OffsetsView(
        now_ms=operations.now_ms(),
        topic=topic,
        partition=partition,
        asked_offset=question.offset,
        asked_timestamp_ms=question.timestamp_ms,
        note=note,
        found=found,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        points=_points(operations, topic, partition, log, found),
    )


def _answer(
    operations: Operations, topic: str, partition: int, question: Question
) -> tuple[str | None, PlaceView | None]:
    """A note, or the place."""
    offset, timestamp_ms = question.offset, None
    if question.timestamp_ms is not None:
        record = operations.list_offset(
            operations.partition_log(topic, partition),
            question.timestamp_ms,
            Isolation.HIGH_WATERMARK,
            may_block=True,
        )
        if record is None:
            return f"No record at or after {moment(question.timestamp_ms)}.", None
        offset, timestamp_ms = record.offset, record.timestamp_ms
    if offset is None:
        return None, None
    try:
        return None, _place(operations, topic, partition, offset, timestamp_ms)
    except OffsetOutOfRange as outside:
        details = outside.details
        low, end = details["log_start_offset"], details["log_end_offset"]
        assert isinstance(low, int)
        assert isinstance(end, int)
        return f"The log has {offset_range(low, end)}: {number(offset)} is not in it.", None


def _place(
    operations: Operations, topic: str, partition: int, offset: int, timestamp_ms: int | None
) -> PlaceView:
    place = operations.locate(topic, partition, offset)
    time_entry = place.time_entry
    return PlaceView(
        offset=offset,
        timestamp_ms=timestamp_ms,
        file=segment_file_name(place.base_offset, ".log"),
        base_offset=place.base_offset,
        next_offset=place.next_offset,
        is_active=place.is_active,
        segment_bytes=place.segment_bytes,
        leader_epoch=place.leader_epoch,
        index_entry=IndexEntryView(
            offset=place.index_entry.offset, position=place.index_entry.position
        ),
        time_entry=time_entry
        and TimeEntryView(timestamp_ms=time_entry.timestamp_ms, offset=time_entry.offset),
        position=place.position,
        largest_timestamp_ms=place.largest_timestamp_ms,
    )


def _points(
    operations: Operations,
    topic: str,
    partition: int,
    log: LogDescription,
    found: PlaceView | None,
) -> list[NamedOffset]:
    """Rising: what has a name, and some segments with their times."""
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
    segments = operations.describe_segments(topic, partition).segments
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
