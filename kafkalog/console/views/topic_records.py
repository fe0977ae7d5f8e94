"""Records of all partitions of a topic: newest or oldest first, all of them or those with a text.

The partitions are read side by side, always the one that has come least far, so that rows come by
their time as far as a log has its timestamps in order. A page reads at most ``READ_BYTES`` and for
``READ_MS``, whichever comes first, and stops when its reader has left. Its cursor says where the
next page goes on in each partition: a search of a topic of any size is a chain of short requests.

A search looks at the bytes of a batch before it looks at its records. The case of ASCII letters
does not matter. It is a loop in pure Python, so it gives the interpreter to appends in between.
"""

from __future__ import annotations

import enum
import math
import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kafkalog.console.formatting import spellings
from kafkalog.console.view import Fragment, View
from kafkalog.console.views.records import PartitionReader, RecordRow, Show, Slice, first_at, row_of
from kafkalog.errors import AccessDenied, KafkalogError, UnknownPartition, UnknownTopic
from kafkalog.format.integers import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalog.broker.operations import Operations
    from kafkalog.broker.retention.maintenance import LogDescription
    from kafkalog.env.clock import TimeSlice

READ_BYTES = 64 << 20
READ_MS = 2_000
PARTITIONS_READ = 100
_CHUNK_BYTES = 1 << 20
_WIDER = 4
_ROWS_AT_ONCE = 256
"""So many rows of a batch are looked at before appends may have the interpreter."""
_CURSOR = re.compile(r"[0-9]{1,10}:[0-9]{1,19}(,[0-9]{1,10}:[0-9]{1,19})*")


class Order(enum.Enum):
    """Which records come first; the value is that of the query."""

    NEWEST = "newest"
    OLDEST = "oldest"


class Part(enum.Enum):
    """Where a text is looked for; the value is that of the query."""

    ANY = "any"
    KEY = "key"
    VALUE = "value"
    HEADERS = "headers"


@dataclass(frozen=True, slots=True)
class Search:
    """What a page is asked for.

    partition       None: all partitions
    text            empty: every record
    offset, timestamp_ms  where each partition begins; newest first, with the last record up to it
    cursor          where a page goes on; partitions that it does not name are at their end
    """

    partition: int | None = None
    order: Order = Order.NEWEST
    text: str = ""
    part: Part = Part.ANY
    offset: int | None = None
    timestamp_ms: int | None = None
    cursor: Mapping[int, int] | None = None
    count: int = 50
    show: Show = Show.AUTO

    @property
    def is_backward(self) -> bool:
        """Newest first."""
        return self.order is Order.NEWEST


def cursor_of(text: str) -> dict[int, int] | None:
    """The offsets by partition that a cursor names; None when the text is none."""
    if not _CURSOR.fullmatch(text):
        return None
    pairs = [each.split(":") for each in text.split(",")]
    found = {int(partition): int(offset) for partition, offset in pairs}
    return found if len(found) == len(pairs) and max(found.values()) <= INT64_MAX else None


class TopicRecordRow(RecordRow):
    """A record with its partition."""

    partition: int


class UnreadPartition(Fragment):
    """A partition that the page leaves out, and why."""

    partition: int
    fault: str


class TopicRecordsView(View):
    """``cursor``: where the next page goes on; null when everything was read.

    partitions_read the first so many are read, unless ``partition`` chooses one
    is_stopped      the page ended because of its bytes or its time, before it was full
    scanned_records, scanned_bytes  read for this page
    offsets_left    offsets that this page and those before it have not come to, of offsets_total
    unsearched      batches that cannot be decoded, in a search
    """

    template: ClassVar[str] = "topic_records.html"
    heading: ClassVar[str] = "{topic}"

    topic: str
    partition_count: int
    partitions_read: int
    partition: int | None
    order: Order
    text: str
    part: Part
    offset: int | None
    timestamp_ms: int | None
    show: Show
    count: int
    records: list[TopicRecordRow]
    cursor: str | None
    is_stopped: bool
    scanned_records: int
    scanned_bytes: int
    offsets_total: int
    offsets_left: int
    unsearched: int
    unread: list[UnreadPartition]


def _rows_with(
    spelled: Sequence[bytes], part: Part, each: Slice, time_slice: TimeSlice
) -> Sequence[int]:
    """The rows of a slice that have a text in one of its spellings, in lower case; none: all."""
    every = range(each.first, each.end)
    if not spelled:
        return every
    if each.table is None:
        return ()
    lower = each.table.records.lower()
    if not any(text in lower for text in spelled):
        return ()
    is_key, is_value = part in (Part.ANY, Part.KEY), part in (Part.ANY, Part.VALUE)
    is_header = part in (Part.ANY, Part.HEADERS)
    found = []
    fields = zip(every, each.table.fields(each.first), strict=False)
    for row, (_, _, key, value, headers) in fields:
        if (row - each.first) % _ROWS_AT_ONCE == _ROWS_AT_ONCE - 1:
            time_slice.maybe_yield()
        texts = [key] if is_key else []
        texts += [value] if is_value else []
        texts += [one for pair in headers for one in pair] if is_header else []
        lowered = [one.lower() for one in texts if one is not None]
        if any(text in one for one in lowered for text in spelled):
            found.append(row)
    return found


class _Totals:
    """What a page has read, and its share of the interpreter."""

    def __init__(self, time_slice: TimeSlice) -> None:
        self.time_slice = time_slice
        self.records = 0
        self.size_bytes = 0
        self.unsearched = 0


class _Side:
    """One partition's side of the page.

    edge      newest first: everything from here on was read; oldest first: everything before it
    reached   how far that is in time, as a number that falls along the page
    waiting   rows that were found and are not on the page yet
    """

    def __init__(self, reader: PartitionReader, partition: int, search: Search, edge: int) -> None:
        self.partition = partition
        self.edge = edge
        self.reached = math.inf
        self.waiting = deque[RecordRow]()
        self._reader = reader
        self._log = reader.log
        self._search = search
        self._spelled = [each.encode().lower() for each in spellings(search.text) if each]
        offsets = max(self.offsets_total, 1)
        record_bytes = max(reader.log.size_bytes // offsets, 1)
        self._span = max(min(search.count, _CHUNK_BYTES // record_bytes), 1)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to read."""
        if self._search.is_backward:
            return self.edge <= self._log.log_start_offset
        return self.edge >= self._log.high_watermark

    @property
    def position(self) -> int | None:
        """Where the next page goes on; None: there is nothing more."""
        if self.waiting:
            return self.waiting[0].offset + self._search.is_backward
        return None if self.is_done else self.edge

    @property
    def offsets_total(self) -> int:
        """Offsets of the log."""
        return self._log.high_watermark - self._log.log_start_offset

    @property
    def offsets_left(self) -> int:
        """Those that no page has come to."""
        position = self.position
        if position is None:
            return 0
        if self._search.is_backward:
            return position - self._log.log_start_offset
        return self._log.high_watermark - position

    @property
    def next_rank(self) -> float:
        """Of the first row that waits, as ``reached``; one without a time comes as it is met."""
        timestamp_ms = self.waiting[0].timestamp_ms
        return math.inf if timestamp_ms is None else self._rank(timestamp_ms)

    def _rank(self, timestamp_ms: int) -> int:
        return timestamp_ms if self._search.is_backward else -timestamp_ms

    def read(self, totals: _Totals) -> None:
        """Read the next chunk. Raises as a fetch."""
        log, is_backward = self._log, self._search.is_backward
        if is_backward:
            first, end = max(self.edge - self._span, log.log_start_offset), self.edge
        else:
            first, end = self.edge, min(self.edge + self._span, log.high_watermark)
        slices = list[Slice]()
        for each in self._reader.slices(first, end):
            slices.append(each)
            totals.time_slice.maybe_yield()
        size_bytes = sum(each.read_bytes for each in slices)
        totals.size_bytes += size_bytes
        if is_backward and self._reader.position < end:
            self._span = max(self._span // _WIDER, 1)  # it stopped before it came to the edge
            return
        if size_bytes < _CHUNK_BYTES:
            self._span *= _WIDER
        elif size_bytes > _WIDER * _CHUNK_BYTES:
            self._span = max(self._span // _WIDER, 1)
        self.edge = first if is_backward else self._reader.position
        self._take(slices[::-1] if is_backward else slices, totals)

    def _take(self, slices: list[Slice], totals: _Totals) -> None:
        """Rows of a chunk wait, but no more than a page has: the others are read again then."""
        step = -1 if self._search.is_backward else 1
        for each in slices:
            totals.time_slice.maybe_yield()
            rows = _rows_with(self._spelled, self._search.part, each, totals.time_slice)[::step]
            totals.unsearched += bool(self._spelled) and each.table is None
            totals.records += each.row_count
            left = self._search.count - len(self.waiting)
            self.waiting.extend(row_of(each, row, self._search.show) for row in rows[:left])
            if each.table is not None:
                far = each.first if self._search.is_backward else each.end - 1
                self.reached = min(self.reached, self._rank(int(each.table.timestamps[far])))
            if len(rows) > left:
                self._stop_before(each, rows[left])
                return

    def _stop_before(self, each: Slice, row: int) -> None:
        """The next chunk begins with this row of a slice."""
        if each.table is None:
            first, end = each.header.base_offset, each.header.next_offset
        else:
            first = int(each.table.offsets[row])
            end = first + 1
            self.reached = self._rank(int(each.table.timestamps[row]))
        self.edge = end if self._search.is_backward else first


def topic_records_view(
    operations: Operations, topic: str, search: Search, is_left: Callable[[], bool]
) -> TopicRecordsView:
    """A page of at most ``search.count`` records. Blocks. UnknownTopic, UnknownPartition.

    A partition that is not served, or whose disk fails, is left out, and the page says so.
    """
    partition_count = operations.partition_count(topic)
    if search.partition is not None and search.partition >= partition_count:
        raise UnknownPartition(
            f"{topic} has {partition_count} partitions.", topic=topic, partition=search.partition
        )
    numbers = range(min(partition_count, PARTITIONS_READ))
    if search.partition is not None:
        numbers = range(search.partition, search.partition + 1)
    deadline_ns = operations.monotonic_ns() + READ_MS * 1_000_000
    sides, unread, totals = list[_Side](), list[UnreadPartition](), _Totals(operations.time_slice())
    for each in numbers:
        try:
            sides.append(_side(operations, topic, each, search))
        except (UnknownTopic, AccessDenied):
            raise  # of the whole page
        except KafkalogError as fault:
            unread.append(UnreadPartition(partition=each, fault=fault.public_message))

    def is_over() -> bool:
        is_late = operations.monotonic_ns() >= deadline_ns
        return is_late or totals.size_bytes >= READ_BYTES or is_left()

    records = _page(sides, search.count, totals, unread, is_over)
    positions = [(each.partition, each.position) for each in sides]
    cursor = ",".join(f"{number}:{at}" for number, at in positions if at is not None)
    return TopicRecordsView.of(
        search,
        now_ms=operations.now_ms(),
        topic=topic,
        partition_count=partition_count,
        partitions_read=len(numbers),
        records=records,
        cursor=cursor or None,
        is_stopped=bool(cursor) and len(records) < search.count,
        scanned_records=totals.records,
        scanned_bytes=totals.size_bytes,
        offsets_total=sum(each.offsets_total for each in sides),
        offsets_left=sum(each.offsets_left for each in sides),
        unsearched=totals.unsearched,
        unread=unread,
    )


def _page(
    sides: list[_Side],
    count: int,
    totals: _Totals,
    unread: list[UnreadPartition],
    is_over: Callable[[], bool],
) -> list[TopicRecordRow]:
    """The next rows of all sides; those whose disk fails leave them."""
    rows = list[TopicRecordRow]()
    while True:
        open_sides = [each for each in sides if not each.is_done]
        # Rows up to here cannot be overtaken by one that is still to be read.
        bar = max((each.reached for each in open_sides), default=-math.inf)
        is_end = not open_sides or is_over()
        while len(rows) < count and (ready := [each for each in sides if each.waiting]):
            best = max(ready, key=lambda each: each.next_rank)
            if best.next_rank < bar and not is_end:
                break
            rows.append(TopicRecordRow.of(best.waiting.popleft(), partition=best.partition))
        if is_end or len(rows) >= count:
            return rows
        side = max(open_sides, key=lambda each: each.reached)
        try:
            side.read(totals)
        except (UnknownTopic, AccessDenied):
            raise
        except KafkalogError as fault:
            sides.remove(side)
            unread.append(UnreadPartition(partition=side.partition, fault=fault.public_message))


def _side(operations: Operations, topic: str, partition: int, search: Search) -> _Side:
    log = operations.logs.describe(topic, partition)
    if search.cursor is not None:
        edge = search.cursor.get(partition)
        if edge is None:
            edge = log.log_start_offset if search.is_backward else log.high_watermark
    else:
        edge = _beginning(operations, topic, partition, search, log)
    edge = min(max(edge, log.log_start_offset), log.high_watermark)
    return _Side(PartitionReader(operations, topic, partition, log), partition, search, edge)


def _beginning(
    operations: Operations, topic: str, partition: int, search: Search, log: LogDescription
) -> int:
    """The edge of a first page."""
    is_backward = search.is_backward
    if search.offset is not None:
        return search.offset + is_backward
    if search.timestamp_ms is None:
        return log.high_watermark if is_backward else log.log_start_offset
    timestamp_ms = min(search.timestamp_ms + is_backward, INT64_MAX)
    found, _ = first_at(operations, topic, partition, timestamp_ms, log)
    return log.high_watermark if found is None else found
