"""Files of the operator that are read at the start and again when they change.

At the start an error is ``InvalidConfig`` and the daemon does not start; later the former content
stays in force, and a log line and a counter report the error. Blocks on the disk: call it on a
pool.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from kafkalog.errors import InvalidConfig
from kafkalog.format.integers import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_log = structlog.get_logger("kafkalog.server")
_MAX_BYTES = 16 << 20


class WatchedFiles(Generic[T]):
    """What one or several files say together. ``current`` is replaced as a whole: any thread."""

    def __init__(self, key: str, paths: tuple[str, ...], read: Callable[[], T]) -> None:
        """``key`` is the setting that a log line names; ``read`` raises InvalidConfig."""
        # constant after construction
        self.key = key
        self._paths = paths
        self._read = read
        # owned by the caller of ``refresh``
        self._complaint = ""
        self._seen = self._marks()  # taken before the read: a later write is seen as a change
        # published
        self.current = read()

    def refresh(self) -> bool | None:
        """Read again what changed. True: new content; False: it is wrong; None: nothing new.

        An error is logged once, not at every check.
        """
        try:
            marks = self._marks()
            if marks == self._seen:
                return None
            self.current = self._read()
        except InvalidConfig as error:
            is_news = error.message != self._complaint
            self._complaint = error.message
            if is_news:
                _log.error("A changed file is not taken; the old stays", reason=error.message)
            return False if is_news else None
        self._seen, self._complaint = marks, ""
        _log.info("A changed file was read", setting=self.key, files=list(self._paths))
        return True

    @property
    def is_refused(self) -> bool:
        """Whether the files as they are now have an error, so that older content is used."""
        return bool(self._complaint)

    def _marks(self) -> list[tuple[int, ...]]:
        """Differs when a file was written or replaced."""
        marks: list[tuple[int, ...]] = []
        for path in self._paths:
            try:
                found = os.stat(path)
            except OSError as error:
                raise file_fault(self.key, path, error.strerror or "cannot be read") from error
            marks.append((found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size))
        return marks


def read_file(key: str, path: str, parse: Callable[[str], T], *, is_secret: bool) -> T:
    """The parsed text of a file; InvalidConfig names the setting, the file and the fault."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise file_fault(key, path, error.strerror or "cannot be read") from error
    if is_secret and mode & stat.S_IRWXO:
        raise file_fault(key, path, "holds secrets and is open to everybody; chmod 0640 or less")
    if mode & stat.S_IWOTH:
        raise file_fault(key, path, "can be written by everybody; chmod o-w")
    if len(data) > _MAX_BYTES:
        raise file_fault(key, path, f"is larger than {_MAX_BYTES} bytes")
    try:
        return parse(data.decode())
    except UnicodeDecodeError as error:
        raise file_fault(key, path, "is not UTF-8") from error
    except FormatError as error:
        raise file_fault(key, path, error.reason) from error
    except InvalidConfig as error:
        raise file_fault(key, path, error.message) from error


def file_fault(key: str, path: str, reason: str) -> InvalidConfig:
    """A fault of the file that a setting names."""
    return InvalidConfig(f"{key}={path}: {reason}", key=key)
