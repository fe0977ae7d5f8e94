"""RecordWriter: how the records of a read become the body of an answer, in any format.

Owns the values that pass between the reader of logs (``server/fetch/stream.py``) and the writer of
a format: the batches of a read go in, encoded chunks come out. A writer serves one answer, counts
over all its reads, and is used by one thread at a time. It reads no log, does not block and does
not know HTTP.

An answer is ``begin()``, then for every read the chunks of ``write(read)``, then ``end()``. The
server collects a page (application/json, Arrow) and sends a stream (NDJSON, SSE) chunk by chunk.

``PageWriter`` passes the batches of reads through the kernels that write records as text. It owns
the choice of batches (control and aborted ones are left out), their decompression, the growth of
the output and the errors of a kernel's status. Callers give the text around the members of a
record. Runs no Python statement per record. Any thread, one at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kafkalog.format.integers import INT64_MAX, FormatError
from kafkalog.format.records.compression import decompress
from kafkalog.format.records.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    Codec,
    MalformedBatch,
    TimestampType,
    codec_of,
    is_control,
    is_transactional,
    read_header,
    timestamp_type_of,
)
from kafkalog.kernels.json import scan
from kafkalog.kernels.json.output import (
    PAGE_CELL_COUNT,
    SPAN_BYTES,
    SPAN_COLUMN_COUNT,
    TEXT_PADDING,
    EmbeddedKind,
    PageCell,
    PageStatus,
    PageText,
    Shown,
)
from kafkalog.kernels.json.records import write_batches, write_records
from kafkalog.kernels.json.scan import DEPTH_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence


AbortedRange = tuple[int, int, int]
"""(producer id, first offset, last offset), both ends inclusive."""

FIELDS = ("topic", "key", "value", "partition", "offset", "timestamp", "headers")
"""The members of a record in their order, by the names that ``fields=`` takes; in JSON headers only
where there are some."""

FORMATS = ("json", "text", "base64")
"""How JSON shows a key or a value: as the JSON text that is stored, as a string, or encoded."""

CHUNK_BYTES = 64 << 10
"""A chunk ends with the record that reaches this size. It bounds the memory of a slow reader and
the work between two iterations of the event loop."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of an answer, over all its reads and partitions; the first one reached counts.

    max_records         records
    max_bytes           of keys and values together; the first record of the answer always fits
    until_timestamp_ms  the first record with this timestamp or a later one ends its partition
    """

    max_records: int = INT64_MAX
    max_bytes: int = INT64_MAX
    until_timestamp_ms: int = INT64_MAX


@dataclass(frozen=True, slots=True)
class RecordShape:
    """What the client asked to see of each record.

    A format that has no choice of key and value formats (Arrow: bytes) ignores those two.
    """

    key_format: str = "text"
    value_format: str = "json"
    fields: frozenset[str] = frozenset(FIELDS)


@dataclass(frozen=True, slots=True)
class RecordRead:
    """One read of one partition.

    batches      whole batches, then perhaps a part of one, which is ignored
    from_offset  records below are not shown (the first batch may begin before)
    end_offset   records from here on are not shown: where the read ended
                 (``FetchDataInfo.next_offset``) or ``until_offset``, whichever is less
    aborted      transactions that are left out (read_committed); control batches always are
    """

    topic: str
    partition: int
    batches: bytes | memoryview
    from_offset: int
    end_offset: int
    aborted: Sequence[AbortedRange] = ()


class Chunk(NamedTuple):
    """Encoded records of one partition, maybe none.

    data          bytes to send; whole records
    record_count  records in it
    next_offset   the next wanted offset of the partition: after the last record shown or skipped,
                  ``end_offset`` of the read once all of it was written
    is_end        a bound was reached: nothing more of this partition belongs to the answer, and
                  when it is one of max_records and max_bytes of none
    """

    data: bytes
    record_count: int
    next_offset: int
    is_end: bool


class UndecodableRecord(FormatError):
    """A stored key or value is not of the format asked for; ``part`` is "key" or "value"."""

    def __init__(self, offset: int, part: str, embedded: str) -> None:
        super().__init__(f"the {part} at offset {offset} is not {embedded}")
        self.offset = offset
        self.part = part
        self.embedded = embedded


class RecordWriter(Protocol):
    """See the module. Made for one answer by a ``WriterFactory``."""

    @property
    def count(self) -> int:
        """Records written so far, of all reads."""

    @property
    def is_full(self) -> bool:
        """Whether max_records or max_bytes was reached: further reads would give nothing."""

    def begin(self) -> bytes:
        """The bytes before the first record."""

    def write(self, read: RecordRead) -> Generator[Chunk, None, None]:
        """The records of a read in chunks of about CHUNK_BYTES; at least one, maybe empty.

        Work is done as the generator is asked, so that the caller decides when and on which thread.
        It may stop: it then closes the generator, and continues with a new read from the last
        chunk's next_offset. Of one writer no two are open at a time.
        UndecodableRecord after the chunk that ends before that record, and for damaged input
        MalformedBatch, DecompressedTooLarge or UnsupportedCompression (all of the format ring).
        """

    def end(self) -> bytes:
        """The bytes after the last record."""


class StreamWriter(RecordWriter, Protocol):
    """A writer whose answer is sent as it is written, with messages between the records."""

    positions: dict[int, int]
    """The next wanted offset of every partition; given and kept by the stream, from the start."""

    def caught_up(self, state: Mapping[str, object]) -> bytes:
        """The bytes that say that all records were sent; may be empty."""

    def keep_alive(self) -> bytes:
        """The bytes that keep an idle connection open; may be empty."""

    def finish(self, state: Mapping[str, object]) -> bytes:
        """The bytes that say that a bound was reached; may be empty."""

    def fail(self, error: Mapping[str, object]) -> bytes:
        """The bytes that say why the stream ends before its bound, and where to continue."""


class WriterFactory(Protocol):
    """What the table of media types (``server/fetch/stream.py``) holds for each of them."""

    def __call__(
        self, shape: RecordShape, bounds: Bounds, *, max_decompressed_bytes: int
    ) -> RecordWriter:
        """A writer for one answer."""


Buffer = bytes | bytearray | memoryview
Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
PageKernel = Callable[[Bytes, Bytes, Bytes, Int64s, Int64s], int]
_FIRST_BUFFER_BYTES = 64 << 10
_NO_BATCH = np.empty(0, np.uint8)
# The fixed text that names a member, and the part of a record that the kernel then writes.
_MEMBERS = {
    "topic": (PageText.OPENING, Shown(0)),
    "key": (PageText.OPENING, Shown.KEY),
    "value": (PageText.BEFORE_VALUE, Shown.VALUE),
    "partition": (PageText.BEFORE_OFFSET, Shown(0)),
    "offset": (PageText.BEFORE_OFFSET, Shown.OFFSET),
    "timestamp": (PageText.BEFORE_TIMESTAMP, Shown.TIMESTAMP),
    "headers": (PageText.BEFORE_HEADERS, Shown.HEADERS),
}


class Frame(NamedTuple):
    """The bytes around a record, which belong to the format."""

    between: bytes = b""  # before each record but the first
    before: bytes = b""
    after: bytes = b""
    id_before: bytes | None = None  # unless None, the offset follows ``after`` once more
    id_after: bytes = b""


class PageTexts(NamedTuple):
    """The fixed texts of the records of one partition, as the kernels take them."""

    data: Bytes
    starts: Int64s
    shown: Shown


def page_texts(
    topic: str, partition: int, frame: Frame, fields: Collection[str] = FIELDS
) -> PageTexts:
    """The texts of a record with these members of FIELDS."""
    texts = dict.fromkeys(PageText, b"")
    texts[PageText.BETWEEN] = frame.between
    texts[PageText.OPENING] = frame.before + b"{"
    shown, comma = Shown(0), b""
    for name in FIELDS:
        if name not in fields:
            continue
        text, shows = _MEMBERS[name]
        texts[text] += comma + f'"{name}":'.encode() + _constant(name, topic, partition)
        shown, comma = shown | shows, b","
    texts[PageText.CLOSING] = b"}" + frame.after
    if frame.id_before is not None:
        texts[PageText.CLOSING] += frame.id_before
        texts[PageText.LAST] = frame.id_after
        shown |= Shown.ID
    starts = np.cumsum([0, *map(len, texts.values())], dtype=np.int64)
    data = b"".join([*texts.values(), bytes(TEXT_PADDING)])
    return PageTexts(np.frombuffer(data, np.uint8), starts, shown)


def _constant(name: str, topic: str, partition: int) -> bytes:
    """The text that this member has in all records of the partition, or that opens it."""
    if name == "topic":
        return json.dumps(topic).encode()
    if name == "partition":
        return b"%d" % partition
    return b"[" if name == "headers" else b""


class PageBuffer:
    """Output that grows by doubling and may serve page after page."""

    def __init__(self, size_bytes: int = _FIRST_BUFFER_BYTES) -> None:
        self.out: Bytes = np.empty(max(size_bytes, 1), np.uint8)
        self.spans = self._spans_for(self.out)

    def reserve(self, size_bytes: int) -> None:
        """At least this many bytes; what was written is kept."""
        if size_bytes > len(self.out):
            grown = np.empty(size_bytes, np.uint8)
            grown[: len(self.out)] = self.out
            spans = self._spans_for(grown)
            spans[: len(self.spans)] = self.spans
            self.out, self.spans = grown, spans

    @staticmethod
    def _spans_for(out: Bytes) -> Int64s:
        return np.empty((len(out) // SPAN_BYTES + 2, SPAN_COLUMN_COUNT), np.int64)


_NO_BUFFER = PageBuffer(1)


class _Held(NamedTuple):
    """The batch at hand when it is not a plain one."""

    records: Bytes  # inflated; empty when none of it is shown
    end: int  # position after it
    next_offset: int


class Mark(NamedTuple):
    """The state of a writer that ``rewind`` restores."""

    state: Int64s
    held: _Held | None


class PageWriter:
    """See the module. ``state`` has the bounds and the counts, by PageCell."""

    def __init__(
        self,
        key_kind: EmbeddedKind,
        value_kind: EmbeddedKind,
        *,
        max_decompressed_bytes: int,
        is_lines: bool = False,
    ) -> None:
        self.state = np.zeros(PAGE_CELL_COUNT, np.int64)
        state = self.state
        state[PageCell.KEY_FORMAT], state[PageCell.VALUE_FORMAT] = key_kind, value_kind
        state[PageCell.IS_LINES] = is_lines
        state[PageCell.UNTIL_TIMESTAMP] = state[PageCell.CHUNK_END] = INT64_MAX
        state[PageCell.MAX_BYTES] = state[PageCell.MAX_RECORDS] = INT64_MAX
        self._max_decompressed_bytes = max_decompressed_bytes
        # of the read at hand
        self._aborted: Sequence[AbortedRange] = ()
        self._held: _Held | None = None
        self.close()

    def open(
        self,
        texts: PageTexts,
        batches: Buffer,
        from_offset: int,
        end_offset: int,
        aborted: Sequence[AbortedRange],
        buffer: PageBuffer,
    ) -> None:
        """Begin with the batches of another read; counts go on."""
        self._buffer, self._texts, self._aborted = buffer, texts.data, aborted
        self._view, self._source = memoryview(batches), np.frombuffer(batches, np.uint8)
        self._held = None
        state = self.state
        state[PageCell.TEXT_STARTS : PageCell.TEXT_STARTS + len(texts.starts)] = texts.starts
        state[PageCell.SHOWN] = texts.shown
        state[PageCell.FROM_OFFSET] = state[PageCell.NEXT_OFFSET] = from_offset
        state[PageCell.END_OFFSET] = end_offset
        state[PageCell.BATCH_POSITION] = 0
        state[PageCell.RECORDS_LEFT] = -1

    def close(self) -> None:
        """Release the read's memory, so that waiting for the next read holds none."""
        self._buffer, self._held = _NO_BUFFER, None
        self._view, self._source, self._texts = memoryview(b""), _NO_BATCH, _NO_BATCH

    def run(self) -> PageStatus:
        """Write until the read, a bound or the chunk ends; the reason is returned.

        A partial batch at the end is ignored. For damaged input MalformedBatch,
        DecompressedTooLarge or UnsupportedCompression.
        """
        state = self.state
        while True:
            held = self._held
            if held is None:
                status = self._call(write_batches, self._source)
                if status is not PageStatus.OTHER_BATCH:
                    break
                held = self._held = self._hold()
                if held is None:
                    return PageStatus.BATCH_DONE
            status = self._call(write_records, held.records)
            if status is not PageStatus.BATCH_DONE:
                break
            state[PageCell.NEXT_OFFSET] = max(state[PageCell.NEXT_OFFSET], held.next_offset)
            state[PageCell.BATCH_POSITION] = held.end
            state[PageCell.RECORDS_LEFT] = -1
            self._held = None
        if status is PageStatus.BAD_RECORD:
            position = int(state[PageCell.BATCH_POSITION])
            raise MalformedBatch("a record breaks its format in the batch", position)
        return status

    def _hold(self) -> _Held | None:
        """The batch at hand, ready for `write_records`; None when it is not whole."""
        state = self.state
        position = int(state[PageCell.BATCH_POSITION])
        header = read_header(self._view, position)
        end = position + header.size_bytes
        if end > len(self._view):
            return None
        if (
            header.last_offset < state[PageCell.FROM_OFFSET]
            or is_control(header.attributes)
            or _is_aborted(header, self._aborted)
        ):
            state[PageCell.RECORDS_LEFT] = 0
            return _Held(_NO_BATCH, end, header.next_offset)
        records: Buffer = self._view[position + HEADER_BYTES : end]
        codec = codec_of(header.attributes)
        if codec is not Codec.NONE:
            records = decompress(codec, records, max_bytes=self._max_decompressed_bytes)
        state[PageCell.BASE_OFFSET : PageCell.POSITION + 1] = (
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp,
            timestamp_type_of(header.attributes) is TimestampType.LOG_APPEND_TIME,
            header.record_count,
            0,
        )
        return _Held(np.frombuffer(records, np.uint8), end, header.next_offset)

    def _call(self, kernel: PageKernel, source: Bytes) -> PageStatus:
        """Call the kernel, growing the output as needed."""
        buffer = self._buffer
        while True:
            status = kernel(source, self._texts, buffer.out, buffer.spans, self.state)
            if status != PageStatus.GROW:
                return PageStatus(status)
            buffer.reserve(2 * len(buffer.out))

    def mark(self) -> Mark:
        """Where it is now."""
        return Mark(self.state.copy(), self._held)

    def rewind(self, mark: Mark) -> None:
        """Back to where it was, within the same read."""
        self.state[:] = mark.state
        self._held = mark.held

    def put(self, text: bytes) -> None:
        """Write bytes that are no record."""
        position = int(self.state[PageCell.OUT_POSITION])
        end = position + len(text)
        self._buffer.reserve(end)
        self._buffer.out[position:end] = np.frombuffer(text, np.uint8)
        self.state[PageCell.OUT_POSITION] = end

    def take(self) -> bytes:
        """The bytes written since the last call."""
        written = self._buffer.out[: int(self.state[PageCell.OUT_POSITION])].tobytes()
        self.state[PageCell.OUT_POSITION] = self.state[PageCell.SPANS] = 0
        return written

    def fault(self, status: PageStatus) -> UndecodableRecord | None:
        """The first record since ``take`` that does not fit its format, if there is one."""
        state = self.state
        count = int(state[PageCell.SPANS])
        if count:
            spans = self._buffer.spans
            work, cells = scan.walk_memory(0)
            bad = scan.check_values(self._buffer.out, spans, count, DEPTH_MAX, work, cells)
            if bad >= 0:
                return UndecodableRecord(int(spans[bad, 2]), _part(int(spans[bad, 3])), "json")
        if status is PageStatus.BAD_TEXT:
            part = _part(int(state[PageCell.FAILED_IS_VALUE]))
            return UndecodableRecord(int(state[PageCell.FAILED_OFFSET]), part, "text")
        return None


def _part(is_value: int) -> str:
    return "value" if is_value else "key"


def _is_aborted(header: BatchHeader, aborted: Sequence[AbortedRange]) -> bool:
    """Whether the batch belongs to one of the aborted transactions."""
    return is_transactional(header.attributes) and any(
        producer_id == header.producer_id and first <= header.base_offset <= last
        for producer_id, first, last in aborted
    )
