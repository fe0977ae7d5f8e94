"""Goal: progress is a line of a terminal, or a plain one now and then, and leaves nothing behind.
Method: a stream that says whether it is a terminal, a simulated clock.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from kafkalog.cli.output import Progress
from tests.sim.sim_clock import SimClock

if TYPE_CHECKING:
    import pytest


class Terminal(io.StringIO):
    """A terminal that keeps what it was sent."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line() -> None:
    """Drawn at most ten times a second, erased in the end."""
    clock, stream = SimClock(), Terminal()
    shown = Progress(stream, clock)
    for number in range(4):
        shown.show(f"{number} done")
        clock.advance_ms(50)
    shown.clear()
    drawn = stream.getvalue().split("\r\x1b[K")
    assert drawn == ["", "2 done", ""]


def test_a_file_has_a_line_each_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing for short work."""
    clock = SimClock()
    shown = Progress(io.StringIO(), clock)
    for number in range(25):
        shown.show(f"{number} done")
        clock.advance_ms(1000)
    shown.clear()
    assert capsys.readouterr().err == "10 done\n20 done\n"
