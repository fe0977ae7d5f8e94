"""Bounds of the signed integers on disk and in Kafka's configs, and the error of a broken format.

The bound of a single field is a constant beside the field (``OFFSET_MAX``). Kernels import nothing
and write bounds as literals.
"""

from __future__ import annotations

INT16_MAX = 2**15 - 1
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class FormatError(ValueError):
    """The given bytes or text break the format. Parent of every error that `format/` raises.

    ``position`` is the first wrong byte, counted from the start of the input; None when no single
    byte is wrong, and for text files, where the reason names the line. `format/` knows no files:
    the caller raises a `CorruptData` with file and position, or an `InvalidRequest`.
    """

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason if position is None else f"{reason} at byte {position}")
        self.reason = reason
        self.position = position
