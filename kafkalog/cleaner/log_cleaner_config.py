"""LogCleanerConfig: what all threads of the cleaner share, plain and frozen.

Fields are Kafka's keys of ``log.cleaner``; what one thread gets of them is derived here.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog.cleaner.cleaner_config import CleanerConfig, TombstoneHorizon
from kafkalog.format.integers import INT32_MAX
from kafkalog.format.record import DECOMPRESSED_BYTES_MAX

_NO_LIMIT = 1e300


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
    def of_one_thread(self) -> CleanerConfig:
        """What its cleaner needs beside the map."""
        return CleanerConfig(
            io_buffer_bytes=self.io_buffer_size_bytes // self.threads // 2,
            max_decompressed_bytes=self.max_decompressed_bytes,
            tombstone_horizon=self.tombstone_horizon,
        )
