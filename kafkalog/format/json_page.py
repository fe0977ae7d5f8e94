"""JSON on the data path: the pages of a fetch, the receipts of a produce, the scan of a body.

Owns the choice of batches for a page (control and aborted ones are left out), the growth of the
output and the turn from kernel status to error. No Python statement per record. Any thread; a
`PageBuffer` belongs to one caller at a time. Source: http-api.md 1.4 and 3.3 (the v2 surface of
Confluent's REST Proxy and Redpanda's pandaproxy), reliability.md 4 for what a body may hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kafkalog.format.compression import decompress
from kafkalog.format.format_error import FormatError
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.record import DECOMPRESSED_BYTES_MAX
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
from kafkalog.kernels import json_text
from kafkalog.kernels.json_fault import JsonFault
from kafkalog.kernels.json_page_cells import (
    PAGE_CELL_COUNT,
    SPAN_BYTES,
    SPAN_COLUMN_COUNT,
    EmbeddedKind,
    PageCell,
    PageStatus,
)
from kafkalog.kernels.json_records import RECEIPT_BYTES_MAX, write_batches, write_records
from kafkalog.kernels.json_records import (
    write_receipts as write_receipts_kernel,
)
from kafkalog.kernels.json_text import DEPTH_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

Buffer = bytes | bytearray | memoryview
Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
PageKernel = Callable[[Bytes, Bytes, Bytes, Bytes, Int64s, Int64s], int]
AbortedRange = tuple[int, int, int]
"""(producer id, first offset, last offset), both ends inclusive."""

_KINDS = {"binary": EmbeddedKind.BINARY, "json": EmbeddedKind.JSON, "text": EmbeddedKind.TEXT}
_FIRST_BUFFER_BYTES = 64 << 10
_FAULTS = {
    JsonFault.SYNTAX: "this is not JSON",
    JsonFault.BAD_UTF8: "this is not UTF-8",
    JsonFault.TOO_DEEP: "objects and arrays are nested too deep",
    JsonFault.DUPLICATE_KEY: "a key appears twice in an object",
    JsonFault.LONG_NUMBER: f"a number has more than {json_text.DIGITS_MAX} characters",
    JsonFault.LONE_SURROGATE: "half a surrogate pair is escaped",
    JsonFault.BYTE_ORDER_MARK: "the text begins with a byte order mark",
    JsonFault.TOO_MANY_KEYS: f"an object has more than {json_text.KEYS_MAX} keys",
    JsonFault.CONTROL_CHARACTER: "a string holds an unescaped control character",
}


class MalformedJson(FormatError):
    """The text of a body is refused; ``fault`` names the rule, ``position`` the byte."""

    def __init__(self, fault: JsonFault, position: int) -> None:
        super().__init__(_FAULTS[fault], position)
        self.fault = fault


class UndecodableRecord(FormatError):
    """A stored key or value is not JSON or not UTF-8; ``part`` is "key" or "value"."""

    def __init__(self, offset: int, part: str, embedded: str) -> None:
        super().__init__(f"the {part} at offset {offset} is not {embedded}")
        self.offset = offset
        self.part = part


@dataclass(frozen=True, slots=True)
class JsonPage:
    """A JSON array of `count` records; the next fetch starts at `next_offset`."""

    body: bytes
    next_offset: int
    count: int


class PageBuffer:
    """Output that grows by doubling and may serve page after page."""

    def __init__(self, size_bytes: int = _FIRST_BUFFER_BYTES) -> None:
        self.out: npt.NDArray[np.uint8] = np.empty(max(size_bytes, 1), np.uint8)
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
    def _spans_for(out: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        return np.empty((len(out) // SPAN_BYTES + 1, SPAN_COLUMN_COUNT), np.int64)


class _PageWriter:
    """One page in the making: the state of the kernel and the fixed texts of its records."""

    def __init__(
        self, topic: str, partition: int, from_offset: int, max_bytes: int, buffer: PageBuffer
    ) -> None:
        self.buffer = buffer
        self.state = np.zeros(PAGE_CELL_COUNT, np.int64)
        self.state[PageCell.FROM_OFFSET] = from_offset
        self.state[PageCell.NEXT_OFFSET] = from_offset
        self.state[PageCell.MAX_BYTES] = max_bytes
        self.state[PageCell.OUT_POSITION] = 1
        buffer.out[0] = ord("[")
        opening = f'{{"topic":{json.dumps(topic)},"key":'
        self._opening = np.frombuffer(opening.encode(), np.uint8)
        self._middle = np.frombuffer(f',"partition":{partition},"offset":'.encode(), np.uint8)

    def write_plain(self, batches: Bytes) -> PageStatus:
        """Write batches as they lie there, up to the first that `write` must look at."""
        return self._run(write_batches, batches)

    def write(self, header: BatchHeader, records: Buffer) -> PageStatus:
        """Write one batch from its inflated records."""
        append_time = timestamp_type_of(header.attributes) is TimestampType.LOG_APPEND_TIME
        self.state[PageCell.BASE_OFFSET : PageCell.POSITION + 1] = (
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp,
            append_time,
            header.record_count,
            0,
        )
        return self._run(write_records, np.frombuffer(records, np.uint8))

    def _run(self, kernel: PageKernel, source: Bytes) -> PageStatus:
        """Call the kernel, growing the output as needed."""
        buffer = self.buffer
        while True:
            status = kernel(
                source, self._opening, self._middle, buffer.out, buffer.spans, self.state
            )
            if status != PageStatus.GROW:
                return PageStatus(status)
            buffer.reserve(2 * len(buffer.out))

    def finish(self) -> bytes:
        """The whole page."""
        end = int(self.state[PageCell.OUT_POSITION])
        self.buffer.reserve(end + 1)
        self.buffer.out[end] = ord("]")
        return self.buffer.out[: end + 1].tobytes()

    def check_json(self) -> None:
        """Raise UndecodableRecord for the first stored text that is not one JSON value."""
        spans = self.buffer.spans
        work, state = _walk_memory(0)
        bad = json_text.check_values(
            self.buffer.out, spans, int(self.state[PageCell.SPANS]), DEPTH_MAX, work, state
        )
        if bad >= 0:
            raise UndecodableRecord(int(spans[bad, 2]), _part(int(spans[bad, 3])), "json")


def _part(is_value: int) -> str:
    return "value" if is_value else "key"


def _is_aborted(header: BatchHeader, aborted: Sequence[AbortedRange]) -> bool:
    """Whether the batch belongs to one of the aborted transactions."""
    return is_transactional(header.attributes) and any(
        producer_id == header.producer_id and first <= header.base_offset <= last
        for producer_id, first, last in aborted
    )


def write_page(  # noqa: PLR0913 - keywords, each with a meaning of its own
    topic: str,
    partition: int,
    batches: Buffer,
    from_offset: int,
    *,
    format: str,
    max_bytes: int,
    end_offset: int | None = None,
    aborted: Sequence[AbortedRange] = (),
    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX,
    buffer: PageBuffer | None = None,
) -> JsonPage:
    """The JSON answer of a fetch: records of the whole batches in `batches` from from_offset on.

    format      "binary" (base64), "json" (as stored) or "text" (UTF-8 strings)
    max_bytes   of keys and values together; one record is always admitted
    end_offset  records from here on are not shown; also the least next_offset once all was read
    aborted     transactions whose batches are left out (read_committed)

    A partial batch at the end is ignored. Raises UndecodableRecord, and for damaged input
    MalformedBatch, DecompressedTooLarge or UnsupportedCompression.
    """
    kind = _KINDS[format]
    if buffer is None:
        buffer = PageBuffer(_FIRST_BUFFER_BYTES + 2 * min(max_bytes, len(batches)))
    page = _PageWriter(topic, partition, from_offset, max_bytes, buffer)
    state = page.state
    state[PageCell.FORMAT] = kind
    state[PageCell.END_OFFSET] = INT64_MAX if end_offset is None else end_offset
    status = _write_all(page, batches, from_offset, aborted, max_decompressed_bytes)
    if kind is EmbeddedKind.JSON:
        page.check_json()
    if status is PageStatus.BAD_TEXT:
        failed = int(state[PageCell.FAILED_OFFSET])
        raise UndecodableRecord(failed, _part(int(state[PageCell.FAILED_IS_VALUE])), format)
    next_offset = int(state[PageCell.NEXT_OFFSET])
    if end_offset is not None and status is PageStatus.BATCH_DONE:
        next_offset = max(next_offset, end_offset)
    return JsonPage(page.finish(), next_offset, int(state[PageCell.COUNT]))


def _write_all(
    page: _PageWriter,
    batches: Buffer,
    from_offset: int,
    aborted: Sequence[AbortedRange],
    max_decompressed_bytes: int,
) -> PageStatus:
    """Plain batches run by run, the others one by one; why the page ended."""
    view, source, state = memoryview(batches), np.frombuffer(batches, np.uint8), page.state
    while True:
        state[PageCell.RECORDS_LEFT] = -1
        status = page.write_plain(source)
        position = int(state[PageCell.BATCH_POSITION])
        if status is PageStatus.OTHER_BATCH:
            header = read_header(view, position)
            batch_end = position + header.size_bytes
            if batch_end > len(view):
                return PageStatus.BATCH_DONE
            status = PageStatus.BATCH_DONE
            if header.last_offset >= from_offset and not (
                is_control(header.attributes) or _is_aborted(header, aborted)
            ):
                records: Buffer = view[position + HEADER_BYTES : batch_end]
                codec = codec_of(header.attributes)
                if codec is not Codec.NONE:
                    records = decompress(codec, records, max_bytes=max_decompressed_bytes)
                status = page.write(header, records)
            if status is PageStatus.BATCH_DONE:
                state[PageCell.NEXT_OFFSET] = max(state[PageCell.NEXT_OFFSET], header.next_offset)
                state[PageCell.BATCH_POSITION] = batch_end
                continue
        if status is PageStatus.BAD_RECORD:
            raise MalformedBatch("a record breaks its format in the batch", position)
        return status


def write_receipt(partition: int, offset: int) -> bytes:
    """What `write_receipts` makes of one record, for less than calling the kernel costs."""
    return b'"offsets":[{"partition":%d,"offset":%d,"error_code":null,"error":null}]' % (
        partition,
        offset,
    )


def write_receipts(
    partitions: npt.NDArray[np.int32] | npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]
) -> bytes:
    """The member `"offsets":[...]` of a produce answer in which every record was stored."""
    opening = b'"offsets":['
    out = np.empty(len(opening) + len(offsets) * RECEIPT_BYTES_MAX + 1, np.uint8)
    out[: len(opening)] = np.frombuffer(opening, np.uint8)
    wide = np.ascontiguousarray(partitions, np.int64)
    assert len(wide) == len(offsets), "one partition per offset"
    end = write_receipts_kernel(wide, np.ascontiguousarray(offsets), out, len(opening))
    out[end] = ord("]")
    return out[: end + 1].tobytes()


def _walk_memory(text_bytes: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(working memory, state) of a JSON check; untouched rows cost nothing."""
    work = np.empty((json_text.work_rows(text_bytes), json_text.WORK_COLUMN_COUNT), np.int64)
    return work, np.empty(json_text.STATE_CELL_COUNT, np.int64)


def check_envelope(body: Buffer, max_depth: int = DEPTH_MAX) -> None:
    """Refuse a body that is no strict JSON, before anything decodes it.

    One JSON text in UTF-8 without byte order mark, at most max_depth (<= 64) containers deep,
    numbers of at most 40 characters, no NaN or Infinity, no lone surrogates, no key twice in an
    object except inside `records[*].key` and `records[*].value`, which are kept as sent. Raises
    MalformedJson.
    """
    text = np.frombuffer(body, np.uint8)
    work, state = _walk_memory(len(text))
    status = json_text.check_envelope(text, max_depth, work, state)
    if status < 0:
        raise MalformedJson(JsonFault(-status), int(state[0]))
