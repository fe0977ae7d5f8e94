"""Goal: a reader is cut once it has taken nothing for the whole time, and no other one is.
Method: a loop whose clock the test moves; how much was taken is the test's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.server.protocol.connection import ReaderWatch

if TYPE_CHECKING:
    from collections.abc import Callable

STALL_SECONDS = 8.0


class Loop:
    """The two calls of an event loop that a watch needs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        timer = Timer(self.now + seconds, call)
        self.timers.append(timer)
        return timer

    def run_until(self, moment: float) -> None:
        while True:
            due = [each for each in self.timers if not each.is_cancelled and each.at <= moment]
            if not due:
                break
            timer = min(due, key=lambda each: each.at)
            self.timers.remove(timer)
            self.now = timer.at
            timer.call()
        self.now = moment


class Timer:
    """What ``call_later`` gives."""

    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.is_cancelled = at, call, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Reader:
    """A connection that is watched."""

    def __init__(self) -> None:
        self.taken_bytes = 0
        self.cuts: list[float] = []
        self.loop = Loop()
        loop: Any = self.loop
        self.watch = ReaderWatch(
            loop, lambda: self.taken_bytes, STALL_SECONDS, lambda: self.cuts.append(loop.now)
        )


def test_who_takes_nothing_is_cut_once() -> None:
    """At the end of its time, not before, and not again."""
    reader = Reader()
    reader.watch.begin()
    reader.loop.run_until(STALL_SECONDS - 0.01)
    assert reader.cuts == []
    reader.loop.run_until(10 * STALL_SECONDS)
    assert reader.cuts == [STALL_SECONDS]


def test_a_byte_is_enough() -> None:
    """Every so often one byte, for a hundred times the setting; then none."""
    reader = Reader()
    reader.watch.begin()
    for number in range(1, 115):
        reader.loop.run_until(number * STALL_SECONDS * 7 / 8)
        reader.taken_bytes += 1
    assert reader.cuts == []
    last = reader.loop.now
    reader.loop.run_until(last + 10 * STALL_SECONDS)
    (cut_at,) = reader.cuts
    assert last + STALL_SECONDS <= cut_at <= last + STALL_SECONDS * 5 / 4


def test_who_has_taken_everything_is_not_watched() -> None:
    """Whatever the time of the next answer is; that one begins a time of its own."""
    reader = Reader()
    reader.watch.begin()
    reader.loop.run_until(STALL_SECONDS - 0.01)
    reader.watch.end()
    reader.loop.run_until(10 * STALL_SECONDS)
    reader.watch.begin()
    reader.loop.run_until(11 * STALL_SECONDS - 0.01)
    assert reader.cuts == []
    reader.loop.run_until(11 * STALL_SECONDS)
    assert reader.cuts == [11 * STALL_SECONDS]
