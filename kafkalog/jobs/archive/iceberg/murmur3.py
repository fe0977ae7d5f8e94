"""Iceberg's hash of whole columns: Murmur3, 32 bits of x86, seed 0.

Rows are hashed side by side, block by block; values that would need very many blocks one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint32]
    Sizes = NDArray[np.int64]

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_LONG_BYTES = 4096


def murmur3(column: pa.Array) -> Words:
    """The hash of each value; that of null has no meaning. Whole numbers are hashed as 64 bits."""
    if pa.types.is_integer(column.type):
        numbers = column.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
        blocks = np.ascontiguousarray(numbers).view(np.uint32).reshape(-1, 2)
        hashes = np.zeros(len(numbers), np.uint32)
        for at in range(2):
            hashes = _mixed(hashes, blocks[:, at])
        return _finished(hashes, np.full(len(numbers), 8))
    values = column.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[values.offset :][: len(values) + 1]
    # Three bytes more, so that the last block of any value can be read.
    data = np.zeros(int(offsets[-1] - offsets[0]) + 4, np.uint8)
    if data_buffer is not None:
        used = np.frombuffer(data_buffer, np.uint8)[int(offsets[0]) : int(offsets[-1])]
        data[: len(used)] = used
    begins = offsets[:-1] - offsets[0]
    sizes = np.diff(offsets)
    is_long = sizes > _LONG_BYTES
    hashes = _hashed(data, begins, np.where(is_long, 0, sizes))
    for at in np.flatnonzero(is_long).tolist():
        hashes[at] = _hash_of_one(data[begins[at] : begins[at] + sizes[at]].tobytes())
    return hashes


def _hash_of_one(value: bytes) -> int:
    import mmh3  # of pyiceberg

    return int(mmh3.hash(value, signed=False))


def _hashed(data: NDArray[np.uint8], begins: Sizes, sizes: Sizes) -> Words:
    """The hashes of values at these places of ``data``."""
    hashes = np.zeros(len(sizes), np.uint32)
    blocks = sizes // 4
    for at in range(int(blocks.max(initial=0))):
        rows = np.flatnonzero(blocks > at)
        hashes[rows] = _mixed(hashes[rows], _words(data, begins[rows] + 4 * at))
    rows = np.flatnonzero(sizes % 4)
    if len(rows):
        kept = (np.uint32(1) << (8 * (sizes[rows] % 4)).astype(np.uint32)) - np.uint32(1)
        hashes[rows] ^= _scrambled(_words(data, (begins + 4 * blocks)[rows]) & kept)
    return _finished(hashes, sizes)


def _words(data: NDArray[np.uint8], at: Sizes) -> Words:
    """Four bytes from each place on, the first one the lowest."""
    words = data[at].astype(np.uint32)
    for byte in (1, 2, 3):
        words |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return words


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def _scrambled(words: Words) -> Words:
    return _rotated(words * _C1, 15) * _C2


def _mixed(hashes: Words, words: Words) -> Words:
    return _rotated(hashes ^ _scrambled(words), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(hashes: Words, sizes: NDArray[Any]) -> Words:
    hashes = hashes ^ sizes.astype(np.uint32)
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))
