"""``kafkalog.checkpoint``: the offsets of Kafka's checkpoint files once more, under a checksum.

Kafka's checkpoint files have no checksum, so a flipped bit in one of them is another offset. This
file protects its content by a CRC-32C. It binds each line to a topic id and the file to the
``directory.id`` of its log directory. Has no counterpart in Kafka. Pure functions. The text:

    kafkalog.checkpoint 1
    directory <directory.id>
    <topic id> <partition> <log start> <recovery point> <first dirty> <end> <gapless> <losses>
    crc32c <eight hex digits, of all bytes before this line>

Every line ends with a newline. ``-`` means unknown; gapless is 0 or 1; losses are ``first-last``,
separated by commas. A later format must keep the words of the first line and the last line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from kafkalog.format.integers import INT32_MAX, INT64_MAX, FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT = 1

_HEAD = re.compile(rb"kafkalog\.checkpoint ([1-9][0-9]{0,8})\n")
_LAST_LINE = re.compile(rb"crc32c ([0-9a-f]{8})\n")
_DIRECTORY = re.compile("directory ([A-Za-z0-9_-]{22})")
_LAST_LINE_BYTES = len("crc32c 00000000\n")
_NUMBER = "(?:0|[1-9][0-9]{0,18})"
_RANGE = f"{_NUMBER}-{_NUMBER}"
_ENTRY = re.compile(
    rf"([A-Za-z0-9_-]{{22}}) ({_NUMBER}) ({_NUMBER}) ({_NUMBER}) "
    rf"(-|{_NUMBER}) (-|{_NUMBER}) ([01]) (-|{_RANGE}(?:,{_RANGE})*)"
)
_UNKNOWN = "-"


class LogKey(NamedTuple):
    """A partition by its topic's id, 22 characters: a topic that is created again is another."""

    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class CheckedOffsets:
    """The offsets of one log.

    log_start_offset    readers begin here, or at the first segment if that begins later
    recovery_point      everything below is durable
    first_dirty_offset  everything below was cleaned; None: no clean has begun
    end_offset          log end at a clean stop, for the start right after it; None while running
    is_gapless          nothing has taken offsets out of the log since it was made here
    accepted_losses     first and last offset of each range that an operator gave up
    """

    log_start_offset: int = 0
    recovery_point: int = 0
    first_dirty_offset: int | None = None
    end_offset: int | None = None
    is_gapless: bool = False
    accepted_losses: tuple[tuple[int, int], ...] = ()


NOTHING_PROVEN = CheckedOffsets()


class NewerProofsFormat(FormatError):
    """A later version of kafkalog wrote the file; it is not damaged."""


def stays_gapless(is_noted: bool, *, was_cleaned: bool, epochs: Iterable[int]) -> bool:
    """Whether a log that was noted as gapless is so still.

    Not one that a cleaner has worked on since: it is named in ``cleaner-offset-checkpoint``. Nor
    one that Kafka has led, which then begins a leader epoch; logs created here keep epoch 0.
    """
    return is_noted and not was_cleaned and all(epoch == 0 for epoch in epochs)


def encode_proofs(directory_id: str, entries: Mapping[LogKey, CheckedOffsets]) -> bytes:
    """The file, sorted, so that equal entries are equal bytes. directory_id: 22 characters."""
    lines = [f"kafkalog.checkpoint {FORMAT}", f"directory {directory_id}"]
    lines += [_line(key, entries[key]) for key in sorted(entries)]
    content = "".join(f"{line}\n" for line in lines).encode()
    return content + f"crc32c {crc32c(content):08x}\n".encode()


def decode_proofs(data: bytes) -> tuple[str, dict[LogKey, CheckedOffsets]]:
    """The directory's id and the entries. FormatError, NewerProofsFormat."""
    content, last_line = data[:-_LAST_LINE_BYTES], data[-_LAST_LINE_BYTES:]
    checksum, head = _LAST_LINE.fullmatch(last_line), _HEAD.match(content)
    if checksum is None or head is None or int(checksum[1], 16) != crc32c(content):
        raise FormatError("It does not match its checksum")
    if int(head[1]) > FORMAT:
        raise NewerProofsFormat(f"It has format {int(head[1])}; this version knows up to {FORMAT}")
    try:
        lines = content.decode("ascii").split("\n")[1:-1]
    except UnicodeDecodeError as error:
        raise FormatError("It is not ASCII", error.start) from error
    directory = _DIRECTORY.fullmatch(lines[0]) if lines else None
    if directory is None:
        raise FormatError("It names no directory")
    return directory[1], dict(map(_entry, lines[1:]))


def _line(key: LogKey, entry: CheckedOffsets) -> str:
    dirty, end, losses = entry.first_dirty_offset, entry.end_offset, _UNKNOWN
    if entry.accepted_losses:
        losses = ",".join(f"{first}-{last}" for first, last in entry.accepted_losses)
    return (
        f"{key.topic_id} {key.partition} {entry.log_start_offset} {entry.recovery_point} "
        f"{_UNKNOWN if dirty is None else dirty} {_UNKNOWN if end is None else end} "
        f"{1 if entry.is_gapless else 0} {losses}"
    )


def _entry(line: str) -> tuple[LogKey, CheckedOffsets]:
    fields = _ENTRY.fullmatch(line)
    if fields is None:
        raise FormatError(f"It has a malformed line: '{line}'")
    topic_id, partition, start, recovery_point, dirty, end, gapless, losses = fields.groups()
    pairs = [] if losses == _UNKNOWN else [each.split("-") for each in losses.split(",")]
    entry = CheckedOffsets(
        log_start_offset=int(start),
        recovery_point=int(recovery_point),
        first_dirty_offset=_offset(dirty),
        end_offset=_offset(end),
        is_gapless=gapless == "1",
        accepted_losses=tuple((int(first), int(last)) for first, last in pairs),
    )
    offsets = (entry.log_start_offset, entry.recovery_point, entry.first_dirty_offset or 0)
    ends = (entry.end_offset or 0, *(last for _, last in entry.accepted_losses))
    is_possible = all(first <= last for first, last in entry.accepted_losses)
    if not is_possible or int(partition) > INT32_MAX or max(*offsets, *ends) > INT64_MAX:
        raise FormatError(f"It has an impossible line: '{line}'")
    return LogKey(topic_id, int(partition)), entry


def _offset(text: str) -> int | None:
    return None if text == _UNKNOWN else int(text)
