"""Plain twin of the index cadence: which entries a list of batches gives (log-lifecycle 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.log.values import AppendedBatch


def entries_due(
    batches: Sequence[AppendedBatch], interval_bytes: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(last offset, position) and (timestamp, offset) entries, without the forced one."""
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    since = position = 0
    largest = (-1, -1)
    for batch in batches:
        if batch.max_timestamp_ms > largest[0]:
            largest = (batch.max_timestamp_ms, batch.last_offset)
        if since > interval_bytes:
            offsets.append((batch.last_offset, position))
            if largest[0] > (times[-1][0] if times else -1):
                times.append(largest)
            since = 0
        since += batch.size_bytes
        position += batch.size_bytes
    return offsets, times
