"""ArrowReader: records to append from the messages of an Arrow IPC stream.

Owns the columns that records may have, their types, and the conversion of Arrow's buffers to the
columns of the batch builder. `value` is required; `key`, `headers`, `timestamp` and `partition` are
optional; any other column is refused, because it would be lost. A stream from outside is used only
after pyarrow's full validation (offsets within their buffers, text that is UTF-8); `record_block`
expects a valid batch. Runs no Python statement per record. Any thread. Imports pyarrow, an optional
dependency: see `arrow_writer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.format.records.batch_builder import Blob, HeaderBlobs, RecordColumns, cuts
from kafkalog.format.wire.arrow_messages import (
    MalformedArrow,
    MessageKind,
    MessageTooLarge,
    UnusableColumn,
    kind_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

UNNAMED = -1
"""The partition of a record that names none."""

_RECORD_BYTES = 36  # of a record beyond its key, value and headers, at the most
_HEADER_BYTES = 10  # of a header beyond its name and value, at the most
_EMPTY = np.empty(0, np.uint8)
_ZERO = np.zeros(1, np.int64)
_NOT_TAKEN = {
    "topic": "the path names it",
    "offset": "it is assigned by the append",
    "timestampType": "the topic's configuration decides it",
}
_PER_MS = {"us": 1000, "ns": 1_000_000}
_BLOCK_RECORDS = 1 << 16  # decoded at once: what bounds the memory beside the stream's own


class ArrowReader:
    """One stream. Any thread, one at a time.

    piece_bytes  records come in pieces; the batch of a piece is no larger, unless one record is
    max_bytes    to which the values of a column may come that show the same bytes again and again
    """

    def __init__(self, *, piece_bytes: int, max_bytes: int) -> None:
        self._piece_bytes = piece_bytes
        self._max_bytes = max_bytes
        self._schema = pa.schema([])

    def read(self, message: bytes, now_ms: int) -> Iterator[ArrowRecords]:
        """The records of the next message (`MessageCutter`), decoded as they are asked for.

        Records without a timestamp get now_ms. MalformedArrow, MessageTooLarge, UnusableColumn;
        the records before are good all the same.
        """
        kind = kind_of(message)
        if kind is MessageKind.DICTIONARY_BATCH:
            raise MalformedArrow("the Arrow stream holds a dictionary for no column")
        try:
            if kind is MessageKind.SCHEMA:
                schema = pa.ipc.read_schema(pa.py_buffer(message))
                check_columns(schema)
                self._schema = schema
                return
            batch = pa.ipc.read_record_batch(pa.py_buffer(message), self._schema)
            batch.validate(full=True)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # names may be no UTF-8
            said = " ".join(str(error).split())
            raise MalformedArrow(f"the Arrow stream is damaged: {said}") from error
        for first in range(0, batch.num_rows, _BLOCK_RECORDS):
            block = record_block(batch.slice(first, _BLOCK_RECORDS), now_ms, self._max_bytes)
            start = 0
            for end in cuts(block.sizes(), self._piece_bytes):
                yield block.piece(start, end)
                start = end


class ArrowRecords(NamedTuple):
    """Records in the order of the stream.

    partitions   UNNAMED where a record names none; None when none does
    """

    columns: RecordColumns
    partitions: Int64s | None


class _Spans(NamedTuple):
    """A column of bytes: lengths (-1: null), where each begins and the last one ends, the bytes."""

    lengths: Int64s
    ends: Int64s
    data: Bytes

    @classmethod
    def nulls(cls, count: int) -> _Spans:
        """Of nothing but nulls."""
        return cls(np.full(count, -1, np.int64), np.zeros(count + 1, np.int64), _EMPTY)

    def blob(self, start: int, end: int) -> Blob:
        """These rows."""
        return Blob(self.lengths[start:end], self.data[self.ends[start] : self.ends[end]])


class _Headers(NamedTuple):
    """A column of headers: how many come before each row and before the end."""

    ends: Int64s
    names: _Spans
    values: _Spans

    def sizes(self) -> Int64s:
        """Bytes that the headers of each row take at the most."""
        sizes = _HEADER_BYTES + self.names.lengths + np.maximum(self.values.lengths, 0)
        starts: Int64s = np.concatenate((_ZERO, np.cumsum(sizes, dtype=np.int64)))
        return starts[self.ends[1:]] - starts[self.ends[:-1]]

    def blobs(self, start: int, end: int) -> HeaderBlobs:
        """Those of these rows."""
        first, last = int(self.ends[start]), int(self.ends[end])
        counts = np.diff(self.ends[start : end + 1])
        return HeaderBlobs(counts, self.names.blob(first, last), self.values.blob(first, last))


class RecordBlock(NamedTuple):
    """The columns of some records."""

    keys: _Spans
    values: _Spans
    headers: _Headers | None
    timestamps: Int64s
    partitions: Int64s | None

    def sizes(self) -> Int64s:
        """Bytes that each record takes in a batch at the most."""
        sizes: Int64s = _RECORD_BYTES + np.maximum(self.keys.lengths, 0)
        sizes += np.maximum(self.values.lengths, 0)
        if self.headers is not None:
            sizes += self.headers.sizes()
        return sizes

    def piece(self, start: int, end: int) -> ArrowRecords:
        """These rows."""
        headers = None if self.headers is None else self.headers.blobs(start, end)
        columns = RecordColumns.of_blobs(
            self.keys.blob(start, end),
            self.values.blob(start, end),
            self.timestamps[start:end],
            headers,
        )
        return ArrowRecords(
            columns, None if self.partitions is None else self.partitions[start:end]
        )


def record_block(batch: pa.RecordBatch, now_ms: int, max_bytes: int) -> RecordBlock:
    """The columns of a sound batch whose types `check_columns` takes; others are passed over.

    now_ms      for records without a timestamp
    max_bytes   to which the views of a column may come

    UnusableColumn for a value that no record may have, MessageTooLarge.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    nothing = pa.nulls(batch.num_rows)
    return RecordBlock(
        _spans("key", columns.get("key", nothing), max_bytes),
        _spans("value", columns["value"], max_bytes),
        _headers(columns.get("headers", nothing), max_bytes),
        _timestamps(columns.get("timestamp", nothing), now_ms),
        _partitions(columns.get("partition", nothing)),
    )


def check_columns(schema: pa.Schema) -> None:
    """Names and types. UnusableColumn."""
    for field in schema:
        check = _CHECKS.get(field.name)
        if check is None:
            reason = _NOT_TAKEN.get(field.name, "it is unknown")
            raise UnusableColumn(field.name, f"{reason}; {', '.join(_CHECKS)} are taken")
        if schema.names.count(field.name) > 1:
            raise UnusableColumn(field.name, "there are several")
        check(field.name, field.type)
    if "value" not in schema.names:
        raise UnusableColumn("value", "it is missing")


# types


def _wrong_type(column: str, kind: pa.DataType, wanted: str) -> UnusableColumn:
    return UnusableColumn(column, f"type {kind} is not taken; send {wanted}")


def _is_text(kind: pa.DataType) -> bool:
    """Whether its values are bytes or text of any length."""
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
        or _is_view(kind)
    )


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary_view(kind) or pa.types.is_string_view(kind))


def _check_value(column: str, kind: pa.DataType) -> None:
    if not _is_text(kind):
        raise _wrong_type(column, kind, "binary or utf8")


def _check_key(column: str, kind: pa.DataType) -> None:
    if not pa.types.is_null(kind):
        _check_value(column, kind)


def _check_headers(column: str, kind: pa.DataType) -> None:
    if pa.types.is_null(kind):
        return
    wanted = "list<struct<key: utf8, value: binary>>"
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise _wrong_type(column, kind, wanted)
    pair = kind.value_type
    if not pa.types.is_struct(pair) or sorted(field.name for field in pair) != ["key", "value"]:
        raise _wrong_type(column, kind, wanted)
    value_type = pair.field("value").type
    if not _is_text(pair.field("key").type) or not (
        _is_text(value_type) or pa.types.is_null(value_type)
    ):
        raise _wrong_type(column, kind, wanted)


def _check_timestamp(column: str, kind: pa.DataType) -> None:
    if pa.types.is_timestamp(kind) and kind.tz is None:
        raise UnusableColumn(column, "it has no time zone; send timestamp[ms, UTC]")
    if not (pa.types.is_timestamp(kind) or pa.types.is_int64(kind) or pa.types.is_null(kind)):
        raise _wrong_type(column, kind, "timestamp[ms, UTC], or int64 of milliseconds")


def _check_partition(column: str, kind: pa.DataType) -> None:
    if not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise _wrong_type(column, kind, "int32")


_CHECKS: dict[str, Callable[[str, pa.DataType], None]] = {
    "key": _check_key,
    "value": _check_value,
    "headers": _check_headers,
    "timestamp": _check_timestamp,
    "partition": _check_partition,
}


# values


def _spans(column: str, array: pa.Array, max_bytes: int) -> _Spans:
    """A column of bytes or text; nulls take no bytes."""
    count = len(array)
    if count == array.null_count:
        return _Spans.nulls(count)
    nulls = _nulls(array)
    if _is_view(array.type):
        array = _sound_views(array, nulls, max_bytes)
    try:
        array = array.cast(pa.binary())
    except pa.ArrowException as error:  # a large column that needs wider offsets
        raise UnusableColumn(column, str(error)) from error
    ends, lengths = _ends(array)
    if nulls is not None:
        if lengths[nulls].any():
            ends, lengths = _ends(array := array.fill_null(b""))
        lengths[nulls] = -1
    data = array.buffers()[2]
    return _Spans(lengths, ends, np.frombuffer(data, np.uint8) if ends[-1] else _EMPTY)


def _ends(array: pa.Array) -> tuple[Int64s, Int64s]:
    """(where each value begins and the last ends, how long each is)."""
    start, count = array.offset, len(array)
    ends = np.frombuffer(array.buffers()[1], np.int32, count=start + count + 1)[start:]
    return ends.astype(np.int64), np.diff(ends).astype(np.int64)


def _nulls(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Which are null; None when none is."""
    if not array.null_count:
        return None
    nulls: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _sound_views(array: pa.Array, nulls: npt.NDArray[np.bool_] | None, max_bytes: int) -> pa.Array:
    """The same views, those of nulls empty.

    pyarrow does not validate the views of nulls, but reads them when it converts the
    column: hostile bytes there ended the process. And many views may show the same bytes, so what
    they refer to is bounded before it is copied.
    """
    start, count = array.offset, len(array)
    _, buffer, *data = array.buffers()
    views = np.frombuffer(buffer, np.int32, count=4 * (start + count)).reshape(-1, 4)[start:].copy()
    if nulls is not None:
        views[nulls] = 0
    if int(views[:, 0].sum(dtype=np.int64)) > max_bytes:
        raise MessageTooLarge(max_bytes)
    return pa.Array.from_buffers(array.type, count, [None, pa.py_buffer(views), *data])


def _headers(array: pa.Array, max_bytes: int) -> _Headers | None:
    """A column of headers; None without any."""
    if array.null_count == len(array):
        return None
    counts = array.value_lengths().fill_null(0).to_numpy()
    pairs = array.flatten()
    if pairs.null_count:
        raise UnusableColumn("headers", "a header is null")
    names = pairs.field("key")
    if names.null_count:
        raise UnusableColumn("headers", "the key of a header is null")
    _check_utf8(names)
    ends = np.concatenate((_ZERO, np.cumsum(counts, dtype=np.int64)))
    values = _spans("headers", pairs.field("value"), max_bytes)
    return _Headers(ends, _spans("headers", names, max_bytes), values)


def _check_utf8(names: pa.Array) -> None:
    """Names may come as bytes; those that came as text were validated."""
    try:
        if pa.types.is_binary(names.type) or pa.types.is_large_binary(names.type):
            names.cast(pa.large_utf8())
        elif pa.types.is_binary_view(names.type):
            names.cast(pa.string_view())
    except pa.ArrowException as error:
        raise UnusableColumn("headers", "the key of a header is not UTF-8") from error


def _timestamps(array: pa.Array, now_ms: int) -> Int64s:
    """Milliseconds; now where there is none."""
    if array.null_count == len(array):
        return np.full(len(array), now_ms, np.int64)
    unit = array.type.unit if pa.types.is_timestamp(array.type) else "ms"
    nulls = _nulls(array)
    stamps: Int64s = array.cast(pa.int64()).fill_null(0).to_numpy().copy()
    if unit == "s":
        if int(stamps.max()) > INT64_MAX // 1000:
            raise UnusableColumn("timestamp", "it is beyond 64 bits of milliseconds")
        stamps = np.maximum(stamps, -1) * 1000  # any lower value is refused
    elif unit != "ms":
        stamps //= _PER_MS[unit]
    if int(stamps.min()) < -1:
        raise UnusableColumn("timestamp", "it must be at least -1 ms since 1970")
    if nulls is not None:
        stamps[nulls] = now_ms
    return stamps


def _partitions(array: pa.Array) -> Int64s | None:
    """UNNAMED where there is none; None when none is named."""
    if array.null_count == len(array):
        return None
    nulls = _nulls(array)
    try:
        named: Int64s = array.cast(pa.int64()).fill_null(0).to_numpy().copy()
    except pa.ArrowException as error:
        raise UnusableColumn("partition", "it is beyond 64 bits") from error
    if int(named.min()) < 0 or int(named.max()) > INT32_MAX:
        raise UnusableColumn("partition", f"it must be a number from 0 to {INT32_MAX}")
    if nulls is not None:
        named[nulls] = UNNAMED
    return named
