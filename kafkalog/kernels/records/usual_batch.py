"""Batches as most clients send them: the whole check of a small one, and offsets for many of them.

Of some hundred bytes each, so that what is called for each batch would cost more than the check.
Rules: `log/validator.py`.
"""

from __future__ import annotations

from kafkalog.kernels.compile import BOOL, BYTES, BYTES_OUT, I64, I64S_OUT, Bytes, Int64s, kernel
from kafkalog.kernels.crc32c import crc32c_generic
from kafkalog.kernels.loads import (
    load_i16be,
    load_i32be,
    load_i64be,
    load_u32be,
    store_i32be,
    store_i64be,
)
from kafkalog.kernels.records.record_scan import RecordFact, validate_records

SMALL_BATCH_BYTES = 2048
"""Up to here a check is a microsecond or two, and the table as fast as the C package's CRC."""

_INT64_MAX = 2**63 - 1
_HEADER_BYTES = 61
_OVERHEAD = 12
_MOST_DELTA = int(RecordFact.MAX_TIMESTAMP_DELTA)
_LEAST_DELTA = int(RecordFact.MIN_TIMESTAMP_DELTA)
_NULL_KEYS = int(RecordFact.NULL_KEYS)
_MISNUMBERED = int(RecordFact.FIRST_MISNUMBERED_INDEX)


@kernel(I64(BYTES, I64, I64, BOOL, I64S_OUT), keeps_gil=True)
def is_usual_batch(
    batch: Bytes, least_ms: int, most_ms: int, takes_null_keys: bool, facts: Int64s
) -> int:
    """1 if it is one whole, uncompressed batch of nothing but records and breaks no rule, else 0.

    least_ms, most_ms   what its timestamps may be, in ms; before 1970 it is not usual
    facts               int64[RECORD_FACT_COUNT], for the kernel's own use
    """
    if len(batch) <= _HEADER_BYTES or batch[16] != 2:
        return 0
    count = load_i32be(batch, 57)
    base_ms = load_i64be(batch, 27)
    max_ms = load_i64be(batch, 35)
    if (
        load_i32be(batch, 8) + _OVERHEAD != len(batch)
        or load_i64be(batch, 0) != 0
        or load_i16be(batch, 21) != 0
        or count <= 0
        or load_i32be(batch, 23) + 1 != count
        or base_ms < 0
        or (load_i64be(batch, 43) >= 0 and load_i32be(batch, 53) < 0)
        or crc32c_generic(batch, 21, len(batch)) != load_u32be(batch, 17)
        or validate_records(batch[_HEADER_BYTES:], count, facts) < 0
        or facts[_MISNUMBERED] >= 0
        or (facts[_NULL_KEYS] > 0 and not takes_null_keys)
    ):
        return 0
    most = facts[_MOST_DELTA]
    if most > _INT64_MAX - base_ms or base_ms + most != max_ms or max_ms > most_ms or max_ms < -1:
        return 0
    return 1 if base_ms + facts[_LEAST_DELTA] >= least_ms else 0


@kernel(I64(BYTES_OUT, I64, I64), keeps_gil=True)
def number_batches(batches: Bytes, offset: int, leader_epoch: int) -> int:
    """Write base offsets from `offset` on, and the epoch, into whole batches back to back.

    Both lie outside the CRC. The result is the offset after the last one.
    """
    position = 0
    while position < len(batches):
        store_i64be(batches, position, offset)
        store_i32be(batches, position + 12, leader_epoch)
        offset += load_i32be(batches, position + 23) + 1
        position += load_i32be(batches, position + 8) + _OVERHEAD
    return offset
