"""Records of one partition, a page at a time: from an offset or a time on, or up to an offset.

A page shows the records that a read_uncommitted reader gets, with the outcome of their
transactions, and the transaction markers. It reads at most ``READ_BYTES`` and says where it
stopped, so that a log with large gaps or very large records cannot occupy a thread.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from kafkalog.console.formatting import number, timestamp
from kafkalog.console.record_rows import RecordRow, Show, Slice, damaged_slice, rows_of, slices_of
from kafkalog.console.view import View
from kafkalog.errors import CorruptBatch
from kafkalog.log.values import Isolation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.broker.operations import Operations
    from kafkalog.broker.retention.maintenance import LogDescription

READ_BYTES = 8 << 20
FETCH_BYTES = 256 << 10
_WIDER = 8


class Place(NamedTuple):
    """Where a page is: one of the three; without one it ends at the log end."""

    offset: int | None = None
    before: int | None = None
    timestamp_ms: int | None = None


class RecordsView(View):
    """``note``: why the page is not where it was asked to be.

    earlier_before   the page before this one ends before this offset; null at the log start
    later_offset     the page after this one starts here; null at the end
    """

    template: ClassVar[str] = "records.html"
    heading: ClassVar[str] = "Records of {topic}-{partition}"

    topic: str
    partition: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    show: Show
    count: int
    note: str | None
    earlier_before: int | None
    later_offset: int | None
    records: list[RecordRow]


class _Page(NamedTuple):
    """What was read: the offsets [start, end) and the rows in them."""

    start: int
    end: int
    slices: list[Slice]
    is_short: bool = False  # it stopped because of its bytes


class _Reader:
    """The reads of one page."""

    def __init__(
        self, operations: Operations, topic: str, partition: int, log: LogDescription
    ) -> None:
        self._operations = operations
        self._at = (topic, partition)
        self._log = log
        self.position = log.log_start_offset
        """Everything before this offset was read."""

    def slices(self, start: int, until: int) -> Iterator[Slice]:
        """Rows of the offsets [start, until), up to READ_BYTES; at least one batch."""
        self.position, left_bytes = start, READ_BYTES
        while self.position < until:
            # After the last stable offset it is not known yet what will be aborted.
            is_settled = self.position < self._log.last_stable_offset
            isolation = Isolation.LAST_STABLE if is_settled else Isolation.HIGH_WATERMARK
            try:
                log = self._operations.partition_log(*self._at)
                info = self._operations.fetch(
                    log, self.position, FETCH_BYTES, isolation, may_block=True
                )
            except CorruptBatch as fault:
                damaged = damaged_slice(fault, self.position, until, FETCH_BYTES)
                self.position = min(damaged.header.next_offset, until)
                left_bytes -= damaged.read_bytes
                yield damaged
                if left_bytes <= 0:
                    return
                continue
            if not len(info.data):
                self.position = self._log.last_stable_offset if is_settled else until
                continue
            if not is_settled:
                # Not the current one: such a read does not list what was aborted meanwhile.
                info = info._replace(last_stable_offset=self._log.last_stable_offset)
            most = self._operations.max_decompressed_bytes
            has_rows = False
            for each in slices_of(info, self.position, until, most):
                has_rows = True
                self.position = min(each.header.next_offset, until)
                left_bytes -= each.read_bytes
                yield each
                if left_bytes <= 0:
                    return
            self.position = min(info.next_offset, until)
            if not has_rows:  # empty batches that compaction left cost as much
                left_bytes -= len(info.data)
                if left_bytes <= 0:
                    return

    def forward(self, start: int, count: int) -> _Page:
        """The first ``count`` rows at or after an offset."""
        end, found, rows = self._log.high_watermark, list[Slice](), 0
        for each in self.slices(start, end):
            found.append(each.part(0, min(each.row_count, count - rows)))
            rows += found[-1].row_count
            if rows >= count:
                return _Page(start, _end_of(found[-1]), found)
        return _Page(start, self.position, found, is_short=self.position < end)

    def backward(self, before: int, count: int) -> _Page:
        """The last ``count`` rows before an offset.

        Reads more and more offsets until it has enough rows, because compaction leaves gaps of any
        size; fewer when READ_BYTES are used up. One offset can always be read.
        """
        log_start, span, best = self._log.log_start_offset, count, None
        is_narrowing = False
        while True:
            start = max(before - span, log_start)
            page = self._last(start, before, count)
            if page is None and best is not None:
                return best._replace(is_short=True)
            if page is None:
                span, is_narrowing = max(span // 2, 1), True
                continue
            rows = sum(each.row_count for each in page.slices)
            if start == log_start or rows >= count or is_narrowing:
                return page._replace(is_short=is_narrowing)
            best, span = page, span * _WIDER

    def _last(self, start: int, before: int, count: int) -> _Page | None:
        """The last rows of [start, before); None when not all of it could be read."""
        kept, rows = deque[Slice](), 0
        for each in self.slices(start, before):
            kept.append(each)
            rows += each.row_count
            while rows - kept[0].row_count >= count:
                rows -= kept.popleft().row_count
        if self.position < before:
            return None
        if rows > count:
            first = kept.popleft()
            kept.appendleft(first.part(rows - count, first.row_count))
            start = _offset_of(kept[0])
        return _Page(start if rows < count else _offset_of(kept[0]), before, list(kept))


def records_view(
    operations: Operations, topic: str, partition: int, place: Place, show: Show, count: int
) -> RecordsView:
    """A page of at most ``count`` records. Blocks. Raises as ``Operations.fetch``.

    An offset outside the log is moved to the nearer end of the log; a note says so.
    """
    log = operations.describe_log(topic, partition)
    note, start, before = _resolved(operations, topic, partition, place, log)
    reader = _Reader(operations, topic, partition, log)
    if start is not None:
        page = reader.forward(start, count)
    else:
        assert before is not None, "one of the two"
        page = reader.backward(before, count)
    if page.is_short and note is None:
        note = "The page ends early: the records up to the next page are too large to read at once."
    return RecordsView.of(
        log,
        now_ms=operations.now_ms(),
        topic=topic,
        partition=partition,
        show=show,
        count=count,
        note=note,
        earlier_before=page.start if page.start > log.log_start_offset else None,
        later_offset=page.end if page.end < log.high_watermark else None,
        records=rows_of(page.slices, show),
    )


def _resolved(
    operations: Operations, topic: str, partition: int, place: Place, log: LogDescription
) -> tuple[str | None, int | None, int | None]:
    """A note, and the offset at which the page starts or before which it ends."""
    low, high = log.log_start_offset, log.high_watermark
    if place.timestamp_ms is not None:
        try:
            found = operations.list_offset(
                operations.partition_log(topic, partition),
                place.timestamp_ms,
                Isolation.HIGH_WATERMARK,
                may_block=True,
            )
        except CorruptBatch as fault:
            start = max(damaged_slice(fault, high, high, 0).header.base_offset, low)
            return (
                "The record at this time is in a damaged batch: the page starts there.",
                start,
                None,
            )
        if found is not None:
            return None, max(found.offset, low), None
        return (
            f"No record at or after {timestamp(place.timestamp_ms)}: these are the last ones.",
            None,
            high,
        )
    if place.offset is not None:
        if place.offset < low:
            return f"The log starts at {number(low)}: earlier records are deleted.", low, None
        if place.offset > high:
            return (
                f"The log ends at {number(high)} for readers: these are the last records.",
                None,
                high,
            )
        return None, place.offset, None
    before = high if place.before is None else min(max(place.before, low), high)
    return None, None, before


def _offset_of(each: Slice) -> int:
    """The offset of its first row."""
    if each.table is None:
        return each.header.base_offset
    return int(each.table.offsets[each.first])


def _end_of(each: Slice) -> int:
    """The offset after its last row."""
    if each.table is None:
        return each.header.next_offset
    return int(each.table.offsets[each.end - 1]) + 1
