"""FlushPlan: one group commit of one log, carried from the writer to the flusher and back.

Made by the writer thread without I/O; ``run`` is the flusher thread's and touches only the files
and the directory listed here; ``UnifiedLog.mark_flushed`` takes it back on the writer thread. After
a failed sync the kernel may have dropped the pages and call the next one a success, so a plan runs
once and what it listed is never synced again as if it could heal: the directory goes offline.
Source: Kafka's LocalLog.flush and UnifiedLog.flushProducerStateSnapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.local_log import LocalFlush
    from kafkalog.log.state.leader_epoch_cache import EpochEntry, LeaderEpochCache


class FailedBeforeSync(OSError):
    """A flush failed while nothing of the log was synced yet: another one may be planned."""


@dataclass(eq=False, slots=True)
class FlushPlan:
    """Files to sync so that every offset below ``end_offset`` is durable.

    snapshots      paths of producer snapshots written since the last flush
    epoch_entries  None: the file has them
    """

    local: LocalFlush
    snapshots: tuple[str, ...]
    _epochs: LeaderEpochCache
    _filesystem: Filesystem
    epoch_entries: tuple[EpochEntry, ...] | None = None
    # the flusher's, read by the writer once the plan came back
    _has_started: bool = False
    is_done: bool = False

    def __post_init__(self) -> None:
        if self._epochs.is_dirty:
            self.epoch_entries = self._epochs.entries

    @property
    def end_offset(self) -> int:
        """Everything below is durable once ``run`` returned."""
        return self.local.end_offset

    def run(self) -> None:
        """Epochs, snapshots, segments, at last their names.

        OSError: never again on these; FailedBeforeSync: a new plan may try.
        """
        assert not self._has_started, "a flush is never repeated"
        self._has_started = True
        if self.epoch_entries is not None:
            try:
                self._epochs.write(self.epoch_entries)
            except FileNotFoundError:
                pass  # the directory was renamed or deleted meanwhile
            except OSError as error:
                raise FailedBeforeSync(error.errno, error.strerror, self._epochs.path) from error
        for path in self.snapshots:
            try:
                file = self._filesystem.open_write(path, create=False)
            except FileNotFoundError:
                continue  # deleted with its segment meanwhile
            file.datasync()
            file.close()
        self.local.run()
        self.is_done = True
