"""Records of one partition, a page at a time: from an offset or a time on, or up to an offset.

A page shows the records that a read_uncommitted reader gets, with the outcome of their
transactions, and the transaction markers. It reads at most ``READ_BYTES`` and says where it
stopped, so that a log with large gaps or very large records cannot occupy a thread.

Keys, values and headers may be any bytes: printable UTF-8 is shown as text, others in hex, at most
``SHOWN_BYTES`` of each. A batch that cannot be decoded, or that is corrupt, is one row with the
reason.
"""

from __future__ import annotations

import codecs
import enum
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from kafkalog.console.formatting import UNPRINTABLE, number, timestamp
from kafkalog.console.view import Fragment, View
from kafkalog.console.views.offsets import record_at
from kafkalog.errors import CorruptBatch, KafkalogError, UnsupportedMessageFormat
from kafkalog.format.integers import FormatError
from kafkalog.format.records.control_record import read_control_type
from kafkalog.format.records.record import read_records
from kafkalog.format.records.record_batch import (
    codec_of,
    is_control,
    is_transactional,
    iterate_batches,
)
from kafkalog.log.values import Isolation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.broker.operations import Operations
    from kafkalog.broker.retention.maintenance import LogDescription
    from kafkalog.format.records.record import Record, RecordTable
    from kafkalog.format.records.record_batch import BatchHeader
    from kafkalog.log.values import FetchDataInfo


# ---- batches as rows


SHOWN_BYTES = 1024
HEADERS_SHOWN = 20
_HEX_BYTES = 256


class Limits(NamedTuple):
    """How many bytes of a key, value or header are shown as text or in hex; how many headers."""

    text: int = SHOWN_BYTES
    hex: int = _HEX_BYTES
    headers: int = HEADERS_SHOWN


IN_LIST = Limits()
ALONE = Limits(256 << 10, 4 << 10, 200)
"""Of a record that has a page for itself."""


class Show(enum.Enum):
    """How bytes are shown; the value is that of the query."""

    AUTO = "auto"  # text if it is printable UTF-8
    TEXT = "text"
    HEX = "hex"


class RecordKind(enum.Enum):
    """What a row is; the value is its badge."""

    RECORD = "record"
    TOMBSTONE = "tombstone"  # a key without a value
    CONTROL = "control"  # the end of a transaction
    UNREADABLE = "unreadable"  # a whole batch


class Fate(enum.Enum):
    """Of the transaction of a record."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


class ShownBytes(Fragment):
    """Bytes of a record: ``text`` as ``form`` says; ``is_cut``: not all are shown."""

    size_bytes: int
    form: Literal["text", "hex"]
    text: str
    is_cut: bool


class HeaderView(Fragment):
    """One header of a record; value null where it has none."""

    name: ShownBytes
    value: ShownBytes | None


class RecordRow(Fragment):
    """One record. ``missing_before``: offsets before it without a record.

    control     what a control record says: COMMIT or ABORT
    fault       why a batch, which is then the row, cannot be read
    """

    offset: int
    timestamp_ms: int | None
    kind: RecordKind
    transaction: Fate | None
    control: str | None
    key: ShownBytes | None
    value: ShownBytes | None
    headers: list[HeaderView]
    header_count: int
    producer_id: int | None
    batch_base_offset: int
    codec: str
    missing_before: int
    fault: str | None


class Damage(NamedTuple):
    """The offsets [base_offset, next_offset) of stored bytes that are not a sound batch."""

    base_offset: int
    next_offset: int
    size_bytes: int  # read to find it


class Slice(NamedTuple):
    """Rows ``first`` to ``end`` (exclusive) of one batch; without a table one row for all of it."""

    header: BatchHeader | Damage
    outcome: Fate | None
    table: RecordTable | None
    fault: str | None
    first: int
    end: int

    @property
    def row_count(self) -> int:
        """Rows."""
        return self.end - self.first

    @property
    def read_bytes(self) -> int:
        """Bytes of the batch, or of its records when they are more."""
        inflated = 0 if self.table is None else len(self.table.records)
        return max(self.header.size_bytes, inflated)

    def part(self, first: int, end: int) -> Slice:
        """Rows [first, end), counted from its first one."""
        return self._replace(first=self.first + first, end=self.first + end)


def slices_of(
    info: FetchDataInfo, from_offset: int, until_offset: int, max_batch_bytes: int
) -> Iterator[Slice]:
    """The batches of a read, each with its rows in [from_offset, until_offset); none is empty.

    A batch may not inflate to more than ``max_batch_bytes``.
    """
    for header, batch in iterate_batches(info.data):
        if header.base_offset >= until_offset:
            return  # a read may hold more than was asked for
        outcome = _outcome(header, info)
        try:
            table = read_records(batch, max_bytes=max_batch_bytes)
        except (FormatError, KafkalogError) as fault:
            if from_offset <= header.last_offset and header.base_offset < until_offset:
                message = fault.public_message if isinstance(fault, KafkalogError) else str(fault)
                yield Slice(header, outcome, None, message, 0, 1)
            continue
        first = bisect_left(table.offsets, from_offset)
        end = bisect_left(table.offsets, until_offset)
        if first < end:
            yield Slice(header, outcome, table, None, first, end)


def damaged_slice(
    fault: CorruptBatch | UnsupportedMessageFormat,
    from_offset: int,
    until_offset: int,
    size_bytes: int,
) -> Slice:
    """The damage or old format that a read at ``from_offset`` met, up to where reading goes on.

    That is always after ``from_offset``, whatever the error says.
    """
    details = fault.details
    base_offset = details.get("base_offset", details.get("first_offset"))
    last_offset = details.get("last_offset")
    first = base_offset if isinstance(base_offset, int) else from_offset
    end = last_offset + 1 if isinstance(last_offset, int) else until_offset
    damage = Damage(min(first, from_offset), max(end, from_offset + 1), size_bytes)
    return Slice(damage, None, None, fault.public_message, 0, 1)


def _outcome(header: BatchHeader, info: FetchDataInfo) -> Fate | None:
    """None outside a transaction, and for transaction markers."""
    if not is_transactional(header.attributes) or is_control(header.attributes):
        return None
    if header.base_offset >= info.last_stable_offset:
        return Fate.OPEN
    is_aborted = any(
        each.producer_id == header.producer_id
        and each.first_offset <= header.base_offset <= each.last_offset
        for each in info.aborted
    )
    return Fate.ABORTED if is_aborted else Fate.COMMITTED


def rows_of(slices: list[Slice], show: Show) -> list[RecordRow]:
    """The rows of a page; offsets missing before the first row are not counted."""
    rows, next_offset = list[RecordRow](), None
    for each in slices:
        for index in range(each.first, each.end):
            row = row_of(each, index, show, next_offset)
            rows.append(row)
            next_offset = each.header.next_offset if each.table is None else row.offset + 1
    return rows


def row_of(
    each: Slice, index: int, show: Show, next_offset: int | None = None, limits: Limits = IN_LIST
) -> RecordRow:
    """One row of a slice; offsets missing from ``next_offset`` on are counted."""
    header = None if isinstance(each.header, Damage) else each.header
    record = None if each.table is None else each.table.record(index)
    offset = each.header.base_offset if record is None else record.offset
    is_marker = header is not None and is_control(header.attributes)
    pairs = () if record is None else record.headers
    return RecordRow(
        offset=offset,
        timestamp_ms=None if record is None or record.timestamp < 0 else record.timestamp,
        kind=_kind(record, is_marker=is_marker),
        transaction=each.outcome,
        control=_control_of(record) if is_marker and record is not None else None,
        key=None if record is None else shown(record.key, show, limits),
        value=None if record is None else shown(record.value, show, limits),
        headers=[
            HeaderView(name=_named(name, show, IN_LIST), value=shown(value, show))
            for name, value in pairs[: limits.headers]
        ],
        header_count=len(pairs),
        producer_id=header.producer_id if header is not None and header.has_producer_id else None,
        batch_base_offset=each.header.base_offset,
        codec="unknown" if header is None else _codec_of(header),
        missing_before=0 if next_offset is None else max(offset - next_offset, 0),
        fault=each.fault,
    )


def _kind(record: Record | None, *, is_marker: bool) -> RecordKind:
    if record is None:
        return RecordKind.UNREADABLE
    if is_marker:
        return RecordKind.CONTROL
    is_tombstone = record.value is None and record.key is not None
    return RecordKind.TOMBSTONE if is_tombstone else RecordKind.RECORD


def _control_of(record: Record) -> str:
    try:
        return read_control_type(record.key).name
    except FormatError as fault:
        return str(fault)


def _codec_of(header: BatchHeader) -> str:
    try:
        return codec_of(header.attributes).name.lower()
    except FormatError as fault:
        return fault.reason


def shown(data: bytes | None, show: Show, limits: Limits = IN_LIST) -> ShownBytes | None:
    """None for null, which is not the same as empty."""
    return None if data is None else _named(data, show, limits)


def _named(data: bytes, show: Show, limits: Limits) -> ShownBytes:
    text = None if show is Show.HEX else _text_of(data, limits.text, is_forced=show is Show.TEXT)
    if text is not None:
        is_cut = len(data) > limits.text
        return ShownBytes(size_bytes=len(data), form="text", text=text, is_cut=is_cut)
    head = data[: limits.hex]
    is_cut = len(data) > len(head)
    return ShownBytes(size_bytes=len(data), form="hex", text=head.hex(" "), is_cut=is_cut)


def _text_of(data: bytes, limit: int, *, is_forced: bool) -> str | None:
    """The first ``limit`` bytes as text; None if not printable UTF-8, unless forced."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace" if is_forced else "strict")
    try:
        # A character that is divided by the limit is left out.
        text = decoder.decode(data[:limit], final=len(data) <= limit)
    except UnicodeDecodeError:
        return None
    if is_forced:
        return UNPRINTABLE.sub("\ufffd", text)
    return None if UNPRINTABLE.search(text) else text


# ---- the page


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


class PartitionReader:
    """The reads of one page."""

    def __init__(
        self, operations: Operations, topic: str, partition: int, log: LogDescription
    ) -> None:
        self._operations = operations
        self._at = (topic, partition)
        self.log = log
        self.position = log.log_start_offset
        """Everything before this offset was read."""

    def slices(self, start: int, until: int) -> Iterator[Slice]:
        """Rows of the offsets [start, until), up to READ_BYTES; at least one batch."""
        self.position, left_bytes = start, READ_BYTES
        while self.position < until:
            # After the last stable offset it is not known yet what will be aborted.
            is_settled = self.position < self.log.last_stable_offset
            isolation = Isolation.LAST_STABLE if is_settled else Isolation.HIGH_WATERMARK
            try:
                log = self._operations.partition_log(*self._at)
                info = self._operations.fetch(
                    log, self.position, FETCH_BYTES, isolation, may_block=True
                )
            except (CorruptBatch, UnsupportedMessageFormat) as fault:
                damaged = damaged_slice(fault, self.position, until, FETCH_BYTES)
                self.position = min(damaged.header.next_offset, until)
                left_bytes -= damaged.read_bytes
                yield damaged
                if left_bytes <= 0:
                    return
                continue
            if not len(info.data):
                self.position = self.log.last_stable_offset if is_settled else until
                continue
            if not is_settled:
                # Not the current one: such a read does not list what was aborted meanwhile.
                info = info._replace(last_stable_offset=self.log.last_stable_offset)
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
        end, found, rows = self.log.high_watermark, list[Slice](), 0
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
        log_start, span, best = self.log.log_start_offset, count, None
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
    log = operations.logs.describe(topic, partition)
    note, start, before = _resolved(operations, topic, partition, place, log)
    reader = PartitionReader(operations, topic, partition, log)
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
        found, fault = first_at(operations, topic, partition, place.timestamp_ms, log)
        if fault is not None:
            where = "in an old message format"
            if isinstance(fault, CorruptBatch):
                where = "in a damaged batch"
            return f"The record at this time is {where}: the page starts there.", found, None
        if found is not None:
            return None, found, None
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


def first_at(
    operations: Operations, topic: str, partition: int, timestamp_ms: int, log: LogDescription
) -> tuple[int | None, CorruptBatch | UnsupportedMessageFormat | None]:
    """The offset of the first record at or after a time, or of the damage that hides it."""
    low, high = log.log_start_offset, log.high_watermark
    try:
        found = record_at(operations, topic, partition, timestamp_ms)
    except (CorruptBatch, UnsupportedMessageFormat) as fault:
        return max(damaged_slice(fault, high, high, 0).header.base_offset, low), fault
    return None if found is None else max(found.offset, low), None


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
