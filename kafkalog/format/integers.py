"""Bounds of the signed integers on disk and in Kafka's configs: defined here and nowhere else.

A field's own bound is named after the field and stands beside it (``OFFSET_MAX``). Kernels, which
import nothing, write them as literals.

The one parent of everything that `format/` raises about bytes or text it was given.

`format/` knows values only, never files: whoever read the bytes catches `FormatError` and raises a
`CorruptData` with file and position (`log/`, `broker/`) or an `InvalidRequest` (the edges).
"""

from __future__ import annotations

INT16_MAX = 2**15 - 1
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class FormatError(ValueError):
    """The given bytes or text break the format.

    ``reason`` says how. ``position`` is the byte at which it was seen, counted from the start of
    what was given, or None when no single byte can be named; for text files it is None and
    the reason names the line.
    """

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason if position is None else f"{reason} at byte {position}")
        self.reason = reason
        self.position = position
