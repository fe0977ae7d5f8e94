"""pyiceberg's store on a disk, whose calls fail by chance while a file says so.

Given to a command as the catalog property ``py-io-impl=tests.spark.failing_store.FailingFileIO``.
The file named by ``KAFKALOG_STORE_FAULTS`` holds the share of calls that fail; without it none do.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO

VARIABLE = "KAFKALOG_STORE_FAULTS"
_chance = SystemRandom()


def _share() -> float:
    """Of the calls that fail now."""
    with suppress(KeyError, OSError, ValueError):
        return float(Path(os.environ[VARIABLE]).read_text())
    return 0.0


class FailingFileIO(PyArrowFileIO):
    """See the module."""

    def new_input(self, location: str) -> Any:
        self._ask(location)
        return super().new_input(location)

    def new_output(self, location: str) -> Any:
        self._ask(location)
        return super().new_output(location)

    def delete(self, location: Any) -> None:
        self._ask(str(location))
        super().delete(location)

    def _ask(self, location: str) -> None:
        if _chance.random() < _share():
            raise OSError(errno.EIO, "503 Slow Down", location)
