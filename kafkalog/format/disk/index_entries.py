"""Entries of the three indexes, one at a time and as tables.

Owns their byte layout. Pure functions. Offsets are relative to the segment in the offset and time
index and absolute in the transaction index. Source: Kafka's `OffsetIndex`, `TimeIndex`,
`AbortedTxn`.

    offset index  int32 relative offset, int32 position                                    8 bytes
    time index    int64 timestamp, int32 relative offset                                  12 bytes
    transactions  int16 version 0, int64 producer id, int64 first, int64 last offset,
                  int64 last stable offset                                                34 bytes

Tables are int64, a row an entry, a column a field in the order above (transactions without their
version). Reading a table ignores an incomplete entry at the end, as Kafka does.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.format.integers import FormatError

if TYPE_CHECKING:
    import numpy.typing as npt

    Table = npt.NDArray[np.int64]

OFFSET_ENTRY = struct.Struct(">ii")  # relative offset, position: 31 bits (the index checked)
TIME_ENTRY = struct.Struct(">qi")  # timestamp in ms, relative offset
ABORTED_ENTRY = struct.Struct(">hqqqq")
ABORTED_VERSION = 0

_OFFSET_DTYPE = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
_TIME_DTYPE = np.dtype([("timestamp_ms", ">i8"), ("relative_offset", ">i4")])
_ABORTED_DTYPE = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)

assert OFFSET_ENTRY.size == _OFFSET_DTYPE.itemsize == 8
assert TIME_ENTRY.size == _TIME_DTYPE.itemsize == 12
assert ABORTED_ENTRY.size == _ABORTED_DTYPE.itemsize == 34


def pack_aborted_entry(
    producer_id: int, first_offset: int, last_offset: int, last_stable_offset: int
) -> bytes:
    """One transaction index entry; last_offset is the abort marker's."""
    return ABORTED_ENTRY.pack(
        ABORTED_VERSION, producer_id, first_offset, last_offset, last_stable_offset
    )


def pack_offset_entries(entries: Table) -> bytes:
    """Bytes of an int64[n, 2] table of relative offset and position."""
    return _pack(entries, _OFFSET_DTYPE)


def unpack_offset_entries(data: bytes | bytearray | memoryview) -> Table:
    """int64[n, 2]: relative offset, position."""
    return _unpack(data, _OFFSET_DTYPE)


def pack_time_entries(entries: Table) -> bytes:
    """Bytes of an int64[n, 2] table of timestamp and relative offset."""
    return _pack(entries, _TIME_DTYPE)


def unpack_time_entries(data: bytes | bytearray | memoryview) -> Table:
    """int64[n, 2]: timestamp in ms, relative offset."""
    return _unpack(data, _TIME_DTYPE)


def unpack_aborted_entries(data: bytes | bytearray | memoryview) -> Table:
    """int64[n, 4]: producer id, first, last, last stable offset.

    Raises FormatError at the first entry of a version above 0.
    """
    table = _unpack(data, _ABORTED_DTYPE)
    newer = np.flatnonzero(table[:, 0] > ABORTED_VERSION)
    if len(newer):
        slot = int(newer[0])
        raise FormatError(
            f"Unexpected aborted transaction version {table[slot, 0]}, "
            f"current version is {ABORTED_VERSION}",
            slot * ABORTED_ENTRY.size,
        )
    return np.ascontiguousarray(table[:, 1:])


def _pack(entries: Table, dtype: np.dtype[np.void]) -> bytes:
    packed = np.empty(len(entries), dtype=dtype)
    assert dtype.names is not None
    for column, name in enumerate(dtype.names):
        packed[name] = entries[:, column]
    return packed.tobytes()


def _unpack(data: bytes | bytearray | memoryview, dtype: np.dtype[np.void]) -> Table:
    packed = np.frombuffer(data, dtype=dtype, count=len(data) // dtype.itemsize)
    assert dtype.names is not None
    table = np.empty((len(packed), len(dtype.names)), dtype=np.int64)
    for column, name in enumerate(dtype.names):
        table[:, column] = packed[name]
    return table
