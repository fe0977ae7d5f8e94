"""Reading on and on: where it begins, what it does when the log moved away, where it is.

One state for both clients: `client.Tail` and `async_client.AsyncTail` drive it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kafkalog.client.failures import OffsetOutOfRange
from kafkalog.client.fetches import MAX_BYTES, fetch, offset_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.client.conversation import Steps
    from kafkalog.client.records import ConsumerRecord, FetchedRecords, Isolation

OutOfRange = Literal["error", "earliest", "latest"]


@dataclass(slots=True)
class TailState:
    """One reader of one partition.

    start            an offset, or earliest or latest as of the first fetch
    on_out_of_range  when the position is no longer in the log (retention, delete-records, a topic
                     made anew): raise OffsetOutOfRange, or go on at its begin or end
    is_endless       False: end where the partition ends
    max_wait_ms      how long one fetch waits for records; no record is later for it
    """

    topic: str
    partition: int
    start: int | Literal["earliest", "latest"]
    on_out_of_range: OutOfRange
    is_endless: bool
    max_wait_ms: int
    max_bytes: int = MAX_BYTES
    isolation: Isolation = "read_uncommitted"
    position: int | None = None
    """Behind the last record that was taken: where another tail goes on. None before the begin."""
    is_at_end: bool = False

    def next_page(self) -> Steps[FetchedRecords]:
        """The next records, maybe none. Raises ClientError; the same call may then be repeated."""
        if self.position is None:
            self.position = yield from self._place(self.start)
        while True:
            try:
                return (
                    yield from fetch(
                        self.topic,
                        self.partition,
                        self.position,
                        max_bytes=self.max_bytes,
                        max_wait_ms=self.max_wait_ms if self.is_endless else 0,
                        isolation=self.isolation,
                    )
                )
            except OffsetOutOfRange:
                if self.on_out_of_range == "error":
                    raise
                self.position = yield from self._place(self.on_out_of_range)

    def taken(self, page: FetchedRecords) -> Iterator[ConsumerRecord]:
        """Its records one by one; the position moves as they are taken."""
        for record in page.records:
            self.position = record.offset + 1
            yield record
        self.position = page.position.next_offset
        self.is_at_end = not self.is_endless and page.position.is_up_to_date

    def _place(self, place: int | str) -> Steps[int]:
        if isinstance(place, int):
            return place
        first, end = yield from offset_range(self.topic, self.partition)
        return first if place == "earliest" else end
