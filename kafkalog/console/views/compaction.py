"""Compaction: what the cleaner threads do and did, and whether each log is cleaned next.

The facts are those of ``GET /v1/cleaner``. A trial is a dry run: the cleaner reads what a clean
reads, and writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pydantic import ConfigDict, Field

from kafkalog.broker.compaction.cleaning import LOG_CLEAN, WhyNot
from kafkalog.console.drawings import Phase, Stretch, lay_out_timeline
from kafkalog.console.formatting import number, percent, plural, size, span
from kafkalog.console.view import EnumValue, Fragment, View, listed_topics, page_of
from kafkalog.format.topic_names import is_internal

if TYPE_CHECKING:
    from kafkalog.broker.background import BackgroundOperation
    from kafkalog.broker.compaction.cleaning import CompactedLog
    from kafkalog.broker.operations import Operations
    from kafkalog.console.drawings import Timeline

LOGS_A_PAGE = 100
CLEANS_SHOWN = 300
HOUR_MS = 3_600_000
_HOURS = (1, 6, 24)


class CleanerThreadView(Fragment):
    """One thread; null: it is not cleaning, or its next turn is not known."""

    name: str
    is_alive: bool
    restarts: int
    topic: str | None
    partition: int | None
    busy_since_ms: int | None
    next_turn_ms: int | None


class CleanView(Fragment):
    """A clean that ended; bytes before and after are 0 unless its outcome is cleaned."""

    thread: str
    topic: str
    partition: int
    started_ms: int
    ended_ms: int
    outcome: str
    map_seconds: float
    copy_seconds: float
    swap_seconds: float
    bytes_before: int
    bytes_after: int
    reason: str | None


class CompactedLogView(Fragment):
    """A compacted log. ``rank``: its turn, from 1; null: ``why`` says why it has none."""

    topic: str
    partition: int
    state: EnumValue
    operator_pauses: int
    rank: int | None
    why_not: EnumValue | None
    why: str
    cleanable_ratio: float | None
    min_cleanable_ratio: float
    clean_bytes: int | None
    cleanable_bytes: int | None
    first_dirty_offset: int | None
    first_uncleanable_offset: int | None
    last_success_ms: int | None
    failure: str | None

    @property
    def can_be_tried(self) -> bool:
        """Whether a dry run would find something, and a thread could run it now."""
        is_out = self.why_not in (WhyNot.CLEANER_OFF.value, WhyNot.MOVING.value)
        return bool(self.cleanable_bytes) and self.state == "none" and not is_out


class CompactedTopic(NamedTuple):
    """The logs of one topic, dirtiest first, and what they come to."""

    name: str
    is_internal: bool
    logs: list[CompactedLogView]

    @property
    def dirtiest_ratio(self) -> float | None:
        """Of its logs; None: of none is it known."""
        known = [each.cleanable_ratio for each in self.logs if each.cleanable_ratio is not None]
        return max(known, default=None)

    @property
    def cleanable_bytes(self) -> int:
        """Of all its logs."""
        return sum(each.cleanable_bytes or 0 for each in self.logs)

    @property
    def failures(self) -> int:
        """How many of its logs are not compacted because of an error."""
        return sum(each.failure is not None for each in self.logs)

    @property
    def why(self) -> str:
        """Of the log that is cleaned first, else of the dirtiest."""
        ranked = [each for each in self.logs if each.rank is not None]
        return min(ranked, key=lambda each: each.rank or 0).why if ranked else self.logs[0].why


class TrialResult(Fragment):
    """What a clean did, or would do; the answer of the API has more fields."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    outcome: str
    dry_run: bool
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    removed: dict[str, int] = Field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """For people."""
        if self.outcome != "cleaned":
            return f"{self.outcome.replace('_', ' ')}."
        removed = plural(self.records_before - self.records_after, "record")
        reasons = [f"{number(count)} {name}" for name, count in self.removed.items() if count]
        counted = f" ({', '.join(reasons)})" if reasons else ""
        freed = size(max(self.bytes_before - self.bytes_after, 0))
        verb = "would be removed" if self.dry_run else "removed"
        return (
            f"{removed} of {number(self.records_before)}{counted}, {freed} of"
            f" {size(self.bytes_before)} {verb}."
        )


class TrialView(Fragment):
    """A clean or a dry run that was requested from the page.

    ``result``, and ``sentence`` which puts it in words, are null until it has succeeded.
    """

    operation_id: str
    partition: str
    dry_run: bool
    state: EnumValue
    result: TrialResult | None
    sentence: str | None
    error: str | None


class CleanerView(View):
    """``logs`` are those of one page, dirtiest first; ``cleans`` newest first.

    ``internal_hidden``: how many topics of Kafka's own are left out; none where one is asked for.
    ``since_ms``: where the drawing begins: ``hours`` ago, or the start of a younger daemon.
    """

    template: ClassVar[str] = "compaction.html"

    topic: str
    is_enabled: bool
    backoff_ms: int
    dedupe_buffer_bytes: int
    throttle_bytes_per_second: float | None
    threads: list[CleanerThreadView]
    hours: int
    since_ms: int
    clean_count: int
    cleans: list[CleanView]
    with_internal: bool
    internal_hidden: int
    total: int
    page: int
    pages: int
    logs: list[CompactedLogView]
    trial: TrialView | None

    @property
    def title(self) -> str:
        """See View."""
        return f"Compaction of {self.topic}" if self.topic else "Compaction"

    @property
    def by_topic(self) -> list[CompactedTopic]:
        """The logs of this page by topic: the dirtiest topic first, internal ones last."""
        groups = dict[str, list[CompactedLogView]]()
        for each in self.logs:
            groups.setdefault(each.topic, []).append(each)
        topics = [CompactedTopic(name, is_internal(name), logs) for name, logs in groups.items()]
        return sorted(topics, key=lambda each: each.is_internal)

    @property
    def is_since_start(self) -> bool:
        """Whether the daemon is younger than ``hours``."""
        return self.since_ms > self.now_ms - self.hours * HOUR_MS

    @property
    def hour_choices(self) -> list[int]:
        """Hours of a drawing, as far as the daemon is old enough for them, and the present ones."""
        if not self.is_since_start:
            return sorted({*_HOURS, self.hours})
        age_ms = self.now_ms - self.since_ms
        return [*(each for each in _HOURS if each * HOUR_MS < age_ms), self.hours]

    @property
    def phases(self) -> list[Phase]:
        """The phases in the drawing, in the order of the legend."""
        shown = {bar.phase for lane in self.timeline.lanes for bar in lane.bars}
        return [phase for phase in Phase if phase in shown]

    @property
    def timeline(self) -> Timeline:
        """The drawing since ``since_ms``."""
        busy = [
            Stretch(each.name, -1, Phase.RUNNING, each.busy_since_ms, self.now_ms)
            for each in self.threads
            if each.busy_since_ms is not None
        ]
        past = [part for number, each in enumerate(self.cleans) for part in _parts(number, each)]
        # Threads that run now come first; others, which ended, may have cleans.
        every = [each.name for each in self.threads] + [each.thread for each in self.cleans]
        threads = list(dict.fromkeys(every))
        return lay_out_timeline(threads, past + busy, self.since_ms, self.now_ms)


def _parts(number: int, clean: CleanView) -> list[Stretch]:
    """The phases of a clean in sequence, each as long as it took for all groups together."""
    if clean.outcome != "cleaned":
        phase = next(each for each in Phase if each.value == clean.outcome)
        return [Stretch(clean.thread, number, phase, clean.started_ms, clean.ended_ms)]
    parts, at = [], float(clean.started_ms)
    for phase, seconds in (
        (Phase.MAP, clean.map_seconds),
        (Phase.COPY, clean.copy_seconds),
        (Phase.SWAP, clean.swap_seconds),
    ):
        parts.append(Stretch(clean.thread, number, phase, at, at + seconds * 1000))
        at += seconds * 1000
    return parts


def compaction_view(
    operations: Operations,
    topic: str,
    *,
    page: int,
    hours: int,
    operation_id: str,
    with_internal: bool = False,
) -> CleanerView:
    """Page ``page`` (from 1) of the compacted logs, of all topics or of one.

    operation_id  of a trial whose result is shown; empty: none

    Blocks: may read indexes. Raises UnknownTopic.
    """
    report = operations.cleaning.describe(topic or None)
    hours_ms = report.now_ms - hours * HOUR_MS
    # A clock that was set back since the start is no reason for an empty drawing.
    since_ms = max(hours_ms, report.since_ms) if report.since_ms < report.now_ms else hours_ms
    cleans = [
        each
        for each in reversed(operations.cleaning.history())
        if each.ended_ms >= hours_ms and topic in ("", each.topic)
    ]
    names = [each.status.log.topic_partition.topic for each in report.logs]
    is_every = with_internal or bool(topic)
    listed, internal_hidden = listed_topics(set(names), with_internal=is_every)
    shown_names = frozenset(listed)
    logs = [each for each, name in zip(report.logs, names, strict=True) if name in shown_names]
    shown = page_of(len(logs), LOGS_A_PAGE, page)
    trial = operations.background_operation(operation_id) if operation_id else None
    return CleanerView.of(
        report,
        report.config,
        shown,
        topic=topic,
        dedupe_buffer_bytes=report.config.dedupe_buffer_size_bytes,
        throttle_bytes_per_second=report.config.io_limit_bytes_per_second,
        threads=[CleanerThreadView.of(each, each.topic_partition) for each in report.threads],
        hours=hours,
        since_ms=since_ms,
        clean_count=len(cleans),
        cleans=cleans[:CLEANS_SHOWN],
        with_internal=with_internal,
        internal_hidden=internal_hidden,
        total=len(logs),
        logs=[_log(each) for each in logs[shown.first : shown.end]],
        trial=_trial(trial) if trial is not None and trial.kind == LOG_CLEAN else None,
    )


def _log(each: CompactedLog) -> CompactedLogView:
    status = each.status
    return CompactedLogView.of(
        each,
        status.to_clean,
        status.log.topic_partition,
        state=status.state.phase,
        why=why_of(each),
        min_cleanable_ratio=status.log.config.min_cleanable_dirty_ratio,
        failure=status.failure and status.failure.reason,
    )


def why_of(each: CompactedLog) -> str:
    """Why no thread cleans the log now, or when one does."""
    plan, why_not = each.status.to_clean, each.why_not
    if why_not is None:
        overdue_ms = plan.overdue_ms if plan is not None else 0
        due = f", overdue for {span(overdue_ms)}" if overdue_ms > 0 else ""
        return f"waits for its turn: number {each.rank}{due}"
    if why_not is WhyNot.BELOW_RATIO and plan is not None:
        least = each.status.log.config.min_cleanable_dirty_ratio
        return f"{percent(plan.cleanable_ratio)} dirty; cleaned above {percent(least)}"
    failure = each.status.failure
    if why_not in _FAILED and failure is not None:
        return f"{_FAILED[why_not]} {plural(failure.attempts, 'time')}: {failure.reason}"
    fault = each.status.fault
    if why_not is WhyNot.UNREADABLE and fault is not None:
        return f"could not be read: {fault.public_message}"
    return _REASONS[why_not]


_FAILED = {
    WhyNot.UNCLEANABLE: "uncleanable until an operator retries it: failed",
    WhyNot.WAITS_FOR_RETRY: "waits for a retry: failed",
}
_REASONS = {
    WhyNot.CLEANER_OFF: "the cleaner is off: log.cleaner.enable, log.cleaner.threads",
    WhyNot.MOVING: "moves to another log directory",
    WhyNot.IN_PROGRESS: "a thread is cleaning it",
    WhyNot.PAUSED: "paused, by an operator or briefly by the daemon",
    WhyNot.UNCLEANABLE: "uncleanable until an operator retries it",
    WhyNot.WAITS_FOR_RETRY: "failed, waits for a retry",
    WhyNot.UNREADABLE: "could not be read",
    WhyNot.NOTHING_CLEANABLE: "nothing to clean",
    WhyNot.BELOW_RATIO: "below min.cleanable.dirty.ratio",
}


def _trial(operation: BackgroundOperation) -> TrialView:
    error = operation.error
    result = TrialResult.model_validate(operation.result) if operation.result else None
    return TrialView.of(
        operation,
        partition=operation.details["partition"],
        dry_run=operation.details["dry_run"] == "true",
        result=result,
        sentence=result and result.sentence,
        error=error and error.public_message,
    )
