"""Checkpoint files: version line, count line, one entry a line, newline after every line.

Owns the text of the four offset checkpoints of a log directory and of `leader-epoch-checkpoint`.
Never reads or writes a file. Source: Kafka's `CheckpointFile`, `OffsetCheckpointFile`,
`LeaderEpochCheckpointFile`, log-format.md 10.

Strict: a wrong version, count or line is a FormatError and nothing of the file is believed. That
start-up takes damaged recovery-point and log-start files as empty is the decision of `manager/`.
Lenient exactly where Kafka is: no bytes at all, or a version line alone, mean "no entries";
fields may be separated by any white space; of two entries for one partition the later one holds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkalog.format.format_error import FormatError
from kafkalog.format.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

VERSION = 0

_WHITE_SPACE = re.compile(r"[ \t\n\v\f\r]+")
_LINE_END = re.compile(r"\r\n|\r|\n")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT32 = 31
_INT64 = 63


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Text of an offset checkpoint: ``topic partition offset`` lines, sorted."""
    return _encode(f"{tp.topic} {tp.partition} {offsets[tp]}" for tp in sorted(offsets))


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Entries of an offset checkpoint. FormatError names the bad line."""
    offsets: dict[TopicPartition, int] = {}
    for line, (topic, partition, offset) in _decode(data, field_count=3):
        topic_partition = TopicPartition(topic, _integer(partition, line, _INT32))
        offsets[topic_partition] = _integer(offset, line, _INT64)
    return offsets


def encode_leader_epochs(epochs: Sequence[tuple[int, int]]) -> bytes:
    """Text of a leader epoch checkpoint from (epoch, start offset) pairs, in the given order."""
    return _encode(f"{epoch} {start_offset}" for epoch, start_offset in epochs)


def decode_leader_epochs(data: bytes) -> list[tuple[int, int]]:
    """(epoch, start offset) pairs in the file's order. FormatError names the bad line."""
    return [
        (_integer(epoch, line, _INT32), _integer(start_offset, line, _INT64))
        for line, (epoch, start_offset) in _decode(data, field_count=2)
    ]


def _encode(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(lines)), *lines)).encode()


def _decode(data: bytes, field_count: int) -> list[tuple[str, list[str]]]:
    """Each entry's line and its fields."""
    try:
        lines = _LINE_END.split(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FormatError("The checkpoint is not UTF-8", error.start) from error
    if not lines[-1]:
        lines.pop()
    if not lines:
        return []
    version = _integer(lines[0], lines[0], _INT32)
    if version != VERSION:
        raise FormatError(f"Unrecognized version of the checkpoint: {version}")
    if len(lines) == 1:
        return []
    expected_count = _integer(lines[1], lines[1], _INT32)
    entries: list[tuple[str, list[str]]] = []
    for line in lines[2:]:
        fields = _WHITE_SPACE.split(line)
        while fields and not fields[-1]:
            fields.pop()
        if len(fields) != field_count or not fields[0]:
            raise _malformed(line)
        entries.append((line, fields))
    if len(entries) != expected_count:
        raise FormatError(
            f"Expected {expected_count} entries in the checkpoint, but found only {len(entries)}"
        )
    return entries


def _integer(text: str, line: str, bits: int) -> int:
    """Parse as Java's parseInt and parseLong do: ASCII digits, a sign, no spaces, no overflow."""
    if not _INTEGER.fullmatch(text):
        raise _malformed(line)
    value = int(text)
    if not -(1 << bits) <= value < 1 << bits:
        raise _malformed(line)
    return value


def _malformed(line: str) -> FormatError:
    return FormatError(f"Malformed line in the checkpoint: '{line}'")
