"""LogCleanerConfig and CleanerConfig: settings of all cleaner threads together, and of one of them.

Plain and frozen. The fields of LogCleanerConfig are Kafka's keys of ``log.cleaner``; what one
thread gets of them is derived here.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kafkalog.format.integers import INT32_MAX
from kafkalog.format.records.record import DECOMPRESSED_BYTES_MAX


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


_NO_LIMIT = 1e300
SLOT_BYTES = 24
"""Of one key in the offset map, as in Kafka."""


@dataclass(frozen=True, slots=True)
class LogCleanerConfig:
    """Defaults are Apache Kafka 4.1's."""

    threads: int = 1
    dedupe_buffer_size_bytes: int = 134_217_728
    io_buffer_size_bytes: int = 524_288
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = 1.7976931348623157e308
    backoff_ms: int = 15_000
    tombstone_horizon: TombstoneHorizon = TombstoneHorizon.BATCH
    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX

    @property
    def io_limit_bytes_per_second(self) -> float | None:
        """For people and programs: None where the number is Kafka's way to say that none is set."""
        rate = self.io_max_bytes_per_second
        return None if rate > _NO_LIMIT else rate

    @property
    def map_bytes(self) -> int:
        """Memory of the offset map of one thread."""
        return min(self.dedupe_buffer_size_bytes // self.threads, INT32_MAX)

    @property
    def map_holds_a_key(self) -> bool:
        """Kafka's rule: without it no clean makes progress. True without threads."""
        if not self.threads:
            return True
        return self.map_bytes // SLOT_BYTES * self.io_buffer_load_factor > 1

    @property
    def chunk_bytes(self) -> int:
        """What one thread reads at once: its buffer, or its share of a tenth of the rate."""
        threads = max(self.threads, 1)
        buffer_bytes = self.io_buffer_size_bytes // threads // 2
        return int(min(buffer_bytes, self.io_max_bytes_per_second / 10 / threads))

    @property
    def of_one_thread(self) -> CleanerConfig:
        """What its cleaner needs beside the map."""
        return CleanerConfig(
            io_buffer_bytes=self.io_buffer_size_bytes // self.threads // 2,
            max_decompressed_bytes=self.max_decompressed_bytes,
            tombstone_horizon=self.tombstone_horizon,
        )
