"""A damaged leader-epoch-checkpoint, made anew from the batches, each of which has its epoch.

Lost for good are only epochs in which nothing was written. Reads the whole log once. One thread, in
the loader. Differs from Kafka, which gives up the log directory or does not start at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from kafkalog.errors import CorruptCheckpoint
from kafkalog.log.segment_chunks import scan_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalog.format.batch_scan import BatchRows
    from kafkalog.log.leader_epoch_cache import LeaderEpochCache
    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.recovery_policy import Corruption

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
        for chunk in scan_chunks(segment, 0, segment.size_bytes, check_crc=False):
            note(chunk.rows)
