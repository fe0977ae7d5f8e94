"""How far a job is, on the last line of a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.observe.terminal_line import TerminalLine

if TYPE_CHECKING:
    from typing import TextIO

    from kafkalog.env.clock import Clock

_MIB = 1024 * 1024


class ProgressLine:
    """``Progress`` drawn on a terminal; the line goes when the job has ended."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._line = TerminalLine(stream)
        self._clock = clock
        self._name = ""
        self._tasks = self._tasks_done = 0
        self._bytes = self._bytes_done = 0
        self._started_ns = 0

    def begin(self, name: str, tasks: int, size_bytes: int) -> None:
        """See Progress."""
        self._name, self._tasks, self._bytes = name, tasks, size_bytes
        self._tasks_done = self._bytes_done = 0
        self._started_ns = self._clock.monotonic_ns()
        self._draw()

    def advance(self, size_bytes: int) -> None:
        """See Progress."""
        self._tasks_done += 1
        self._bytes_done += size_bytes
        self._draw()

    def end(self) -> None:
        """See Progress."""
        self._line.show("")

    def _draw(self) -> None:
        text = (
            f"{self._name}: {self._tasks_done} of {self._tasks} tasks, "
            f"{self._bytes_done / _MIB:,.0f} of {self._bytes / _MIB:,.0f} MiB"
        )
        seconds = (self._clock.monotonic_ns() - self._started_ns) / 1e9
        if self._bytes_done and seconds:
            left = (self._bytes - self._bytes_done) * seconds / self._bytes_done
            text += f", {self._bytes_done / _MIB / seconds:,.0f} MiB/s, {left:,.0f} s left"
        self._line.show(text)
