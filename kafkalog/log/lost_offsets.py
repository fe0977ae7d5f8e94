"""What a load says of records that were acknowledged and are gone: one error line for each hole.

Recovery sees the holes behind the recovery point itself. Those in front of it, and all of a clean
log, show only in what a segment leaves behind when its ``.log`` goes: an index, or the producer
snapshot of its base. Segments that retention deleted leave neither. Looks at names and, only where
such a file is left, at the tail of the segment before it; changes nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import structlog

from kafkalog.format.file_names import LOG_SUFFIX, segment_file_name
from kafkalog.format.integers import INT64_MAX
from kafkalog.log.recovery_policy import has_whole_tail
from kafkalog.log.sound_floor import sound_floor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.format.offset_ranges import LostRange
    from kafkalog.log.environment import NoteLost
    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.log_segments import LogSegments

_log = structlog.get_logger(__name__)


def find_lost(
    segments: LogSegments,
    orphans: Iterable[int],
    snapshots: Iterable[int],
    *,
    start_offset: int,
    durable_end: int,
    may_have_gaps: bool,
) -> dict[int | None, int]:
    """Last to first offset of each hole that a left-over proves; None: up to where the log ended.

    ``orphans`` are bases of indexes without a log; ``snapshots`` prove nothing where compaction
    ``may_have_gaps``. What lies below start_offset is not missed, what lies behind durable_end is
    what a power cut may take.
    """
    bases = [segment.base_offset for segment in segments]
    indexed = {*orphans}
    strays = set() if may_have_gaps else {each for each in snapshots if bases[:1] < [each]}
    lost: dict[int | None, int] = {}
    for offset in sorted(indexed | strays - {*bases}):
        following = bisect_right(bases, offset)
        last_offset = bases[following] - 1 if following < len(bases) else None
        if last_offset is None and offset not in indexed:
            continue  # a clean stop leaves one at the log end
        is_live = last_offset is None or last_offset >= start_offset
        if is_live and offset < durable_end and not _holds(segments, following - 1, offset):
            lost.setdefault(last_offset, offset)
    return lost


def _holds(segments: LogSegments, slot: int, offset: int) -> bool:
    """Whether the segment in front of a left-over reaches over its offset."""
    if slot < 0:
        return False
    segment = segments.values[slot]
    position = sound_floor(segment, INT64_MAX).position  # a wrong entry proves no loss
    return has_whole_tail(segment, position) and segment.read_next_offset() > offset


def tell_left_over(
    directory: str,
    found: dict[int | None, int],
    lost: Sequence[LostRange],
    note: NoteLost,
) -> None:
    """The lines for what ``find_lost`` found, as far as it is among the ``lost`` ranges.

    Of a hole at the end of the log nobody knows how far it went.
    """
    for last_offset, first_offset in found.items():
        path = f"{directory}/{segment_file_name(first_offset, LOG_SUFFIX)}"
        if last_offset is None:
            tell_lost(path, 0, first_offset, last_offset, "kept", note)
            continue
        for each in lost:
            if first_offset <= each.last_offset and each.first_offset <= last_offset:
                first = max(first_offset, each.first_offset)
                tell_lost(path, 0, first, min(last_offset, each.last_offset), "kept", note)


def tell_lost(
    path: str,
    position: int,
    first_offset: int,
    last_offset: int | None,
    later_segments: str,
    note: NoteLost,
) -> None:
    """The line for one hole: where the log in front of it ends, or the one that is missing."""
    _log.error(
        "offsets_lost",
        path=path,
        position=position,
        first_offset=first_offset,
        last_offset=last_offset,
        later_segments=later_segments,
    )
    note(path, first_offset, last_offset)


def tell_lost_end(
    active: LogSegment, log_end_offset: int, recovery_point: int, note: NoteLost
) -> None:
    """The line for a log that ends below what was durable."""
    if log_end_offset < recovery_point:
        path = active.log_file.path
        _log.error(
            "durable_records_lost",
            directory=path.rpartition("/")[0],
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
        )
        note(path, log_end_offset, recovery_point - 1)
