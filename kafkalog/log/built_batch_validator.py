"""The shorter way through the validator, for batches that `format/batch_builder` has just made.

Owns no rule: it proves from the builder's facts that ``log_validator.validate`` would not refuse
or change the batch, and hands it over in every other case. Pure; any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.log.log_validator import is_suspect, validate
from kafkalog.log.values import (
    NO_TIMESTAMP,
    AppendOrigin,
    BatchFacts,
    ValidatedRecords,
)

if TYPE_CHECKING:
    from kafkalog.format.batch_builder import BuiltBatch
    from kafkalog.log.log_config import LogConfig

_KEEPS_PLAIN = ("producer", "uncompressed")


def validate_built(
    batch: BuiltBatch, config: LogConfig, now_ms: int, *, max_decompressed_bytes: int
) -> ValidatedRecords:
    """``validate`` for a client's records that we put into a batch ourselves.

    What the builder knows answers the rules without another walk over the bytes; a batch that must
    change, or may have to be refused, goes through ``validate`` itself. Raises as that.
    """
    size = len(batch.data)
    if (
        size > config.max_message_bytes
        or config.message_timestamp_type == "LogAppendTime"
        or config.compression_type not in _KEEPS_PLAIN
        or batch.min_timestamp < NO_TIMESTAMP
        or batch.producer.base_sequence < 0 <= batch.producer.producer_id
        or is_suspect(
            config,
            now_ms,
            batch.null_key_count > 0,
            batch.min_timestamp,
            batch.max_timestamp,
            is_stamped=False,
        )
    ):
        return validate(
            batch.data,
            config,
            now_ms,
            AppendOrigin.CLIENT,
            max_decompressed_bytes=max_decompressed_bytes,
        )
    facts = BatchFacts(
        data=batch.data,
        record_count=batch.record_count,
        last_offset_delta=batch.record_count - 1,
        base_timestamp_ms=batch.base_timestamp,
        max_timestamp_ms=batch.max_timestamp,
        attributes=0,
        producer_id=batch.producer.producer_id,
        producer_epoch=batch.producer.producer_epoch,
        base_sequence=batch.producer.base_sequence,
    )
    return ValidatedRecords(
        batches=(facts,),
        size_bytes=size,
        record_count=batch.record_count,
        max_timestamp_ms=batch.max_timestamp,
        log_append_time_ms=NO_TIMESTAMP,
        origin=AppendOrigin.CLIENT,
    )
