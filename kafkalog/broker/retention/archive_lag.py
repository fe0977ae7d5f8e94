"""How far an archive is behind a log, in bytes and in seconds, from what the log publishes.

The age of a record for an archive counts from when it could be read, not from its timestamp, which
its producer chose. `ReadableTimes` notes high watermarks and when they were seen; the daemon knows
nothing of the time before its start. Pure; one thread notes, any thread asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkalog.log.unified_log import UnifiedLog

_MARKS_MAX = 16


def unarchived_bytes(log: UnifiedLog, archived_offset: int) -> int:
    """About how much of a log is not archived; the segment of the offset counts by offsets."""
    begin, end = max(archived_offset, log.log_start_offset), log.log_end_offset
    if begin >= end:
        return 0
    first, *others = log.segments.values_between(begin, end)
    next_offset = others[0].base_offset if others else end
    left = max(next_offset - max(begin, first.base_offset), 0)
    share = left / max(next_offset - first.base_offset, 1)
    return int(first.size_bytes * share) + sum(each.size_bytes for each in others)


class _Mark(NamedTuple):
    """A high watermark, and when it was seen first and last; monotonic."""

    high_watermark: int
    first_ns: int
    last_ns: int


class ReadableTimes:
    """When the records of one log that no archive has became readable.

    At most 16 marks: of more the one goes that leaves the smallest gap, an eighth of the time that
    they cover at most. The answer is up to such a gap too high.
    """

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        # published, replaced as a whole
        self._marks: tuple[_Mark, ...] = ()

    def note(self, now_ns: int, archived_offset: int, high_watermark: int) -> None:
        """What the log and its archive have now; again and again, for example every 10 s."""
        marks = list(self._marks)
        if marks and marks[-1].high_watermark == high_watermark:
            marks[-1] = marks[-1]._replace(last_ns=now_ns)
        else:
            marks.append(_Mark(high_watermark, now_ns, now_ns))
        while len(marks) > 1 and marks[1].high_watermark <= archived_offset:
            del marks[0]
        if len(marks) > _MARKS_MAX:
            inner = range(1, len(marks) - 1)
            del marks[min(inner, key=lambda at: marks[at + 1].first_ns - marks[at - 1].last_ns)]
        self._marks = tuple(marks)

    def seconds(self, now_ns: int, archived_offset: int, high_watermark: int) -> float | None:
        """For how long the first record that no archive has is readable; 0: there is none.

        None: not noted yet.
        """
        if archived_offset >= high_watermark:
            return 0.0
        marks = self._marks
        if not marks:
            return None
        since_ns = marks[0].first_ns
        for each in marks:
            if each.high_watermark <= archived_offset:
                since_ns = each.last_ns
        return round(max(now_ns - since_ns, 0) / 1e9, 3)
