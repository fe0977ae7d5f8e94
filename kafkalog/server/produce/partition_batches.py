"""The records of a produce body as one batch per partition, in request order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.format.records.batch_builder import NO_PRODUCER, build_plain_batch
from kafkalog.log.validator import validate_built
from kafkalog.server.produce.json_body import columns_of, parse, single_batch

if TYPE_CHECKING:
    import numpy.typing as npt

    from kafkalog.format.records.batch_builder import BuiltBatch, ProducerStamp
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.values import ValidatedRecords
    from kafkalog.server.produce.json_body import DecodedRecords, Formats

_ONLY_RECORD = np.zeros(1, np.int64)  # the selection of a request that holds one record
_ONLY_RECORD.flags.writeable = False


class PartitionTarget(NamedTuple):
    """Where records may go: ``partition`` is the path's, if it names one."""

    partition_count: int
    partition: int | None
    null_key_partition: int


class PartitionBatch(NamedTuple):
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


def prepare(
    data: bytes, formats: Formats, now_ms: int, max_records: int, target: PartitionTarget
) -> tuple[int, list[PartitionBatch]]:
    """(record count, one batch a partition) of a v2 produce body; raises as ``parse``."""
    records = parse(data, formats, max_records=max_records)
    if len(records) == 1 and (target.partition is not None or target.partition_count == 1):
        built = single_batch(records[0], now_ms=now_ms)
        if built is not None:
            return 1, [PartitionBatch(target.partition or 0, _ONLY_RECORD, built)]
    decoded = columns_of(records, formats, now_ms=now_ms)
    return len(decoded), make_batches(decoded, target)


def make_batches(
    records: DecodedRecords, target: PartitionTarget, producer: ProducerStamp = NO_PRODUCER
) -> list[PartitionBatch]:
    """Group by partition: a record's own, else the path's, else by key, else null_key_partition.

    producer    is in the header of each, so the caller passes one only for a single batch
    """
    columns = records.columns
    partition_count, partition, null_key_partition = target
    if records.partitions is None and (partition is not None or partition_count == 1):
        everything = np.arange(len(columns), dtype=np.int64)
        built = build_plain_batch(columns, everything, producer)
        return [PartitionBatch(partition or 0, everything, built)]
    if partition is not None:
        chosen = np.full(len(columns), partition, np.int64)
    else:
        chosen = columns.partitions(partition_count)
        chosen[chosen < 0] = null_key_partition
    if records.partitions is not None:
        chosen = np.where(records.partitions >= 0, records.partitions, chosen)
    batches = []
    for number in np.unique(chosen).tolist():
        selection = np.flatnonzero(chosen == number).astype(np.int64)
        built = build_plain_batch(columns, selection, producer)
        batches.append(PartitionBatch(number, selection, built))
    return batches
