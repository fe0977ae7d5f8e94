"""The Arrow schemas of records, and the columns of a chunk as an Arrow record batch.

Owns the schema of answers over HTTP, the types that other schemas may have, and the memory that
`kernels/records/arrow_columns.py` fills. That memory becomes the buffers of the batch without a
copy: the batch must be encoded before the columns are filled again. Imports pyarrow, an optional
dependency: see `arrow_writer`. Source: Arrow's columnar format 1.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kafkalog.format.integers import INT64_MAX, FormatError
from kafkalog.kernels.records.arrow_columns import (
    HEADER_BYTES_MIN,
    NAME_GROWTH,
    DataRow,
    FillCell,
    FillStatus,
    HeaderRow,
    NumberRow,
    PresentRow,
    RecordRow,
    fill_columns,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

HEADER_TYPE = pa.struct([("key", pa.utf8()), ("value", pa.binary())])
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.dictionary(pa.int32(), pa.utf8())),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(HEADER_TYPE)),
    ]
)
"""Of Spark's Kafka source with headers: null where a record has none; timestampType 0 is
CreateTime, 1 LogAppendTime; a timestamp of -1 ms is one that the record does not have."""

_US_PER_MS = 1000
_MS_OF_US = range(-(INT64_MAX // _US_PER_MS), INT64_MAX // _US_PER_MS + 1)

RECORDS_PER_BATCH = 1 << 14


def check_schema(schema: pa.Schema) -> None:
    """Raise ValueError unless ``ArrowColumns.batch`` can make its columns.

    Any of those of ``SCHEMA``, in any order: the topic as plain text or as a dictionary, the
    timestamp in ms or us, headers as a list of a text and a binary whatever its fields are named.
    """
    if not len(schema):
        raise ValueError("A schema without columns")
    for field in schema:
        expected = SCHEMA.field(field.name).type if field.name in SCHEMA.names else None
        kind = field.type
        if field.name == "topic":
            is_known = kind in (expected, pa.utf8())
        elif field.name == "timestamp":
            is_known = kind in (expected, pa.timestamp("us", tz="UTC"))
        elif field.name == "headers" and pa.types.is_list(kind):
            pair = kind.value_type
            is_known = pa.types.is_struct(pair) and [
                pair.field(slot).type for slot in range(pair.num_fields)
            ] == [pa.utf8(), pa.binary()]
        else:
            is_known = kind == expected
        if not is_known:
            raise ValueError(f"No column of records is {field.name} {kind}")


class ArrowColumns:
    """The columns of one chunk of at most ``records``.

    data_bytes    room for the bytes of each column of bytes
    with_headers  False: ``fill`` must leave them out, there is no room for any
    """

    def __init__(
        self, data_bytes: int, records: int = RECORDS_PER_BATCH, *, with_headers: bool = True
    ) -> None:
        headers = data_bytes // (NAME_GROWTH * HEADER_BYTES_MIN) + 1 if with_headers else 0
        data_rows = len(DataRow) if with_headers else DataRow.NAME
        self._numbers = np.empty((len(NumberRow), records), np.int64)
        self._records = np.empty((len(RecordRow), records + 1), np.int32)
        self._present = np.empty((len(PresentRow), max(records, headers)), np.uint8)
        self._headers = np.empty((len(HeaderRow), headers + 1), np.int32)
        self._data = np.empty((data_rows, data_bytes), np.uint8)
        self._records[:, 0] = self._headers[:, 0] = 0  # where the first one begins

    def fill(
        self,
        source: npt.NDArray[np.uint8],
        batches: npt.NDArray[np.int64],
        state: npt.NDArray[np.int64],
    ) -> FillStatus:
        """Append records of the batches (`SourceColumn`) as `fill_columns` does."""
        return FillStatus(
            fill_columns(
                source,
                batches,
                self._numbers,
                self._records,
                self._present,
                self._headers,
                self._data,
                state,
            )
        )

    def batch(
        self, schema: pa.Schema, topic: str, partition: int, state: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        """The filled rows as the columns of a schema that ``check_schema`` passed.

        Good until the next ``fill``. FormatError for a timestamp that has no microseconds in 64
        bits.
        """
        count = int(state[FillCell.ROWS])
        numbers = self._numbers
        makers: dict[str, Callable[[pa.DataType], pa.Array]] = {
            "key": lambda _: self._binary(RecordRow.KEY_END, PresentRow.KEY, DataRow.KEY, count),
            "value": lambda _: self._binary(
                RecordRow.VALUE_END, PresentRow.VALUE, DataRow.VALUE, count
            ),
            "topic": lambda kind: _topics(kind, topic, count),
            "partition": lambda _: pa.array(np.full(count, partition, np.int32)),
            "offset": lambda kind: self._whole(kind, numbers[NumberRow.OFFSET, :count]),
            "timestamp": lambda kind: self._whole(
                kind, _timestamps(kind, numbers[NumberRow.TIMESTAMP, :count])
            ),
            "timestampType": lambda kind: self._whole(
                kind, self._records[RecordRow.TIMESTAMP_TYPE, :count]
            ),
            "headers": lambda kind: self._header_lists(kind, count, int(state[FillCell.HEADERS])),
        }
        return pa.RecordBatch.from_arrays(
            [makers[field.name](field.type) for field in schema], schema=schema
        )

    def _binary(self, ends: RecordRow, present: PresentRow, data: DataRow, count: int) -> pa.Array:
        bitmap, nulls = self._validity(present, count)
        return _variable(
            pa.binary(), bitmap, nulls, self._records[ends, : count + 1], self._data[data]
        )

    def _header_lists(self, kind: pa.DataType, count: int, header_count: int) -> pa.Array:
        names = _variable(
            pa.utf8(),
            None,
            0,
            self._headers[HeaderRow.NAME_END, : header_count + 1],
            self._data[DataRow.NAME],
        )
        bitmap, nulls = self._validity(PresentRow.HEADER_VALUE, header_count)
        values = _variable(
            pa.binary(),
            bitmap,
            nulls,
            self._headers[HeaderRow.VALUE_END, : header_count + 1],
            self._data[DataRow.HEADER_VALUE],
        )
        pairs = pa.Array.from_buffers(
            kind.value_type, header_count, [None], null_count=0, children=[names, values]
        )
        bitmap, nulls = self._validity(PresentRow.HEADERS, count)
        ends = pa.py_buffer(self._records[RecordRow.HEADERS_END, : count + 1])
        return pa.Array.from_buffers(
            kind, count, [bitmap, ends], null_count=nulls, children=[pairs]
        )

    def _validity(self, row: PresentRow, count: int) -> tuple[pa.Buffer | None, int]:
        """(bitmap or None when nothing is null, how many are)."""
        present = self._present[row, :count]
        nulls = count - int(np.count_nonzero(present))
        return (pa.py_buffer(np.packbits(present, bitorder="little")) if nulls else None), nulls

    @staticmethod
    def _whole(
        kind: pa.DataType, numbers: npt.NDArray[np.int64] | npt.NDArray[np.int32]
    ) -> pa.Array:
        """A column of numbers, none of them null."""
        return pa.Array.from_buffers(
            kind, len(numbers), [None, pa.py_buffer(numbers)], null_count=0
        )


def _variable(
    kind: pa.DataType,
    bitmap: pa.Buffer | None,
    nulls: int,
    ends: npt.NDArray[np.int32],
    data: npt.NDArray[np.uint8],
) -> pa.Array:
    """A column of bytes or text from its ends, which begin with 0, and its bytes."""
    used = pa.py_buffer(data[: ends[-1]])
    return pa.Array.from_buffers(
        kind, len(ends) - 1, [bitmap, pa.py_buffer(ends), used], null_count=nulls
    )


def _topics(kind: pa.DataType, topic: str, count: int) -> pa.Array:
    if pa.types.is_dictionary(kind):
        slots = pa.array(np.zeros(count, np.int32))
        return pa.DictionaryArray.from_arrays(slots, pa.array([topic]), safe=False)
    return pa.repeat(pa.scalar(topic, kind), count)


def _timestamps(kind: pa.DataType, stamps_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Milliseconds in the unit of the column."""
    if kind.unit == "ms" or not len(stamps_ms):
        return stamps_ms
    for extreme in (int(stamps_ms.min()), int(stamps_ms.max())):
        if extreme not in _MS_OF_US:
            raise FormatError(f"the timestamp {extreme} ms has no microseconds")
    return stamps_ms * _US_PER_MS
