"""Goal: producer snapshots are Kafka's to the byte and damage is always seen.
Method: the published file, every truncation and every flipped bit of it, round trips.
"""

from __future__ import annotations

import struct

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.disk.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)
from kafkalog.format.integers import FormatError

GOLDEN = bytes.fromhex(
    "000175fdd5b40000000200000000000000070002"
    "0000000c000000000000000f000000020000018bcfe568c800000004ffffffffffffffff"
    "00000000000000080000ffffffffffffffffffffffff000000000000018bcfe568c9ffffffff0000000000000014"
)
ENTRIES = [
    ProducerSnapshotEntry(7, 2, 12, 15, 2, 1700000000200, 4, -1),
    ProducerSnapshotEntry(8, 0, -1, -1, 0, 1700000000201, -1, 20),
]
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def test_the_published_snapshot() -> None:
    """M25: pid 7 with a batch and a marker, pid 8 with an open transaction only."""
    assert encode_snapshot(ENTRIES) == GOLDEN
    assert decode_snapshot(GOLDEN) == ENTRIES


def test_an_empty_snapshot_has_ten_bytes() -> None:
    """M02: no producers, ten bytes."""
    data = encode_snapshot([])
    assert len(data) == 10
    assert decode_snapshot(data) == []


@given(
    st.lists(
        st.builds(ProducerSnapshotEntry, INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64),
        max_size=20,
    )
)
def test_snapshots_round_trip(entries: list[ProducerSnapshotEntry]) -> None:
    assert decode_snapshot(encode_snapshot(entries)) == entries


def test_every_truncation_is_refused() -> None:
    for length in range(len(GOLDEN)):
        with pytest.raises(FormatError):
            decode_snapshot(GOLDEN[:length])


def test_every_flipped_bit_is_seen() -> None:
    for bit in range(len(GOLDEN) * 8):
        damaged = bytearray(GOLDEN)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            decode_snapshot(bytes(damaged))


def test_a_wrong_count_under_a_good_crc_is_refused() -> None:
    for count in (-1, 1, 3):
        checked = struct.pack(">i", count) + GOLDEN[10:]
        data = struct.pack(">hI", 1, crc32c.crc32c(checked)) + checked
        with pytest.raises(FormatError, match="do not hold"):
            decode_snapshot(data)


def test_kafka_words_for_damage() -> None:
    with pytest.raises(
        FormatError, match="validation: Snapshot contained an unknown file version 2"
    ):
        decode_snapshot(b"\x00\x02" + GOLDEN[2:])
    with pytest.raises(FormatError, match=r"CRC is no longer valid.*Stored crc: 1979569588"):
        decode_snapshot(GOLDEN[:-1] + b"\x15")
