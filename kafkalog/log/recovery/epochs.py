"""Leader epochs that a load finds in batches: which are believed, and how a checkpoint is rebuilt.

An epoch lies outside the batch's CRC. Epochs never fall along a log, so one that a later batch
contradicts by a smaller one is rot, and is not adopted; adopting it would hide every true one below
it. ``RecoveredEpochs.correct`` finds what it was, as far as its neighbours or the checkpoint prove
it. A damaged leader-epoch-checkpoint is rebuilt from the batches, in one read of the whole log;
only epochs in which nothing was written are lost.

One thread, in the loader. Differs from Kafka, which adopts each epoch above those before it
(``adopt_as_kafka``), and gives up the log directory, or does not start, for a damaged checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import structlog

from kafkalog.errors import CorruptCheckpoint
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.log.segment.segment_file import scan_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalog.format.records.batch_scan import BatchRows
    from kafkalog.log.recovery.corruption_policy import Corruption
    from kafkalog.log.segment.log_segment import LogSegment
    from kafkalog.log.state.leader_epoch_cache import LeaderEpochCache


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


_log = structlog.get_logger(__name__)


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
        for chunk in scan_chunks(segment.log_file, 0, segment.size_bytes, check_crc=False):
            note(chunk.rows)
