"""Why each segment is still here, and when it will go: the planner asked about the future.

Pure. Everything is "as things stand": no append, no change of configuration or log start. A moment
is wall time in ms. A segment goes at the first check at or after its moment; its files vanish a
delete delay later. Source: the rules of ``plan``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.format.integers import INT64_MAX
from kafkalog.log.retention.plan import (
    Keeper,
    LogFacts,
    RetentionPlan,
    RetentionPolicy,
    Rule,
    SegmentFacts,
    keeper_of,
    plan,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Schedule(NamedTuple):
    """When passes run: next_check_ms None when no daemon runs that could know it.

    is_cleaners     a thread of the cleaner runs them, between two cleans
    """

    next_check_ms: int | None
    check_interval_ms: int
    delete_delay_ms: int
    is_cleaners: bool = False

    def first_check_ms(self, moment_ms: int) -> int | None:
        """The first check at or after a moment; None when checks are not known."""
        known, interval_ms = self.next_check_ms, self.check_interval_ms
        if known is None or known >= moment_ms:
            return known
        return known + -(-(moment_ms - known) // interval_ms) * interval_ms

    def seen_from(self, moment_ms: int) -> Schedule:
        """The same rhythm with its first check at or after a moment, which may be past."""
        if self.next_check_ms is None:
            return self
        behind_ms = (self.next_check_ms - moment_ms) % self.check_interval_ms
        return self._replace(next_check_ms=moment_ms + behind_ms)

    def every(self, check_interval_ms: int, now_ms: int) -> Schedule:
        """With another interval: the next check is the known one, or an interval from now."""
        known = self.next_check_ms
        sooner = None if known is None else min(known, now_ms + check_interval_ms)
        return self._replace(check_interval_ms=check_interval_ms, next_check_ms=sooner)


def timestamp_or_none(moment_ms: int | None) -> int | None:
    """A moment as a timestamp of an answer; None, for never, beyond what a timestamp holds."""
    return None if moment_ms is None or moment_ms > INT64_MAX else moment_ms


class Due(NamedTuple):
    """When a segment goes.

    moment_ms       from here on a pass takes it
    expected_ms     the check that takes it by the schedule, None when that is not known
    latest_ms       the last moment at which it can be readable, whenever the checks run (how long
                    one check lasts comes on top)
    files_gone_ms   when its files have vanished at the latest
    """

    moment_ms: int
    expected_ms: int | None
    latest_ms: int
    files_gone_ms: int


class SegmentFate(NamedTuple):
    """One segment's prospects.

    rule            by which the next pass takes it, or None
    keeper          what keeps it otherwise: the hold, of each that a limit would delete
    due             when the time rule (or the next pass) takes it; None when it cannot be foreseen,
                    as of what a hold keeps
    bytes_until     bytes to be appended until the size rule takes it, None without such a limit
    """

    facts: SegmentFacts
    rule: Rule | None
    keeper: Keeper | None
    due: Due | None
    bytes_until: int | None


def explain(
    facts: LogFacts, policy: RetentionPolicy, now_ms: int, schedule: Schedule
) -> list[SegmentFate]:
    """The fate of every segment, oldest first; one walk."""
    planned = plan(facts, policy, now_ms)
    first_kept = len(planned.deletions)
    first_not_held = first_kept + len(planned.held)
    due_now = _due(now_ms, schedule)
    fates = [
        SegmentFate(facts.segments[index], deletion.rule, None, due_now, None)
        for index, deletion in enumerate(planned.deletions)
    ]
    kept_bytes = facts.size_bytes - sum(each.facts.size_bytes for each in fates)
    moment: int | None = now_ms
    older_bytes = 0
    # Where no limit applies, no segment waits for an older one.
    can_go = policy.is_deleted or facts.is_start_disputed
    for index in range(first_kept, len(facts.segments)):
        segment = facts.segments[index]
        keeper = keeper_of(facts, policy, index)
        older_bytes += segment.size_bytes
        if keeper is not Keeper.LIMITS or policy.retention_ms < 0:
            moment = None
        if moment is not None:
            moment = max(moment, _expiry_ms(segment, policy))
        bytes_until = None
        if keeper is Keeper.LIMITS and policy.retention_bytes >= 0:
            bytes_until = max(0, older_bytes - (kept_bytes - policy.retention_bytes))
        shown = keeper
        if index != first_kept:
            shown = Keeper.OLDER_SEGMENT if can_go else Keeper.POLICY
        if index < first_not_held:
            shown = Keeper.HOLD
        due = None if moment is None else _due(moment, schedule)
        fates.append(SegmentFate(segment, None, shown, due, bytes_until))
    return fates


def left_ratio(facts: LogFacts, policy: RetentionPolicy, now_ms: int, offset: int) -> float | None:
    """The share of its limits that is left to the segment of a readable offset.

    0: the next check takes it; 1: all of retention.ms or retention.bytes. The smaller one counts.
    None: no limit takes it, as things stand. Reads no segment after it.
    """
    if not policy.has_limit or facts.is_start_disputed:
        return None
    upper, newest_ms = facts.log_end_offset, 0
    size_bytes, older_bytes = facts.size_bytes, 0
    for segment in facts.segments:
        if segment.base_offset <= facts.log_start_offset:  # all before it goes by the log start
            size_bytes, older_bytes, newest_ms = size_bytes - older_bytes, 0, 0
        elif segment.base_offset > offset:
            upper = segment.base_offset
            break
        newest_ms = max(newest_ms, segment.largest_timestamp_ms)
        older_bytes += segment.size_bytes
    if facts.hold is not None and facts.hold.offset < upper:
        return None
    shares = [1.0]
    if policy.retention_ms >= 0:
        left_ms = newest_ms + policy.retention_ms - now_ms
        shares.append(left_ms / max(policy.retention_ms, 1))
    if policy.retention_bytes >= 0:
        bytes_until = older_bytes - (size_bytes - policy.retention_bytes)
        shares.append(bytes_until / max(policy.retention_bytes, 1))
    return max(0.0, min(shares))


class Pass(NamedTuple):
    """What the check at check_ms will delete; files_gone_ms is when those files have vanished.

    moment_ms       from here on a check deletes some of it
    """

    check_ms: int
    files_gone_ms: int
    planned: RetentionPlan
    moment_ms: int


def simulate(
    facts: LogFacts, policy: RetentionPolicy, now_ms: int, horizon_ms: int, schedule: Schedule
) -> Iterator[Pass]:
    """The passes that delete something, from now (or the next check) to now + horizon_ms.

    Each of them is the plan of its moment over what the ones before left.
    """
    check_ms = schedule.first_check_ms(now_ms)
    if check_ms is None:
        check_ms = now_ms
    moment: int | None = now_ms
    while moment is not None and check_ms <= now_ms + horizon_ms:
        planned = plan(facts, policy, check_ms)
        if planned.deletions:
            yield Pass(check_ms, check_ms + schedule.delete_delay_ms, planned, moment)
            facts = after(facts, planned, check_ms)
        moment = _next_moment(facts, policy, check_ms)
        if moment is None:
            return
        running = schedule._replace(next_check_ms=check_ms + schedule.check_interval_ms)
        following = running.first_check_ms(moment)
        assert following is not None
        check_ms = following


class Departure(NamedTuple):
    """A segment that a simulated pass takes."""

    facts: SegmentFacts
    rule: Rule
    due: Due


def departures(
    facts: LogFacts, policy: RetentionPolicy, now_ms: int, horizon_ms: int, schedule: Schedule
) -> Iterator[Departure]:
    """The segments that ``simulate`` deletes, oldest first, with the moments of each.

    Of those that one pass takes from a hold, the earliest moment is the first one's.
    """
    segments = iter(facts.segments)  # plans take prefixes
    moment = now_ms
    for each in simulate(facts, policy, now_ms, horizon_ms, schedule):
        for deletion in each.planned.deletions:
            segment = next(segments)
            assert segment.base_offset == deletion.base_offset
            if deletion.is_yielded:
                moment = max(moment, each.moment_ms)
            if deletion.rule is Rule.TIME:
                moment = max(moment, _expiry_ms(segment, policy))
            yield Departure(segment, deletion.rule, _due(moment, schedule))


def after(facts: LogFacts, planned: RetentionPlan, now_ms: int) -> LogFacts:
    """The log once the plan was carried out at now_ms; a new active segment is empty."""
    gone = len(planned.deletions)
    left = tuple(facts.segments[gone:])
    size_bytes = facts.size_bytes - sum(each.size_bytes for each in facts.segments[:gone])
    if planned.is_rolled:
        left = (SegmentFacts(facts.log_end_offset, 0, now_ms),)
    return facts._replace(
        segments=left, size_bytes=size_bytes, log_start_offset=planned.log_start_offset
    )


def _next_moment(facts: LogFacts, policy: RetentionPolicy, now_ms: int) -> int | None:
    """When the time rule next takes something of a log from which nothing goes now."""
    if policy.retention_ms < 0:
        return None
    keeper = keeper_of(facts, policy, 0)
    if keeper is Keeper.HOLD:
        return _overflow_ms(facts, policy, now_ms)
    if keeper is not Keeper.LIMITS:
        return None
    return max(now_ms, _expiry_ms(facts.segments[0], policy))


def _overflow_ms(facts: LogFacts, policy: RetentionPolicy, now_ms: int) -> int | None:
    """When more is due than the hold may keep, of a log from which nothing goes now."""
    if facts.hold is None or facts.hold.max_bytes < 0:
        return None
    due_bytes, moment = 0, now_ms
    already_due = len(plan(facts, policy, now_ms).held)
    for index, segment in enumerate(facts.segments):
        is_active_of_several = 0 < index == len(facts.segments) - 1
        if is_active_of_several or keeper_of(facts, policy, index) is not Keeper.HOLD:
            return None
        if index >= already_due:
            moment = max(moment, _expiry_ms(segment, policy))
        due_bytes += segment.size_bytes
        if due_bytes > facts.hold.max_bytes:
            return moment
    return None


def _expiry_ms(segment: SegmentFacts, policy: RetentionPolicy) -> int:
    """The first moment at which the time rule, which is strict, lets a segment go."""
    return segment.largest_timestamp_ms + policy.retention_ms + 1


def _due(moment_ms: int, schedule: Schedule) -> Due:
    """The checks around a moment that is not before now."""
    expected_ms = schedule.first_check_ms(moment_ms)
    # The unluckiest check runs a millisecond too early.
    latest_ms = moment_ms + schedule.check_interval_ms - 1
    if expected_ms is not None and expected_ms == schedule.next_check_ms:
        # Only the next check is fixed: each sets the one after it at its end.
        latest_ms = expected_ms
    return Due(moment_ms, expected_ms, latest_ms, latest_ms + schedule.delete_delay_ms)
