"""What commands print: tables, documents, names, times, and progress; and their questions.

``--output`` asks for a table (for people), one JSON or YAML document, or only the names. Six
commands had the lines of Kafka's tools before they had tables: without a terminal they still print
those, because scripts read them; the word for that is ``text``.

Data goes to standard output. Progress goes to standard error, so that data stays data: one line of
the terminal that is drawn again and removed in the end, or plain lines at intervals.
"""

from __future__ import annotations

import base64
import datetime
import json
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kafkalog.env.clock import SystemClock
from kafkalog.format.quantities import NO_LIMIT
from kafkalog.observe.terminal_line import TerminalLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TextIO

    from kafkalog.env.clock import Clock

TIMESTAMP_MAX_MS = 253_402_300_799_999  # of the year 9999

Columns = tuple[tuple[str, str], ...]
"""The heading of each column, and the field of an entry that it shows."""


def cell(value: object) -> str:
    """One value as text; - for None; the largest number, which is Kafka's never, has its meaning.

    That only for people: a script reads the number alone.
    """
    if str(value) == NO_LIMIT and sys.stdout.isatty():
        return f"{value} (no limit)"
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


# ---- forms of output

TEXT = "text"
"""The lines of Kafka's tools; of commands without such lines, the table."""


class _Forms(click.Choice[str]):
    """The forms of ``--output``; ``text``, the former name of the default, is not listed."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        """See click."""
        return TEXT if value == TEXT else super().convert(value, param, ctx)


def _form(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str:
    return value or ("table" if sys.stdout.isatty() else TEXT)


def output_of(*forms: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``--output`` with these forms."""
    return click.option(
        "--output",
        type=_Forms(forms),
        envvar="KAFKALOG_OUTPUT",
        callback=_form,
        show_default="table",
        help="A table for people, or a form for programs.",
    )


output_option = output_of("table", "json", "yaml", "name")
document_option = output_of("table", "json", "yaml")


def is_printed(output: str, document: object, names: Iterable[str] | None = None) -> bool:
    """Print the document or the names if --output asks for them; whether it does."""
    if output == "name":
        if names is None:
            raise click.UsageError("--output name: nothing here has a name")
        for name in names:
            click.echo(name)
        return True
    if output in ("json", "yaml"):
        click.echo(json.dumps(document) if output == "json" else yaml_text(document))
        return True
    return False


_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@+-]*")
_YAML_WORDS = re.compile("true|false|yes|no|on|off|null|y|n", re.IGNORECASE)
# What YAML does not allow as it is, and JSON does.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def yaml_text(value: object, indent: str = "") -> str:
    """JSON values as a YAML document in block style, without a line end."""
    if isinstance(value, dict) and value:
        return "\n".join(
            f"{indent}{_yaml_scalar(str(key))}:{_yaml_below(one, indent)}"
            for key, one in value.items()
        )
    if isinstance(value, list | tuple) and value:
        inner = f"{indent}  "
        return "\n".join(f"{indent}- {yaml_text(one, inner)[len(inner) :]}" for one in value)
    return indent + _yaml_scalar(value)


def _yaml_below(value: object, indent: str) -> str:
    """What stands behind the colon of a key."""
    if isinstance(value, dict | list | tuple) and value:
        return "\n" + yaml_text(value, f"{indent}  ")
    return f" {_yaml_scalar(value)}"


def _yaml_scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and not _YAML_WORDS.fullmatch(value):
        return value
    text = json.dumps(value, ensure_ascii=False)  # JSON is YAML, but for some characters
    if isinstance(value, float):
        text = text.replace("e", ".0e") if "." not in text else text  # 1e+22 would be a text
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


# ---- questions

yes_option = click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask.")


def is_asked(*, is_sure: bool) -> bool:
    """Whether ``confirm`` asks: on a terminal and without --yes; a script is never asked."""
    return not is_sure and sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, is_sure: bool) -> None:
    """Ask, if somebody is there; no ends the command here."""
    if not is_asked(is_sure=is_sure):
        return
    if not click.confirm(question, err=True):
        click.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(1)


# ---- texts


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
