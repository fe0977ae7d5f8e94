"""ArrowReader: records to append from the messages of an Arrow IPC stream.

Owns what is believed of a stream: what pyarrow has read is, after its full validation (offsets
within their buffers, text that is UTF-8). No Python statement per record.

`value` is all that is needed; `key`, `headers`, `timestamp` and `partition` may be there
(`arrow_records`). A column that nobody knows is refused rather than lost. Imports pyarrow, an
optional dependency: see `arrow_writer`. Source: http-api.md 3.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from kafkalog.format.wire.arrow_messages import MalformedArrow, MessageKind, kind_of
from kafkalog.format.wire.arrow_writer import check_columns, cuts, record_block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.format.wire.arrow_writer import ArrowRecords

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
        if kind is MessageKind.SCHEMA:
            self._schema = _read_schema(message)
            return
        if kind is MessageKind.DICTIONARY_BATCH:
            raise MalformedArrow("the Arrow stream holds a dictionary for no column")
        batch = _read_batch(message, self._schema)
        for first in range(0, batch.num_rows, _BLOCK_RECORDS):
            block = record_block(batch.slice(first, _BLOCK_RECORDS), now_ms, self._max_bytes)
            start = 0
            for end in cuts(block.sizes(), self._piece_bytes):
                yield block.piece(start, end)
                start = end


def _read_schema(message: bytes) -> pa.Schema:
    """The schema, when every column is one that is taken."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(message))
        check_columns(schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # names may be no UTF-8
        raise _malformed(error) from error
    return schema


def _read_batch(message: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The batch, validated."""
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise _malformed(error) from error
    return batch


def _malformed(error: Exception) -> MalformedArrow:
    """What pyarrow says, on one line."""
    return MalformedArrow(f"the Arrow stream is damaged: {' '.join(str(error).split())}")
