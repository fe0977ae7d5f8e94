"""FreeSpace: what a log directory's file system has left, and whether it takes appends.

Owns the reserve ``log.dir.min.free.bytes``: appends end before the disk is really full, so that
checkpoints, retention and deletions always have room. They end below the reserve, or when the disk
said that it is full, and begin again by themselves when an eighth more than the reserve is free: a
directory on the edge does not change its mind with every append. An append that alone would pass
the reserve is refused, smaller ones are not: until there is more space the directory is not full
but low.

A disk that says it is full may lack something else than the bytes that it reports: inodes,
blocks of a quota, the last page. Appends are tried again all the same, and each time that the disk
refuses something within a second after they came back they wait twice as long, up to half a minute.
When it refuses later, appends went well in between: a disk that only lacks what a checkpoint needs.

Asking the file system for each append would cost a system call a request. An append counts its
bytes and looks at the clock; the file system is asked when half of what lay above the reserve at
the last answer has been appended, and when that answer is a quarter of a second old, because others
write to the same disk; without appends by a task every few seconds. Full, it is asked at most four
times a second. ``take`` is the writer thread's, the rest is for any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from kafkalog.env.filesystem import DiskSpace
from kafkalog.errors import DiskFull

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.clock import Clock
    from kafkalog.env.threads import Mutex

UNKNOWN_SPACE = DiskSpace(-1, -1, -1)  # Kafka's UNKNOWN_VOLUME_BYTES
_LOOK_INTERVAL_NS = 250_000_000
_WAIT_MAX_NS = 32_000_000_000
_TRIAL_NS = 1_000_000_000  # a refusal later than that has nothing to do with the one before
_STEP_BYTES = 65_536  # the least between two looks, small beside any reserve worth its name

_log = structlog.get_logger(__name__)


class FreeSpace:
    """See the module."""

    def __init__(
        self,
        path: str,
        min_free_bytes: int,
        measure: Callable[[], object],
        clock: Clock,
        mutex: Mutex,
    ) -> None:
        """``min_free_bytes``: the reserve; 0: only a disk that is really full refuses appends.

        ``measure`` asks the file system and gives the answer to ``note``; raises StorageFault.
        """
        # constant after construction
        self._path = path
        self._min_free_bytes = min_free_bytes
        self._resume_above_bytes = min_free_bytes + min_free_bytes // 8
        self._measure = measure
        self._clock = clock
        self._mutex = mutex
        # published; changed under the mutex
        self.full_reason: str | None = None  # why appends are refused; None: they are not
        self.low_reason: str | None = None  # why larger appends are refused
        self._next_look_ns = 0  # before, what was measured is believed
        self._resumed_ns: int | None = None
        self._retry_ns = 0  # appends do not come back before
        self._wait_ns = 0
        self.known = UNKNOWN_SPACE  # when it was last measured
        # counted down by the writer thread, set by the threads that measure; the half that is left
        # covers an append between them
        self._unmeasured_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Before an append of so many bytes, writer thread: DiskFull when there is no room for it.

        Costs a look at the clock while nothing is wrong, and four system calls a second.
        """
        left = self._unmeasured_bytes = self._unmeasured_bytes - size_bytes
        if (
            left < 0
            or self.full_reason is not None
            or self._clock.monotonic_ns() >= self._next_look_ns
        ):
            self._look(size_bytes)

    def note(self, space: DiskSpace, now_ns: int) -> None:
        """What it is now (monotonic), and what follows from that for appends."""
        self.known = space
        free_bytes = space.usable_bytes
        with self._mutex:
            self._unmeasured_bytes = max((free_bytes - self._min_free_bytes) // 2, _STEP_BYTES)
            self._next_look_ns = now_ns + _LOOK_INTERVAL_NS
            if free_bytes > self._resume_above_bytes:
                self.low_reason = None
            if self.full_reason is not None:
                if free_bytes > self._resume_above_bytes and now_ns >= self._retry_ns:
                    self.full_reason, self._resumed_ns = None, now_ns
                    _log.info("log_dir_has_space_again", log_dir=self._path, free_bytes=free_bytes)
            elif free_bytes < self._min_free_bytes:
                self._refuse_appends(
                    f"Log directory {self._path} has {free_bytes} bytes free, fewer than "
                    f"log.dir.min.free.bytes ({self._min_free_bytes})"
                )

    def note_full(self, reason: str, remedy: str | None = None) -> None:
        """The disk refused a write for want of space; ``remedy`` if more space is none."""
        with self._mutex:
            now_ns = self._clock.monotonic_ns()
            if self.full_reason is None:
                # One that was full, had space and is full again soon lacks what it does not report.
                resumed_ns = self._resumed_ns
                if resumed_ns is None or now_ns - resumed_ns > _TRIAL_NS:
                    self._wait_ns = 0  # the next measurement may find space
                else:
                    self._wait_ns = min(max(2 * self._wait_ns, _LOOK_INTERVAL_NS), _WAIT_MAX_NS)
                self._retry_ns = now_ns + self._wait_ns
                self._refuse_appends(reason, remedy)
            self._next_look_ns = now_ns + _LOOK_INTERVAL_NS

    def _refuse_appends(self, reason: str, remedy: str | None = None) -> None:
        self.full_reason = reason
        self._next_look_ns = self._clock.monotonic_ns() + _LOOK_INTERVAL_NS
        _log.error(
            "log_dir_full",
            log_dir=self._path,
            reason=reason,
            consequence="appends are refused with 507 until there is space again; reads and "
            "retention go on, changes of topics need room on two directories, or on the only one",
            remedy=remedy or self._remedy,
        )

    @property
    def _remedy(self) -> str:
        if self._min_free_bytes:
            return f"Free space until more than {self._resume_above_bytes} bytes are free."
        return "Free space on its disk: appends begin again by themselves."

    def _look(self, size_bytes: int) -> None:
        """The careful way of ``take``."""
        reason = self.full_reason
        if reason is None or self._clock.monotonic_ns() >= self._next_look_ns:
            self._measure()
            reason = self.full_reason
        if reason is not None:
            raise DiskFull(reason, log_dir=self._path)
        self._unmeasured_bytes -= size_bytes
        if self._min_free_bytes and self.known.usable_bytes - size_bytes < self._min_free_bytes:
            reason = (
                f"Log directory {self._path} has {self.known.usable_bytes} bytes free; "
                f"{size_bytes} more would leave fewer than "
                f"log.dir.min.free.bytes ({self._min_free_bytes})"
            )
            with self._mutex:
                is_told = self.low_reason is not None
                self.low_reason = reason
            if not is_told:
                _log.warning(
                    "append_larger_than_space",
                    log_dir=self._path,
                    reason=reason,
                    remedy=self._remedy,
                )
            raise DiskFull(reason, log_dir=self._path)
