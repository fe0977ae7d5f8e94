"""Goal: checkpoint files are written as Kafka writes them and read exactly as strictly.
Method: the published examples, a table of damaged files, round trips.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.disk.checkpoints import (
    decode_leader_epochs,
    decode_offsets,
    encode_leader_epochs,
    encode_offsets,
    salvage_offsets,
)
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import TopicPartition

INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.builds(
    TopicPartition,
    st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,19}", fullmatch=True),
    st.integers(0, 2**31 - 1),
)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NO_CHECKPOINT = "no line of this file is a checkpoint's"
NO_ENTRY = "no 'topic partition offset'"


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


@pytest.mark.parametrize("data", [b"", b"0", b"0\n", b"0\n0\n", b"0\n0", b"+0\n-0\n", b"00\r000\r"])
def test_no_entries(data: bytes) -> None:
    """M14: no bytes at all, or a version alone, are no damage; each shown by Kafka."""
    assert decode_offsets(data) == {}
    assert decode_leader_epochs(data) == []


@pytest.mark.parametrize(
    ("data", "partition", "offset"),
    [
        (b"0\n1\nt 0 5", T0, 5),
        (b"0\n1\nt \t 0\v5 \n", T0, 5),
        (b"0\n1\nt\f0\t5\t\v \n", T0, 5),
        (b"0\r\n1\r\nt 0 5\r\n", T0, 5),
        (b"0\r1\rt 0 5\r", T0, 5),
        (b"0\n1\r\nt 0 5", T0, 5),
        (b"+0\n1\nt 00 +5\n", T0, 5),
        (b"00\n01\nt -0 0000000000000000000000000000005\n", T0, 5),
        (b"0\n2\nt 0 7\nt 0 5\n", T0, 5),
        (b"0\n1\nt 2147483647 9223372036854775807\n", TopicPartition("t", 2**31 - 1), 2**63 - 1),
        (b"0\n1\nt -2147483648 -9223372036854775808\n", TopicPartition("t", -(2**31)), -(2**63)),
        (b"0\n1\n\xc3\xa4\x00 0 5\n", TopicPartition("\u00e4\x00", 0), 5),
        (b"0\n1\n 0 5\n", TopicPartition("", 0), 5),
    ],
)
def test_what_kafka_tolerates(data: bytes, partition: TopicPartition, offset: int) -> None:
    """M14: each shown by Kafka (tests/oracle/test_text_files_against_kafka.py)."""
    assert decode_offsets(data) == {partition: offset}


def malformed(line: str) -> str:
    return f"Malformed line in the checkpoint: '{line}'"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        # the version line
        (b"\n", malformed("")),
        (b"x\n0\n", malformed("x")),
        (b" 0\n0\n", malformed(" 0")),
        (b"0 \n0\n", malformed("0 ")),
        (b"\xef\xbb\xbf0\n0\n", malformed("\ufeff0")),
        (b"0x0\n0\n", malformed("0x0")),
        (b"2147483648\n0\n", malformed("2147483648")),
        (b"1\n0\n", "Unrecognized version of the checkpoint: 1"),
        (b"-1\n0\n", "Unrecognized version of the checkpoint: -1"),
        (b"1", "Unrecognized version of the checkpoint: 1"),
        (bytes(64), malformed("\x00" * 64)),
        # the count line
        (b"0\nx\n", malformed("x")),
        (b"0\n\n", malformed("")),
        (b"0\n1 \nt 0 5\n", malformed("1 ")),
        (b"0\nt 0 5\n", malformed("t 0 5")),
        (b"0\n4294967297\nt 0 5\n", malformed("4294967297")),
        (b"0\n2\nt 0 5\n", "Expected 2 entries in the checkpoint, but found only 1"),
        (b"0\n0\nt 0 5\n", "Expected 0 entries in the checkpoint, but found only 1"),
        (b"0\n-1\n", "Expected -1 entries in the checkpoint, but found only 0"),
        # entries
        (b"0\n1\n t 0 5\n", malformed(" t 0 5")),
        (b"0\n1\nt 0\n", malformed("t 0")),
        (b"0\n1\nt 0 5 6\n", malformed("t 0 5 6")),
        (b"0\n1\nt 0 5x\n", malformed("t 0 5x")),
        (b"0\n1\nt 0 5\x00\n", malformed("t 0 5\x00")),
        (b"0\n1\nt 0 1_0\n", malformed("t 0 1_0")),
        (b"0\n1\nt 0 \n", malformed("t 0 ")),
        (b"0\n1\nt\xc2\xa00 5\n", malformed("t\u00a00 5")),
        (b"0\n1\nt 2147483648 5\n", malformed("t 2147483648 5")),
        (b"0\n1\nt -2147483649 5\n", malformed("t -2147483649 5")),
        (b"0\n1\nt 0 9223372036854775808\n", malformed("t 0 9223372036854775808")),
        (b"0\n1\nt 0 -9223372036854775809\n", malformed("t 0 -9223372036854775809")),
        (b"0\n1\nt 0 " + b"9" * 5000, malformed("t 0 " + "9" * 5000)),
        # behind the last entry
        (b"0\n1\nt 0 5\n\n", malformed("")),
        (b"0\n1\nt 0 5\n ", malformed(" ")),
        (b"0\n1\nt 0 5\ngarbage", malformed("garbage")),
        (b"0\n1\nt 0 5\n\x00\x00\x00", malformed("\x00\x00\x00")),
        (b"0\n1\nt 0 5\nt 1 5\n", "Expected 1 entries in the checkpoint, but found only 2"),
        # the encoding
        (b"0\n1\n\xff 0 5\n", "The checkpoint is not UTF-8 at byte 4"),
        (b"0\n1\nt 0 5\x85\n", "The checkpoint is not UTF-8 at byte 9"),
        (b"0\n1\n\xed\xa0\x80 0 5\n", "The checkpoint is not UTF-8 at byte 4"),
    ],
)
def test_a_damaged_file_is_refused(data: bytes, reason: str) -> None:
    """M14: whole, with the line; each is refused by Kafka as well."""
    with pytest.raises(FormatError) as refusal:
        decode_offsets(data)
    assert str(refusal.value) == reason


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"0\n1\n0 0 0\n", "0 0 0"),
        (b"0\n1\n0\n", "0"),
        (b"0\n1\n 5\n", " 5"),
        (b"0\n1\n2147483648 0\n", "2147483648 0"),
        (b"0\n1\n0 9223372036854775808\n", "0 9223372036854775808"),
        (b"0\n1\n0 0x\n", "0 0x"),
        (b"0\n1\n0 0\n\x00", "\x00"),
    ],
)
def test_a_damaged_leader_epoch_file_is_refused(data: bytes, line: str) -> None:
    """M08: an epoch is an int32, an offset an int64, two fields a line."""
    with pytest.raises(FormatError) as refusal:
        decode_leader_epochs(data)
    assert str(refusal.value) == malformed(line)


def test_leader_epochs_keep_the_order_of_the_file() -> None:
    """M08: which entries contradict others is the cache's question."""
    assert decode_leader_epochs(b"0\n3\n4 9\n1 2\n4 9\n") == [(4, 9), (1, 2), (4, 9)]


@pytest.mark.parametrize(
    ("data", "offsets", "bad"),
    [
        (b"0\n2\nt 0 5\nt 1 x\n", {T0: 5}, [(4, "t 1 x", NO_ENTRY)]),
        (b"0\n3\nt 0 5\nt 1 7\n", {T0: 5, T1: 7}, [(2, "3", "2 entries follow")]),
        (b"0\n2\nt 0 5\nt 1 7", {T0: 5}, [(4, "t 1 7", "cut off")]),
        (b"0\n1\nt 0 5\nt 1", {T0: 5}, [(4, "t 1", "cut off")]),
        (b"0\n9\nt 0 5\nt 1", {T0: 5}, [(2, "9", "1 entries follow"), (4, "t 1", "cut off")]),
        (b"0\n3", {}, [(2, "3", "cut off")]),
        (b"00\n2\nt 0 5\nx\n", {T0: 5}, [(4, "x", NO_ENTRY)]),
        (b"?\n1\nt 0 5\n", {T0: 5}, [(1, "?", "no version")]),
        (b"1\n1\nt 0 5\n", {}, [(1, "1", "another version")]),
        (b"0\n2\nt 0 5\nt 0 4\n", {T0: 4}, [(4, "t 0 4", "a second entry")]),
        (b"0\n2\nt 0 4\nt 0 5\n", {T0: 4}, [(4, "t 0 5", "a second entry")]),
        (b"0\n1\nt 0 -5\n", {}, [(3, "t 0 -5", "impossible")]),
        (b"0\n1\nt -1 5\n", {}, [(3, "t -1 5", "impossible")]),
        (b"0\n1\nt/ 0 5\n", {}, [(3, "t/ 0 5", "impossible")]),
        (b"0\n1\n\xff 0 5\n", {}, [(3, "\\xff 0 5", "impossible")]),
        (b"0\n1\nt 0 " + b"9" * 5000 + b"\n", {}, [(3, "t 0 " + "9" * 5000, NO_ENTRY)]),
        (b"x", {}, [(1, "x", NO_CHECKPOINT)]),
        (b"\0" * 50, {}, [(1, "\0" * 50, NO_CHECKPOINT)]),
        (b"\x89PNG\r\n\x1a\n\0\0\nIHDR\n", {}, [(1, "\\x89PNG", NO_CHECKPOINT)]),
    ],
)
def test_the_good_lines_of_a_damaged_file(
    data: bytes, offsets: dict[TopicPartition, int], bad: list[tuple[int, str, str]]
) -> None:
    """M08: what Kafka could not have written is no entry, and every bad line is named."""
    found, lines = salvage_offsets(data)
    assert found == offsets
    assert [(line.number, line.text, line.reason) for line in lines] == bad


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1), max_size=20), st.data())
def test_one_bad_line_costs_one_entry(
    offsets: dict[TopicPartition, int], data: st.DataObject
) -> None:
    """M08: all the others are as they were."""
    lines = encode_offsets(offsets).splitlines(keepends=True)
    at = data.draw(st.integers(2, len(lines)))
    lines.insert(at, b"no entry\n")
    found, bad = salvage_offsets(b"".join(lines))
    assert found == offsets
    assert [line.number for line in bad] == [2, at + 1]


@given(st.binary(max_size=60))
def test_any_bytes_are_salvaged(data: bytes) -> None:
    """A refused file always has a bad line to tell of, and tells of no line twice."""
    try:
        decode_offsets(data)
    except FormatError:
        offsets, bad = salvage_offsets(data)
        assert bad
        numbers = [line.number for line in bad]
        assert numbers == sorted(set(numbers))
        assert all(offset >= 0 for offset in offsets.values())


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
