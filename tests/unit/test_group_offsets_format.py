"""Goal: commits of groups are Kafka's records to the byte, and other records are left alone.
Method: bytes that Kafka 4.1's own classes wrote, round trips, and every truncation.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.disk.group_offsets import (
    CommittedOffset,
    GroupPartition,
    MalformedGroupRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    partition_of_group,
    text_fault,
)
from kafkalog.format.integers import FormatError

# From Kafka's generated classes: tests/oracle/GroupRecords.java encode.
KEY = GroupPartition("grüße", "orders", 7)
KEY_V0 = bytes.fromhex("000000076772c3bcc39f6500066f726465727300000007")
KEY_V1 = bytes.fromhex("000100076772c3bcc39f6500066f726465727300000007")
VALUES = {
    0: "0000000000000000002a00046de2889a0000018bcfe56800",
    1: "0001000000000000002a00046de2889a0000018bcfe568000000018bcfed0920",
    2: "0002000000000000002a00046de2889a0000018bcfe56800",
    3: "0003000000000000002a0000000500046de2889a0000018bcfe56800",
    4: "0004000000000000002a00000005056de2889a0000018bcfe56800"
    "01001000000000000000010000000000000002",
}
PLAIN = CommittedOffset(42, "m√", 1_700_000_000_000)
WITH_EPOCH = CommittedOffset(42, "m√", 1_700_000_000_000, 5)
EXPIRING = CommittedOffset(42, "m√", 1_700_000_000_000, -1, 1_700_000_500_000)
READ_AS = {0: PLAIN, 1: EXPIRING, 2: PLAIN, 3: WITH_EPOCH, 4: WITH_EPOCH}

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def test_keys_are_those_of_kafka() -> None:
    """Version 1 is written, both versions are read."""
    assert encode_key(KEY) == KEY_V1
    assert decode_key(KEY_V1) == KEY
    assert decode_key(KEY_V0) == KEY


def test_values_are_those_of_kafka() -> None:
    """Every version is read; version 3 is written, 1 when a commit brings its own expiry."""
    for version, text in VALUES.items():
        assert decode_value(bytes.fromhex(text)) == READ_AS[version]
    assert encode_value(WITH_EPOCH) == bytes.fromhex(VALUES[3])
    assert encode_value(EXPIRING) == bytes.fromhex(VALUES[1])


def test_other_keys_are_nobody_elses_business() -> None:
    """Group metadata (2) and the newer protocols' keys are told apart by version alone."""
    for version in (2, 3, 10, 23, 32767, -1):
        assert decode_key(version.to_bytes(2, "big", signed=True) + b"anything") is None


def test_the_partition_of_a_group_is_javas() -> None:
    """Commits land where Kafka looks for them."""
    assert partition_of_group("grüße", 50) == 23
    assert partition_of_group("", 50) == 0
    assert partition_of_group("a", 50) == 97 % 50
    # "polygenelubricants".hashCode() is the smallest integer, which has no absolute value.
    assert partition_of_group("polygenelubricants", 50) == 0
    assert partition_of_group("\U0001f600", 1 << 40) == 31 * 0xD83D + 0xDE00


@given(TEXT, TEXT, INT32, INT64, TEXT, INT64, INT32, INT64)
def test_what_is_written_is_read(
    group: str,
    topic: str,
    partition: int,
    offset: int,
    metadata: str,
    at: int,
    epoch: int,
    end: int,
) -> None:
    """Nothing is lost on the way through the log."""
    key = GroupPartition(group, topic, partition)
    assert decode_key(encode_key(key)) == key
    value = CommittedOffset(offset, metadata, at, epoch if end == -1 else -1, end)
    assert decode_value(encode_value(value)) == value


@pytest.mark.parametrize("version", sorted(VALUES))
def test_damage_is_an_error_of_its_own(version: int) -> None:
    """A record that is cut off never becomes an offset."""
    whole = bytes.fromhex(VALUES[version])
    for size in range(len(whole)):
        with pytest.raises(FormatError):
            decode_value(whole[:size])
    for size in range(len(KEY_V1)):
        with pytest.raises(MalformedGroupRecord):
            decode_key(KEY_V1[:size])
    for bad in (b"\0\1\xff\xff", b"\0\1\0\1\xff\0\1t\0\0\0\0"):
        with pytest.raises(MalformedGroupRecord):
            decode_key(bad)
    for wrong in (5, -1):
        with pytest.raises(MalformedGroupRecord):
            decode_value(wrong.to_bytes(2, "big", signed=True) + whole[2:])


def test_texts_that_no_record_can_hold() -> None:
    """A name is refused before it is written."""
    assert text_fault("ä" * 16_383 + "x") is None
    assert text_fault("ä" * 16_384) == "has 32768 bytes, more than 32767"
    assert text_fault("\ud800") == "is not valid Unicode"
