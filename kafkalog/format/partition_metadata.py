"""`partition.metadata`: the topic id that ties a directory to one life of its topic.

Pure functions. Source: Kafka's `PartitionMetadata`, log-format.md 11. The file is exactly
``version: 0``, newline, ``topic_id: <22 characters>``, without a newline at the end (43 bytes).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkalog.format.format_error import FormatError
from kafkalog.format.topic_id import ZERO_ID, decode_id, encode_id

if TYPE_CHECKING:
    from uuid import UUID

VERSION = 0

_LINES = re.compile(
    r"version:[ \t\f\v]+(?P<version>[0-9]{1,10})(?:\r\n|\r|\n)"
    r"topic_id:[ \t\f\v]+(?P<topic_id>[^\s:]+)[ \t\f\v]*(?:\r\n|\r|\n)?",
    re.ASCII,
)


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """The whole file."""
    assert topic_id != ZERO_ID
    return f"version: {VERSION}\ntopic_id: {encode_id(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> UUID:
    """The topic id; any version from 0 on is accepted. FormatError for all else and the zero id."""
    try:
        match = _LINES.fullmatch(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FormatError("The partition metadata is not UTF-8", error.start) from error
    if match is None:
        raise FormatError(f"Malformed partition metadata: {data[:100]!r}")
    topic_id = decode_id(match["topic_id"])
    if topic_id == ZERO_ID:
        raise FormatError(f"Invalid topic ID in partition metadata: {encode_id(topic_id)}")
    return topic_id
