"""What a load says of records that were acknowledged and are gone: one error line for each hole.

Recovery sees the holes behind the recovery point itself. Those in front of it, and all of a clean
log, show only in what a segment leaves behind when its ``.log`` goes: an index, or the producer
snapshot of its base. Segments that retention deleted leave neither. Looks at names and, only where
such a file is left, at the tail of the segment before it; changes nothing.

Segments that a load may not serve, because offsets before them are gone.

With ``keep`` they are set aside: renamed to ``<base>.log.behind-<offset>.torn`` and never deleted.
With ``kafka`` they are deleted as Kafka does it: ``.deleted`` now, removed by a task later. Runs in
the loader. A crash leaves some of the names changed; the next load finds the same reason again, or
removes what is ``.deleted``.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import structlog

from kafkalog.format.disk.file_names import DELETED_SUFFIX, LOG_SUFFIX, segment_file_name
from kafkalog.format.integers import INT64_MAX
from kafkalog.log.local_log import DELETE_FILE_TASK
from kafkalog.log.recovery.corruption_policy import TORN_SUFFIX, has_whole_tail
from kafkalog.log.segment.index_repair import sound_floor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.env.filesystem import Filesystem
    from kafkalog.format.offset_ranges import LostRange
    from kafkalog.log.environment import LogEnvironment, NoteLost
    from kafkalog.log.local_log import LogSegments
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.recovery.corruption_policy import Corruption
    from kafkalog.log.segment.log_segment import LogSegment


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


def drop(
    environment: LogEnvironment,
    config: LogConfig,
    segments: Sequence[LogSegment],
    corruption: Corruption,
    end_offset: int,
) -> None:
    """Take segments, which are in no set any more, out of service; the log ends at end_offset.

    Durable on return: their offsets are given anew, and no power cut may bring the old ones back.
    """
    if not segments:
        return
    rename(environment.filesystem, segments, corruption, end_offset)
    segments[0].log_file.sync_name()
    if corruption == "keep":
        return

    def delete_files() -> None:
        for segment in segments:
            segment.delete_files()

    environment.scheduler.schedule_once(
        DELETE_FILE_TASK, environment.guarded(delete_files), config.file_delete_delay_ms
    )


def rename(
    filesystem: Filesystem, segments: Sequence[LogSegment], corruption: Corruption, end_offset: int
) -> None:
    """Only the names; who loads the directory anew afterwards removes what is ``.deleted``."""
    for segment in segments:
        if corruption == "kafka":
            segment.change_suffix(DELETED_SUFFIX)
            continue
        segment.change_suffix(_free_suffix(filesystem, segment, end_offset))
        segment.close_handles()
        _log.error("segment_set_aside", path=segment.log_file.path)


def _free_suffix(filesystem: Filesystem, segment: LogSegment, end_offset: int) -> str:
    """One under which nothing lies yet."""
    suffix, count = f".behind-{end_offset}{TORN_SUFFIX}", 1
    while filesystem.exists(f"{segment.log_file.path}{suffix}"):
        count += 1
        suffix = f".behind-{end_offset}.{count}{TORN_SUFFIX}"
    return suffix
