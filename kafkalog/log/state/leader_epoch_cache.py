"""LeaderEpochCache: which leader epoch began at which offset, and its checkpoint file.

Owns ``leader-epoch-checkpoint`` of one partition directory. Look-ups are for any thread (they take
the published tuple); changes are the writer thread's and touch memory alone. The file is written by
the next flush plan, on the flusher thread, before anything of the plan counts as durable: so every
record below the recovery point has its epoch on disk, and recovery finds those above it again. An
entry too many on disk is cut at load. The flusher is the only one that writes while the log lives
(KAFKA-16541); ``flush`` is for creating, loading and closing.
Source: Kafka's LeaderEpochFileCache, log-format.md 10. Differs from Kafka: there an assignment is
written before the bytes, with the log's lock held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import CorruptCheckpoint
from kafkalog.format.disk.checkpoints import decode_leader_epochs, encode_leader_epochs
from kafkalog.format.disk.file_names import LEADER_EPOCH_CHECKPOINT
from kafkalog.format.integers import FormatError

if TYPE_CHECKING:
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.segment.segment_file import MovableDirectory

UNDEFINED = -1


class EpochEntry(NamedTuple):
    """Epoch and the offset of its first record."""

    epoch: int
    start_offset: int


@dataclass(eq=False, slots=True)
class LeaderEpochCache:
    """Entries with rising epochs and rising start offsets; empty until ``load`` reads the file."""

    # constant after construction
    _filesystem: Filesystem
    _directory: MovableDirectory
    # owned by the writer thread
    is_dirty: bool = False
    # published to readers
    entries: tuple[EpochEntry, ...] = ()

    @property
    def path(self) -> str:
        """The checkpoint file."""
        return f"{self._directory.path}/{LEADER_EPOCH_CHECKPOINT}"

    def load(self) -> None:
        """Read the file; a missing one is made, empty.

        CorruptCheckpoint when it is damaged: there are no entries then, and a flush replaces it.
        """
        try:
            data = self._filesystem.read_file(self.path)
        except FileNotFoundError:
            self._filesystem.open_write(self.path).close()
            return
        self.is_dirty = True  # until it is known that the file says what is known here
        try:
            pairs = decode_leader_epochs(data)
        except FormatError as error:
            raise CorruptCheckpoint(error.reason, file=self.path, position=0) from error
        entries: tuple[EpochEntry, ...] = ()
        for epoch, start_offset in pairs:
            if epoch < 0 or start_offset < 0:
                raise CorruptCheckpoint(
                    f"negative entry {epoch} {start_offset}", file=self.path, position=0
                )
            entries = _with(entries, EpochEntry(epoch, start_offset))
        self.is_dirty = False
        self.entries = entries

    @property
    def latest(self) -> EpochEntry | None:
        """The newest entry."""
        return self.entries[-1] if self.entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that epoch writes from start_offset on; True when that was new. No I/O."""
        assert epoch >= 0
        assert start_offset >= 0
        latest = self.latest
        if latest is not None and epoch == latest.epoch and start_offset >= latest.start_offset:
            return False
        self.entries = _with(self.entries, EpochEntry(epoch, start_offset))
        self.is_dirty = True
        return True

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop entries that begin at or above end_offset."""
        kept = tuple(entry for entry in self.entries if entry.start_offset < end_offset)
        if len(kept) != len(self.entries):
            self.entries = kept
            self.is_dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop entries that end below start_offset; the one that holds it begins there."""
        below = [entry for entry in self.entries if entry.start_offset <= start_offset]
        if not below or (below[-1].start_offset == start_offset and len(below) == 1):
            return
        first = EpochEntry(below[-1].epoch, start_offset)
        self.entries = (first, *self.entries[len(below) :])
        self.is_dirty = True

    def clear(self) -> None:
        """Forget everything; the file is emptied by the next flush."""
        self.is_dirty = self.is_dirty or bool(self.entries)
        self.entries = ()

    def flush(self) -> None:
        """Write the file when something changed since; atomic and synced."""
        if self.is_dirty:
            self.write(self.entries)
            self.mark_written(self.entries)

    def write(self, entries: tuple[EpochEntry, ...]) -> None:
        """Replace the file, atomic and synced; the flusher's part of a flush."""
        self._filesystem.write_file_atomically(self.path, encode_leader_epochs(entries))

    def mark_written(self, entries: tuple[EpochEntry, ...]) -> None:
        """The file holds these entries; later ones wait for the next flush."""
        if entries is self.entries:
            self.is_dirty = False

    def epoch_for(self, offset: int) -> int:
        """Epoch of the record at offset; -1 below the first entry."""
        for entry in reversed(self.entries):
            if entry.start_offset <= offset:
                return entry.epoch
        return UNDEFINED


def _with(entries: tuple[EpochEntry, ...], new: EpochEntry) -> tuple[EpochEntry, ...]:
    """Entries with ``new`` after those that it does not contradict."""
    count = len(entries)
    while count and (
        entries[count - 1].epoch >= new.epoch or entries[count - 1].start_offset >= new.start_offset
    ):
        count -= 1
    return (*entries[:count], new)
