"""PageWriter: the batches of reads on their way through the kernels that write records as text.

Owns the choice of batches (control and aborted ones are left out), their inflation, the growth of
the output and the turn from kernel status to error. What stands around the members of a record is
the caller's: an array of the v2 API, lines, events. No Python statement per record. Any thread; one
at a time. Source: http-api.md 3.3 and 3.6.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog.format.compression import decompress
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.record_batch import (
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
from kafkalog.format.record_writer import FIELDS, UndecodableRecord
from kafkalog.kernels import json_text
from kafkalog.kernels.json_page_cells import (
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
from kafkalog.kernels.json_records import write_batches, write_records
from kafkalog.kernels.json_text import DEPTH_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kafkalog.format.record_writer import AbortedRange

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
    """What stands around a record: bytes of the format, not of the record."""

    between: bytes = b""  # before each record but the first
    before: bytes = b""
    after: bytes = b""
    id_before: bytes | None = None  # behind ``after`` the offset once more, if this is not None
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
    """What all records of the partition have in this member, or what opens it."""
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
    end: int  # position behind it
    next_offset: int


class Mark(NamedTuple):
    """Where a writer was: ``rewind`` goes back there."""

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
        """Let go of the read's memory; who waits for the next one holds none."""
        self._buffer, self._held = _NO_BUFFER, None
        self._view, self._source, self._texts = memoryview(b""), _NO_BATCH, _NO_BATCH

    def run(self) -> PageStatus:
        """Write until the read, a bound or the chunk ends; why it came back.

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
        """What was written since the last time."""
        written = self._buffer.out[: int(self.state[PageCell.OUT_POSITION])].tobytes()
        self.state[PageCell.OUT_POSITION] = self.state[PageCell.SPANS] = 0
        return written

    def fault(self, status: PageStatus) -> UndecodableRecord | None:
        """The first record since ``take`` that does not fit its format, if there is one."""
        state = self.state
        count = int(state[PageCell.SPANS])
        if count:
            spans = self._buffer.spans
            work, cells = walk_memory(0)
            bad = json_text.check_values(self._buffer.out, spans, count, DEPTH_MAX, work, cells)
            if bad >= 0:
                return UndecodableRecord(int(spans[bad, 2]), _part(int(spans[bad, 3])), "json")
        if status is PageStatus.BAD_TEXT:
            part = _part(int(state[PageCell.FAILED_IS_VALUE]))
            return UndecodableRecord(int(state[PageCell.FAILED_OFFSET]), part, "text")
        return None


def walk_memory(text_bytes: int) -> tuple[Int64s, Int64s]:
    """(working memory, state) of a check by `json_text`; untouched rows cost nothing."""
    work = np.empty((json_text.work_rows(text_bytes), json_text.WORK_COLUMN_COUNT), np.int64)
    return work, np.empty(json_text.STATE_CELL_COUNT, np.int64)


def _part(is_value: int) -> str:
    return "value" if is_value else "key"


def _is_aborted(header: BatchHeader, aborted: Sequence[AbortedRange]) -> bool:
    """Whether the batch belongs to one of the aborted transactions."""
    return is_transactional(header.attributes) and any(
        producer_id == header.producer_id and first <= header.base_offset <= last
        for producer_id, first, last in aborted
    )
