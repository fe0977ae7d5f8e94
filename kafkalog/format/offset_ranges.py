"""Ranges of offsets that a log lost, and what is left of them without those that were given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class LostRange(NamedTuple):
    """Offsets that were acknowledged and are gone; both ends are inclusive."""

    first_offset: int
    last_offset: int


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
