"""Ranges of offsets that a log has lost: which offsets of a gap are lost and not yet accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class LostRange(NamedTuple):
    """Acknowledged offsets that are lost; both ends are inclusive."""

    first_offset: int
    last_offset: int


def lost_in_gap(
    first_offset: int,
    end_offset: int,
    *,
    is_gapless: bool,
    orphans: Iterable[int],
    accepted: Iterable[tuple[int, int]],
) -> tuple[LostRange, ...]:
    """What is lost of the offsets [first_offset, end_offset), which no segment holds.

    All of them in a gapless log; else those from the first of ``orphans`` on, the bases of indexes
    without a ``.log``. Compaction may have removed the others.
    """
    if not is_gapless:
        within = (offset for offset in orphans if first_offset <= offset < end_offset)
        first_offset = min(within, default=end_offset)
    holes = [(first_offset, end_offset - 1)] if first_offset < end_offset else []
    return not_accepted(holes, accepted)


def not_accepted(
    holes: Iterable[tuple[int, int]], accepted: Iterable[tuple[int, int]]
) -> tuple[LostRange, ...]:
    """The holes without the accepted offsets: rising, disjoint; those that touch are one."""
    joined: list[LostRange] = []
    for first, last in sorted(holes):
        if joined and first <= joined[-1].last_offset + 1:
            joined[-1] = LostRange(joined[-1].first_offset, max(joined[-1].last_offset, last))
        else:
            joined.append(LostRange(first, last))
    left: list[LostRange] = []
    known = sorted(accepted)
    for first, last in joined:
        begin = first
        for accepted_first, accepted_last in known:
            if accepted_last < begin or accepted_first > last:
                continue
            if accepted_first > begin:
                left.append(LostRange(begin, accepted_first - 1))
            begin = accepted_last + 1
        if begin <= last:
            left.append(LostRange(begin, last))
    return tuple(left)
