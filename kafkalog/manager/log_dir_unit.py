"""LogDirUnit: a log directory with its threads and the seams that its logs get.

Owns nothing of its own; bundles what belongs to one entry of ``log.dirs``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.log.environment import LogEnvironment
    from kafkalog.manager.log_dir import LogDir
    from kafkalog.manager.log_dir_flusher import LogDirFlusher
    from kafkalog.manager.log_dir_writer import LogDirWriter


@dataclass(frozen=True, slots=True)
class LogDirUnit:
    """See the module."""

    log_dir: LogDir
    environment: LogEnvironment
    writer: LogDirWriter
    flusher: LogDirFlusher

    def start(self) -> None:
        """Start writer and flusher."""
        self.flusher.start()
        self.writer.start()

    def wake(self) -> None:
        """Let both threads turn once, so that their heartbeats show."""
        self.writer.wake()
        self.flusher.wake()

    def stop(self) -> None:
        """Run what is queued, with its syncs, then end both threads."""
        self.writer.stop()
        self.flusher.stop()
