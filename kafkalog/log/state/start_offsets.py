"""Where a log starts, by Kafka's checkpoint and by the checked file; which of them counts.

Pure. The checked file cannot rot unseen, and an acknowledged deletion is in both, there first. So
a line of Kafka's that is lower, or gone, has rotted (or a crash came between the two files), and
the checked start counts. A line that is higher may be true all the same: of a Kafka that had the
directory meanwhile, which then has cut the leader epochs there, as we do. Without that mark it is a
contradiction: readers begin at the higher start, so that nothing deleted is served, and nothing is
deleted until both agree, so that nothing is lost. What retention moves shows in the names of the
segments, and needs no line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class LogStart(NamedTuple):
    """Where readers begin; ``other`` is set where the two files cannot both be right.

    ``is_disputed``: the other one, which is lower, may be right: nothing may be deleted.
    """

    offset: int
    other: int | None = None
    is_disputed: bool = False

    def within(self, log_end_offset: int) -> LogStart:
        """Of two that contradict each other, one above the end of the log cannot be true."""
        if self.other is None or self.offset <= log_end_offset:
            return self
        return LogStart(self.other, self.offset)


def log_start(
    kafkas: int, checked: int | None, bases: Sequence[int], epoch_start: int | None, *, clean: bool
) -> LogStart:
    """Which start counts.

    kafkas       of log-start-offset-checkpoint, 0 without a line
    checked      of the file under a checksum; None: it does not know the log
    bases        base offsets of the segments, rising
    epoch_start  of the first leader epoch
    clean        both files were written at the stop right before
    """
    first = bases[0] if bases else 0
    if checked is None or max(kafkas, first) == max(checked, first):
        return LogStart(max(kafkas, checked or 0))
    if kafkas < checked:
        # Retention writes the checked file alone until the next checkpoint.
        is_retention = not clean and checked in bases
        return LogStart(checked, None if is_retention else kafkas)
    return (
        LogStart(kafkas) if epoch_start == kafkas else LogStart(kafkas, checked, is_disputed=True)
    )
