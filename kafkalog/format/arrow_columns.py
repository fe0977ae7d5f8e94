"""The Arrow schema of records, and the columns of a chunk as an Arrow record batch.

Owns the schema and the memory that `kernels/arrow_columns.py` fills, which becomes the buffers of
the batch as it is. The memory serves chunk after chunk: a batch must be encoded before the next
one is filled. Imports pyarrow, an optional dependency: see `arrow_writer`.
Source: http-api.md 3.6; Arrow's columnar format 1.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kafkalog.kernels.arrow_columns import (
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
    from collections.abc import Callable, Sequence

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

RECORDS_PER_BATCH = 1 << 14


class ArrowColumns:
    """The columns of one chunk. ``data_bytes``: room for the bytes of each column of bytes."""

    def __init__(self, data_bytes: int) -> None:
        records, headers = RECORDS_PER_BATCH, data_bytes // (NAME_GROWTH * HEADER_BYTES_MIN) + 1
        self._numbers = np.empty((len(NumberRow), records), np.int64)
        self._records = np.zeros((len(RecordRow), records + 1), np.int32)
        self._present = np.empty((len(PresentRow), max(records, headers)), np.uint8)
        self._headers = np.zeros((len(HeaderRow), headers + 1), np.int32)
        self._data = np.empty((len(DataRow), data_bytes), np.uint8)

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
        self, names: Sequence[str], topic: pa.Array, partition: int, state: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        """The filled rows of these columns; ``topic`` is the dictionary, its one value the topic's.

        Good until the next ``fill``.
        """
        count = int(state[FillCell.ROWS])
        makers: dict[str, Callable[[], pa.Array]] = {
            "key": lambda: self._binary(RecordRow.KEY_END, PresentRow.KEY, DataRow.KEY, count),
            "value": lambda: self._binary(
                RecordRow.VALUE_END, PresentRow.VALUE, DataRow.VALUE, count
            ),
            "topic": lambda: pa.DictionaryArray.from_arrays(
                pa.array(np.zeros(count, np.int32)), topic, safe=False
            ),
            "partition": lambda: pa.array(np.full(count, partition, np.int32)),
            "offset": lambda: self._whole(pa.int64(), self._numbers[NumberRow.OFFSET, :count]),
            "timestamp": lambda: self._whole(
                SCHEMA.field("timestamp").type, self._numbers[NumberRow.TIMESTAMP, :count]
            ),
            "timestampType": lambda: self._whole(
                pa.int32(), self._records[RecordRow.TIMESTAMP_TYPE, :count]
            ),
            "headers": lambda: self._header_lists(count, int(state[FillCell.HEADERS])),
        }
        schema = pa.schema([SCHEMA.field(name) for name in names])
        return pa.RecordBatch.from_arrays([makers[name]() for name in names], schema=schema)

    def _binary(self, ends: RecordRow, present: PresentRow, data: DataRow, count: int) -> pa.Array:
        bitmap, nulls = self._validity(present, count)
        return _variable(
            pa.binary(), bitmap, nulls, self._records[ends, : count + 1], self._data[data]
        )

    def _header_lists(self, count: int, header_count: int) -> pa.Array:
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
            HEADER_TYPE, header_count, [None], null_count=0, children=[names, values]
        )
        bitmap, nulls = self._validity(PresentRow.HEADERS, count)
        ends = pa.py_buffer(self._records[RecordRow.HEADERS_END, : count + 1])
        return pa.Array.from_buffers(
            SCHEMA.field("headers").type, count, [bitmap, ends], null_count=nulls, children=[pairs]
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
