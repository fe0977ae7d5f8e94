"""What a damaged copy of the topic registry still proves. Pure.

A change is answered when every online log directory has it, or two beside those that are full. So
the newest whole copy has every answered change but in one case: its directory was offline or left
out at the last ones. Then the damaged copy may be the only one that knew of topics, deletions and
producer ids. It is rewritten from the newest whole copy where one of these holds:

- what is left of it is that copy: the same checksum line, or all but ``_ROTTEN_BYTES_MAX`` bytes;
- it does not show a newer generation, every log directory that the whole copy remembers takes part
  in this start, and no partition in its directory is unknown to the copy. What is not proven then
  is a change without a new partition that was made while all the others were offline, before this
  one file was lost as well.

``corrected_registry`` undoes one flipped bit, which the CRC-32 names: for the doctor, where no copy
is whole.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import TYPE_CHECKING

from kafkalog.broker.topics.registry import AFTER_CHECKSUM, decode_registry, encode_registry
from kafkalog.format.integers import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.broker.topics.registry import RegistryState

_CHECKSUM = re.compile(rb'"checksum": "([0-9a-f]{8})"')
_AFTER_CHECKSUM = re.compile(rf'\n "({"|".join(AFTER_CHECKSUM)})"'.encode())
_CHECKSUM_LINE_BYTES = 32
_LIST_OF_BLANKS = re.compile(rb"\[\n +(?=\n)")  # its only number was 0: one bit makes a blank of it
# The checksum is over compact JSON, the file has a line for each entry.
_NOT_IN_CHECKSUM = re.compile(rb'\n *|(?<=[^\\]":) |"checksum": "[0-9a-f]{8}",')
_GENERATION = re.compile(rb'"generation": ([0-9]{1,18})\b')
# Another generation differs in its number, in most of the eight digits of its checksum, and in what
# was changed.
_ROTTEN_BYTES_MAX = 3
_NEAR_BYTES = 200  # before the place where a reader of JSON stumbles
# What CRC-32 makes of each value of one byte, without its inversions at the beginning and the end.
_TABLE = [zlib.crc32(bytes((value,)), 0xFFFFFFFF) ^ 0xFFFFFFFF for value in range(256)]


def is_left_of(damaged: bytes, state: RegistryState) -> bool:
    """Whether the damaged bytes are what is left of a copy of ``state``."""
    whole = encode_registry(state)
    if len(damaged) == len(whole) and differing(damaged, whole) <= _ROTTEN_BYTES_MAX:
        return True
    shown = _CHECKSUM.search(damaged)
    return shown is not None and shown[0] in whole


def shown_generation(damaged: bytes) -> int:
    """The generation that the damaged bytes name; 0 when they show none."""
    found = _GENERATION.search(damaged)
    return 0 if found is None else int(found[1])


def doubt_of(
    damaged: bytes, newest: RegistryState, absent: Iterable[str], unknown: Iterable[str]
) -> str | None:
    """Why the newest whole copy may lack what the damaged one had; None: it may be rewritten.

    ``absent``: last paths of remembered log directories that take no part in this start.
    ``unknown``: partitions in the damaged copy's directory that ``newest`` does not explain; looked
    at last.
    """
    if is_left_of(damaged, newest):
        return None
    shown = shown_generation(damaged)
    if shown > newest.generation:
        return f"it shows generation {shown}, the newest whole copy has {newest.generation}"
    missing = next(iter(absent), None)
    if missing is not None:
        return f"the log directory that was last at {missing} may have a newer copy"
    partition = next(iter(unknown), None)
    if partition is not None:
        return f"no whole copy knows {partition}, which lies there"
    return None


def corrected_registry(damaged: bytes) -> RegistryState | None:
    """What was written, when one bit of it has flipped; None when that does not explain it.

    A state that this returns matches the checksum. Takes 0.2 s for 100 KB, seconds where no JSON is
    left.
    """
    for candidate in _candidates(damaged):
        try:
            return decode_registry(candidate)
        except FormatError:
            continue
    return None


def _candidates(damaged: bytes) -> Iterator[bytes]:
    """The bytes with one bit put right: where the checksum says, then where the form is broken."""
    shown = _CHECKSUM.search(damaged)
    if shown is not None:
        bit = _flipped_bit(damaged, int(shown[1], 16))
        if bit is not None:
            yield _with_flipped(damaged, bit)
    for position in _suspected(damaged):
        for bit in range(8 * position, 8 * position + 8):
            yield _with_flipped(damaged, bit)


def _suspected(damaged: bytes) -> Iterator[int]:
    """Positions that the checksum says nothing of, and near where no JSON can be read on."""
    following = _AFTER_CHECKSUM.search(damaged)
    if following is not None:
        yield from range(max(0, following.start() - _CHECKSUM_LINE_BYTES), following.start())
    for found in _LIST_OF_BLANKS.finditer(damaged):
        yield found.end() - 1
    try:
        json.loads(damaged.decode("utf-8"))
    except UnicodeDecodeError as error:
        yield error.start
    except json.JSONDecodeError as error:
        yield from range(max(0, error.pos - _NEAR_BYTES), min(len(damaged), error.pos + 2))
    except (ValueError, RecursionError):
        return


def _flipped_bit(damaged: bytes, checksum: int) -> int | None:
    """The one bit by which the content misses its checksum; None when there is none.

    A CRC is linear: what a flipped bit changes in it depends on the distance to the end alone.
    """
    skipped = bytearray(len(damaged))
    for match in _NOT_IN_CHECKSUM.finditer(damaged):
        skipped[match.start() : match.end()] = b"\1" * len(match[0])
    kept = [position for position, is_skipped in enumerate(skipped) if not is_skipped]
    wanted = zlib.crc32(bytes(damaged[position] for position in kept)) ^ checksum
    effects = [_TABLE[1 << bit] for bit in range(8)]  # of each bit of the last byte
    for position in reversed(kept):
        if wanted in effects:
            return 8 * position + effects.index(wanted)
        effects = [effect >> 8 ^ _TABLE[effect & 0xFF] for effect in effects]
    return None


def _with_flipped(data: bytes, bit: int) -> bytes:
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def differing(one: bytes, other: bytes) -> int:
    """In how many bytes two of one length differ."""
    return sum(left != right for left, right in zip(one, other, strict=True))
