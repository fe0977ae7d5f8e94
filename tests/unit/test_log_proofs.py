"""Goal: ``kafkalog.checkpoint`` says what was written into it, or nothing.
Method: one file by hand, round trips, every bit flipped, every cut, lines that no version writes.
"""

from __future__ import annotations

from uuid import UUID

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.disk.log_proofs import (
    CheckedOffsets,
    LogKey,
    NewerProofsFormat,
    decode_proofs,
    encode_proofs,
)
from kafkalog.format.integers import INT32_MAX, INT64_MAX, FormatError
from kafkalog.format.topic_names import encode_id

DIRECTORY = UUID(int=2**127 + 5)
TOPIC = encode_id(UUID(int=2**126 + 9))
OFFSETS = st.integers(0, INT64_MAX)
LOSSES = st.lists(st.tuples(OFFSETS, OFFSETS).map(sorted).map(tuple), max_size=3).map(tuple)
ENTRIES = st.builds(
    CheckedOffsets,
    log_start_offset=OFFSETS,
    recovery_point=OFFSETS,
    first_dirty_offset=st.none() | OFFSETS,
    end_offset=st.none() | OFFSETS,
    is_gapless=st.booleans(),
    accepted_losses=LOSSES,
)
KEYS = st.builds(LogKey, st.uuids(version=4).map(encode_id), st.integers(0, INT32_MAX))

EXAMPLE = {
    LogKey(TOPIC, 0): CheckedOffsets(9, 40, is_gapless=True),
    LogKey(TOPIC, 1): CheckedOffsets(0, 7, 5, 7, accepted_losses=((1, 2), (4, 4))),
}


def signed(content: bytes) -> bytes:
    return content + b"crc32c %08x\n" % crc32c(content)


def test_a_file_by_hand() -> None:
    """The layout of format 1."""
    content = (
        f"kafkalog.checkpoint 1\ndirectory {encode_id(DIRECTORY)}\n"
        f"{TOPIC} 0 9 40 - - 1 -\n{TOPIC} 1 0 7 5 7 0 1-2,4-4\n"
    )
    assert encode_proofs(DIRECTORY, EXAMPLE) == signed(content.encode())


@given(entries=st.dictionaries(KEYS, ENTRIES, max_size=5), directory=st.uuids())
def test_round_trip(entries: dict[LogKey, CheckedOffsets], directory: UUID) -> None:
    assert decode_proofs(encode_proofs(directory, entries)) == (directory, entries)


def test_every_flipped_bit_and_every_cut_is_refused() -> None:
    data = encode_proofs(DIRECTORY, EXAMPLE)
    for position in range(len(data)):
        damaged = [data[:position]]
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            damaged.append(bytes(flipped))
        for each in damaged:
            with pytest.raises(FormatError):
                decode_proofs(each)
    with pytest.raises(FormatError):
        decode_proofs(data + b"\n")


def test_a_newer_format_is_named() -> None:
    data = signed(b"kafkalog.checkpoint 2\nwhatever it is\n")
    with pytest.raises(NewerProofsFormat, match="format 2; this version knows up to 1"):
        decode_proofs(data)


@pytest.mark.parametrize(
    "line",
    [
        "",
        f"{TOPIC} 0 9 40 - - 1",
        f"{TOPIC} 0 9 40 - - 2 -",
        f"{TOPIC} 0 -9 40 - - 1 -",
        f"{TOPIC} 0 09 40 - - 1 -",
        f"{TOPIC} 0 9 40 - - 1 2-1",
        f"{TOPIC} 0 9 40 - - 1 1-2,",
        f"{TOPIC} {INT32_MAX + 1} 9 40 - - 1 -",
        f"{TOPIC} 0 {INT64_MAX + 1} 40 - - 1 -",
        f"{TOPIC[1:]} 0 9 40 - - 1 -",
        f"{TOPIC} 0 9 40 - - 1 -\x0b",
    ],
)
def test_a_line_that_no_version_writes(line: str) -> None:
    """Under a right checksum: a defect, not rot, and not believed either."""
    content = f"kafkalog.checkpoint 1\ndirectory {encode_id(DIRECTORY)}\n{line}\n"
    with pytest.raises(FormatError, match="line"):
        decode_proofs(signed(content.encode()))


@pytest.mark.parametrize(
    "content", [b"", b"kafkalog.checkpoint 1\n", b"kafkalog.checkpoint 1\nx\n"]
)
def test_a_head_that_no_version_writes(content: bytes) -> None:
    with pytest.raises(FormatError):
        decode_proofs(signed(content))
