"""Rows of cells as columns of text.

How far a command is: a line of the terminal that is drawn anew, or a plain one now and then.

Always on standard error, so that data stays data. Nothing is left of the line in the end.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kafkalog.env.clock import SystemClock
from kafkalog.observe.terminal_line import TerminalLine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

    from kafkalog.env.clock import Clock


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Each column as wide as its widest cell; the headings are the first row."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


_DRAWN_NS = 100_000_000
_PLAIN_NS = 10_000_000_000


class Progress:
    """``stream`` is standard error, a terminal or not."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._clock = clock
        self._line = TerminalLine(stream) if stream.isatty() else None
        self._interval_ns = _PLAIN_NS if self._line is None else _DRAWN_NS
        self._shown_ns = clock.monotonic_ns()

    def show(self, text: str) -> None:
        """Say it, unless something was said just now: any number of calls is cheap."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._shown_ns < self._interval_ns:
            return
        self._shown_ns = now_ns
        if self._line is None:
            click.echo(text, err=True)
        else:
            self._line.show(text)

    def clear(self) -> None:
        """Take the terminal's line away, before anything else is printed."""
        if self._line is not None:
            self._line.show("")


@contextmanager
def progress() -> Iterator[Progress]:
    """Of one piece of work."""
    one = Progress(sys.stderr, SystemClock())
    try:
        yield one
    finally:
        one.clear()
