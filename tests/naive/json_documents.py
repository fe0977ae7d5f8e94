"""The plain twins of ``format/wire/json_documents``: one byte after the other, over the whole
stream.
"""

from __future__ import annotations

from typing import NamedTuple

_BLANK = b" \t\r\n"


class Documents(NamedTuple):
    """Whole documents, what is left behind the last, and whether the rest was given up."""

    whole: list[bytes]
    rest: bytes
    is_lost: bool


def split_lines(stream: bytes) -> Documents:
    """A document a line; blank lines are none."""
    *lines, rest = stream.split(b"\n")
    whole = [line for line in lines if line.strip()]
    return Documents(whole, rest if rest.strip() else b"", is_lost=False)


def split_concatenated(stream: bytes) -> Documents:
    """Objects and arrays by their brackets; anything else between two of them ends it."""
    whole: list[bytes] = []
    start, depth, in_string, escaped = 0, 0, False, False
    for position, byte in enumerate(stream):
        character = chr(byte)
        if depth == 0:
            if byte in _BLANK:
                continue
            if character not in "{[":
                return Documents(whole, b"", is_lost=True)
            start = position
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == '"':
            in_string = not in_string
        if in_string:
            continue
        if character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
            if depth == 0:
                whole.append(stream[start : position + 1])
    return Documents(whole, stream[start:] if depth else b"", is_lost=False)
