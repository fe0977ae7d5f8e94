"""Which of the oldest segments go, by which rule, and what keeps the others.

Pure: segment facts, policy and a moment in, the plan out; the pass executes exactly what it says
(``execute``). Three rules run one after the other, each over what the one before left, each from
the oldest segment on until one stays: start offset, size, time. Without ``delete`` in
cleanup.policy only the first rule runs. No rule takes a segment that reaches above the high
watermark, nor an empty active segment; when all go, a new active segment is rolled at the log end
first. A hold (``archive.hold``, not Kafka's) then keeps what size and time would take and reaches
above its offset, up to a limit of bytes: beyond that it gives way, oldest segment first. It does
not keep what lies below the log start: a user deleted that. Sources: Kafka 4.1
UnifiedLog.deleteOldSegments.
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
    POLICY = "policy"  # cleanup.policy holds no delete
    NO_LIMITS = "no_limits"  # neither retention.ms nor retention.bytes
    DISPUTED_START = "disputed_start"  # two files say different things of the log start
    HOLD = "hold"  # its records are not archived yet: no limit lets it go
    CLOCK_JUMP = "clock_jump"  # only a jump of the wall clock made it too old
    LIMITS = "limits"  # inside every limit that is set


class SegmentFacts(NamedTuple):
    """One segment; largest_timestamp_ms is its records' or, without any, the file's mtime."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int


class Hold(NamedTuple):
    """The records from ``offset`` on are still needed: an archive has not got them.

    max_bytes   of what the limits would take that it keeps, the active segment beside it;
                negative: all
    """

    offset: int
    max_bytes: int = -1


class RetainedByHold(NamedTuple):
    """What the limits would let go and a hold keeps."""

    segments: int
    size_bytes: int


NOTHING_HELD = RetainedByHold(0, 0)


class LogFacts(NamedTuple):
    """One log at one moment.

    segments            oldest first, the last one is active; looked at only as far as it is needed
    size_bytes          of all of them
    flushed_base        None, or above it nothing goes by any rule: it may not be durable yet
    is_start_disputed   nothing goes by any rule: it may be wrong where the log starts
    """

    segments: Sequence[SegmentFacts]
    size_bytes: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    hold: Hold | None = None
    flushed_base: int | None = None
    is_start_disputed: bool = False


class RetentionPolicy(NamedTuple):
    """What the topic's configuration says; -1 is no limit (any negative number of bytes is)."""

    is_deleted: bool  # cleanup.policy holds delete
    retention_ms: int
    retention_bytes: int

    @property
    def has_limit(self) -> bool:
        """Whether anything but the log start lets a segment go."""
        return self.is_deleted and (self.retention_ms >= 0 or self.retention_bytes >= 0)


class Deletion(NamedTuple):
    """One segment that goes; ``is_yielded``: the hold was to keep it, but for its limit."""

    base_offset: int
    rule: Rule
    is_yielded: bool = False


class RetentionPlan(NamedTuple):
    """Deletions oldest first: always a prefix of the segments.

    now_ms              the moment of the pass
    is_rolled           the active segment goes too: a new one is rolled at the log end first
    log_start_offset    of the log afterwards
    held                after the deletions: what would go as well, and a hold keeps
    """

    now_ms: int
    deletions: tuple[Deletion, ...]
    is_rolled: bool
    log_start_offset: int
    held: tuple[Deletion, ...] = ()


def plan(facts: LogFacts, policy: RetentionPolicy, now_ms: int) -> RetentionPlan:
    """What a pass at ``now_ms`` deletes."""
    walk = _Walk(facts)
    walk.take(  # the active segment never goes by it
        Rule.START_OFFSET,
        lambda _, following: following is not None and following <= facts.log_start_offset,
    )
    if policy.is_deleted:
        if 0 <= policy.retention_bytes <= walk.size_bytes:  # the log never falls below its limit
            walk.take(
                Rule.SIZE,
                lambda each, _: walk.size_bytes - each.size_bytes >= policy.retention_bytes,
            )
        if policy.retention_ms >= 0:
            walk.take(
                Rule.TIME, lambda each, _: now_ms - each.largest_timestamp_ms > policy.retention_ms
            )
    return walk.result(now_ms)


def keeper_of(facts: LogFacts, policy: RetentionPolicy, index: int) -> Keeper:
    """What keeps segment number ``index`` where no rule takes it and nothing older is left."""
    upper = _upper_offset(facts, index)
    if index == len(facts.segments) - 1 and facts.segments[index].size_bytes == 0:
        return Keeper.EMPTY_ACTIVE
    if facts.high_watermark < upper:
        return Keeper.HIGH_WATERMARK
    if facts.is_start_disputed:
        return Keeper.DISPUTED_START
    if not policy.is_deleted:
        return Keeper.POLICY
    if policy.retention_ms < 0 and policy.retention_bytes < 0:
        return Keeper.NO_LIMITS
    if facts.hold is not None and facts.hold.offset < upper:
        return Keeper.HOLD
    return Keeper.LIMITS


class _Walk:
    """The rules in turn, each from where the one before stopped."""

    def __init__(self, facts: LogFacts) -> None:
        self._facts = facts
        self._bound = facts.high_watermark
        if facts.flushed_base is not None:
            self._bound = min(self._bound, facts.flushed_base)
        self._deletions: list[Deletion] = []
        self.size_bytes = facts.size_bytes

    def take(self, rule: Rule, goes: Callable[[SegmentFacts, int | None], bool]) -> None:
        """All that the rule deletes; ``goes`` gets a segment and the next one's base offset."""
        if self._facts.is_start_disputed:
            return
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

    def result(self, now_ms: int) -> RetentionPlan:
        """The plan."""
        facts, first_held = self._facts, self._first_held()
        count = self._first_kept(first_held)
        yielded = [each._replace(is_yielded=True) for each in self._deletions[first_held:count]]
        deletions = (*self._deletions[:first_held], *yielded)
        held = tuple(self._deletions[count:])
        if count == 0:
            return RetentionPlan(now_ms, (), False, facts.log_start_offset, held)
        is_rolled = count == len(facts.segments)
        first = facts.log_end_offset if is_rolled else facts.segments[count].base_offset
        start = max(facts.log_start_offset, first)
        return RetentionPlan(now_ms, deletions, is_rolled, start, held)

    def _first_held(self) -> int:
        """Of the deletions: those from here on are by a limit and reach above the hold."""
        facts, count = self._facts, len(self._deletions)
        if facts.hold is None:
            return count
        for index, deletion in enumerate(self._deletions):
            is_limit = deletion.rule is not Rule.START_OFFSET
            if is_limit and _upper_offset(facts, index) > facts.hold.offset:
                return index
        return count

    def _first_kept(self, first_held: int) -> int:
        """Where the hold begins that is within its limit.

        The active segment counts only alone: it cannot go before the others, and a pass that
        leaves it must decide on them as one that does not see it (``flushed_base``).
        """
        facts, count = self._facts, len(self._deletions)
        if facts.hold is None or facts.hold.max_bytes < 0:
            return first_held
        first_active = min(count, len(facts.segments) - 1)
        held_bytes = sum(each.size_bytes for each in facts.segments[first_held:first_active])
        while held_bytes > facts.hold.max_bytes:
            held_bytes -= facts.segments[first_held].size_bytes
            first_held += 1
        is_active_alone = first_held == first_active < count
        if is_active_alone and facts.segments[first_active].size_bytes > facts.hold.max_bytes:
            return count
        return first_held


def _upper_offset(facts: LogFacts, index: int) -> int:
    """The offset after the segment: all below it must be visible before it may go."""
    is_active = index == len(facts.segments) - 1
    return facts.log_end_offset if is_active else facts.segments[index + 1].base_offset
