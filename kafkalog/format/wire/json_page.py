"""JSON on the data path: the pages of a v2 fetch, the receipts of a produce, the check of a body.

Owns the shape of a v2 page and the rules of a request body. Runs no Python statement per record.
Any thread; a `PageBuffer` belongs to one caller at a time. Source: the v2 API of Confluent's REST
Proxy and Redpanda's pandaproxy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kafkalog.format.integers import INT64_MAX, FormatError
from kafkalog.format.wire.record_writer import Frame, PageBuffer, PageWriter, page_texts
from kafkalog.kernels.json import scan
from kafkalog.kernels.json.output import EmbeddedKind, PageCell, PageStatus
from kafkalog.kernels.json.records import (
    RECEIPT_BYTES_MAX,
    JsonFault,
    write_receipts as write_receipts_kernel,
)
from kafkalog.kernels.json.scan import DEPTH_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.format.wire.record_writer import AbortedRange

Buffer = bytes | bytearray | memoryview

_KINDS = {"binary": EmbeddedKind.BINARY, "json": EmbeddedKind.JSON, "text": EmbeddedKind.TEXT}
_ARRAY = Frame(between=b",")
_FIRST_BUFFER_BYTES = 64 << 10
_FAULTS = {
    JsonFault.SYNTAX: "this is not JSON",
    JsonFault.BAD_UTF8: "this is not UTF-8",
    JsonFault.TOO_DEEP: "objects and arrays are nested too deep",
    JsonFault.DUPLICATE_KEY: "a key appears twice in an object",
    JsonFault.LONG_NUMBER: f"a number has more than {scan.DIGITS_MAX} characters",
    JsonFault.LONE_SURROGATE: "half a surrogate pair is escaped",
    JsonFault.BYTE_ORDER_MARK: "the text begins with a byte order mark",
    JsonFault.TOO_MANY_KEYS: f"an object has more than {scan.KEYS_MAX} keys",
    JsonFault.CONTROL_CHARACTER: "a string holds an unescaped control character",
}


class MalformedJson(FormatError):
    """The text of a body is refused; ``fault`` names the rule, ``position`` the byte."""

    def __init__(self, fault: JsonFault, position: int) -> None:
        super().__init__(_FAULTS[fault], position)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class JsonPage:
    """A JSON array of `count` records; the next fetch starts at `next_offset`."""

    body: bytes
    next_offset: int
    count: int


def write_page(  # noqa: PLR0913 - keywords
    topic: str,
    partition: int,
    batches: Buffer,
    from_offset: int,
    *,
    format: str,
    max_bytes: int,
    max_decompressed_bytes: int,
    max_records: int = INT64_MAX,
    end_offset: int | None = None,
    aborted: Sequence[AbortedRange] = (),
    buffer: PageBuffer | None = None,
) -> JsonPage:
    """The JSON answer of a v2 fetch: records of the whole batches in `batches` from from_offset on.

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
    page = PageWriter(kind, kind, max_decompressed_bytes=max_decompressed_bytes)
    page.state[PageCell.MAX_BYTES] = max_bytes
    page.state[PageCell.MAX_RECORDS] = max_records
    last_offset = INT64_MAX if end_offset is None else end_offset
    page.open(
        page_texts(topic, partition, _ARRAY), batches, from_offset, last_offset, aborted, buffer
    )
    page.put(b"[")
    status = page.run()
    fault = page.fault(status)
    if fault is not None:
        raise fault
    page.put(b"]")
    next_offset = int(page.state[PageCell.NEXT_OFFSET])
    if end_offset is not None and status is PageStatus.BATCH_DONE:
        next_offset = max(next_offset, end_offset)
    return JsonPage(page.take(), next_offset, int(page.state[PageCell.COUNT]))


def write_receipt(partition: int, offset: int) -> bytes:
    """As `write_receipts` for one record, faster than a call of the kernel."""
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


def check_envelope(body: Buffer, max_depth: int = DEPTH_MAX) -> None:
    """Refuse a body that is no strict JSON, before anything decodes it.

    One JSON text in UTF-8 without byte order mark, at most max_depth (<= 64) containers deep,
    numbers of at most 40 characters, no NaN or Infinity, no lone surrogates, no key twice in an
    object except inside `records[*].key` and `records[*].value`, which are kept as sent. Raises
    MalformedJson.
    """
    text = np.frombuffer(body, np.uint8)
    work, state = scan.walk_memory(len(text))
    status = scan.check_envelope(text, max_depth, work, state)
    if status < 0:
        raise MalformedJson(JsonFault(-status), int(state[0]))
