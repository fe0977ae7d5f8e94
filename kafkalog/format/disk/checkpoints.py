"""Kafka's checkpoint files: a version line, a count line, one line an entry.

Owns the text of the four offset checkpoints of a log directory and of `leader-epoch-checkpoint`.
Pure functions. Source: Kafka's `CheckpointFile`, `OffsetCheckpointFile`,
`LeaderEpochCheckpointFile`.

A wrong version, count or line is a FormatError. As in Kafka an empty file and a version line alone
mean "no entries", fields may be separated by any white space, and of two entries for one partition
the later one counts. ``salvage_offsets`` reads what it can from a damaged file.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import TopicPartition, topic_name_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

VERSION = 0

_WHITE_SPACE = re.compile(r"[ \t\n\v\f\r]+")
_LINE_END = re.compile(r"\r\n|\r|\n")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT32 = 31
_INT64 = 63
_INT64_DIGITS = 19


@dataclass(frozen=True, slots=True)
class DamagedLine:
    """A line that is not what Kafka writes; ``number`` counts from 1.

    count  how many lines say the same and are wrong in the same way, the first of which this is
    """

    number: int
    text: str
    reason: str
    count: int = 1


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Text of an offset checkpoint: ``topic partition offset`` lines, sorted."""
    return _encode(f"{tp.topic} {tp.partition} {offsets[tp]}" for tp in sorted(offsets))


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Entries of an offset checkpoint. FormatError names the bad line."""
    offsets: dict[TopicPartition, int] = {}
    for line, fields in _decode(data, field_count=3):
        topic_partition, offset = _offset_entry(line, fields)
        offsets[topic_partition] = offset
    return offsets


def salvage_offsets(data: bytes) -> tuple[dict[TopicPartition, int], list[DamagedLine]]:
    """Entries of the good lines of a checkpoint that ``decode_offsets`` refused, and the bad lines.

    Good is a line that Kafka could have written: a legal topic, nothing negative, a newline at its
    end. Of two for one partition the lower offset is taken, which shows and checks more; the second
    is bad. The lines of another version have a meaning that is not known: none is good. No line is
    told twice, lines of one text are told as one, and of a file in which nothing can be read the
    first one only.
    """
    # What is not UTF-8 becomes a text that no topic name has.
    *lines, unfinished = _LINE_END.split(data.decode("utf-8", "backslashreplace"))
    version, entries = "".join(lines[:1]), lines[2:]
    is_number = _INTEGER.fullmatch(version) is not None
    if is_number and version.strip("+-0"):
        return {}, [DamagedLine(1, version, "another version")]
    offsets: dict[TopicPartition, int] = {}
    bad: list[DamagedLine] = []
    for number, line in enumerate(entries, 3):
        try:
            topic_partition, offset = _offset_entry(line, _fields(line, 3))
        except FormatError:
            bad.append(DamagedLine(number, line, "no 'topic partition offset'"))
            continue
        if topic_name_fault(topic_partition.topic) or topic_partition.partition < 0 or offset < 0:
            bad.append(DamagedLine(number, line, "impossible"))
            continue
        if topic_partition in offsets:
            bad.append(DamagedLine(number, line, "a second entry"))
        offsets[topic_partition] = min(offset, offsets.get(topic_partition, offset))
    if not is_number and not offsets:
        return {}, [DamagedLine(1, version or unfinished, "no line of this file is a checkpoint's")]
    if unfinished:
        bad.append(DamagedLine(len(lines) + 1, unfinished, "cut off"))
    # The line that was cut off may be one of those that were counted.
    counts = {str(len(entries)), str(len(entries) + bool(unfinished))}
    if len(lines) > 1 and lines[1] not in counts:
        bad.insert(0, DamagedLine(2, lines[1], f"{len(entries)} entries follow"))
    if not is_number:
        bad.insert(0, DamagedLine(1, version, "no version"))
    return offsets, _counted(bad)


def _counted(lines: Sequence[DamagedLine]) -> list[DamagedLine]:
    """The first of those with one text and one fault, with their count."""
    counts = Counter((line.text, line.reason) for line in lines)
    firsts: dict[tuple[str, str], DamagedLine] = {}
    for line in lines:
        firsts.setdefault((line.text, line.reason), line)
    return [replace(line, count=counts[key]) for key, line in firsts.items()]


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
    entries = [(line, _fields(line, field_count)) for line in lines[2:]]
    if len(entries) != expected_count:
        raise FormatError(
            f"Expected {expected_count} entries in the checkpoint, but found only {len(entries)}"
        )
    return entries


def _fields(line: str, count: int) -> list[str]:
    """The fields of an entry's line."""
    fields = _WHITE_SPACE.split(line)
    while fields and not fields[-1]:
        fields.pop()
    if len(fields) != count:
        raise _malformed(line)
    return fields


def _offset_entry(line: str, fields: list[str]) -> tuple[TopicPartition, int]:
    """One entry of an offset checkpoint."""
    topic, partition, offset = fields
    return (
        TopicPartition(topic, _integer(partition, line, _INT32)),
        _integer(offset, line, _INT64),
    )


def _integer(text: str, line: str, bits: int) -> int:
    """Parse as Java's parseInt and parseLong do: a sign, any zeros, no spaces, no overflow.

    Differs from Kafka: only ASCII digits.
    """
    if not _INTEGER.fullmatch(text) or len(text.lstrip("+-0")) > _INT64_DIGITS:
        raise _malformed(line)
    value = int(text)
    if not -(1 << bits) <= value < 1 << bits:
        raise _malformed(line)
    return value


def _malformed(line: str) -> FormatError:
    return FormatError(f"Malformed line in the checkpoint: '{line}'")
