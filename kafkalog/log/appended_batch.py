"""AppendedBatch: what a segment must know of a batch that is about to be written."""

from __future__ import annotations

from typing import NamedTuple


class AppendedBatch(NamedTuple):
    """Absolute offsets, the whole batch's size in bytes, its maximum timestamp (-1: none)."""

    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int
