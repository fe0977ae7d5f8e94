"""From decoded records to one validated batch a partition, in request order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.format.batch_builder import build_plain_batch
from kafkalog.log.built_batch_validator import validate_built

if TYPE_CHECKING:
    import numpy.typing as npt

    from kafkalog.format.batch_builder import BuiltBatch
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.values import ValidatedRecords
    from kafkalog.server.produce_body import DecodedRecords


@dataclass(frozen=True, slots=True)
class PartitionBatch:
    """The batch of one partition; ``selection`` are the request's record numbers, int64[n]."""

    partition: int
    selection: npt.NDArray[np.int64]
    built: BuiltBatch

    def validate(
        self, config: LogConfig, now_ms: int, max_decompressed_bytes: int
    ) -> ValidatedRecords:
        """Against the topic's rules."""
        return validate_built(
            self.built, config, now_ms, max_decompressed_bytes=max_decompressed_bytes
        )


def make_batches(
    records: DecodedRecords, partition_count: int, partition: int | None, null_key_partition: int
) -> list[PartitionBatch]:
    """Group by partition: a record's own, else the path's, else by key, else null_key_partition."""
    columns = records.columns
    if records.partitions is None and (partition is not None or partition_count == 1):
        everything = np.arange(len(columns), dtype=np.int64)
        return [PartitionBatch(partition or 0, everything, build_plain_batch(columns, everything))]
    if partition is not None:
        chosen = np.full(len(columns), partition, np.int64)
    else:
        chosen = columns.partitions(partition_count)
        chosen[chosen < 0] = null_key_partition
    if records.partitions is not None:
        named = records.partitions
        unnamed: dict[int | None, int | None] = {None: -1}
        own = np.fromiter(map(unnamed.get, named, named), np.int64, len(named))
        chosen = np.where(own >= 0, own, chosen)
    batches = []
    for number in np.unique(chosen).tolist():
        selection = np.flatnonzero(chosen == number).astype(np.int64)
        batches.append(PartitionBatch(number, selection, build_plain_batch(columns, selection)))
    return batches
