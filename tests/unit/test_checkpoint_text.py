"""Goal: checkpoint files are written as Kafka writes them and read exactly as strictly.
Method: the published examples, a table of damaged files, round trips.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.checkpoint_text import (
    decode_leader_epochs,
    decode_offsets,
    encode_leader_epochs,
    encode_offsets,
)
from kafkalog.format.format_error import FormatError
from kafkalog.format.topic_partition import TopicPartition

INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.builds(
    TopicPartition,
    st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True),
    st.integers(0, 2**31 - 1),
)


def test_the_published_leader_epoch_file() -> None:
    """M25: two epochs, a newline after every line."""
    data = b"0\n2\n0 0\n2 3000000\n"
    assert decode_leader_epochs(data) == [(0, 0), (2, 3000000)]
    assert encode_leader_epochs([(0, 0), (2, 3000000)]) == data


def test_an_offset_checkpoint() -> None:
    """M14: `topic partition offset`."""
    data = b"0\n2\na-b 0 5\nt 12 7\n"
    offsets = {TopicPartition("t", 12): 7, TopicPartition("a-b", 0): 5}
    assert encode_offsets(offsets) == data
    assert decode_offsets(data) == offsets
    assert encode_offsets({}) == b"0\n0\n"


@pytest.mark.parametrize("data", [b"", b"0", b"0\n", b"0\n0\n", b"0\n0"])
def test_no_entries(data: bytes) -> None:
    assert decode_offsets(data) == {}
    assert decode_leader_epochs(data) == []


@pytest.mark.parametrize(
    "data",
    [
        b"0\n1\nt 0 5",
        b"0\n1\nt \t 0\v5 \n",
        b"0\r\n1\r\nt 0 5\r\n",
        b"0\r1\rt 0 5\r",
        b"+0\n1\nt 00 +5\n",
    ],
)
def test_what_kafka_tolerates(data: bytes) -> None:
    assert decode_offsets(data) == {TopicPartition("t", 0): 5}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\n", "Malformed line"),
        (b"1\n0\n", "Unrecognized version"),
        (b"x\n0\n", "Malformed line"),
        (b"0\nx\n", "Malformed line"),
        (b"0\n\n", "Malformed line"),
        (b"0\n2\nt 0 5\n", "Expected 2 entries"),
        (b"0\n0\nt 0 5\n", "Expected 0 entries"),
        (b"0\n1\nt 0 5\n\n", "Malformed line"),
        (b"0\n1\n t 0 5\n", "Malformed line"),
        (b"0\n1\nt 0\n", "Malformed line"),
        (b"0\n1\nt 0 5 6\n", "Malformed line"),
        (b"0\n1\nt 0 5x\n", "Malformed line"),
        (b"0\n1\nt 0 1_0\n", "Malformed line"),
        (b"0\n1\nt 2147483648 5\n", "Malformed line"),
        (b"0\n1\nt 0 9223372036854775808\n", "Malformed line"),
        (bytes(64), "Malformed line"),
        (b"0\n1\n\xff 0 5\n", "not UTF-8"),
    ],
)
def test_a_damaged_file_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        decode_offsets(data)


@given(st.dictionaries(PARTITIONS, INT64, max_size=20))
def test_offsets_round_trip(offsets: dict[TopicPartition, int]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), INT64), max_size=20))
def test_leader_epochs_round_trip(epochs: list[tuple[int, int]]) -> None:
    assert decode_leader_epochs(encode_leader_epochs(epochs)) == epochs


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    try:
        decode_offsets(b"0\n1\n" + data)
    except FormatError:
        return
