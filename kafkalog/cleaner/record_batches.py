"""RecordBatches: the batches of one chunk of a segment, as both passes of a cleaning take them.

Owns the way from a chunk to rows, and the errors of a batch with file and position. Never reads a
file. One thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kafkalog.errors import CorruptBatch
from kafkalog.format.batch_scan import BatchColumn, BatchRows, ScanStop, scan
from kafkalog.format.record import MalformedRecord
from kafkalog.format.record_batch import MalformedBatch, is_crc_valid, read_header
from kafkalog.kernels.record_scan import fault_of

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Bytes

Buffer = bytes | bytearray | memoryview
Flags = npt.NDArray[np.bool_]

_POSITION, _SIZE = int(BatchColumn.POSITION), int(BatchColumn.SIZE)
_BASE_OFFSET, _LAST_OFFSET = int(BatchColumn.BASE_OFFSET), int(BatchColumn.LAST_OFFSET)
_INCOMPLETE = (ScanStop.END, ScanStop.PARTIAL)


@dataclass(frozen=True, slots=True, eq=False)
class RecordBatches:
    """Whole batches in order; what follows the last one in the chunk is the reader's to read again.

    file, position          where the chunk begins, for errors
    max_decompressed_bytes  bound of one inflated batch
    """

    chunk: Buffer
    file: str
    position: int
    rows: BatchRows
    max_decompressed_bytes: int

    @classmethod
    def of(
        cls,
        chunk: Buffer,
        *,
        file: str,
        position: int,
        max_decompressed_bytes: int,
        previous_last_offset: int = -1,
    ) -> RecordBatches:
        """The batches at the beginning of the chunk; `rows.consumed_bytes` tells how far they go.

        Raises CorruptBatch for bytes that are no batch and for offsets that do not rise above
        previous_last_offset: that of the batch whose base offset is wrong, as far as the batches
        beside it tell. CRCs are checked by the passes, where it matters.
        """
        rows = scan(chunk, check_crc=False)
        batches = cls(chunk, file, position, rows, max_decompressed_bytes)
        disorder = rows.first_disorder(
            previous_last_offset,
            follower_base_offset=_base_offset_at(chunk, rows.stop_position),
            looks_ahead=True,
        )
        if disorder is not None:
            raise batches.corrupt(disorder, "its offsets contradict the batches beside it")
        if rows.stop not in _INCOMPLETE:
            raise CorruptBatch(
                f"no batch: {rows.stop.name.lower().replace('_', ' ')}",
                file=file,
                position=position + rows.stop_position,
            )
        return batches

    @property
    def data(self) -> Bytes:
        """The chunk for kernels."""
        return np.frombuffer(self.chunk, np.uint8)

    def batch(self, row: int) -> memoryview:
        """The bytes of one batch."""
        start = int(self.rows.table[row, _POSITION])
        return memoryview(self.chunk)[start : start + int(self.rows.table[row, _SIZE])]

    def verify(self, row: int) -> None:
        """Raises CorruptBatch when the CRC is not that of the bytes."""
        if not is_crc_valid(self.batch(row)):
            raise self.wrong_crc(row)

    def wrong_crc(self, row: int) -> CorruptBatch:
        """The error of a batch whose CRC was found not to be that of its bytes."""
        return self.corrupt(row, "its CRC does not match")

    def malformed(self, row: int, status: int) -> CorruptBatch:
        """The error of a kernel's negative status in this batch."""
        return self.corrupt(row, str(MalformedRecord(*fault_of(status))))

    def corrupt(self, row: int, reason: str) -> CorruptBatch:
        """The error that this batch is damaged."""
        values = self.rows.table[row]
        base_offset, last_offset = int(values[_BASE_OFFSET]), int(values[_LAST_OFFSET])
        return CorruptBatch(
            f"batch of offsets {base_offset} to {last_offset} is damaged: {reason}",
            file=self.file,
            position=self.position + int(values[_POSITION]),
            base_offset=base_offset,
            last_offset=last_offset,
        )


def _base_offset_at(chunk: Buffer, position: int) -> int:
    """What the header there says; -1: there is none, or not all of it."""
    try:
        return read_header(chunk, position).base_offset
    except MalformedBatch:
        return -1
