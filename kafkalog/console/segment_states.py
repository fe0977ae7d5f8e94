"""The state of a segment on the strip, and the sentence that says why it is kept. Pure.

``log.retention.forecast.explain``, which uses the planner of the retention pass, decides; this
module only words it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.console.formatting import relative, size, span, timestamp
from kafkalog.log.retention.plan import Keeper, Rule

if TYPE_CHECKING:
    from kafkalog.log.retention.forecast import Due, SegmentFate
    from kafkalog.log.retention.plan import RetentionPolicy


class SegmentState(enum.Enum):
    """In the order of the legend; the value is that of the JSON view.

    letter    on the drawing, because not everybody can tell colours apart
    meaning   for the legend
    """

    KEPT = "kept", "K", "closed and kept; the log is not compacted"
    CLEAN = "clean", "C", "compacted: one record per key"
    DIRTY = "dirty", "D", "not compacted yet"
    UNCLEANABLE = "uncleanable", "U", "compaction may not touch it yet"
    CLEANING = "cleaning", "~", "being compacted now"
    ACTIVE = "active", "A", "appends go here"
    DELETABLE = "deletable", "X", "over a limit or below the log start: the next check deletes it"
    DELETING = "deleting", "W", "deleted for readers, its files wait for deletion"

    letter: str
    meaning: str

    def __new__(cls, value: str, letter: str, meaning: str) -> SegmentState:
        """The first of the three is the value."""
        member = object.__new__(cls)
        member._value_, member.letter, member.meaning = value, letter, meaning
        return member


class CleanRange(NamedTuple):
    """How far a compacted log is clean; ``is_in_progress``: a thread is cleaning it."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    is_in_progress: bool


def state_of(
    base_offset: int,
    next_offset: int,
    rule: Rule | None,
    clean: CleanRange | None,
    *,
    is_active: bool,
) -> SegmentState:
    """Of a served segment; deletable comes first, then active."""
    if rule is not None:
        return SegmentState.DELETABLE
    if is_active:
        return SegmentState.ACTIVE
    if clean is None:
        return SegmentState.KEPT
    if base_offset >= clean.first_uncleanable_offset:
        return SegmentState.UNCLEANABLE
    if clean.is_in_progress:
        return SegmentState.CLEANING
    return SegmentState.CLEAN if next_offset <= clean.first_dirty_offset else SegmentState.DIRTY


_KEPT = {
    Keeper.OLDER_SEGMENT: "older segments are deleted first",
    Keeper.EMPTY_ACTIVE: "the active segment is empty",
    Keeper.HIGH_WATERMARK: "it holds records above the high watermark",
    Keeper.POLICY: "cleanup.policy has no delete",
    Keeper.NO_LIMITS: "neither retention.ms nor retention.bytes is set",
    Keeper.DISPUTED_START: "two files disagree about the log start",
    Keeper.HOLD: "its records are not archived yet",
    Keeper.CLOCK_JUMP: "it is too old only because the wall clock jumped",
}


def reason_of(
    fate: SegmentFate, policy: RetentionPolicy, now_ms: int, *, has_record_timestamp: bool
) -> str:
    """Why it is deleted or kept, and from when to when it can be deleted."""
    age = _age(fate, now_ms, has_record_timestamp=has_record_timestamp)
    if fate.rule is not None:
        cause = {
            Rule.START_OFFSET: "all its records are below the log start",
            Rule.SIZE: f"the log is larger than its limit of {size(policy.retention_bytes)}",
            Rule.TIME: f"{age}, limit {span(policy.retention_ms)}",
        }[fate.rule]
        return f"deletable: {cause}" + _window(fate.due, now_ms)
    return f"kept: {_kept(fate, policy, now_ms, age)}" + _window(fate.due, now_ms) + _more(fate)


def _kept(fate: SegmentFate, policy: RetentionPolicy, now_ms: int, age: str) -> str:
    """What keeps it. Of a segment behind others its own age, as long as that alone keeps it."""
    assert fate.keeper is not None, "a segment that no rule deletes has a keeper"
    cause = _KEPT.get(fate.keeper, age)
    if fate.keeper not in (Keeper.LIMITS, Keeper.OLDER_SEGMENT) or policy.retention_ms < 0:
        return cause
    of_age = f"{age}, limit {span(policy.retention_ms)}"
    if fate.keeper is Keeper.LIMITS:
        return of_age
    expiry_ms = fate.facts.largest_timestamp_ms + policy.retention_ms
    if not policy.is_deleted or fate.facts.size_bytes == 0 or expiry_ms < now_ms:
        return cause
    waits = fate.due is not None and fate.due.moment_ms > expiry_ms + 1
    return f"{of_age}; {cause}" if waits else of_age


def _more(fate: SegmentFate) -> str:
    """When its size lets it go; empty without such a limit."""
    if fate.bytes_until is None:
        return ""
    return f"; or once {size(fate.bytes_until)} more are appended"


def _age(fate: SegmentFate, now_ms: int, *, has_record_timestamp: bool) -> str:
    subject = "newest record" if has_record_timestamp else "no record time, file changed"
    newest_ms = fate.facts.largest_timestamp_ms
    if newest_ms > now_ms:
        return f"{subject} {span(newest_ms - now_ms)} in the future"
    return f"{subject} {span(now_ms - newest_ms)} old"


def _window(due: Due | None, now_ms: int) -> str:
    """The deletion window; empty when it is not foreseeable."""
    if due is None:
        return ""
    return (
        f" → earliest deletion {timestamp(due.moment_ms)} ({relative(due.moment_ms, now_ms)}),"
        f" latest {timestamp(due.latest_ms)}; files gone by {timestamp(due.files_gone_ms)}"
    )
