"""What commands print: tables, JSON documents, times, and progress.

Data goes to standard output. Progress goes to standard error, so that data stays data: one line of
the terminal that is drawn again and removed in the end, or plain lines at intervals.
"""

from __future__ import annotations

import base64
import datetime
import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kafkalog.env.clock import SystemClock
from kafkalog.observe.terminal_line import TerminalLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import TextIO

    from kafkalog.env.clock import Clock

TIMESTAMP_MAX_MS = 253_402_300_799_999  # of the year 9999

Columns = tuple[tuple[str, str], ...]
"""The heading of each column, and the field of an entry that it shows."""


def cell(value: object) -> str:
    """One value as text; - for None."""
    return "-" if value is None else str(value)


def base64_text(data: bytes | None) -> str | None:
    """Bytes in base64, as the HTTP API has them; None stays None."""
    return None if data is None else base64.b64encode(data).decode()


def print_table(rows: Sequence[Sequence[object]]) -> None:
    """Print each column as wide as its widest cell; the headings are the first row."""
    lines = [list(map(cell, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def print_rows(
    headings: Sequence[str], rows: Sequence[Sequence[object]], if_empty: str | None = None
) -> None:
    """Print a table; without rows only the sentence, if any."""
    if rows:
        print_table([headings, *rows])
    elif if_empty is not None:
        click.echo(if_empty)


def print_entries(columns: Columns, entries: Iterable[Mapping[str, Any]]) -> None:
    """Print fields of entries as a table."""
    rows = [[entry[field] for _, field in columns] for entry in entries]
    print_table([[heading for heading, _ in columns], *rows])


def is_printed_as_json(output: str, document: object) -> bool:
    """Print the document if --output asks for JSON; whether it does."""
    if output == "json":
        click.echo(json.dumps(document))
    return output == "json"


def timestamp_text(timestamp_ms: int | None) -> str:
    """ISO-8601 in UTC; milliseconds for a year above 9999; - for None."""
    if timestamp_ms is None:
        return "-"
    if not 0 <= timestamp_ms <= TIMESTAMP_MAX_MS:
        return f"{timestamp_ms} ms"
    time = datetime.datetime.fromtimestamp(timestamp_ms // 1000, datetime.UTC)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03}Z"


# ---- progress

_TERMINAL_INTERVAL_NS = 100_000_000
_PLAIN_INTERVAL_NS = 10_000_000_000


class Progress:
    """``stream`` is standard error, a terminal or not."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._clock = clock
        self._line = TerminalLine(stream) if stream.isatty() else None
        self._interval_ns = _PLAIN_INTERVAL_NS if self._line is None else _TERMINAL_INTERVAL_NS
        self._shown_ns = clock.monotonic_ns()

    def show(self, text: str) -> None:
        """Print the text, unless another one was printed just before: calls are cheap."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._shown_ns < self._interval_ns:
            return
        self._shown_ns = now_ns
        if self._line is None:
            click.echo(text, err=True)
        else:
            self._line.show(text)

    def clear(self) -> None:
        """Remove the line of the terminal, before anything else is printed."""
        if self._line is not None:
            self._line.show("")


@contextmanager
def progress() -> Iterator[Progress]:
    """The progress of one piece of work, cleared at its end."""
    shown = Progress(sys.stderr, SystemClock())
    try:
        yield shown
    finally:
        shown.clear()
