"""Run the daemon under a sampler: ``python -m tests.bench.sampled_daemon PROFILE server ...``.

An interval timer on the process's CPU time interrupts it 250 times a CPU second; the handler
weighs every thread's Python stack with the CPU time that thread used since the look before. It is a
signal and not a sampling thread, because such a thread gets the GIL when others give it up, and so
sees only the places that do. Native time counts for the Python frame that called it. At the end
PROFILE holds CPU seconds by thread, by function (own and with callees), and the heaviest stacks.
SIGUSR2 forgets what was seen so far, so that a profile of the load leaves the start out.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from types import FrameType

Key = TypeVar("Key")

_PERIOD_SECONDS = 0.004
_HERE = f"{Path.cwd()}/"  # a writer is named after its directory, and reports are kept
_TOP = 40
_STACKS = 25


class Sampler:
    """CPU-weighted stack samples of all threads."""

    def __init__(self) -> None:
        self.by_thread: defaultdict[str, float] = defaultdict(float)
        self.own: defaultdict[str, float] = defaultdict(float)
        self.cumulative: defaultdict[str, float] = defaultdict(float)
        self.stacks: defaultdict[tuple[str, ...], float] = defaultdict(float)
        self._last_cpu: dict[int, float] = {}
        self._main = threading.get_ident()

    def start(self) -> None:
        """Begin sampling; main thread only."""
        signal.signal(signal.SIGPROF, self._on_timer)
        signal.signal(signal.SIGUSR2, self._forget)
        signal.setitimer(signal.ITIMER_PROF, _PERIOD_SECONDS, _PERIOD_SECONDS)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _forget(self, *_: object) -> None:
        for table in (self.by_thread, self.own, self.cumulative):
            table.clear()
        self.stacks.clear()

    def _on_timer(self, _: int, interrupted: FrameType | None) -> None:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        frames: dict[int, FrameType | None] = {**sys._current_frames()}
        # This very frame goes: held by a variable of its own it would keep the interrupted ones
        # and all the memory they have, every buffer of a fetch.
        frames[self._main] = interrupted
        for ident, frame in frames.items():
            self._sample(ident, names.get(ident, "?"), frame)

    def _sample(self, ident: int, thread: str, frame: FrameType | None) -> None:
        try:
            cpu = time.clock_gettime(time.pthread_getcpuclockid(ident))
        except OSError:
            return  # ended in between
        weight = cpu - self._last_cpu.get(ident, cpu)
        self._last_cpu[ident] = cpu
        if weight <= 0 or frame is None:
            return
        stack = []
        while frame is not None:
            code = frame.f_code
            short = "/".join(code.co_filename.rsplit("/", 3)[-2:])
            stack.append(f"{short}:{code.co_qualname}")
            frame = frame.f_back
        self.by_thread[thread.replace(_HERE, "")] += weight
        self.own[stack[0]] += weight
        for name in set(stack):
            self.cumulative[name] += weight
        self.stacks[(thread, *reversed(stack[:14]))] += weight

    def report(self) -> str:
        total = sum(self.by_thread.values()) or 1.0
        parts = [f"CPU seconds {total:.2f}\n\nBy thread"]
        parts += [f"{s:8.2f} {s / total:6.1%}  {n}" for n, s in _heaviest(self.by_thread, 20)]
        for title, counter in (("Own", self.own), ("With callees", self.cumulative)):
            parts.append(f"\n{title}")
            parts += [f"{s:8.2f} {s / total:6.1%}  {n}" for n, s in _heaviest(counter, _TOP)]
        parts.append("\nStacks, outermost first")
        for stack, seconds in _heaviest(self.stacks, _STACKS):
            parts.append(f"{seconds:8.2f} {seconds / total:6.1%}  " + " > ".join(stack))
        return "\n".join(parts) + "\n"


def _heaviest(weights: dict[Key, float], count: int) -> list[tuple[Key, float]]:
    return sorted(weights.items(), key=lambda item: item[1], reverse=True)[:count]


def main() -> None:
    """Sample from before the first import of the daemon to its end."""
    target = Path(sys.argv[1])
    sys.argv = ["kafkalog", *sys.argv[2:]]
    sampler = Sampler()
    sampler.start()
    from kafkalog.__main__ import main as run_daemon  # late: its imports are sampled too

    try:
        run_daemon()
    finally:
        sampler.stop()
        target.write_text(sampler.report(), encoding="utf-8")


if __name__ == "__main__":
    main()
