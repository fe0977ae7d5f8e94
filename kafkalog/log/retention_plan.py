"""retention.plan: which of the oldest segments go, by which rule, and what keeps the others.

Pure: segment facts, policy and a moment in, the plan out; the pass executes exactly what it says
(``retention_pass``). Three rules run one after the other, each over what the one before left,
each from the oldest segment on until one stays: start offset, size, time. Without ``delete`` in
cleanup.policy only the first rule runs. No rule takes a segment that reaches above the high
watermark or above a hold, nor an empty active segment; when all go, a new active segment is rolled
at the log end first. Sources: Kafka 4.1 UnifiedLog.deleteOldSegments, log-lifecycle 9.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Rule(enum.Enum):
    """Why a segment goes."""

    START_OFFSET = "start_offset"
    SIZE = "size"
    TIME = "time"


class Keeper(enum.Enum):
    """What keeps a segment, in the order of the questions."""

    OLDER_SEGMENT = "older_segment"  # nothing goes before what is older than it
    EMPTY_ACTIVE = "empty_active"  # the last segment is empty already
    HIGH_WATERMARK = "high_watermark"  # it holds records that readers do not see yet
    HOLD = "hold"  # somebody still needs its records
    POLICY = "policy"  # cleanup.policy holds no delete
    NO_LIMITS = "no_limits"  # neither retention.ms nor retention.bytes
    LIMITS = "limits"  # inside every limit that is set


class SegmentFacts(NamedTuple):
    """One segment; largest_timestamp_ms is its records' or, without any, the file's mtime."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int


class LogFacts(NamedTuple):
    """One log at one moment.

    segments            oldest first, the last one is active; looked at only as far as it is needed
    size_bytes          of all of them
    hold_offset         None, or the offset from which on somebody needs the records
    """

    segments: Sequence[SegmentFacts]
    size_bytes: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    hold_offset: int | None = None


class RetentionPolicy(NamedTuple):
    """What the topic's configuration says; -1 is no limit (any negative number of bytes is)."""

    is_deleted: bool  # cleanup.policy holds delete
    retention_ms: int
    retention_bytes: int


class Deletion(NamedTuple):
    """One segment that goes."""

    base_offset: int
    rule: Rule


class RetentionPlan(NamedTuple):
    """Deletions oldest first: always a prefix of the segments.

    is_rolled           the active segment goes too: a new one is rolled at the log end first
    log_start_offset    of the log afterwards
    """

    deletions: tuple[Deletion, ...]
    is_rolled: bool
    log_start_offset: int


def plan(facts: LogFacts, policy: RetentionPolicy, now_ms: int) -> RetentionPlan:
    """What a pass at ``now_ms`` deletes."""
    walk = _Walk(facts)
    walk.take(Rule.START_OFFSET, lambda _, following: _is_below(following, facts.log_start_offset))
    if policy.is_deleted:
        excess = walk.size_bytes - policy.retention_bytes
        if policy.retention_bytes >= 0 and excess >= 0:
            walk.take(Rule.SIZE, _while_above(excess))
        if policy.retention_ms >= 0:
            walk.take(
                Rule.TIME,
                lambda each, _: now_ms - each.largest_timestamp_ms > policy.retention_ms,
            )
    return walk.result()


def keeper_of(facts: LogFacts, policy: RetentionPolicy, index: int) -> Keeper:
    """What keeps segment number ``index`` where no rule takes it and nothing older is left."""
    upper = _upper_offset(facts, index)
    if index == len(facts.segments) - 1 and facts.segments[index].size_bytes == 0:
        return Keeper.EMPTY_ACTIVE
    if facts.high_watermark < upper:
        return Keeper.HIGH_WATERMARK
    if facts.hold_offset is not None and facts.hold_offset < upper:
        return Keeper.HOLD
    if not policy.is_deleted:
        return Keeper.POLICY
    if policy.retention_ms < 0 and policy.retention_bytes < 0:
        return Keeper.NO_LIMITS
    return Keeper.LIMITS


class _Walk:
    """The rules in turn, each from where the one before stopped."""

    def __init__(self, facts: LogFacts) -> None:
        self._facts = facts
        self._bound = facts.high_watermark
        if facts.hold_offset is not None:
            self._bound = min(self._bound, facts.hold_offset)
        self._deletions: list[Deletion] = []
        self.size_bytes = facts.size_bytes

    def take(self, rule: Rule, goes: Callable[[SegmentFacts, int | None], bool]) -> None:
        """All that the rule lets go; ``goes`` gets a segment and the next one's base offset."""
        segments = self._facts.segments
        for index in range(len(self._deletions), len(segments)):
            segment = segments[index]
            is_active = index == len(segments) - 1
            if is_active and segment.size_bytes == 0:
                return
            if _upper_offset(self._facts, index) > self._bound:
                return
            if not goes(segment, None if is_active else segments[index + 1].base_offset):
                return
            self._deletions.append(Deletion(segment.base_offset, rule))
            self.size_bytes -= segment.size_bytes

    def result(self) -> RetentionPlan:
        """The plan."""
        facts, count = self._facts, len(self._deletions)
        if count == 0:
            return RetentionPlan((), is_rolled=False, log_start_offset=facts.log_start_offset)
        is_rolled = count == len(facts.segments)
        first = facts.log_end_offset if is_rolled else facts.segments[count].base_offset
        return RetentionPlan(tuple(self._deletions), is_rolled, max(facts.log_start_offset, first))


def _upper_offset(facts: LogFacts, index: int) -> int:
    """The offset behind the segment: all below it must be visible before it may go."""
    is_active = index == len(facts.segments) - 1
    return facts.log_end_offset if is_active else facts.segments[index + 1].base_offset


def _is_below(following: int | None, log_start_offset: int) -> bool:
    """The start-offset rule; the active segment never goes by it."""
    return following is not None and following <= log_start_offset


def _while_above(excess_bytes: int) -> Callable[[SegmentFacts, int | None], bool]:
    """The size rule: the log never falls below its limit."""
    left_bytes = excess_bytes

    def goes(segment: SegmentFacts, _: int | None) -> bool:
        nonlocal left_bytes
        if left_bytes - segment.size_bytes < 0:
            return False
        left_bytes -= segment.size_bytes
        return True

    return goes
