"""Goal: partition.metadata, meta.properties and the clean shutdown marker are Kafka's.
Method: exact published bytes, tolerated and refused variants, round trips.
"""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.disk.file_names import encode_clean_shutdown
from kafkalog.format.disk.properties import (
    MetaProperties,
    decode_meta_properties,
    decode_partition_metadata,
    encode_meta_properties,
    encode_partition_metadata,
)
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import decode_id, encode_id

TOPIC_ID = decode_id("a2Fma2Fsb2dPcmFjbGUwMQ")


def test_partition_metadata_has_43_bytes() -> None:
    """M02: two lines, no newline at the end."""
    data = encode_partition_metadata(TOPIC_ID)
    assert data == b"version: 0\ntopic_id: a2Fma2Fsb2dPcmFjbGUwMQ"
    assert len(data) == 43
    assert decode_partition_metadata(data) == TOPIC_ID


@given(st.uuids().filter(lambda value: value.int > 0))
def test_partition_metadata_round_trips(value: UUID) -> None:
    assert decode_partition_metadata(encode_partition_metadata(value)) == value


def test_partition_metadata_of_a_later_version_is_accepted() -> None:
    data = b"version: 3\r\ntopic_id:  a2Fma2Fsb2dPcmFjbGUwMQ\r\n"
    assert decode_partition_metadata(data) == TOPIC_ID


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0",
        b"version: 0\n",
        b"version: -1\ntopic_id: a2Fma2Fsb2dPcmFjbGUwMQ",
        b"version: x\ntopic_id: a2Fma2Fsb2dPcmFjbGUwMQ",
        b"version:0\ntopic_id: a2Fma2Fsb2dPcmFjbGUwMQ",
        b"version: 0\ntopic_id: a2Fma2Fsb2dPcmFjbGUwM",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: a2Fma2Fsb2dPcmFjbGUwMQ\nmore: x",
        b"\xff",
        bytes(43),
    ],
)
def test_damaged_partition_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_partition_metadata(data)


def test_meta_properties_as_written() -> None:
    meta = MetaProperties("a2Fma2Fsb2dPcmFjbGUwMQ", 1, UUID(int=1 << 100))
    data = encode_meta_properties(meta, written_at_ms=1700000000123)
    assert data.decode().splitlines() == [
        "#",
        "#Tue Nov 14 22:13:20 UTC 2023",
        "cluster.id=a2Fma2Fsb2dPcmFjbGUwMQ",
        f"directory.id={encode_id(UUID(int=1 << 100))}",
        "node.id=1",
        "version=1",
    ]
    assert decode_meta_properties(data) == meta


def test_meta_properties_of_older_brokers() -> None:
    zookeeper = decode_meta_properties(b"version=0\nbroker.id=3\ncluster.id=x\n")
    assert zookeeper == MetaProperties("x", 3, None, version=0)
    assert decode_meta_properties(b"version=1\nnode.id=3\n") == MetaProperties(None, 3, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("node.id=1", "no version"),
        ("version=2", "Unknown meta.properties version number 2"),
        ("version=one", "no number"),
        ("version=1\nnode.id=x", "no number"),
        ("version=1\nnode.id=2147483648", "no number"),
        ("version=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA", "reserved"),
        ("version=1\ndirectory.id=zzz", "base64url"),
    ],
)
def test_damaged_meta_properties_are_refused(text: str, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        decode_meta_properties(text.encode())


def test_clean_shutdown_content() -> None:
    assert encode_clean_shutdown() == b'{"version":0,"brokerEpoch":-1}'
