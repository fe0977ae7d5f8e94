"""The partition of each key as Kafka's clients choose it.

Owns murmur2 with Java's seed and the step from hash to partition. Null keys get -1: where they go
is the caller's policy (sticky per request). Any thread.
Source: Kafka 4.1 `Utils.murmur2`, `BuiltInPartitioner.partitionForKey`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from kafkalog.kernels.compile import BYTES, I64, I64S, I64S_OUT, inlined, kernel

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Bytes, Int64s

as_int = cast("type[int]", np.int64)  # an uint8 would stay unsigned under int()

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF


@inlined
def _murmur2(data: Bytes, position: int, length: int) -> int:
    """32-bit hash as an unsigned number; products of two 32-bit numbers stay below 2^63."""
    hashed = as_int((_SEED ^ length) & _MASK)
    end = position + length
    while end - position >= 4:
        word = (
            as_int(data[position])
            | as_int(data[position + 1]) << 8
            | as_int(data[position + 2]) << 16
            | as_int(data[position + 3]) << 24
        )
        word = (word * _MULTIPLIER) & _MASK
        word ^= word >> _SHIFT
        word = (word * _MULTIPLIER) & _MASK
        hashed = ((hashed * _MULTIPLIER) & _MASK) ^ word
        position += 4
    rest = end - position
    if rest >= 3:
        hashed ^= as_int(data[position + 2]) << 16
    if rest >= 2:
        hashed ^= as_int(data[position + 1]) << 8
    if rest >= 1:
        hashed ^= as_int(data[position])
        hashed = (hashed * _MULTIPLIER) & _MASK
    hashed ^= hashed >> 13
    hashed = (hashed * _MULTIPLIER) & _MASK
    return hashed ^ (hashed >> 15)


@kernel(I64(BYTES, I64S, I64, I64S_OUT))
def partition_keys(keys: Bytes, lengths: Int64s, partition_count: int, out: Int64s) -> int:
    """Fill `out` with the partition of each key; return how many keys are null.

    keys             uint8[]    keys back to back
    lengths          int64[n]   bytes of each key, -1 for null; their sum is within keys
    partition_count             at least 1
    out              int64[n]   0 <= partition < partition_count, -1 for a null key
    """
    position = 0
    nulls = 0
    for index in range(len(lengths)):
        length = lengths[index]
        if length < 0:
            out[index] = -1
            nulls += 1
        else:
            positive = _murmur2(keys, position, length) & 0x7FFFFFFF
            out[index] = positive % partition_count
            position += length
    return nulls
