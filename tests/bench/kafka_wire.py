"""Kafka's protocol as far as the load client needs it: requests as bytes, lengths of answers.

Produce v3 and Fetch v4 are the oldest versions that Kafka 4 takes. Layout of a request: size,
API key, version, correlation id, client id (a string has two bytes of length), then the body. Every
request names one partition. Source: Kafka's protocol guide, and KIP-896 for the versions.
"""

from __future__ import annotations

import struct

_PRODUCE = (0, 3)
_FETCH = (1, 4)
_CLIENT_ID = b"bench"
_TIMEOUT_MS = 30_000
_NO_STRING = -1
_NO_REPLICA = -1
# What follows the topic's name in an answer, up to the last field that is checked.
_PRODUCED = struct.Struct(">iih")  # partitions, partition, error code
# ..., high watermark, last stable offset, aborted transactions, bytes of records
_FETCHED = struct.Struct(">iihqqii")
_ERROR_CODE = 2


def produce_request(topic: str, records: bytes, *, acks: int = 1, partition: int = 0) -> bytes:
    """Append record batches as they are."""
    head = struct.pack(">hhii", _NO_STRING, acks, _TIMEOUT_MS, 1) + _string(topic.encode())
    return _request(*_PRODUCE, head + struct.pack(">iii", 1, partition, len(records)) + records)


def fetch_request(topic: str, offset: int, *, max_bytes: int, partition: int = 0) -> bytes:
    """Records from ``offset``, uncommitted ones too; does not wait for more than are there."""
    head = struct.pack(">iiiibi", _NO_REPLICA, 0, 1, max_bytes, 0, 1) + _string(topic.encode())
    return _request(*_FETCH, head + struct.pack(">iiqi", 1, partition, offset, max_bytes))


def produced_length(head: bytes) -> int:
    """Bytes of the answer to Produce that begins with ``head``; 0 while too few of them are there.

    Raises AssertionError for an error code.
    """
    return _length(head, 12, _PRODUCED)  # behind size, correlation id, topics


def fetched_length(head: bytes) -> int:
    """As `produced_length`, of an answer to Fetch; one without records is an error too."""
    return _length(head, 16, _FETCHED)  # behind size, correlation id, throttle time, topics


def _request(api_key: int, version: int, body: bytes) -> bytes:
    whole = struct.pack(">hhi", api_key, version, 0) + _string(_CLIENT_ID) + body
    return struct.pack(">i", len(whole)) + whole


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _length(head: bytes, name_at: int, fields: struct.Struct) -> int:
    fields_at = name_at + 2 + int.from_bytes(head[name_at : name_at + 2])
    if len(head) < max(name_at + 2, fields_at + fields.size):
        return 0
    found = fields.unpack_from(head, fields_at)
    if found[_ERROR_CODE]:
        raise AssertionError(f"Kafka answered with error code {found[_ERROR_CODE]}")
    if fields is _FETCHED and found[-1] <= 0:
        raise AssertionError("Kafka answered without records")
    return 4 + int.from_bytes(head[:4])
