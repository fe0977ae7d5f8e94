"""Log lines: configuration of structlog, one line an event, standard logging included.

Owns the shape: ``timestamp`` (RFC 3339 UTC), ``level``, ``event``, ``logger``, then the fields.
``configure_logging`` is called once by the root of the process; loggers come from
``structlog.get_logger()`` anywhere. JSON escapes control characters; on a console they are escaped
here, so that no client's bytes can forge a line or control a terminal.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TextIO

import structlog

from kafkalog.format.control_characters import CONTROL_CHARACTERS

if TYPE_CHECKING:
    import re
    from collections.abc import MutableMapping

    from structlog.typing import Processor

    from kafkalog.observe.terminal_line import TerminalLine


_NEXT_LINE = "\n\t"

AUDIT = "audit"
"""The logger whose lines are printed whatever ``log.level`` is."""


class _AboveTerminalLine(logging.StreamHandler[TextIO]):
    """Hides the redrawn line of the terminal while a log line is printed."""

    def __init__(self, stream: TextIO, line: TerminalLine) -> None:
        super().__init__(stream)
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        with self._line.hidden():
            super().emit(record)


def configure_logging(
    stream: TextIO, *, log_format: str | None, level: str, above: TerminalLine | None = None
) -> None:
    """Send every line of level and above to stream.

    log_format is ``json``, ``console`` or None: console when stream is a terminal. ``above``: the
    redrawn line of the terminal, if there is one. A later call replaces the configuration.
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
    handler = logging.StreamHandler(stream) if above is None else _AboveTerminalLine(stream, above)
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
            event[name] = _NEXT_LINE.join(CONTROL_CHARACTERS.sub(_escaped, line) for line in lines)
        elif isinstance(value, str) and name != "exception":
            event[name] = CONTROL_CHARACTERS.sub(_escaped, value)
        elif isinstance(value, str):
            event[name] = "\n".join(
                CONTROL_CHARACTERS.sub(_escaped, line) for line in value.split("\n")
            )
    return event


def order_fields(
    _logger: object, _method: str, event: MutableMapping[str, object]
) -> MutableMapping[str, object]:
    """The four fixed fields first."""
    first = {
        name: event[name] for name in ("timestamp", "level", "event", "logger") if name in event
    }
    return {**first, **event}


def _escaped(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
