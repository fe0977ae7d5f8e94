"""Leader epochs of a log: which began at which offset, their checkpoint file, what a load finds.

Owns ``leader-epoch-checkpoint`` of one partition directory. Look-ups are for any thread (they take
the published tuple); changes are the writer thread's and touch memory alone. The file is written by
the next flush plan, on the flusher thread, before anything of the plan counts as durable: so every
record below the recovery point has its epoch on disk, and recovery finds those above it again. An
entry too many on disk is cut at load. The flusher is the only one that writes while the log lives
(KAFKA-16541); ``flush`` is for creating, loading and closing. Source: Kafka's LeaderEpochFileCache.
Differs from Kafka: there an assignment is written before the bytes, with the log's lock held.

In the loader, on its thread: an epoch lies outside the batch's CRC. Epochs never fall along a log,
so one that a later batch contradicts by a smaller one is rot, and is not adopted; adopting it would
hide every true one below it. ``RecoveredEpochs.correct`` finds what it was, as far as its
neighbours or the checkpoint prove it. A damaged checkpoint is rebuilt from the batches, in one read
of the whole log; only epochs in which nothing was written are lost. Differs from Kafka, which
adopts each epoch above those before it (``adopt_as_kafka``), and gives up the log directory, or
does not start, for a damaged checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import structlog

from kafkalog.errors import CorruptCheckpoint
from kafkalog.format.disk.checkpoints import decode_leader_epochs, encode_leader_epochs
from kafkalog.format.disk.file_names import LEADER_EPOCH_CHECKPOINT
from kafkalog.format.integers import INT64_MAX, FormatError
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.log.segment.segment_file import scan_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalog.env.filesystem import Filesystem
    from kafkalog.format.records.batch_scan import BatchRows
    from kafkalog.log.recovery.corruption_policy import Corruption
    from kafkalog.log.segment.log_segment import LogSegment
    from kafkalog.log.segment.segment_file import MovableDirectory

UNDEFINED = -1

_log = structlog.get_logger(__name__)


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


# ---- at a load


class RecoveredEpochs:
    """Feed it rows in any order of segments; ``adopt`` at the end."""

    def __init__(self) -> None:
        self._found: list[tuple[int, int]] = []  # base offset, epoch: where it changes

    def note(self, rows: BatchRows) -> None:
        """The batches of a chunk; a few numpy calls and one step a change."""
        epochs = rows.column(BatchColumn.LEADER_EPOCH)
        if not rows.count:
            return
        bases = rows.column(BatchColumn.BASE_OFFSET)
        for row in np.flatnonzero(np.diff(epochs, prepend=epochs[0] - 1)).tolist():
            base, epoch = int(bases[row]), int(epochs[row])
            if not self._found or self._found[-1][1] != epoch or base < self._found[-1][0]:
                self._found.append((base, epoch))

    def correct(
        self, cache: LeaderEpochCache, *, is_gapless: bool, is_complete: bool = False
    ) -> list[tuple[int, int, int, int]]:
        """Runs of batches whose epoch rotted: first offset, end, epoch found, epoch proven.

        Two that agree prove it: the batches before and after, or one of them and the checkpoint
        where the run's own epoch makes the order fall, or which ``is_complete``, as after a clean
        stop. ``is_gapless``: all was written here, where an epoch never rises. What is returned
        counts as corrected from here on.
        """
        self._found.sort()
        rotten: list[tuple[int, int, int, int]] = []
        corrected: list[tuple[int, int]] = []
        for slot, (base, epoch) in enumerate(self._found):
            before = corrected[-1][1] if corrected else None
            end, after = INT64_MAX, None
            if slot + 1 < len(self._found):
                end, after = self._found[slot + 1]
            known = cache.epoch_for(base)
            falls = (
                is_complete
                or (before is not None and epoch < before)
                or (after is not None and epoch > after)
            )
            proven = epoch
            if is_gapless:
                proven = known if before is None else before
            elif before == after and before is not None:
                proven = before
            elif (falls and known in (before, after)) or (before is None and known == after):
                proven = known
            if proven >= 0 and proven != epoch:
                rotten.append((base, end, epoch, proven))
                epoch = proven
            if before != epoch:
                corrected.append((base, epoch))
        self._found = corrected
        return rotten

    def adopt(self, cache: LeaderEpochCache) -> None:
        """Assign the believed ones that are newer than what the cache knows. No I/O."""
        believed: list[tuple[int, int]] = []
        for base, epoch in sorted(self._found):
            if epoch < 0:
                continue
            while believed and believed[-1][1] > epoch:
                believed.pop()
            if not believed or believed[-1][1] < epoch:
                believed.append((base, epoch))
        for base, epoch in believed:
            latest = cache.latest
            if latest is None or epoch > latest.epoch:
                cache.assign(epoch, base)


def adopt_as_kafka(cache: LeaderEpochCache, rows: BatchRows) -> None:
    """Assign each epoch of the rows that is above what the cache knows, as Kafka does. No I/O."""
    if not rows.count:
        return
    epochs = rows.column(BatchColumn.LEADER_EPOCH)
    known = cache.latest
    if known is not None and int(epochs.max()) <= known.epoch:
        return  # as nearly always
    for row in np.flatnonzero(np.diff(epochs, prepend=epochs[0] - 1)).tolist():
        epoch, latest = int(epochs[row]), cache.latest
        if epoch >= 0 and (latest is None or epoch > latest.epoch):
            cache.assign(epoch, int(rows.column(BatchColumn.BASE_OFFSET)[row]))


def load_epochs(cache: LeaderEpochCache, corruption: Corruption) -> CorruptCheckpoint | None:
    """Read the checkpoint; its damage, or None when it is sound. With 'kafka' damage is raised."""
    try:
        cache.load()
    except CorruptCheckpoint as damage:
        if corruption == "kafka":
            raise
        return damage
    return None


def maybe_rebuild_epochs(
    cache: LeaderEpochCache,
    segments: Iterable[LogSegment],
    damage: CorruptCheckpoint | None,
    note: Callable[[BatchRows], None],
) -> None:
    """When damaged: forget the entries and ``note`` those of all batches; the load's flush writes.

    A crash before that leaves the damaged file to the next load. OSError.
    """
    if damage is None:
        return
    _log.error("leader_epochs_rebuilt", file=damage.file, reason=damage.message)
    cache.clear()
    for segment in segments:
        # An epoch lies outside the CRC, so checking that would prove nothing.
        for chunk in scan_chunks(
            segment.log_file, 0, segment.size_bytes, check_crc=False, with_messages=True
        ):
            note(chunk.rows)
