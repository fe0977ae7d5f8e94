"""The obvious batch walk with struct: what the scan kernel must agree with."""

from __future__ import annotations

import struct

from crc32c import crc32c

ROW = struct.Struct(">qiibIhiqqqhii")


def walk(data: bytes, *, check_crc: bool) -> tuple[list[tuple[int, ...]], str, int]:
    """(rows as position, size and the thirteen header fields), reason, position of the end."""
    rows: list[tuple[int, ...]] = []
    position = 0
    while True:
        rest = data[position:]
        if len(rest) <= 17:
            return rows, "END", position
        length = struct.unpack_from(">i", rest, 8)[0]
        if length < 14:
            return rows, "BAD_SIZE", position
        batch = rest[: length + 12]
        if len(batch) < length + 12:
            return rows, "PARTIAL", position
        if batch[16] < 2:
            return rows, "LEGACY", position
        if batch[16] > 2:
            return rows, "BAD_MAGIC", position
        if len(batch) < 61:
            return rows, "SHORT_BATCH", position
        fields = ROW.unpack_from(batch)
        if check_crc and crc32c(batch[21:]) != fields[4]:
            return rows, "BAD_CRC", position
        rows.append((position, len(batch), *fields))
        position += len(batch)
