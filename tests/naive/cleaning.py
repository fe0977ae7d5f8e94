"""Plain twin of the cleaning planner: which segments are clean, dirty, grouped; list by list."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlainFacts:
    base: int
    size: int
    largest: int = 0
    first: int = 0


@dataclass(frozen=True)
class PlainRange:
    uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    overdue: int


def between(segments: list[PlainFacts], start: int, end: int) -> list[PlainFacts]:
    """Segments that hold an offset of [start, end), found by asking each for each next base."""
    found = []
    for place, segment in enumerate(segments):
        following = segments[place + 1].base if place + 1 < len(segments) else None
        if segment.base < end and (following is None or following > start) and start < end:
            found.append(segment)
    return found


def plain_range(
    segments: list[PlainFacts], dirty: int, stable: int, now: int, min_lag: int, max_lag: int
) -> PlainRange:
    """The last segment is active."""
    active = segments[-1]
    candidates = between(segments, dirty, active.base)
    limits = [stable, active.base]
    if min_lag > 0:
        limits += [each.base for each in candidates if each.largest > now - min_lag][:1]
    limit = max(dirty, min(limits))
    holder = [each for each in segments if each.base <= limit]
    uncleanable = holder[-1].base if holder else segments[0].base
    stamps = [each.first for each in candidates if each.first > 0]
    return PlainRange(
        uncleanable,
        sum(each.size for each in segments if each.base < dirty),
        sum(each.size for each in between(segments, dirty, uncleanable)),
        max(now - max_lag - min(stamps), 0) if stamps else 0,
    )


def plain_groups(
    sizes: list[tuple[int, int, int, int]], segment_bytes: int, index_bytes: int, end: int
) -> list[list[int]]:
    """Bases by group; sizes are (base, log, offset index, time index)."""
    groups: list[list[int]] = []
    for place, (base, size, _, _) in enumerate(sizes):
        last = sizes[place + 1][0] - 1 if place + 1 < len(sizes) else end - 1
        if groups:
            members = [each for each in sizes if each[0] in groups[-1]] + [sizes[place]]
            logs, offsets, times = (sum(each[column] for each in members) for column in (1, 2, 3))
            near = size == 0 or last - groups[-1][0] <= 2**31 - 1
            if logs <= segment_bytes and offsets <= index_bytes and times <= index_bytes and near:
                groups[-1].append(base)
                continue
        groups.append([base])
    return groups
