"""ClockHold: what retention by time does not delete because the wall clock jumped ahead.

The **jump** is how far the wall clock has moved ahead of the time since the machine's boot, which
also passes while the machine sleeps, since the last trusted moment. Trusted is the clock of the
first start after a boot, and of the moment at which an operator accepts it. While there is no jump,
steps of less than a second between two looks are the slewing of a clock and are trusted; after one
they count, so that a clock that comes back in small steps has come back. A clock that is set back
below the trusted one is trusted from then on, because nothing says which of the two was right.

A log is **held** when the jump is more than its ``retention.ms`` or more than the time between two
checks (a smaller one deletes no more than an earlier check would), and a pass would delete, only
because of the jump, segments with more than half of the log's bytes. Passes over a held log go by
the wall clock without the jump, so what is due all the same is deleted. A log stays held, however
it grows, until an operator accepts the clock, the jump is gone, or nothing is due only because of
it. A log that would lose less goes on: see the guard of ``retention``.

The trusted clock and the held logs are in the topic registry. A start, before its first check, and
each check write them when they have changed, so a crash loses what happened since then: the next
start measures the jump again, and a log that grew meanwhile is judged by its new size. A start
after the same boot knows the jump to the second, also one that came while the daemon was down.
After another boot nothing says how much time passed: the clock is trusted, unless logs were held
and the clock is not before the one that was noted then: then they stay held, by the same jump.
Accepting is durable when it returns; a crash before leaves the hold. A full disk does not refuse
it, because what it lets go makes room: it counts at once, the first check that can writes it, and a
crash before that leaves the hold. While ``log.retention.clock.guard`` is off, every clock is
trusted and nothing is held; that is noted as well, so that no old hold comes back with it. Threads:
any. Kafka has no counterpart.
"""

from __future__ import annotations

from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import structlog

from kafkalog.broker.topics.registry import ClockTrust
from kafkalog.errors import DiskFull, NotReady, StorageFault
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.retention import execute
from kafkalog.log.retention.plan import NOTHING_HELD, RetainedByHold, plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.runtime import Runtime
    from kafkalog.env.clock import ClockReading
    from kafkalog.log.retention.plan import LogFacts, RetentionPlan
    from kafkalog.log.unified_log import UnifiedLog

WHAT_TO_DO = "put the clock right, or if it is right: kafkalog retention run --accept-clock"
_LEAST_JUMP_MS = 1_000
_WARNING_MS = 60_000

_log = structlog.get_logger(__name__)


class HeldLogs(NamedTuple):
    """The jump of the wall clock, and what the last passes left because of it."""

    jump_ms: int
    logs: Mapping[TopicPartition, RetainedByHold]


class ClockHold:
    """See the module. Each reading of the clocks is of the moment of the call."""

    def __init__(self, logs: Logs, runtime: Runtime) -> None:
        # constant after construction
        self._logs = logs
        self._registry = logs.registry
        self._is_off = not runtime.config.log_retention_clock_guard
        self._check_interval_ms = runtime.config.log_retention_check_interval_ms
        self._metrics = runtime.metrics
        self._mutex = runtime.threads.mutex()
        self._writing = runtime.threads.mutex()  # from reading the trust until it is written
        # under the mutex; offsets: the wall clock without the time since the boot
        self._trusted_ms: int | None = None
        self._last_ms = 0
        self._warned_until_ms = 0
        self._ended_count = 0  # how often the hold ended: a pass from before notes nothing
        # changed under the mutex, read by any thread in single operations
        self._held: dict[TopicPartition, RetainedByHold] = {}

    def startup(self, noted: ClockTrust | None, now: ClockReading) -> None:
        """No pass has begun, nothing else changes the registry; ``noted``: what that says."""
        self._restore(noted, now)
        self.save(now, is_start=True)

    def _restore(self, noted: ClockTrust | None, now: ClockReading) -> None:
        self._trusted_ms = self._last_ms = now.wall_ms - now.since_boot_ms
        if noted is None or self._is_off:
            return
        if noted.boot_id == now.boot_id != "":
            self._trusted_ms = noted.offset_ms
        elif noted.held and noted.wall_ms <= now.wall_ms:
            self._trusted_ms -= noted.jump_ms
        else:
            return
        for topic, partitions in noted.held.items():
            self._held.update((TopicPartition(topic, each), NOTHING_HELD) for each in partitions)

    # ---- look-ups

    def _jump_ms(self, now: ClockReading) -> int:
        """By how much the wall clock is ahead of what is trusted; 0 for none worth a word."""
        with self._mutex:
            if self._trusted_ms is None:
                return 0
            offset_ms = now.wall_ms - now.since_boot_ms
            if self._is_off:
                self._trusted_ms = self._last_ms = offset_ms
                return 0
            before_ms, self._last_ms = self._last_ms, offset_ms
            had_jump = before_ms - self._trusted_ms >= _LEAST_JUMP_MS
            if abs(offset_ms - before_ms) < _LEAST_JUMP_MS and not had_jump:
                self._trusted_ms += offset_ms - before_ms
            self._trusted_ms = min(self._trusted_ms, offset_ms)
            jump_ms = offset_ms - self._trusted_ms
            return jump_ms if jump_ms >= _LEAST_JUMP_MS else 0

    def held(self, now: ClockReading) -> HeldLogs:
        """As the last passes left it; no disk."""
        return HeldLogs(self._jump_ms(now), dict(self._held))

    def held_of(self, key: TopicPartition) -> RetainedByHold:
        """What the last pass over the log left because of the jump; no disk."""
        return self._held.get(key, NOTHING_HELD)

    def limited(
        self,
        planned: RetentionPlan,
        log: UnifiedLog,
        facts: LogFacts,
        now: ClockReading,
        *,
        is_pass: bool = False,
    ) -> tuple[RetentionPlan, RetainedByHold]:
        """What a pass that was planned by ``now`` deletes, and what it leaves because of the jump.

        ``facts``: of the plan; raises as they do. ``is_pass``: note what is held, do not only ask.
        """
        ended_count, jump_ms = self._ended_count, self._jump_ms(now)
        if not jump_ms and not self._held:
            return planned, NOTHING_HELD
        key, config, held = log.topic_partition, log.config, NOTHING_HELD
        if jump_ms and 0 <= min(config.retention_ms, self._check_interval_ms) < jump_ms:
            without_jump = plan(facts, execute.policy_of(config), now.wall_ms - jump_ms)
            due = facts.segments[len(without_jump.deletions) : len(planned.deletions)]
            size_bytes = sum(each.size_bytes for each in due)
            if due and (key in self._held or 2 * size_bytes > facts.size_bytes):
                held, planned = RetainedByHold(len(due), size_bytes), without_jump
        if is_pass and (held.segments or key in self._held):
            self._note(key, held, ended_count)
        return planned, held

    def _note(self, key: TopicPartition, held: RetainedByHold, ended_count: int) -> None:
        with self._mutex:
            if ended_count != self._ended_count:
                return
            if held.segments:
                self._held[key] = held
            else:
                self._held.pop(key, None)

    def _end_hold(self, accepted_ms: int | None = None) -> None:
        with self._mutex:
            if accepted_ms is not None:
                self._trusted_ms = accepted_ms
            self._ended_count += 1
            self._held.clear()
        self._show()

    def _show(self) -> None:
        """Not after each log: it sums over all that are held."""
        size_bytes = sum(each.size_bytes for each in list(self._held.values()))
        self._metrics.retention_clock_held_bytes.set(size_bytes)

    # ---- passes

    def begin_check(self, now: ClockReading) -> None:
        """A check over many logs begins: end the hold of a clock that came back."""
        if not self._jump_ms(now) and self._held:
            self._end_hold()
            _log.info("retention_hold_ended", reason="the wall clock was put right")

    def end_check(self, now: ClockReading) -> None:
        """It ended: warn of what is held, once a minute at most."""
        for key in list(self._held):
            if self._logs.table.find(key) is None:  # its topic was deleted
                self._note(key, NOTHING_HELD, self._ended_count)
        self._show()
        held = self.held(now)
        if not held.logs:
            return
        with self._mutex:
            if now.since_boot_ms < self._warned_until_ms:
                return
            self._warned_until_ms = now.since_boot_ms + _WARNING_MS
        _log.warning(
            "retention_held_after_clock_jump",
            jump_seconds=held.jump_ms // 1000,
            partitions=len(held.logs),
            bytes=sum(each.size_bytes for each in held.logs.values()),
            what_to_do=WHAT_TO_DO,
        )

    # ---- changes

    def save(self, now: ClockReading, *, is_start: bool = False) -> None:
        """Write what has changed to the registry, unless it was never written.

        What cannot be written is left to the next check: a full disk fails neither it nor a start.
        """
        with self._writing, suppress(StorageFault, NotReady):
            if self._trusted_ms is not None:
                held = self.held(now)  # first: the look moves what is trusted
                self._write(_noted(now, self._trusted_ms, held), is_start=is_start)

    def accept(self, now: ClockReading) -> HeldLogs:
        """Trust the wall clock as it is, and hold nothing; what was held. Durable on return, except
        on a full disk: then with the first check that can write it.

        Other StorageFaults, NotReady: nothing was accepted.
        """
        accepted_ms = now.wall_ms - now.since_boot_ms
        with self._writing:
            held = self.held(now)
            try:
                self._write(_noted(now, accepted_ms, HeldLogs(0, {})))
            except DiskFull as fault:  # what lets retention free space may not wait for space
                _log.warning("clock_acceptance_not_written", reason=fault.message)
            self._end_hold(accepted_ms)
        _log.warning("clock_accepted", jump_seconds=held.jump_ms // 1000, partitions=len(held.logs))
        return held

    def _write(self, noted: ClockTrust, *, is_start: bool = False) -> None:
        before = self._registry.state
        if not before.generation or not _is_news(before.clock, noted):
            return
        if self._is_off and before.clock is None:
            return  # nothing that could come back when it is on again
        if is_start:
            self._registry.change(before.with_clock(noted))
            return
        with self._registry.edit() as state:
            self._registry.change(state.with_clock(noted))


def _noted(now: ClockReading, trusted_ms: int, held: HeldLogs) -> ClockTrust:
    partitions: dict[str, list[int]] = {}
    for key in sorted(held.logs, key=attrgetter("topic", "partition")):
        partitions.setdefault(key.topic, []).append(key.partition)
    return ClockTrust(now.boot_id, trusted_ms, held.jump_ms, now.wall_ms, partitions)


def _is_news(before: ClockTrust | None, noted: ClockTrust) -> bool:
    """Whether it says anything new; less than a jump is nothing."""
    if before is None or (before.boot_id, before.held) != (noted.boot_id, noted.held):
        return True
    steps_ms = (noted.offset_ms - before.offset_ms, noted.jump_ms - before.jump_ms)
    return any(abs(each) >= _LEAST_JUMP_MS for each in steps_ms)
