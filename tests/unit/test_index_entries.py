"""Goal: index entries are Kafka's to the byte, single and in bulk.
Method: the published entry, single against bulk, round trips, refused versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.disk import index_entries
from kafkalog.format.integers import FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def table(
    rows: Sequence[tuple[int, ...]], width: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(rows, dtype=np.int64).reshape(-1, width)


def test_the_published_aborted_transaction() -> None:
    """M26: pid 7, first 15, marker 16, last stable offset 17."""
    golden = bytes.fromhex("00000000000000000007000000000000000f00000000000000100000000000000011")
    assert index_entries.pack_aborted_entry(7, 15, 16, 17) == golden
    assert index_entries.unpack_aborted_entries(golden).tolist() == [[7, 15, 16, 17]]


def test_layouts() -> None:
    assert index_entries.pack_offset_entry(28, 4169).hex() == "0000001c00001049"
    assert index_entries.pack_time_entry(1638100314372, 28).hex() == "0000017d666329040000001c"


@given(st.lists(st.tuples(INT32, INT32), max_size=50))
def test_offset_entries_round_trip(rows: list[tuple[int, int]]) -> None:
    data = index_entries.pack_offset_entries(table(rows, 2))
    assert data == b"".join(index_entries.pack_offset_entry(*row) for row in rows)
    assert index_entries.unpack_offset_entries(data).tolist() == [list(row) for row in rows]


@given(st.lists(st.tuples(INT64, INT32), max_size=50))
def test_time_entries_round_trip(rows: list[tuple[int, int]]) -> None:
    data = index_entries.pack_time_entries(table(rows, 2))
    assert data == b"".join(index_entries.pack_time_entry(*row) for row in rows)
    assert index_entries.unpack_time_entries(data).tolist() == [list(row) for row in rows]


@given(st.lists(st.tuples(INT64, INT64, INT64, INT64), max_size=50), st.binary(max_size=33))
def test_aborted_entries_round_trip_and_a_rest_is_ignored(
    rows: list[tuple[int, int, int, int]], rest: bytes
) -> None:
    data = b"".join(index_entries.pack_aborted_entry(*row) for row in rows)
    unpacked = index_entries.unpack_aborted_entries(data + rest)
    assert unpacked.tolist() == [list(row) for row in rows]
    assert unpacked.flags.c_contiguous


def test_a_newer_version_is_refused_at_its_byte() -> None:
    data = index_entries.pack_aborted_entry(1, 2, 3, 4)
    newer = b"\x00\x01" + data[2:]
    with pytest.raises(FormatError, match="version 1") as caught:
        index_entries.unpack_aborted_entries(data + newer)
    assert caught.value.position == 34


def test_nothing_unpacks_to_nothing() -> None:
    assert index_entries.unpack_offset_entries(b"").shape == (0, 2)
    assert index_entries.unpack_time_entries(b"\x00" * 11).shape == (0, 2)
    assert index_entries.unpack_aborted_entries(b"").shape == (0, 4)
