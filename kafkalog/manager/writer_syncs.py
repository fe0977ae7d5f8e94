"""What a writer has made durable for many waiters: one log's files, or the start-offset checkpoint.

Owns no thread and does no I/O: ``plan`` gives the blocking work to whoever submits it to the
flusher, ``completed`` takes its success back. Writer thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log.flush_plan import FlushPlan
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.manager.commands import Command
    from kafkalog.manager.log_dir import LogDir
    from kafkalog.manager.log_dir_writer import LogDirWriter


class Sync(Protocol):
    """Something that can be made durable together for many waiters."""

    def plan(self) -> Callable[[], None] | None:
        """The blocking work for the flusher, None when nothing is dirty; no I/O."""
        ...

    def completed(self, writer: LogDirWriter) -> None:
        """The planned work succeeded."""
        ...


class StartOffsetFiles(Protocol):
    """What keeps the log starts of a directory; each durable on return, guarded."""

    def write_start_offsets(self, log_dir: LogDir) -> None:
        """Both files: somebody was told, or will be, that records are gone."""
        ...

    def write_proofs(self, log_dir: LogDir) -> None:
        """The checked one alone: whose files go, it is enough for the next start."""
        ...


class LogSync:
    """The files of one log."""

    def __init__(self, log: UnifiedLog) -> None:
        self._log = log
        self._plan: FlushPlan | None = None
        self.include_active = False

    def plan(self) -> Callable[[], None] | None:
        """See Sync."""
        self._plan = self._log.plan_flush(include_active=self.include_active)
        self.include_active = False
        return None if self._plan is None else self._plan.run

    def completed(self, writer: LogDirWriter) -> None:
        """Move recovery point and high watermark."""
        assert self._plan is not None
        watermark = self._log.high_watermark
        self._log.mark_flushed(self._plan)
        self._plan = None
        if self._log.high_watermark != watermark:
            writer.note_advanced(self._log)


class CheckpointSync:
    """A checkpoint of the directory."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write

    def plan(self) -> Callable[[], None] | None:
        """Always dirty: somebody asked."""
        return self._write

    def completed(self, writer: LogDirWriter) -> None:
        """Nothing to move."""


@dataclass(slots=True)
class SyncState:
    """One sync with its waiters; ``covered`` are those of the sync under way."""

    sync: Sync
    waiting: list[Command] = field(default_factory=list)
    covered: list[Command] = field(default_factory=list)
    is_under_way: bool = False
    is_wanted_again: bool = False
