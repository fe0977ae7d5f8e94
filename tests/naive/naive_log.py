"""Plain twin of one partition: a list of records and the rules of fetch, look-up and deletion."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkalog.format.records.record import Record


@dataclass
class NaiveLog:
    """All records ever appended; what is hidden stays in the list."""

    records: list[Record] = field(default_factory=list)
    batch_ends: list[int] = field(default_factory=list)  # last offset of every batch
    start_offset: int = 0

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def append(self, records: list[tuple[int, bytes | None, bytes | None]]) -> int:
        """Append (timestamp, key, value) records as one batch; the first offset."""
        first = self.end_offset
        for timestamp_ms, key, value in records:
            self.records.append(Record(self.end_offset, timestamp_ms, key, value))
        self.batch_ends.append(self.end_offset - 1)
        return first

    def from_offset(self, offset: int) -> list[Record]:
        return self.records[offset:]

    def first_of_batch_at(self, offset: int) -> int:
        """First offset of the batch that holds offset."""
        return max((end + 1 for end in self.batch_ends if end < offset), default=0)

    def delete_below(self, offset: int) -> None:
        self.start_offset = max(self.start_offset, offset)
