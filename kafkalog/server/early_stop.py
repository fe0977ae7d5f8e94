"""SIGTERM and SIGINT before the event loop runs: one line, status 0.

A start imports and compiles for a second, and has touched nothing by then. The handler may
interrupt any import, so it writes its line without the logging library. The module imports nothing
of kafkalog: the handlers stand before the daemon is imported, and a command line that starts no
daemon imports none.
"""

from __future__ import annotations

import json
import os
import signal
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_STDOUT = 1
_EVENT = "Shutting down: the start had touched nothing"
_LOGGER = "kafkalog"


class EarlyStop:
    """Installed by the main thread; ``Daemon.run`` puts its own handlers in the place of these."""

    def __init__(self) -> None:
        self._is_json = not os.isatty(_STDOUT)

    def install(self) -> None:
        """From here on neither signal ends the process without a line."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._leave)

    def set_format(self, log_format: str | None) -> None:
        """The setting ``log.format``, once it is known; None: by the kind of the output."""
        if log_format is not None:
            self._is_json = log_format == "json"

    def _leave(self, number: int, _: FrameType | None) -> None:
        """Exit at once: nothing is open, and an import that is cut off harms nothing."""
        name = signal.Signals(number).name
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        if self._is_json:
            fields = {"timestamp": now, "level": "info", "event": _EVENT, "logger": _LOGGER}
            line = json.dumps({**fields, "signal": name})
        else:
            line = f"{now} [info     ] {_EVENT} [{_LOGGER}] signal={name}"
        try:
            os.write(_STDOUT, f"{line}\n".encode())
        finally:  # the reader of the pipe may be gone
            os._exit(0)
