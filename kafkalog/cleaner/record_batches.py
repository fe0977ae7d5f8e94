"""The batches of a segment, chunk by chunk, as both passes of a cleaning take them.

``chunks_of`` reads as much at once as the cleaner's buffer and rate allow (``scan_chunks``). A
segment has to be sound from the first batch to its last byte: a log with damage is not cleaned.
``RecordBatches`` turns a chunk into rows and names the file and position of a bad batch.
``BatchInflater`` inflates compressed batches side by side, so that kernels are called once a group
instead of once a batch; at most GROUP_BYTES and one batch at a time.

The thread that cleans; reads only. Source: Kafka's Cleaner.growBuffersOrFail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kafkalog.errors import CorruptBatch, DecompressedTooLarge, UnsupportedCompression
from kafkalog.format.records.batch_scan import BatchColumn, BatchRows, CrcState, ScanStop
from kafkalog.format.records.compression import decompress_into
from kafkalog.format.records.record import MalformedRecord
from kafkalog.format.records.record_batch import (
    CODEC_MASK,
    HEADER_BYTES,
    base_offset_at,
    is_crc_valid,
)
from kafkalog.kernels.records.record_scan import fault_of
from kafkalog.log.segment.segment_file import scan_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.kernels.compile import Bytes, Int64s, Int64Table
    from kafkalog.log.segment.log_segment import LogSegment


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

    def check_order(self, previous_last_offset: int) -> None:
        """CorruptBatch for bytes that are no batch, and for offsets that do not rise.

        They have to rise above previous_last_offset: that of the batch whose base offset is wrong,
        as far as the batches beside it tell. CRCs are checked by the passes, where it matters.
        """
        rows = self.rows
        disorder = rows.first_disorder(
            previous_last_offset,
            follower_base_offset=base_offset_at(self.chunk, rows.stop_position),
            looks_ahead=True,
        )
        if disorder is not None:
            raise self.corrupt(disorder, "its offsets contradict the batches beside it")
        if rows.stop not in _INCOMPLETE:
            raise CorruptBatch(
                f"no batch: {rows.stop.name.lower().replace('_', ' ')}",
                file=self.file,
                position=self.position + rows.stop_position,
            )

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


def chunks_of(
    segment: LogSegment,
    position: int,
    *,
    end_offset: int,
    chunk_bytes: Callable[[], int],
    max_decompressed_bytes: int,
) -> Iterator[RecordBatches]:
    """All batches of a closed segment from position on, where one begins.

    ``chunk_bytes`` is asked after each chunk; a change counts from the next one on. The bytes of a
    chunk are good until the next one is asked for: it is read into the same memory. Raises
    CorruptBatch for bytes that are no batch and for offsets that do not rise or reach end_offset,
    the base of the next segment; OSError.
    """
    path, end = segment.log_file.path, segment.size_bytes
    last_offset = segment.base_offset - 1 if position == 0 else -1
    while position < end:
        size = chunk_bytes()
        for chunk in scan_chunks(
            segment.log_file, position, end, check_crc=False, chunk_bytes=max(size, HEADER_BYTES)
        ):
            batches = RecordBatches(
                chunk.data, path, chunk.position, chunk.rows, max_decompressed_bytes
            )
            batches.check_order(last_offset)
            if not chunk.rows.count:
                raise CorruptBatch(
                    f"Log segment may be corrupt: a batch reaches beyond its last byte, {end}",
                    file=path,
                    position=chunk.position,
                )
            last_offset = int(chunk.rows.column(BatchColumn.LAST_OFFSET)[-1])
            if last_offset >= end_offset:
                raise batches.corrupt(chunk.rows.count - 1, f"it reaches offset {end_offset}")
            yield batches
            position = chunk.position + chunk.rows.consumed_bytes
            if chunk_bytes() != size:
                break
        else:
            return


GROUP_BYTES = 1 << 20

_SPARE_BYTES = 1 << 17
_NOTHING = np.empty(0, np.uint8)
_CRC_STATE = int(BatchColumn.CRC_STATE)
_STREAM_COLUMNS = [_POSITION, _SIZE, int(BatchColumn.ATTRIBUTES)]


@dataclass(frozen=True, slots=True, eq=False)
class InflatedGroup:
    """The batches of a chunk from first_row on before end_row.

    rows         those that were inflated; the others are as the chunk has them
    plain_table  the chunk's table, but for these rows as they lie in data: position and size as if
                 a header came before the records, CRC_STATE VALID
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
