"""TerminalLine: one line of a terminal that is redrawn in place, below other output.

Owns the line on the screen. Any thread, because log lines come from all of them. A closed terminal
is ignored.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

_ERASE = "\r\x1b[K"
_COLUMNS_DEFAULT = 80


class TerminalLine:
    """See the module. ``stream`` is a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._mutex = threading.Lock()
        self._text = ""  # what is on the screen

    def show(self, text: str) -> None:
        """Draw the text in place of the one before, cut to the terminal's width; "" erases it."""
        with self._mutex:
            if text or self._text:
                self._text = text[: self._columns() - 1]  # a full row would wrap
                self._write(_ERASE + self._text)

    def write_above(self, text: str) -> None:
        """Whole lines that stay on the screen."""
        with self.hidden():
            self._write(text)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Output within the context appears above the line."""
        with self._mutex:
            if self._text:
                self._write(_ERASE)
            try:
                yield
            finally:
                if self._text:
                    self._write(self._text)

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS_DEFAULT
        except OSError:
            return _COLUMNS_DEFAULT

    def _write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)
            self._stream.flush()
