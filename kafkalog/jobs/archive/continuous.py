"""Job ``archive --continuous``: runs of an archive, one after the other, until it is stopped.

A look is the plan of a run. It becomes a run when the new records are worth a file
(`Pace.min_commit_bytes`), or when the first of them has waited for so long that a run as long as
the last one ends within `Pace.max_lag_seconds`. A look asks for all partitions together, so that
it costs a few requests a topic; the pauses between looks are a fraction of the lag, 5 s at most.

The position is in the table and nowhere else: the loop can be killed at any step and started
again, here or elsewhere. After a fault it opens logs and table again, because a commit may have
been made although it raised an error.

| fault | the loop |
|---|---|
| of one partition | says so once, leaves it out, tries it again after 1 min to 1 h |
| that may pass | says so once, tries again after 1 s to 1 min |
| any other | ends with it |

May pass: no daemon, a busy store, the commit of another job, a process that died (`passes`).

One thread. ``is_stopped`` is asked in each pause and after each task: then what is ready is
committed, and the loop ends.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import structlog

from kafkalog.client.errors import ClientError
from kafkalog.env.backoff import Backoff
from kafkalog.env.random import SystemRandom
from kafkalog.errors import KafkalogError
from kafkalog.jobs.archive.archive import Run, tell_of_fault
from kafkalog.jobs.archive.progress import ArchivedPartition, joined
from kafkalog.jobs.attempts import passes, reason_of
from kafkalog.spark.logs.values import TARGET_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.clock import Clock
    from kafkalog.jobs.archive.archive import ArchiveOptions
    from kafkalog.jobs.archive.archive_table import ArchiveTable
    from kafkalog.jobs.archive.progress import PartitionName
    from kafkalog.jobs.tasks import Runner
    from kafkalog.spark.logs.open import OpenedLogs

MAX_LAG_SECONDS = 60.0
_LOOK_SECONDS_MAX = 5.0
_LOOKS_A_LAG = 10
_STEP_SECONDS = 0.25  # of a pause: how soon it notices that it is stopped
_RETRIES = Backoff(first_seconds=1.0, seconds_max=60.0)
_QUARANTINE = Backoff(first_seconds=60.0, seconds_max=3600.0)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """When new records are archived.

    max_lag_seconds   no record waits longer, as far as the machines are fast enough
    min_commit_bytes  so much log is archived at once, without waiting
    """

    max_lag_seconds: float = MAX_LAG_SECONDS
    min_commit_bytes: int = TARGET_BYTES

    @property
    def look_seconds(self) -> float:
        """The pause between two looks."""
        return min(self.max_lag_seconds / _LOOKS_A_LAG, _LOOK_SECONDS_MAX)


class _Quarantined(NamedTuple):
    """Why a partition is left out, how often it was tried, and until when."""

    reason: str
    tries: int
    until_ns: int


class Continuous:
    """See the module."""

    def __init__(
        self,
        logs: Callable[[], OpenedLogs],
        table: Callable[[], ArchiveTable],
        options: ArchiveOptions,
        pace: Pace,
        runner: Runner,
        *,
        clock: Clock,
        is_stopped: Callable[[], bool],
    ) -> None:
        """``logs`` and ``table`` open them."""
        # constant after construction
        self._open_logs, self._open_table = logs, table
        self._options, self._pace, self._runner = options, pace, runner
        self._clock, self._is_stopped = clock, is_stopped
        self._random = SystemRandom()
        # of the loop
        self._rows: dict[PartitionName, ArchivedPartition] = {}
        self._quarantined: dict[PartitionName, _Quarantined] = {}
        self._covered_ns: int | None = None  # what was readable before is archived, or being it
        self._run_seconds = 0.0
        self._failures = 0
        self._told: str | None = None

    def run(self) -> list[ArchivedPartition]:
        """Archive until it is stopped; what was archived of each partition since the start.

        Raises a fault that does not pass: UnknownTopic, UnusableTable, NotAuthenticated, ...
        """
        while not self._is_stopped():
            try:
                self._follow()
            except (KafkalogError, ClientError, OSError) as error:
                if not passes(error):
                    raise
                self._wait_for_end_of(error)
        return self._outcome()

    def _outcome(self) -> list[ArchivedPartition]:
        """By name; with a problem those that are quarantined now."""
        rows = {name: row._replace(problem=None) for name, row in self._rows.items()}
        for name, each in self._quarantined.items():
            row = rows.get(name, ArchivedPartition(*name, 0, 0))
            rows[name] = row._replace(problem=each.reason)
        return [rows[name] for name in sorted(rows)]

    def _follow(self) -> None:
        """Looks and runs with one table, until the loop is stopped. Raises the first fault."""
        with closing(self._open_table()) as table, closing(self._open_logs()) as logs:
            is_first = True  # it completes what a killed run has left: reports and topic ids
            while not self._is_stopped():
                began_ns = self._clock.monotonic_ns()
                left_out = {
                    name for name, each in self._quarantined.items() if began_ns < each.until_ns
                }
                run = Run(
                    logs,
                    table,
                    self._options,
                    self._clock,
                    left_out=left_out,
                    on_fault=self._quarantine,
                )
                run.plan()
                if is_first or self._is_due(run.planned_bytes):
                    run.check(with_unchanged=is_first)
                    run.perform(self._runner, self._is_stopped)
                    if is_first:
                        run.report(run.checked)
                    if run.wider:
                        table.widen(run.wider)
                    elif self._is_stopped():
                        table.abandon()  # what was under way
                    elif not run.progress.faults:
                        table.complete()
                    self._take(run, left_out, began_ns)
                    if run.wider:
                        self._covered_ns = None  # go on at once
                    is_first = False
                    continue
                if not run.planned_bytes:
                    self._covered_ns = began_ns
                self._pause(min(self._pace.look_seconds, self._seconds_left()))

    def _is_due(self, planned_bytes: int) -> bool:
        """Whether a look becomes a run."""
        is_worth_a_file = planned_bytes >= self._pace.min_commit_bytes
        return planned_bytes > 0 and (is_worth_a_file or self._seconds_left() <= 0)

    def _seconds_left(self) -> float:
        """Until a run has to begin, if there are records since the last look without any."""
        if self._covered_ns is None:
            return 0.0
        waited = (self._clock.monotonic_ns() - self._covered_ns) / 1e9
        max_lag = self._pace.max_lag_seconds
        return max(max_lag - min(self._run_seconds, max_lag / 2) - waited, 0.0)

    def _take(self, run: Run, left_out: set[PartitionName], began_ns: int) -> None:
        """A run has ended: what it did, for the log and the sums."""
        if self._failures:
            _log.info("archive_goes_on", tries=self._failures)
        self._failures, self._told = 0, None
        self._run_seconds = (self._clock.monotonic_ns() - began_ns) / 1e9
        self._covered_ns = began_ns
        faults, rows = run.progress.faults, run.progress.rows()
        self._rows = joined(self._rows, rows)
        for name in self._quarantined.keys() - left_out - faults.keys():
            del self._quarantined[name]
            _log.info("partition_is_archived_again", partition=f"{name[0]}-{name[1]}")
        if run.commits:
            _log.info(
                "archived",
                rows=sum(row.rows for row in rows),
                files=sum(row.files for row in rows),
                bytes=sum(row.bytes for row in rows),
                commits=run.commits,
                seconds=round(self._run_seconds, 3),
            )

    # ---- faults

    def _quarantine(self, name: PartitionName, fault: Exception) -> None:
        known, reason = self._quarantined.get(name), reason_of(fault)
        if known is None or known.reason != reason:
            tell_of_fault(name, fault)
        tries = 1 if known is None else known.tries + 1
        pause_ns = int(_QUARANTINE.pause_seconds(tries, self._random) * 1e9)
        until_ns = self._clock.monotonic_ns() + pause_ns
        self._quarantined[name] = _Quarantined(reason, tries, until_ns)

    def _wait_for_end_of(self, error: Exception) -> None:
        """Pause after a fault that may pass; it is logged once, until it has passed."""
        self._failures += 1
        reason = reason_of(error)
        if reason != self._told:
            self._told = reason
            _log.warning("archive_waits", reason=reason)
        self._pause(_RETRIES.pause_seconds(self._failures, self._random))

    def _pause(self, seconds: float) -> None:
        """Sleep, until the loop is stopped at most."""
        end_ns = self._clock.monotonic_ns() + int(seconds * 1e9)
        while not self._is_stopped():
            left = (end_ns - self._clock.monotonic_ns()) / 1e9
            if left <= 0:
                return
            self._clock.sleep(min(left, _STEP_SECONDS))
