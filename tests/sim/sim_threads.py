"""SimThreads: each thread a greenlet; at every waiting point a seed decides who goes on.

Theory. The test's own code is the hub. A simulated thread runs until it waits (signal, mutex, join,
sleep) or passes ``switch_point`` (wire it to ``SimFilesystem.on_call``); then the hub picks one of
those that can go on. When the hub itself waits, it runs threads until its wish holds, and moves the
clock to the next due time when all are parked; when nothing can move: SimDeadlockError.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from greenlet import GreenletExit, getcurrent, greenlet

from tests.sim.sim_faults import SimulatedCrash
from tests.sim.simulation_memory import note_made

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tests.sim.sim_clock import SimClock

_MAX_STEPS_PER_WAIT = 1_000_000


class SimDeadlockError(AssertionError):
    """Everybody waits, and no time-out or task will ever wake anyone."""


class SimThread:
    def __init__(self, owner: SimThreads, name: str, body: Callable[[], None]) -> None:
        self._owner = owner
        self._name = name
        self._body = body
        self.greenlet = greenlet(self._run)
        self.is_finished = False
        self.error: BaseException | None = None
        self.ready: Callable[[], bool] | None = None  # None: can go on at once
        self.deadline_ns: int | None = None

    @property
    def name(self) -> str:
        return self._name

    def join(self, timeout_seconds: float | None = None) -> bool:
        return self._owner.wait_until(lambda: self.is_finished, timeout_seconds)

    def is_alive(self) -> bool:
        return not self.is_finished

    def can_go_on(self, now_ns: int) -> bool:
        """Whether its wish holds or its patience is over."""
        if self.is_finished:
            return False
        if self.ready is None or self.ready():
            return True
        return self.deadline_ns is not None and self.deadline_ns <= now_ns

    def _run(self) -> None:
        try:
            self._body()
        except GreenletExit:
            return
        except BaseException as error:  # noqa: BLE001 - a thread body: the hub reports it
            self.error = error
        finally:
            self.is_finished = True


class SimSignal:
    def __init__(self, owner: SimThreads) -> None:
        self._owner = owner
        self._is_set = False

    def set(self) -> None:
        self._is_set = True
        self._owner.switch_point()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        was_set = self._owner.wait_until(lambda: self._is_set, timeout_seconds)
        if was_set:
            self._is_set = False
        return was_set


class SimMutex:
    """See Mutex. Entering it twice from one thread is a deadlock, as with the real one."""

    def __init__(self, owner: SimThreads) -> None:
        self._owner = owner
        self._is_taken = False

    def __enter__(self) -> object:
        self._owner.switch_point()
        self._owner.wait_until(lambda: not self._is_taken, None)
        self._is_taken = True
        return True

    def acquire(self, *, timeout: float) -> bool:
        self._owner.switch_point()
        is_free = self._owner.wait_until(lambda: not self._is_taken, timeout)
        if is_free:
            self._is_taken = True
        return is_free

    def release(self) -> None:
        self._is_taken = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self._is_taken = False


class SimThreads:
    """See Threads. Without ``on_failure`` what a thread raises leaves the hub's next run."""

    is_kept = False  # see simulation_memory

    def __init__(
        self,
        clock: SimClock,
        seed: int = 0,
        on_failure: Callable[[str, BaseException], None] | None = None,
    ) -> None:
        self._clock = clock
        self._random = random.Random(seed)
        self._on_failure = on_failure
        self._threads: list[SimThread] = []
        self._current: SimThread | None = None
        note_made(self)
        clock.add_waker(self)
        clock.set_sleeper(self._sleep)

    def start(self, name: str, body: Callable[[], None], *, background: bool = False) -> SimThread:
        """See Threads. The body begins when the hub next waits, runs or advances the clock."""
        del background  # priorities mean nothing to a seed
        thread = SimThread(self, name, body)
        self._threads.append(thread)
        self.switch_point()
        return thread

    def signal(self) -> SimSignal:
        return SimSignal(self)

    def mutex(self) -> SimMutex:
        return SimMutex(self)

    # -- what tests ask for

    def run_until_idle(self) -> None:
        """Run threads until each has ended or waits. The clock stands still."""
        for _ in range(_MAX_STEPS_PER_WAIT):
            if not self._step():
                return
        raise SimDeadlockError("threads never come to rest")

    def run_steps(self, count: int) -> None:
        """Let threads run to at most that many waiting points. The clock stands still."""
        for _ in range(count):
            if not self._step():
                return

    def run_until(self, wish: Callable[[], bool]) -> None:
        """Run threads and clock until the wish holds."""
        self.wait_until(wish, None)

    def switch_point(self) -> None:
        """Let another thread go first, if the seed says so. Does nothing on the hub."""
        current = self._current
        if current is not None and getcurrent() is current.greenlet:
            current.ready = None
            self._park(current)

    def kill_all(self) -> None:
        """End every thread where it stands, as the end of the process does."""
        for thread in self._threads:
            if not thread.is_finished:
                thread.greenlet.throw(GreenletExit)
                thread.is_finished = True
        self._threads.clear()

    dispose = kill_all

    # -- waiting

    def wait_until(self, wish: Callable[[], bool], timeout_seconds: float | None) -> bool:
        """Wait in the calling thread or on the hub; whether the wish held in time."""
        deadline_ns = None
        if timeout_seconds is not None:
            deadline_ns = self._clock.monotonic_ns() + int(timeout_seconds * 1e9)
        current = self._current
        if current is None or getcurrent() is not current.greenlet:
            return self._hub_wait(wish, deadline_ns)
        current.ready = wish
        current.deadline_ns = deadline_ns
        self._park(current)
        current.deadline_ns = None
        return wish()

    def next_due_ns(self) -> int | None:
        """See Waker: now when somebody can go on, else the nearest time-out."""
        now = self._clock.monotonic_ns()
        if any(thread.can_go_on(now) for thread in self._threads):
            return now
        deadlines = [
            thread.deadline_ns
            for thread in self._threads
            if thread.deadline_ns is not None and not thread.is_finished
        ]
        return min(deadlines, default=None)

    def run_due(self) -> None:
        self.run_until_idle()

    def _hub_wait(self, wish: Callable[[], bool], deadline_ns: int | None) -> bool:
        for _ in range(_MAX_STEPS_PER_WAIT):
            if wish():
                return True
            if self._step():
                continue
            if deadline_ns is not None and self._clock.monotonic_ns() >= deadline_ns:
                return False
            if not self._clock.advance_to_next(deadline_ns):
                waiting = [thread.name for thread in self._threads if not thread.is_finished]
                raise SimDeadlockError(f"nobody can go on; waiting: {waiting}")
        raise SimDeadlockError("the wish never came true")

    def _step(self) -> bool:
        """Let one thread run to its next waiting point; False when none can."""
        now = self._clock.monotonic_ns()
        able = [thread for thread in self._threads if thread.can_go_on(now)]
        if not able:
            return False
        thread = able[self._random.randrange(len(able))]
        outer, self._current = self._current, thread
        thread.greenlet.parent = getcurrent()
        try:
            thread.greenlet.switch()
        finally:
            self._current = outer
        if thread.is_finished:
            self._threads.remove(thread)
            if thread.error is not None:
                self._report(thread, thread.error)
        return True

    def _report(self, thread: SimThread, error: BaseException) -> None:
        """A power cut ends the whole test's process; other errors end their thread."""
        if self._on_failure is None or isinstance(error, SimulatedCrash):
            raise error
        self._on_failure(thread.name, error)

    def _sleep(self, seconds: float) -> bool:
        if self._current is None or getcurrent() is not self._current.greenlet:
            return False
        self.wait_until(lambda: False, seconds)
        return True

    @staticmethod
    def _park(thread: SimThread) -> None:
        parent = thread.greenlet.parent
        assert parent is not None
        parent.switch()
