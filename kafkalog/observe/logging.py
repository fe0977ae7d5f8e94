"""Log lines: configuration of structlog, one line an event, standard logging included.

Owns the shape: ``timestamp`` (RFC 3339 UTC), ``level``, ``event``, ``logger``, then the fields.
``configure_logging`` is called once by the root of the process; loggers come from
``structlog.get_logger()`` anywhere. JSON escapes control characters; on a console they are escaped
here, so that no client's bytes can forge a line or control a terminal. Equal warnings and errors
are printed once a minute with their number, so that a fault of each append does not fill a disk.
"""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

import structlog

from kafkalog.format.control_characters import escaped

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from structlog.typing import Processor

    from kafkalog.observe.terminal_line import TerminalLine


_NEXT_LINE = "\n\t"

AUDIT = "audit"
"""The logger whose lines are printed whatever ``log.level`` is."""


FOLD_SECONDS = 60.0
_FOLDED_MAX = 1_000  # kinds of lines; more are printed as they come


@dataclass(slots=True)
class _Folded:
    """Lines equal to one that was printed: how many came since, and the last of them."""

    until_seconds: float
    record: logging.LogRecord
    count: int = 0


class _LinePrinter(logging.StreamHandler[TextIO]):
    """Prints lines, equal warnings and errors once a minute: the first at once, then their number.

    Equal are those of one logger and level whose event and fields are equal. ``repeated`` of the
    line that stands for several is printed before the first line of any kind after the minute, or
    at the end of the process. The redrawn line of the terminal is hidden meanwhile. Its lock is
    held by logging around ``emit``.
    """

    def __init__(
        self, stream: TextIO, line: TerminalLine | None, monotonic: Callable[[], float]
    ) -> None:
        super().__init__(stream)
        self._line = line
        self._monotonic = monotonic
        self._folded: dict[str, _Folded] = {}  # in the order of their ends
        self._next_end_seconds = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        now_seconds = self._monotonic()
        if self._folded and now_seconds >= self._next_end_seconds:
            self._end(now_seconds)
        kind = _kind_of(record)
        if kind is not None:
            folded = self._folded.get(kind)
            if folded is not None:
                folded.record = record
                folded.count += 1
                return
            if len(self._folded) < _FOLDED_MAX:
                self._begin(kind, record, now_seconds)
        self._print(record)

    def close(self) -> None:
        """See logging.Handler."""
        self._end(float("inf"))
        super().close()

    def _begin(self, kind: str, record: logging.LogRecord, now_seconds: float) -> None:
        if not self._folded:
            self._next_end_seconds = now_seconds + FOLD_SECONDS
        self._folded[kind] = _Folded(now_seconds + FOLD_SECONDS, record)

    def _end(self, now_seconds: float) -> None:
        """Print what minutes that are over held back; a kind that came again begins another one."""
        for kind, folded in list(self._folded.items()):
            if now_seconds < folded.until_seconds:
                self._next_end_seconds = folded.until_seconds
                return
            del self._folded[kind]
            if folded.count:
                self._print(_repeated(folded.record, folded.count))
                self._begin(kind, folded.record, now_seconds)

    def _print(self, record: logging.LogRecord) -> None:
        with nullcontext() if self._line is None else self._line.hidden():
            super().emit(record)


def _kind_of(record: logging.LogRecord) -> str | None:
    """Equal for equal lines; None: it is never folded."""
    if record.levelno < logging.WARNING or record.exc_info or record.name == AUDIT:
        return None
    if not isinstance(record.msg, dict):
        return f"{record.name} {record.levelno} {record.getMessage()}"
    if record.msg.get("exc_info"):
        return None
    fields = {name: value for name, value in record.msg.items() if name != "timestamp"}
    return f"{record.name} {record.levelno} {fields}"


def _repeated(record: logging.LogRecord, count: int) -> logging.LogRecord:
    """The line with the number of those that it stands for."""
    if isinstance(record.msg, dict):
        record.msg = {**record.msg, "repeated": count}
    else:
        record.msg, record.args = f"{record.getMessage()} (repeated {count} times)", None
    return record


def configure_logging(
    stream: TextIO,
    *,
    log_format: str | None,
    level: str,
    above: TerminalLine | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Send every line of level and above to stream.

    log_format is ``json``, ``console`` or None: console when stream is a terminal. ``above``: the
    redrawn line of the terminal, if there is one. A later call replaces the configuration.
    ``monotonic``: seconds, by which equal lines are folded.
    """
    is_console = log_format == "console" or (log_format is None and stream.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    finish: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if is_console:
        finish += [
            structlog.processors.format_exc_info,
            escape_control_characters,
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    else:
        finish += [structlog.processors.format_exc_info, order_fields]
        finish.append(structlog.processors.JSONRenderer(ensure_ascii=True, default=str))
    handler = _LinePrinter(stream, above, monotonic)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=finish)
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    logging.getLogger(AUDIT).setLevel(logging.INFO)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def log_levels() -> dict[str, str]:
    """Logger -> level of those with their own level; the empty name is the default."""
    root = logging.getLogger()
    levels = {"": logging.getLevelName(root.level).lower()}
    for name, logger in sorted(root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level != logging.NOTSET and name != AUDIT:
            levels[name] = logging.getLevelName(logger.level).lower()
    return levels


def set_log_level(name: str, level: str | None) -> bool:
    """Print lines of the logger and those below it from level on; False: there is none of the name.

    The empty name is all of them. level None: as the logger above it; not for the empty name. The
    audit's level cannot be changed. Lasts until the process ends; any thread.
    """
    assert name or level is not None
    if name == AUDIT or (name and name not in logging.getLogger().manager.loggerDict):
        return False
    logging.getLogger(name).setLevel(logging.NOTSET if level is None else level.upper())
    return True


def escape_control_characters(
    _logger: object, _method: str, event: MutableMapping[str, object]
) -> MutableMapping[str, object]:
    r"""Control characters of text fields as ``\xNN`` or ``\uNNNN``; tracebacks stay lines.

    So do the lines of an event under a logger of Kafka's name, each after a tab: the report of a
    clean, which holds no client's bytes.
    """
    is_kafkas = str(event.get("logger", "")).startswith("kafka.")
    for name, value in event.items():
        if isinstance(value, str) and name == "event" and is_kafkas:
            lines = value.split(_NEXT_LINE)
            event[name] = _NEXT_LINE.join(map(escaped, lines))
        elif isinstance(value, str) and name != "exception":
            event[name] = escaped(value)
        elif isinstance(value, str):
            event[name] = escaped(value, but="\n")
    return event


def order_fields(
    _logger: object, _method: str, event: MutableMapping[str, object]
) -> MutableMapping[str, object]:
    """The four fixed fields first."""
    first = {
        name: event[name] for name in ("timestamp", "level", "event", "logger") if name in event
    }
    return {**first, **event}
