"""The batches of a chunk of segment bytes as numpy columns: for fetch, recovery, verify and dump.

Owns the memory of the kernel's tables, the CRC of large batches (in C, without the interpreter
lock) and the meaning of the kernel's result. Also selects the batches that belong to no aborted
transaction, by their headers. Runs Python per batch only for those of at least INLINE_CRC_MAX
bytes, per message of format v0 and v1 (``scan_any``), and once per producer that aborted. Pure; any
thread. Source: Kafka 4.1 FileLogInputStream, DefaultRecordBatch.ensureValid.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np

from kafkalog.format.integers import INT64_MAX
from kafkalog.format.records.record_batch import (
    LEADER_EPOCH_AT,
    LEGACY_LENGTH_MIN,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    is_crc_valid,
)
from kafkalog.kernels.records.batch_scan import (
    CHOICE_CELL_COUNT,
    COLUMN_COUNT,
    INLINE_CRC_MAX,
    LARGE_COLUMN_COUNT,
    BatchColumn,
    ChoiceCell,
    CrcState,
    ScanStop,
    choose_batches,
    count_batches,
    first_disorder,
    scan_batches,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from kafkalog.kernels.compile import Int64s, Int64Table

    Table = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]


__all__ = ["BatchChoice", "BatchColumn", "BatchRows", "CrcState", "ScanStop", "choose", "scan"]

Buffer = bytes | bytearray | memoryview

MESSAGE_HEAD = struct.Struct(">qiIBB")
"""Of a message of format v0 or v1: offset, length, CRC, magic, attributes."""
MESSAGE_TIMESTAMP = struct.Struct(">q")
MESSAGE_ATTRIBUTES = (0x07, 0x0F)
"""By magic; other bits mean nothing."""

_PREVIOUS_LAST, _FLOOR = int(ChoiceCell.PREVIOUS_LAST_OFFSET), int(ChoiceCell.FLOOR_OFFSET)
_IS_SEGMENT_END = int(ChoiceCell.IS_SEGMENT_END)


@dataclass(frozen=True, slots=True, eq=False)
class BatchRows:
    """The whole batches of one chunk, and why the walk ended.

    table           int64[count, 14], see BatchColumn; positions count from the chunk's first byte
    stop            why the walk ended
    stop_position   byte after the last row: where the batch begins that ended the walk
    consumed_bytes  bytes of the rows: stop_position minus start
    """

    table: Int64Table
    stop: ScanStop
    stop_position: int
    consumed_bytes: int

    @property
    def count(self) -> int:
        """Rows."""
        return int(self.table.shape[0])

    def column(self, column: BatchColumn) -> Int64s:
        """One column as a view, int64[count]."""
        return self.table[:, int(column)]

    def first_disorder(
        self,
        previous_last_offset: int = -1,
        *,
        end_offset: int = INT64_MAX,
        follower_base_offset: int = -1,
        looks_ahead: bool = False,
    ) -> int | None:
        """The first row whose offsets are not above those of the row before; None without any.

        A row is out of order when its base offset is not above the last offset of the row before
        (for the first row: previous_last_offset), or its last offset is below its base offset or
        not below end_offset. With looks_ahead a row that leaves a gap is held against the row
        after it as well, the last one against follower_base_offset (-1: not known).
        """
        row = first_disorder(
            self.table, previous_last_offset, end_offset, follower_base_offset, looks_ahead
        )
        return None if row < 0 else row

    def before(self, row: int | None) -> BatchRows:
        """The rows before this one; None: all."""
        if row is None:
            return self
        position = int(self.column(BatchColumn.POSITION)[row])
        start = self.stop_position - self.consumed_bytes
        return BatchRows(self.table[:row], ScanStop.BAD_OFFSET, position, position - start)


def scan(chunk: Buffer, start: int = 0, *, check_crc: bool = True) -> BatchRows:
    """Walk the batches of chunk[start:].

    Stops without an error at anything but a complete, valid batch; the caller decides.
    With check_crc each row's CRC has been checked and the first wrong one ends the walk; without,
    CRC_STATE is UNCHECKED everywhere.
    """
    data = np.frombuffer(chunk, dtype=np.uint8)
    end = data.shape[0]
    table = np.empty((count_batches(data, start, end), COLUMN_COUNT), dtype=np.int64)
    outcome = np.zeros(3, dtype=np.int64)
    count = scan_batches(data, start, end, check_crc, table, outcome)
    reason, stop_position, unchecked = outcome.tolist()
    stop = ScanStop(reason)
    if check_crc and unchecked:
        bad_row = _check_large(memoryview(chunk), table[:count])
        if bad_row is not None:
            count, stop = bad_row, ScanStop.BAD_CRC
            stop_position = int(table[bad_row, BatchColumn.POSITION])
    return BatchRows(table[:count], stop, stop_position, stop_position - start)


def message_size(data: Buffer, position: int = 0) -> int:
    """Bytes of the whole message there, whose CRC is right; 0 when there is none."""
    if len(data) - position < MESSAGE_HEAD.size:
        return 0
    _, length, crc, magic, _ = MESSAGE_HEAD.unpack_from(data, position)
    size: int = LOG_OVERHEAD + length
    if magic >= MAGIC_V2 or length < LEGACY_LENGTH_MIN or size > len(data) - position:
        return 0
    body = memoryview(data)[position + MAGIC_AT : position + size]
    return size if crc32(body) == crc else 0


def scan_any(chunk: Buffer, start: int = 0, *, check_crc: bool = True) -> BatchRows:
    """As ``scan``, and a row for each message of format v0 or v1; their CRCs are always checked.

    Base and last offset of a message's row are its offset: where a wrapper begins is not known
    before it is opened. It has no producer, no leader epoch, and counts as one record.
    """
    tables, position = [], start
    while True:
        rows = scan(chunk, position, check_crc=check_crc)
        tables.append(rows.table)
        position = rows.stop_position
        if rows.stop is not ScanStop.LEGACY:
            break
        messages = list(_message_rows(memoryview(chunk), position))
        if not messages:
            break
        tables.append(np.array(messages, np.int64))
        position = messages[-1][0] + messages[-1][1]
    if len(tables) == 1:
        return rows
    return BatchRows(np.concatenate(tables), rows.stop, position, position - start)


def _message_rows(view: memoryview, position: int) -> Iterator[tuple[int, ...]]:
    """One row of ``BatchColumn`` for each message from position on."""
    while size := message_size(view, position):
        offset, _, _, magic, attributes = MESSAGE_HEAD.unpack_from(view, position)
        stamp = (
            MESSAGE_TIMESTAMP.unpack_from(view, position + MESSAGE_HEAD.size)[0]
            if magic
            else NO_TIMESTAMP
        )
        yield (
            *(position, size, offset, offset, NO_LEADER_EPOCH, magic, int(CrcState.VALID)),
            *(attributes & MESSAGE_ATTRIBUTES[magic], stamp, stamp),
            *(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 1),
        )
        position += size


def has_messages(rows: BatchRows) -> bool:
    """Whether any row of ``scan_any`` is one of format v0 or v1."""
    return bool((rows.column(BatchColumn.MAGIC) < MAGIC_V2).any())


@dataclass(frozen=True, slots=True)
class ScannedChunk:
    """Bytes of a segment from ``position`` on and the whole batches in them."""

    position: int
    data: memoryview
    rows: BatchRows


def walk(
    read: Callable[[int, int], bytes | memoryview],
    position: int,
    end: int,
    *,
    check_crc: bool,
    chunk_bytes: int,
    with_messages: bool = False,
) -> Iterator[ScannedChunk]:
    """Walk all batches of ``[position, end)``; every chunk but the last holds at least one.

    ``with_messages``: as ``scan_any``.

    ``read`` gets a size and a position. The last chunk says with ``rows.stop`` why the walk ended.
    A batch that is larger than a chunk is read whole, never more than what is left before ``end``.
    """
    wanted = chunk_bytes
    while position < end:
        size = min(wanted, end - position)
        data = memoryview(read(size, position))
        rows = (
            scan_any(data, check_crc=check_crc)
            if with_messages
            else scan(data, check_crc=check_crc)
        )
        is_last = position + len(data) >= end or len(data) < size  # the file was cut
        if rows.count == 0 and rows.stop is ScanStop.PARTIAL and not is_last:
            size = int.from_bytes(data[LENGTH_AT:LEADER_EPOCH_AT], "big") + LOG_OVERHEAD
            if position + size <= end:
                wanted = size
                continue
        yield ScannedChunk(position, data, rows)
        if rows.count == 0 or rows.stop not in (ScanStop.END, ScanStop.PARTIAL):
            return
        position += rows.consumed_bytes
        wanted = chunk_bytes


class BatchChoice(NamedTuple):
    """The batches of a chunk that answer a fetch: ``batch_count`` of them in chunk[start:end].

    stop               why the walk ended; END also when the answer is full; PARTIAL with a start
                       and no batch: the first one that reaches the offset, or the header after it,
                       is not whole
    start              of the first batch that reaches the offset asked for, chosen or not; None:
                       none before ``end`` reaches it; ``end`` may then be after the chunk
    first_base_offset, first_last_offset, first_size_bytes   of that one; when its offsets cannot be
                       true (BAD_OFFSET) those that its neighbours leave to it
    last_offset        of the last one chosen
    previous_last_offset   the last offset that was walked over
    previous_position  of the batch that was walked over last; None: none was
    """

    batch_count: int
    stop: ScanStop
    start: int | None
    end: int
    first_base_offset: int
    first_last_offset: int
    first_size_bytes: int
    last_offset: int
    previous_last_offset: int
    previous_position: int | None


def choose(
    chunk: Buffer,
    start_offset: int,
    *,
    max_offset: int,
    max_bytes: int,
    end_offset: int = INT64_MAX,
    previous_last_offset: int = -1,
    floor_offset: int = -1,
    is_segment_end: bool = True,
) -> BatchChoice:
    """From the first batch whose last offset reaches start_offset, as far as limits and CRCs allow.

    No batch with a base offset of max_offset or above, none with a wrong CRC (which ends the
    choice: BAD_CRC), none out of order (BAD_OFFSET): they rise above previous_last_offset, below
    end_offset. max_bytes at most, but the first one whatever its size. A chunk found by an index
    entry (floor_offset, below start_offset) begins with a batch that is only walked over.
    Unless is_segment_end, batches follow that the chunk does not hold.
    """
    data = np.frombuffer(chunk, dtype=np.uint8)
    large = np.empty((len(data) // INLINE_CRC_MAX + 1, LARGE_COLUMN_COUNT), dtype=np.int64)
    cells = np.empty(CHOICE_CELL_COUNT, dtype=np.int64)
    cells[_PREVIOUS_LAST] = previous_last_offset
    cells[_FLOOR] = floor_offset
    cells[_IS_SEGMENT_END] = is_segment_end
    count = choose_batches(data, start_offset, max_offset, end_offset, max_bytes, large, cells)
    stop, start, end, first_base, first_last, first_size, last, large_count, *rest = cells.tolist()
    walked, _, previous_position, _ = rest
    if large_count:
        view = memoryview(chunk)
        for position, size, index, previous_last in large[:large_count].tolist():
            if not is_crc_valid(view[position : position + size]):
                count, stop, end, last = index, ScanStop.BAD_CRC, position, previous_last
                break
    return BatchChoice(
        count,
        ScanStop(stop),
        None if start < 0 else start,
        end,
        first_base,
        first_last,
        first_size,
        last,
        walked,
        None if previous_position < 0 else previous_position,
    )


def _check_large(chunk: memoryview, table: Int64Table) -> int | None:
    """Check the CRC of rows that the kernel left; the first bad row, or None."""
    unchecked = np.flatnonzero(table[:, BatchColumn.CRC_STATE] == CrcState.UNCHECKED)
    for row in unchecked.tolist():
        position, size = table[row, :2].tolist()
        batch = chunk[position : position + size]
        if not is_crc_valid(batch):
            return int(row)
        table[row, BatchColumn.CRC_STATE] = CrcState.VALID
    return None


_TRANSACTIONAL, _CONTROL = 0x10, 0x20


def is_committed(table: Table, aborted: Table) -> Mask:
    """Which batches belong to none of the aborted transactions; markers never do.

    table    int64[n, 14]  `BatchColumn`
    aborted  int64[m, 3]   producer id, first and last offset; one producer's do not overlap
    """
    attributes = table[:, BatchColumn.ATTRIBUTES]
    is_data = attributes & (_TRANSACTIONAL | _CONTROL) == _TRANSACTIONAL
    committed = np.ones(len(table), np.bool_)
    if not len(aborted) or not is_data.any():
        return committed
    producers = table[:, BatchColumn.PRODUCER_ID]
    bases = table[:, BatchColumn.BASE_OFFSET]
    for producer_id in np.intersect1d(producers[is_data], aborted[:, 0]).tolist():
        rows = np.flatnonzero(is_data & (producers == producer_id))
        firsts, lasts = _spans(aborted[aborted[:, 0] == producer_id])
        slots = np.searchsorted(firsts, bases[rows], side="right") - 1
        committed[rows] = (slots < 0) | (bases[rows] > lasts[slots])
    return committed


def spans_of(table: Table, wanted: Mask) -> list[tuple[int, int]]:
    """Start and end of the runs of wanted batches that are adjacent in their chunk."""
    kept = np.flatnonzero(wanted)
    spans: list[tuple[int, int]] = []
    for run in np.split(kept, np.flatnonzero(np.diff(kept) > 1) + 1):
        if len(run):
            first, last = table[run[0]], table[run[-1]]
            start = int(first[BatchColumn.POSITION])
            end = int(last[BatchColumn.POSITION] + last[BatchColumn.SIZE])
            spans.append((start, end))
    return spans


def committed_batches(chunk: Buffer, aborted: Sequence[tuple[int, int, int]]) -> bytes:
    """Whole batches without those of aborted transactions: (producer id, first, last offset)."""
    table = scan(chunk, check_crc=False).table
    wanted = is_committed(table, np.array(aborted, np.int64).reshape(-1, 3))
    view = memoryview(chunk)
    return b"".join(view[start:end] for start, end in spans_of(table, wanted))


def _spans(aborted: Table) -> tuple[Table, Table]:
    """First and last offsets of one producer's transactions, rising."""
    order = np.argsort(aborted[:, 1], kind="stable")
    return aborted[order, 1], aborted[order, 2]
