"""BatchInflater: the compressed batches of a chunk, inflated side by side for one kernel call.

Owns how far a group goes: kernels are called once a group instead of once a batch, and no more than
GROUP_BYTES and one batch are inflated at a time. Never looks at records. One thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.errors import DecompressedTooLarge, UnsupportedCompression
from kafkalog.format.batch_scan import BatchColumn, CrcState
from kafkalog.format.compression import decompress_into
from kafkalog.format.record_batch import CODEC_MASK, HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.cleaner.record_batches import RecordBatches
    from kafkalog.kernels.compile import Bytes, Int64s, Int64Table

GROUP_BYTES = 1 << 20

_SPARE_BYTES = 1 << 17
_NOTHING = np.empty(0, np.uint8)
_POSITION, _SIZE = int(BatchColumn.POSITION), int(BatchColumn.SIZE)
_CRC_STATE = int(BatchColumn.CRC_STATE)
_STREAM_COLUMNS = [_POSITION, _SIZE, int(BatchColumn.ATTRIBUTES)]


@dataclass(frozen=True, slots=True, eq=False)
class InflatedGroup:
    """The batches of a chunk from first_row on before end_row.

    rows         those that were inflated; the others are as the chunk has them
    plain_table  the chunk's table, but for these rows as they lie in data: position and size as if
                 a header were in front of the records, CRC_STATE VALID
    data         the inflated records, valid until the next group
    """

    first_row: int
    end_row: int
    rows: Int64s
    plain_table: Int64Table
    data: Bytes


class BatchInflater:
    """See the module. Its memory is kept from chunk to chunk; what one large batch takes is not."""

    def __init__(self) -> None:
        self._memory = _NOTHING

    def groups(self, batches: RecordBatches, rows: Int64s) -> Iterator[InflatedGroup]:
        """All batches of the chunk in groups, with these rising rows inflated.

        Raises CorruptBatch for one that does not inflate, or to more than max_decompressed_bytes,
        when those before it are through.
        """
        table, first = batches.rows.table, 0
        if not len(rows):
            yield InflatedGroup(0, len(table), rows, table, _NOTHING)
            return
        plain_table, streams = table.copy(), table[rows][:, _STREAM_COLUMNS].tolist()
        done = 0
        while first < len(table):
            data, sizes, error = self._inflate(batches, streams[done:])
            taken = rows[done : done + len(sizes)]
            done += len(sizes)
            end = int(rows[done]) if done < len(rows) else len(table)
            if error is not None and end == first:
                batches.verify(end)
                raise batches.corrupt(end, error.message) from error
            plain_table[taken, _POSITION] = np.cumsum(sizes) - sizes
            plain_table[taken, _SIZE] = sizes + HEADER_BYTES
            plain_table[taken, _CRC_STATE] = CrcState.VALID
            yield InflatedGroup(first, end, taken, plain_table, data)
            first = end

    def _inflate(
        self, batches: RecordBatches, streams: list[list[int]]
    ) -> tuple[Bytes, Int64s, DecompressedTooLarge | UnsupportedCompression | None]:
        """As many batches as a group holds: their records, the sizes, why the next one failed.

        streams  position, size and attributes of each batch
        """
        if not len(self._memory):
            self._memory = np.empty(HEADER_BYTES + GROUP_BYTES + _SPARE_BYTES, np.uint8)
        memory, used, sizes = self._memory, HEADER_BYTES, list[int]()
        target, chunk = memory.data, memoryview(batches.chunk)
        max_bytes = batches.max_decompressed_bytes
        for position, size, attributes in streams:
            stream = chunk[position + HEADER_BYTES : position + size]
            codec = attributes & CODEC_MASK
            try:
                content = decompress_into(codec, stream, target[used:], max_bytes=max_bytes)
            except (DecompressedTooLarge, UnsupportedCompression) as error:
                return memory, np.array(sizes, np.int64), error
            if isinstance(content, int):
                end = used + content
            else:
                end = used + len(content)
                if end > len(memory):
                    memory = np.empty(end, np.uint8)
                    memory[:used] = self._memory[:used]
                    target = memory.data
                target[used:end] = content
            sizes.append(end - used)
            used = end
            if used >= GROUP_BYTES:
                break
        return memory, np.array(sizes, np.int64), None
