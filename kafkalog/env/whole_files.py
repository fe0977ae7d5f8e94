"""WholeFiles: small files read and replaced as a whole, the same steps on every Filesystem.

One home for the order of the steps, so that what a simulated power cut proves of it is true of the
machine's disk.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.env.filesystem import File


class _Files(Protocol):
    """What the steps need of a Filesystem."""

    def open_read(self, path: str) -> File: ...

    def open_write(self, path: str) -> File: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def write_files_atomically(self, directory: str, files: Mapping[str, bytes]) -> None: ...


class WholeFiles:
    """A part of a Filesystem, made of its other parts."""

    __slots__ = ()

    def read_file(self: _Files, path: str) -> bytes:
        """See Filesystem."""
        file = self.open_read(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def write_file_atomically(self: _Files, path: str, data: bytes) -> None:
        """See Filesystem."""
        self.write_files_atomically(os.path.dirname(path), {os.path.basename(path): data})

    def write_files_atomically(self: _Files, directory: str, files: Mapping[str, bytes]) -> None:
        """See Filesystem."""
        paths = [os.path.join(directory, name) for name in files]
        try:
            for path, data in zip(paths, files.values(), strict=True):
                file = self.open_write(f"{path}.tmp")
                try:
                    file.truncate(0)
                    file.pwrite(data, 0)
                    file.sync()
                finally:
                    file.close()
            for path in paths:
                self.rename(f"{path}.tmp", path)
        except OSError:
            for path in paths:
                with contextlib.suppress(OSError):  # a full disk needs its pages back
                    self.unlink(f"{path}.tmp")
            raise
        self.sync_dir(directory)
