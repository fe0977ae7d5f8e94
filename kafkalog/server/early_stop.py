"""What SIGTERM and SIGINT do before the daemon listens to them: a line, and the end with status 0.

A start imports and compiles for a second before its event loop runs, and touches nothing meanwhile.
Imports no more than it needs, so that it is there first. The line is written by itself: the handler
may interrupt any import, and the logging that it would go through.
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
        """The setting ``log.format``, once it is known; None: what the kind of the output says."""
        if log_format is not None:
            self._is_json = log_format == "json"

    def _leave(self, number: int, _: FrameType | None) -> None:
        """At once: there is nothing to close, and what an import leaves half is nobody's."""
        name = signal.Signals(number).name
        moment = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        if self._is_json:
            fields = {"timestamp": moment, "level": "info", "event": _EVENT, "logger": _LOGGER}
            line = json.dumps({**fields, "signal": name})
        else:
            line = f"{moment} [info     ] {_EVENT} [{_LOGGER}] signal={name}"
        try:
            os.write(_STDOUT, f"{line}\n".encode())
        finally:  # whoever read it may be gone
            os._exit(0)
