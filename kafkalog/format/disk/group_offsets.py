"""Records of ``__consumer_offsets`` that hold the committed offset of a group in a partition.

Owns the bytes of Kafka's OffsetCommitKey (versions 0 and 1) and OffsetCommitValue (0 to 4), and the
rule that assigns a group to a partition of the topic. Other keys (2 is group metadata, 3 and above
are the newer protocols') are Kafka's: they are recognised by their version and kept unchanged.
Pure functions; any thread. Source: Kafka 4.1 ``OffsetCommitKey.json``,
``OffsetCommitValue.json``, ``GroupCoordinatorService.partitionFor``.

    key    int16 version, string group, string topic, int32 partition
    value  int16 version, int64 offset, [3+] int32 leader epoch, string metadata,
           int64 commit timestamp, [1 alone] int64 expire timestamp, [4] tagged fields

A string is its length as an int16 and UTF-8; from value version 4 on an unsigned varint of the
length + 1. The only tagged field of version 4, tag 0, is the topic's id.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kafkalog.format.control_characters import CONTROL_CHARACTERS
from kafkalog.format.field_reader import INT16, INT32, INT64, Buffer, FieldReader, encode_text
from kafkalog.format.integers import INT16_MAX, FormatError

NO_EXPIRY = -1
NO_LEADER_EPOCH = -1
KEY_VERSION = 1
VALUE_VERSION = 3
"""What Kafka 4.1 writes, unless a commit has its own expiry (1)."""

_OFFSET_KEY_VERSIONS = (0, 1)
_VALUE_VERSIONS = range(5)
_EXPIRING_VERSION = 1
_FLEXIBLE_VERSION = 4
_JAVA_INT_MIN = -(1 << 31)


@dataclass(frozen=True, slots=True, order=True)
class GroupPartition:
    """A partition as one group reads it: the key of a commit."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset that the group wants, -1 epochs and expiry where none was given; times ms."""

    offset: int
    metadata: str
    commit_timestamp_ms: int
    leader_epoch: int = NO_LEADER_EPOCH
    expire_timestamp_ms: int = NO_EXPIRY


class MalformedGroupRecord(FormatError):
    """A key or value is cut off, of an unknown version, or holds no UTF-8."""


def encode_key(key: GroupPartition) -> bytes:
    """Version 1. Texts have at most 32,767 bytes (``text_fault``)."""
    return b"".join(
        (
            INT16.pack(KEY_VERSION),
            encode_text(key.group),
            encode_text(key.topic),
            INT32.pack(key.partition),
        )
    )


def decode_key(data: Buffer) -> GroupPartition | None:
    """The key of a commit; None for Kafka's other keys. MalformedGroupRecord."""
    reader = FieldReader(data, MalformedGroupRecord)
    if reader.number(INT16) not in _OFFSET_KEY_VERSIONS:
        return None
    return GroupPartition(reader.text(), reader.text(), reader.number(INT32))


def encode_value(value: CommittedOffset) -> bytes:
    """Version 3, or 1 when the commit has its own expiry (which drops the leader epoch)."""
    offset, commit_timestamp = INT64.pack(value.offset), INT64.pack(value.commit_timestamp_ms)
    metadata = encode_text(value.metadata)
    if value.expire_timestamp_ms != NO_EXPIRY:
        expiry = INT64.pack(value.expire_timestamp_ms)
        return INT16.pack(_EXPIRING_VERSION) + offset + metadata + commit_timestamp + expiry
    epoch = INT32.pack(value.leader_epoch)
    return INT16.pack(VALUE_VERSION) + offset + epoch + metadata + commit_timestamp


def decode_value(data: Buffer) -> CommittedOffset:
    """Any version that Kafka 4.1 reads; bytes after the last field are ignored, as in Kafka."""
    reader = FieldReader(data, MalformedGroupRecord)
    version = reader.number(INT16)
    if version not in _VALUE_VERSIONS:
        raise MalformedGroupRecord(f"offset commit value of version {version}")
    offset = reader.number(INT64)
    has_epoch = version >= VALUE_VERSION
    leader_epoch = reader.number(INT32) if has_epoch else NO_LEADER_EPOCH
    is_flexible = version >= _FLEXIBLE_VERSION
    metadata = reader.compact_text() if is_flexible else reader.text()
    commit_timestamp = reader.number(INT64)
    expiry = reader.number(INT64) if version == _EXPIRING_VERSION else NO_EXPIRY
    if is_flexible:
        reader.skip_tagged_fields()
    return CommittedOffset(offset, metadata, commit_timestamp, leader_epoch, expiry)


def partition_of_group(group: str, partition_count: int) -> int:
    """The partition of a group: Java's ``hashCode`` of its id, absolute, modulo the count."""
    number = _java_hash(group)
    # Kafka's ``Utils.abs``: the smallest integer, which has no absolute, gives 0.
    return 0 if number == _JAVA_INT_MIN else abs(number) % partition_count


def text_fault(text: str) -> str | None:
    """Why a key or value cannot contain the text; None when it can."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    return f"has {size} bytes, more than {INT16_MAX}" if size > INT16_MAX else None


def name_fault(name: str) -> str | None:
    """Why a group or a member of it may not be called so; None when it may.

    Kafka takes any text. Differs: nothing that moves a line where the name is shown.
    """
    if not name:
        return "is empty"
    if CONTROL_CHARACTERS.search(name):
        return "has a control character"
    return text_fault(name)


def _java_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
