"""CleanerConfig: what one cleaner thread needs to know, plain and frozen; the map has its own."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kafkalog.format.record import DECOMPRESSED_BYTES_MAX


class TombstoneHorizon(enum.Enum):
    """``log.cleaner.tombstone.horizon``: how long tombstones and needless markers stay.

    BATCH    per batch, delete.retention.ms after the first round that met it (Kafka, KIP-534)
    SEGMENT  by modification times: in segments that are older than that of the last clean one by
             delete.retention.ms or more they go; the horizons of batches are neither read nor set
    """

    BATCH = "batch"
    SEGMENT = "segment"


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """Defaults are Apache Kafka 4.1's for one thread.

    io_buffer_bytes              read at a time: log.cleaner.io.buffer.size / threads / 2; a batch
                                 that is larger is read whole
    max_decompressed_bytes       bound of an inflated batch: a larger one is damage
    directory_operations_max     renames of one command on the writer
    """

    io_buffer_bytes: int = 262_144
    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX
    tombstone_horizon: TombstoneHorizon = TombstoneHorizon.BATCH
    directory_operations_max: int = 64
