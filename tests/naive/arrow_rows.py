"""Plain twin of the Arrow formats: rows as Python values, chosen by a loop over records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.format.records.record import Record


@dataclass(frozen=True)
class ShownBatch:
    """A stored batch; ``is_hidden``: of control records, or of an aborted transaction."""

    records: Sequence[Record]
    base_offset: int
    next_offset: int
    append_time: int | None = None
    is_hidden: bool = False


@dataclass
class PlainAnswer:
    """The rows of one answer under its bounds, read after read."""

    max_records: int
    max_bytes: int
    until_timestamp_ms: int
    payload_bytes: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)

    def read(
        self, topic: str, partition: int, batches: Sequence[ShownBatch], start: int, end: int
    ) -> tuple[int, bool]:
        """Take the rows of one read; (where the next one begins, whether a bound was reached)."""
        next_offset = start
        for batch in batches:
            if batch.is_hidden or batch.next_offset <= start or batch.base_offset >= end:
                continue
            next_offset = max(next_offset, batch.base_offset)
            for record in batch.records:
                if record.offset >= end:
                    break
                if record.offset >= start:
                    stamp = record.timestamp if batch.append_time is None else batch.append_time
                    size = len(record.key or b"") + len(record.value or b"")
                    is_over = self.rows and size > self.max_bytes - self.payload_bytes
                    if stamp >= self.until_timestamp_ms or self._is_counted_out() or is_over:
                        return next_offset, True
                    self.payload_bytes += size
                    is_append_time = batch.append_time is not None
                    self.rows.append(row_of(topic, partition, record, stamp, is_append_time))
                next_offset = max(next_offset, record.offset + 1)
            next_offset = max(next_offset, batch.next_offset)
        return max(start, end), self._is_counted_out()

    def _is_counted_out(self) -> bool:
        return len(self.rows) >= self.max_records


def row_of(
    topic: str, partition: int, record: Record, stamp: int, is_append_time: bool
) -> dict[str, Any]:
    """One record as pyarrow shows it, the timestamp as milliseconds."""
    return {
        "key": record.key,
        "value": record.value,
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": stamp,
        "timestampType": int(is_append_time),
        "headers": [
            {"key": name.decode("utf-8", "replace"), "value": value}
            for name, value in record.headers
        ]
        or None,
    }
