"""The next step of a partition's move to another log directory.

Pure: the ends of the current log and of the copy in, one step out. Source: Kafka's
ReplicaAlterLogDirsThread and Partition.maybeReplaceCurrentWithFutureReplica.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

SLICE_BYTES = 1 << 20  # of one read and one write; a larger one would hold up the writer
# What the swap may leave to sync while appends wait; more is synced before, while they do not.
UNFLUSHED_BYTES_MAX = 16 << 20


class MoveStep(enum.Enum):
    """What is done next."""

    BEGIN = "begin"  # make the copy, empty, at the log start
    COPY = "copy"  # one slice
    FLUSH = "flush"  # appends go on meanwhile
    SWAP = "swap"  # hold appends, copy and sync the rest, exchange the names


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """One moment; ``future_end`` None: there is no copy yet.

    is_near           the last slice reached the end of the current log
    unflushed_bytes   copied since the last flush of the copy
    """

    log_end_offset: int
    future_end: int | None
    is_near: bool
    unflushed_bytes: int


def next_step(facts: MoveFacts) -> MoveStep:
    """Decide; it is SWAP as soon as copying and syncing keep up with the appends."""
    if facts.future_end is None:
        return MoveStep.BEGIN
    if facts.future_end < facts.log_end_offset and not facts.is_near:
        return MoveStep.COPY
    if facts.unflushed_bytes > UNFLUSHED_BYTES_MAX:
        return MoveStep.FLUSH
    return MoveStep.SWAP
