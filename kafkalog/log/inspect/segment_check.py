"""check_segment: the format of one segment and its indexes, believed nothing.

Every batch is read and its CRC checked, every index entry is compared with it. What can only be
decided with the segments around it is in the report: ``directory_check`` joins reports. Opens files
for reading only. Any thread; a segment that is written meanwhile may show a part of a write.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.format.disk.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from kafkalog.format.disk.index_entries import (
    ABORTED_ENTRY,
    OFFSET_ENTRY,
    TIME_ENTRY,
    unpack_aborted_entries,
    unpack_offset_entries,
    unpack_time_entries,
)
from kafkalog.format.integers import INT32_MAX, FormatError
from kafkalog.format.records.batch_scan import BatchColumn, BatchRows, ScanStop, walk
from kafkalog.log.inspect.findings import FINDINGS_MAX, Finding, FindingCode, Findings, Severity
from kafkalog.log.segment.segment_file import has_message_at
from kafkalog.log.values import MAX_RELATIVE_OFFSET, NO_SEQUENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import numpy.typing as npt

    from kafkalog.env.filesystem import ReadFilesystem

    Table = npt.NDArray[np.int64]
    Rows = npt.NDArray[np.intp]

CHUNK_BYTES = 8 * 1024 * 1024
_POSITION, _BASE, _LAST = BatchColumn.POSITION, BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET
_STOP_CODES = {
    ScanStop.BAD_CRC: FindingCode.BATCH_CRC,
    ScanStop.LEGACY: FindingCode.BATCH_MAGIC,
    ScanStop.BAD_MAGIC: FindingCode.BATCH_MAGIC,
    ScanStop.PARTIAL: FindingCode.TORN_TAIL,
    ScanStop.END: FindingCode.TORN_TAIL,
}


class ProducerSpan(NamedTuple):
    """What a segment has of one producer: its first batch, its last state, its first data batch.

    first_data_*   epoch None: markers only
    last_sequence  of last_epoch; NO_SEQUENCE: markers only
    """

    first_epoch: int
    first_position: int
    last_epoch: int
    last_sequence: int = NO_SEQUENCE
    first_data_epoch: int | None = None
    first_data_sequence: int = NO_SEQUENCE
    first_data_position: int = 0


class EpochRun(NamedTuple):
    """Neighbouring batches of one leader epoch: offsets [base_offset, end_offset), first byte."""

    epoch: int
    base_offset: int
    end_offset: int
    position: int


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """One segment. Picklable.

    next_offset  after its last sound batch
    is_sound     nothing but sound batches in order
    has_gaps     offsets are missing between its batches: it says that it was compacted
    epochs       its leader epochs, in the order of the batches
    """

    base: int
    next_offset: int
    is_sound: bool
    has_gaps: bool
    batch_count: int
    size_bytes: int
    findings: tuple[Finding, ...]
    epochs: tuple[EpochRun, ...]
    producers: dict[int, ProducerSpan]


def check_segment(
    path: str,
    filesystem: ReadFilesystem,
    base: int,
    names: Collection[str],
    *,
    is_last: bool,
    may_have_gaps: bool,
    is_gapless: bool = False,
) -> SegmentReport:
    """Check the segment of a base offset in a directory whose files are ``names``.

    ``may_have_gaps``: it was compacted; sequences and offsets may be missing. ``is_gapless``: none
    are, a gap is an error. OSError.
    """
    may_have_gaps = may_have_gaps and not is_gapless
    check = _SegmentCheck(path, filesystem, base, may_have_gaps, is_gapless)
    return check.run(names, is_last=is_last)


@dataclass(eq=False)
class _SegmentCheck:
    """One run."""

    _path: str
    _filesystem: ReadFilesystem
    _base: int
    _may_have_gaps: bool
    _is_gapless: bool

    def __post_init__(self) -> None:
        self._findings = Findings()
        self._misplaced: list[int] = []  # positions of batches whose offsets rotted
        self._log = segment_file_name(self._base, LOG_SUFFIX)

    def run(self, names: Collection[str], *, is_last: bool) -> SegmentReport:
        """The log first, then each index against it."""
        base = self._base
        table, is_sound, size_bytes = self._batches()
        placed = table[~np.isin(table[:, _POSITION], self._misplaced)]
        befores = np.concatenate(([base - 1], placed[:-1, _LAST]))[: len(placed)]
        gaps = np.flatnonzero(placed[:, _BASE] > befores + 1)
        self._check_counts(table)
        if not self._may_have_gaps:
            self._report_gaps(placed, befores, gaps)
        epochs = self._epochs(placed)
        producers = self._producers(table)
        for suffix, check in (
            (OFFSET_INDEX_SUFFIX, self._offset_index),
            (TIME_INDEX_SUFFIX, self._time_index),
        ):
            name = segment_file_name(base, suffix)
            if name not in names:
                self._findings.add(FindingCode.MISSING_FILE, name, 0, "missing")
            elif is_sound:
                check(name, table, is_last)
        name = segment_file_name(base, TRANSACTION_INDEX_SUFFIX)
        if name in names:
            self._transaction_index(name)
        return SegmentReport(
            base=base,
            next_offset=int(placed[-1, _LAST]) + 1 if len(placed) else base,
            is_sound=is_sound,
            has_gaps=bool(len(gaps)),
            batch_count=len(table),
            size_bytes=size_bytes,
            findings=tuple(self._findings.reported()),
            epochs=epochs,
            producers=producers,
        )

    # ---- the log

    def _batches(self) -> tuple[Table, bool, int]:
        """All sound batches, positions in the file; nothing else was there; bytes of the file."""
        file = self._filesystem.open_read(f"{self._path}/{self._log}")
        size, end, previous, stop = file.size(), 0, self._base - 1, ScanStop.END
        tables: list[Table] = []
        is_sound = True
        for chunk in walk(file.pread, 0, size, check_crc=True, chunk_bytes=CHUNK_BYTES):
            rows, stop = chunk.rows, chunk.rows.stop
            table = rows.table.copy()
            table[:, _POSITION] += chunk.position
            tables.append(table)
            placed = self._in_order(replace(rows, table=table), previous)
            is_sound = is_sound and placed.count == rows.count
            if placed.count:
                previous = int(placed.column(_LAST)[-1])
            end = chunk.position + rows.consumed_bytes
        if end < size:
            code = _STOP_CODES.get(stop, FindingCode.BATCH_SIZE)
            problem = f"no sound batch: {stop.name.lower()}"
            if stop is ScanStop.LEGACY and has_message_at(file, end):
                problem = "message format v0 or v1: run kafkalog segments convert"
            self._findings.add(code, self._log, end, problem)
            is_sound = False
        file.close()
        if previous - self._base > MAX_RELATIVE_OFFSET:
            problem = f"offset {previous} does not fit the segment"
            self._findings.add(FindingCode.OFFSET_RANGE, self._log, 0, problem)
        empty = np.empty((0, len(BatchColumn)), dtype=np.int64)
        return (np.concatenate(tables) if tables else empty), is_sound, size

    def _in_order(self, rows: BatchRows, previous: int) -> BatchRows:
        """The rows but for those whose offsets contradict the others; these are reported."""
        while (wrong := rows.first_disorder(previous, looks_ahead=True)) is not None:
            if len(self._misplaced) == FINDINGS_MAX:
                break  # nothing fits: the rest says no more
            before = int(rows.column(_LAST)[wrong - 1]) if wrong else previous
            at, base_offset = (int(rows.column(each)[wrong]) for each in (_POSITION, _BASE))
            problem = f"the batch is not valid: base offset {base_offset} after offset {before}"
            self._findings.add(FindingCode.OFFSET_ORDER, self._log, at, problem)
            self._misplaced.append(at)
            rows = replace(rows, table=np.delete(rows.table, wrong, axis=0))
        return rows

    def _check_counts(self, table: Table) -> None:
        """No batch holds more records than lastOffsetDelta leaves offsets; fewer say compaction."""
        room = table[:, _LAST] - table[:, _BASE] + 1
        counts = table[:, BatchColumn.RECORD_COUNT]
        self._report(
            FindingCode.LAST_OFFSET_DELTA,
            table,
            np.flatnonzero((counts > room) | (counts < 0)),
            lambda row: f"{counts[row]} records in a batch of {room[row]} offsets",
            Severity.ERROR,
        )
        if self._may_have_gaps:
            return
        self._report(
            FindingCode.LAST_OFFSET_DELTA,
            table,
            np.flatnonzero((counts >= 0) & (counts < room)),
            lambda row: (
                f"{counts[row]} records in a batch of {room[row]} offsets, unless the topic was "
                "compacted"
            ),
        )

    def _report_gaps(self, table: Table, befores: Table, gaps: Rows) -> None:
        """Offsets between two batches, or between the file's name and its first batch."""
        doubt = "" if self._is_gapless else ", unless the topic was compacted"
        self._report(
            FindingCode.OFFSET_GAP,
            table,
            gaps,
            lambda row: (
                f"offsets {befores[row] + 1} to {table[row, _BASE] - 1} are missing before it"
                f"{doubt}"
            ),
            Severity.ERROR if self._is_gapless else Severity.WARNING,
        )

    def _report(
        self,
        code: FindingCode,
        table: Table,
        rows: Rows,
        problem: Callable[[int], str],
        severity: Severity = Severity.WARNING,
    ) -> None:
        """The same of some batches of the table, at most FINDINGS_MAX of them."""
        for row in rows[:FINDINGS_MAX].tolist():
            at = int(table[row, _POSITION])
            self._findings.add(code, self._log, at, problem(row), severity)

    def _epochs(self, table: Table) -> tuple[EpochRun, ...]:
        """The runs of leader epochs; one that falls is reported."""
        epochs = table[:, BatchColumn.LEADER_EPOCH]
        self._report(
            FindingCode.LEADER_EPOCH,
            table,
            np.flatnonzero(np.diff(epochs) < 0) + 1,
            lambda row: f"leader epoch {epochs[row]} behind {epochs[row - 1]}",
        )
        starts = np.flatnonzero(np.diff(epochs, prepend=np.iinfo(np.int64).min))
        lasts = np.append(starts[1:], len(table))[: len(starts)] - 1
        firsts, ends = table[starts], table[lasts, _LAST] + 1
        columns = (epochs[starts], firsts[:, _BASE], ends, firsts[:, _POSITION])
        return tuple(EpochRun(*row) for row in np.column_stack(columns).tolist())

    def _producers(self, table: Table) -> dict[int, ProducerSpan]:
        """What the segment has of each producer; faults inside it are reported."""
        rows = np.flatnonzero(table[:, BatchColumn.PRODUCER_ID] >= 0)
        ids = table[rows, BatchColumn.PRODUCER_ID]
        order = np.argsort(ids, kind="stable")
        cuts = np.flatnonzero(np.diff(ids[order])) + 1
        spans: dict[int, ProducerSpan] = {}
        for part in np.split(rows[order], cuts):
            if len(part):
                producer_id = int(table[part[0], BatchColumn.PRODUCER_ID])
                spans[producer_id] = self._producer(producer_id, table[part])
        return spans

    def _producer(self, producer_id: int, own: Table) -> ProducerSpan:
        """One producer's batches in order."""
        epochs = own[:, BatchColumn.PRODUCER_EPOCH]
        self._report(
            FindingCode.PRODUCER_EPOCH,
            own,
            np.flatnonzero(np.diff(epochs) < 0) + 1,
            lambda row: f"epoch {epochs[row]} of producer {producer_id} behind {epochs[row - 1]}",
        )
        span = ProducerSpan(int(epochs[0]), int(own[0, _POSITION]), int(epochs[-1]))
        data = own[own[:, BatchColumn.BASE_SEQUENCE] >= 0]  # markers have none
        if not len(data):
            return span
        firsts = data[:, BatchColumn.BASE_SEQUENCE]
        data_epochs = data[:, BatchColumn.PRODUCER_EPOCH]
        # add_to_sequence, of columns: what follows the last sequence of each batch
        nexts = (firsts + data[:, _LAST] - data[:, _BASE] + 1) & INT32_MAX
        if not self._may_have_gaps:
            expected = np.where(data_epochs[1:] == data_epochs[:-1], nexts[:-1], 0)
            self._report(
                FindingCode.PRODUCER_SEQUENCE,
                data[1:],
                np.flatnonzero((firsts[1:] != expected) & (np.diff(data_epochs) >= 0)),
                lambda row: sequence_problem(producer_id, int(firsts[row + 1]), int(expected[row])),
            )
        has_data = data_epochs[-1] == epochs[-1]
        return span._replace(
            last_sequence=(int(nexts[-1]) - 1) & INT32_MAX if has_data else NO_SEQUENCE,
            first_data_epoch=int(data_epochs[0]),
            first_data_sequence=int(firsts[0]),
            first_data_position=int(data[0, _POSITION]),
        )

    # ---- the indexes

    def _entries(
        self, code: FindingCode, name: str, entry_bytes: int, unpack: Callable[[bytes], Table]
    ) -> Table:
        """Entries of an index file."""
        raw = self._filesystem.read_file(f"{self._path}/{name}")
        torn = len(raw) % entry_bytes
        if torn:
            problem = f"length is not a multiple of {entry_bytes}"
            self._findings.add(code, name, len(raw) - torn, problem)
        return unpack(raw)

    def _report_entries(
        self,
        code: FindingCode,
        name: str,
        slots: Rows,
        entry_bytes: int,
        problem: Callable[[int], str] = lambda _: "entry does not rise",
    ) -> None:
        """The same of some entries, at most FINDINGS_MAX of them; the others are counted."""
        for slot in slots[:FINDINGS_MAX].tolist():
            self._findings.add(code, name, slot * entry_bytes, problem(slot))
        self._findings.count(name, max(len(slots) - FINDINGS_MAX, 0))

    def _offset_index(self, name: str, table: Table, is_last: bool) -> None:
        """Every entry is a batch's start with its last offset; both rise."""
        code = FindingCode.OFFSET_INDEX
        entries = self._entries(code, name, OFFSET_ENTRY.size, unpack_offset_entries)
        used = len(entries) - _padding(entries[:, 1], is_last=is_last)
        offsets, positions = entries[:used, 0] + self._base, entries[:used, 1]
        falls = np.flatnonzero((np.diff(positions) <= 0) | (np.diff(offsets) <= 0))
        self._report_entries(code, name, falls + 1, OFFSET_ENTRY.size)
        is_wrong = np.ones(len(positions), dtype=np.bool_)
        if len(table):
            rows = np.minimum(np.searchsorted(table[:, _POSITION], positions), len(table) - 1)
            is_wrong = (table[rows, _POSITION] != positions) | (table[rows, _LAST] != offsets)
        self._report_entries(
            code,
            name,
            np.flatnonzero(is_wrong),
            OFFSET_ENTRY.size,
            lambda slot: f"no batch ends with {offsets[slot]} at {positions[slot]}",
        )

    def _time_index(self, name: str, table: Table, is_last: bool) -> None:
        """Timestamps rise; the last entry is the largest timestamp of a closed segment."""
        code = FindingCode.TIME_INDEX
        entries = self._entries(code, name, TIME_ENTRY.size, unpack_time_entries)
        used = len(entries) - _padding(entries[:, 0], is_last=is_last)
        timestamps, offsets = entries[:used, 0], entries[:used, 1] + self._base
        falls = np.flatnonzero((np.diff(timestamps) <= 0) | (np.diff(offsets) < 0))
        self._report_entries(code, name, falls + 1, TIME_ENTRY.size)
        largest = int(table[:, BatchColumn.MAX_TIMESTAMP].max()) if len(table) else -1
        if not is_last and largest >= 0 and (used == 0 or timestamps[-1] != largest):
            at = max(used - 1, 0) * TIME_ENTRY.size
            self._findings.add(code, name, at, f"last entry is not {largest}")

    def _transaction_index(self, name: str) -> None:
        """Decodes, and last offsets rise from the base on."""
        code = FindingCode.TRANSACTION_INDEX
        try:
            table = unpack_aborted_entries(self._filesystem.read_file(f"{self._path}/{name}"))
        except FormatError as error:
            self._findings.add(code, name, error.position or 0, error.reason)
            return
        previous = self._base - 1
        for slot, (_, _, last_offset, _) in enumerate(table.tolist()):
            if last_offset <= previous:
                problem = f"last offset {last_offset} does not rise"
                self._findings.add(code, name, slot * ABORTED_ENTRY.size, problem)
            previous = last_offset


def sequence_problem(producer_id: int, sequence: int, expected: int) -> str:
    """What is said of a batch whose sequence does not follow."""
    return f"sequence {sequence} of producer {producer_id}, expected {expected}"


def _padding(column: Table, *, is_last: bool) -> int:
    """Zero entries at the end of the last segment's preallocated index."""
    if not is_last:
        return 0
    used = np.flatnonzero(column)
    return len(column) - (int(used[-1]) + 1 if len(used) else 0)
