"""Watched file: a file of the operator that is read at start and again whenever it changes.

At start a fault is ``InvalidConfig`` and the daemon does not come up; later the content that was in
force stays in force, and a log line and a counter tell. Blocks on the disk: call it from a pool.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from kafkalog.errors import InvalidConfig
from kafkalog.format.format_error import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_log = structlog.get_logger("kafkalog.server")
_MAX_BYTES = 16 << 20


class WatchedFile(Generic[T]):
    """The parsed content of one file. ``current`` is replaced as a whole: for any thread."""

    def __init__(self, key: str, path: str, parse: Callable[[str], T], *, is_secret: bool) -> None:
        """Read it; InvalidConfig names the setting, the file and the fault."""
        # constant after construction
        self.key = key
        self._path = path
        self._parse = parse
        self._is_secret = is_secret
        # owned by whoever refreshes
        self._seen: object = None
        self._complaint = ""
        # published
        self.current = self._read()

    def refresh(self) -> bool | None:
        """Read it again when it changed. True: new content; False: it is wrong; None: nothing new.

        What is wrong is told once, not at every look.
        """
        try:
            if self._mark() == self._seen:
                return None
            self.current = self._read()
        except InvalidConfig as error:
            is_news = error.message != self._complaint
            self._complaint = error.message
            if is_news:
                _log.error(
                    "A changed file is not taken; the old content stays", reason=error.message
                )
            return False if is_news else None
        self._complaint = ""
        _log.info("A changed file was read", setting=self.key, file=self._path)
        return True

    def _mark(self) -> object:
        """Differs when the file was written or replaced."""
        try:
            found = os.stat(self._path)
        except OSError as error:
            raise self._fault(error.strerror or "cannot be read") from error
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size

    def _read(self) -> T:
        mark = self._mark()
        try:
            with open(self._path, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                data = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise self._fault(error.strerror or "cannot be read") from error
        if self._is_secret and mode & stat.S_IRWXO:
            raise self._fault("holds secrets and is open to everybody; chmod 0640 or less")
        if mode & stat.S_IWOTH:
            raise self._fault("can be written by everybody; chmod o-w")
        if len(data) > _MAX_BYTES:
            raise self._fault(f"is larger than {_MAX_BYTES} bytes")
        try:
            content = self._parse(data.decode())
        except UnicodeDecodeError as error:
            raise self._fault("is not UTF-8") from error
        except FormatError as error:
            raise self._fault(error.reason) from error
        except InvalidConfig as error:
            raise self._fault(error.message) from error
        self._seen = mark  # taken before the read: a later write is seen as a change
        return content

    def _fault(self, reason: str) -> InvalidConfig:
        return InvalidConfig(f"{self.key}={self._path}: {reason}", key=self.key)
