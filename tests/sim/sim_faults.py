"""Faults of a simulated disk: errors at chosen calls, and a stop at the n-th mutating call."""

from __future__ import annotations

import enum
import errno
from dataclasses import dataclass, field

MUTATING = frozenset(
    {
        "create",
        "write",
        "truncate",
        "datasync",
        "sync",
        "sync_dir",
        "rename",
        "unlink",
        "link",
        "make_dir",
        "remove_dir",
        "set_mtime",
    }
)


class SimulatedCrash(BaseException):
    """The process is gone. No ``except Exception`` may survive it."""


class Effect(enum.Enum):
    """What happens at the call. Where an effect has no meaning, the call raises."""

    RAISE = "raise"  # nothing done, errno raised
    SHORT_WRITE = "short write"  # half of the bytes written, then errno raised
    LOSE_SYNC = "lose sync"  # errno raised, pages never written and dropped (fsyncgate)


@dataclass(slots=True)
class Fault:
    """At the ``nth`` matching call (1 is the next), for ``times`` calls. Empty kinds: any."""

    effect: Effect = Effect.RAISE
    error: int = errno.EIO
    kinds: frozenset[str] = MUTATING
    path_contains: str = ""
    nth: int = 1
    times: int = 1
    seen: int = field(default=0, init=False)

    @classmethod
    def no_space(cls, path_contains: str, *, nth: int = 1, times: int = 99) -> Fault:
        """Nothing is made or written there any more."""
        kinds = frozenset({"create", "write"})
        return cls(Effect.RAISE, errno.ENOSPC, kinds, path_contains, nth, times)

    def matches(self, kind: str, path: str) -> bool:
        """Count the call; True when the fault strikes it."""
        if (self.kinds and kind not in self.kinds) or self.path_contains not in path:
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times


@dataclass(frozen=True, slots=True)
class Operation:
    kind: str
    path: str


class FaultPlan:
    """Counts mutating calls, and decides what strikes a call."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []  # mutating calls, in order
        self.is_stopped = False
        self._faults: list[Fault] = []
        self._stop_at: int | None = None
        self._is_partial = False

    def add(self, fault: Fault) -> Fault:
        """Arm a fault; its ``seen`` tells how often it matched."""
        self._faults.append(fault)
        return fault

    def stop_at(self, count: int, *, is_partial: bool) -> None:
        """Stop before mutating call number ``count`` (from 0); partial: half of a write is done."""
        self._stop_at = count
        self._is_partial = is_partial

    def disarm(self) -> None:
        """No faults any more; a planned stop stays."""
        self._faults.clear()

    def clear(self) -> None:
        """No faults, no stop: for the process that starts after a kill."""
        self._faults.clear()
        self._stop_at = None
        self.is_stopped = False

    def on_call(self, kind: str, path: str) -> Fault | None:
        """Note the call; the fault that strikes it. Raises OSError for RAISE, SimulatedCrash."""
        if self.is_stopped:
            raise SimulatedCrash
        is_mutating = kind in MUTATING
        if is_mutating and len(self.operations) == self._stop_at:
            self.is_stopped = True
            if kind == "write" and self._is_partial:
                return _PARTIAL
            raise SimulatedCrash
        if is_mutating:
            self.operations.append(Operation(kind, path))
        for fault in self._faults:
            if fault.matches(kind, path):
                if kind not in _PARTLY_DONE.get(fault.effect, ()):
                    raise OSError(fault.error, "simulated fault", path)
                return fault
        return None

    @staticmethod
    def raise_after(fault: Fault, path: str) -> None:
        """Raise what belongs to a call that did a part of its work."""
        if fault is _PARTIAL:
            raise SimulatedCrash
        raise OSError(fault.error, "simulated fault", path)


_PARTIAL = Fault(Effect.SHORT_WRITE)
_PARTLY_DONE = {  # the calls that carry an effect out themselves
    Effect.SHORT_WRITE: ("write",),
    Effect.LOSE_SYNC: ("datasync", "sync", "sync_dir"),
}
