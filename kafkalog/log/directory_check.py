"""verify_directory: the offline format check of one partition directory (log-format.md 16).

Behind ``kafkalog segments verify DIR``. Opens files for reading only, needs no log object and
believes nothing: every batch is read and its CRC checked, every index entry is compared with it.
Any thread; the directory should not be written meanwhile.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.format.batch_scan import BatchColumn, ScanStop, scan
from kafkalog.format.checkpoint_text import decode_leader_epochs
from kafkalog.format.file_names import (
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    segment_file_name,
)
from kafkalog.format.format_error import FormatError
from kafkalog.format.index_entries import unpack_aborted_entries
from kafkalog.format.producer_snapshot import decode_snapshot
from kafkalog.log.values import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    import numpy.typing as npt

    from kafkalog.env.filesystem import Filesystem

    Table = npt.NDArray[np.int64]

CHUNK_BYTES = 8 * 1024 * 1024
FINDINGS_MAX = 20  # of one file; a zeroed index breaks a rule with each of a million entries
OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
_OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_COLUMNS = [
    int(BatchColumn.POSITION),
    int(BatchColumn.SIZE),
    int(BatchColumn.BASE_OFFSET),
    int(BatchColumn.LAST_OFFSET),
    int(BatchColumn.MAX_TIMESTAMP),
]
_POSITION, _SIZE, _BASE, _LAST, _TIMESTAMP = range(5)


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: file name inside the directory, byte, and what is wrong there."""

    file: str
    position: int
    problem: str


def verify_directory(
    path: str, filesystem: Filesystem, *, is_compacted: bool = False
) -> list[Finding]:
    """All findings in the order of the files; empty: the directory is sound. OSError passes.

    ``is_compacted``: known from elsewhere; offsets may be missing then. A gap inside a segment
    says so, too.
    """
    return _Check(path, filesystem, is_compacted).run()


class _Check:
    """One run."""

    def __init__(self, path: str, filesystem: Filesystem, is_compacted: bool) -> None:
        self._path = path
        self._filesystem = filesystem
        self._findings: list[Finding] = []
        self._counts: Counter[str] = Counter()
        self._is_compacted = is_compacted

    def _report(self, file: str, position: int, problem: str) -> None:
        self._counts[file] += 1
        if self._counts[file] <= FINDINGS_MAX:
            self._findings.append(Finding(file, position, problem))

    def _report_slots(self, file: str, slots: npt.NDArray[np.intp], size: int, why: str) -> None:
        """One finding an entry, those behind the last that is shown only counted."""
        shown = slots[:FINDINGS_MAX].tolist()
        for slot in shown:
            self._report(file, slot * size, why)
        self._counts[file] += len(slots) - len(shown)

    def _told(self) -> list[Finding]:
        """The findings, and behind the last one of a file how many more it has."""
        told: list[Finding] = []
        shown: Counter[str] = Counter()
        for finding in self._findings:
            told.append(finding)
            shown[finding.file] += 1
            more = self._counts[finding.file] - FINDINGS_MAX
            if shown[finding.file] == FINDINGS_MAX and more > 0:
                told.append(Finding(finding.file, finding.position, f"... {more} more"))
        return told

    def run(self) -> list[Finding]:
        """Names first, then segment by segment, then the small files."""
        names = [stat.name for stat in self._filesystem.list_dir_stats(self._path) if stat.is_file]
        bases: list[int] = []
        indexed: set[int] = set()
        for name in names:
            try:
                parsed = parse_segment_file(name)
            except FormatError as error:
                self._report(name, 0, error.reason)
                continue
            if parsed is None:
                continue
            if parsed.stage:
                if parsed.stage != ".deleted":
                    self._report(name, 0, f"unfinished replacement: {parsed.stage}")
            elif parsed.suffix == LOG_SUFFIX:
                bases.append(parsed.offset)
            elif parsed.suffix in INDEX_SUFFIXES:
                indexed.add(parsed.offset)
        next_offset, is_sound = -1, False
        holes: list[tuple[int, int]] = []
        for base in sorted(bases):
            if base < next_offset:
                file = segment_file_name(base, LOG_SUFFIX)
                self._report(file, 0, f"overlaps the segment before, which ends at {next_offset}")
            elif base > next_offset and is_sound:
                holes.append((next_offset, base))
            next_offset, is_sound = self._segment(base, is_last=base == max(bases), names=names)
        self._missing(holes, indexed - {*bases})
        for name in names:
            if name.endswith(SNAPSHOT_SUFFIX) or name == LEADER_EPOCH_CHECKPOINT:
                self._small_file(name)
        return self._told()

    def _missing(self, holes: list[tuple[int, int]], orphans: set[int]) -> None:
        """Offsets between two segments that no segment holds, and indexes whose log is missing.

        Compaction leaves holes too, most of them inside a segment: with such ones, only an index
        proves that a segment was there.
        """
        for first, end in holes:
            within = {offset for offset in orphans if first <= offset < end}
            orphans = orphans - within
            if within or not self._is_compacted:
                doubt = "" if within else ", unless the topic was compacted"
                problem = f"missing: no segment holds offsets {first} to {end - 1}{doubt}"
                self._report(segment_file_name(first, LOG_SUFFIX), 0, problem)
        for offset in sorted(orphans):
            self._report(segment_file_name(offset, LOG_SUFFIX), 0, "missing: it has an index")

    def _segment(self, base: int, *, is_last: bool, names: list[str]) -> tuple[int, bool]:
        """One log and its indexes; the offset behind its last batch, and whether all are sound."""
        file = segment_file_name(base, LOG_SUFFIX)
        table, is_sound = self._batches(file, base)
        next_offset = int(table[-1, _LAST]) + 1 if len(table) else base
        befores = np.concatenate(([base - 1], table[:-1, _LAST]))
        self._is_compacted |= bool((table[:, _BASE] > befores[: len(table)] + 1).any())
        for suffix, check in (
            (OFFSET_INDEX_SUFFIX, self._offset_index),
            (TIME_INDEX_SUFFIX, self._time_index),
        ):
            name = segment_file_name(base, suffix)
            if name not in names:
                self._report(name, 0, "missing")
            elif is_sound:
                check(name, base, table, is_last)
        name = segment_file_name(base, TRANSACTION_INDEX_SUFFIX)
        if name in names:
            self._transaction_index(name, base)
        return next_offset, is_sound

    def _batches(self, name: str, base: int) -> tuple[Table, bool]:
        """All sound batches as int64[n, 5] and whether there was nothing else in the file."""
        file = self._filesystem.open_read(f"{self._path}/{name}")
        size, position, previous = file.size(), 0, base - 1
        tables: list[Table] = []
        wanted = CHUNK_BYTES
        is_sound = True
        while position < size:
            rows = scan(file.pread(min(wanted, size - position), position), check_crc=True)
            wrong = rows.first_disorder(previous)
            if wrong is not None:
                at = position + int(rows.column(BatchColumn.POSITION)[wrong])
                self._report(name, at, f"offset not above {previous} and its predecessors")
                is_sound = False
            table = rows.table[:, _COLUMNS].copy()
            table[:, _POSITION] += position
            tables.append(table)
            if rows.count:
                previous = int(table[-1, _LAST])
            position += rows.consumed_bytes
            is_at_end = position + wanted >= size
            if rows.stop not in (ScanStop.END, ScanStop.PARTIAL) or (not rows.count and is_at_end):
                self._report(name, position, f"no sound batch: {rows.stop.name.lower()}")
                is_sound = False
                break
            wanted = CHUNK_BYTES if rows.count else wanted * 2
        file.close()
        if previous - base > MAX_RELATIVE_OFFSET:
            self._report(name, 0, f"offset {previous} does not fit the segment")
        empty = np.empty((0, len(_COLUMNS)), dtype=np.int64)
        return (np.concatenate(tables) if tables else empty), is_sound

    def _entries(self, name: str, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
        """Entries of an index file without the zero padding of a preallocated one."""
        raw = self._filesystem.read_file(f"{self._path}/{name}")
        torn = len(raw) % dtype.itemsize
        if torn:
            self._report(name, len(raw) - torn, f"length is not a multiple of {dtype.itemsize}")
        return np.frombuffer(raw[: len(raw) - torn], dtype=dtype)

    def _offset_index(self, name: str, base: int, table: Table, is_last: bool) -> None:
        """Every entry is a batch's start with its last offset; both rise."""
        entries = self._entries(name, _OFFSET_ENTRY)
        padding = _padding(entries["position"], is_last=is_last)
        positions = entries["position"][: len(entries) - padding].astype(np.int64)
        offsets = entries["offset"][: len(entries) - padding].astype(np.int64) + base
        falls = np.flatnonzero((np.diff(positions) <= 0) | (np.diff(offsets) <= 0))
        self._report_slots(name, falls + 1, OFFSET_ENTRY_BYTES, "entry does not rise")
        is_wrong = np.ones(len(positions), dtype=np.bool_)
        if len(table):
            rows = np.minimum(np.searchsorted(table[:, _POSITION], positions), len(table) - 1)
            is_wrong = (table[rows, _POSITION] != positions) | (table[rows, _LAST] != offsets)
        wrong = np.flatnonzero(is_wrong)
        for slot in wrong[:FINDINGS_MAX].tolist():
            at = slot * OFFSET_ENTRY_BYTES
            self._report(name, at, f"no batch ends with {offsets[slot]} at {positions[slot]}")
        self._counts[name] += max(len(wrong) - FINDINGS_MAX, 0)

    def _time_index(self, name: str, base: int, table: Table, is_last: bool) -> None:
        """Timestamps rise; the last entry is the largest timestamp of a closed segment."""
        entries = self._entries(name, _TIME_ENTRY)
        used = len(entries) - _padding(entries["timestamp"], is_last=is_last)
        timestamps = entries["timestamp"][:used].astype(np.int64)
        offsets = entries["offset"][:used].astype(np.int64) + base
        falls = np.flatnonzero((np.diff(timestamps) <= 0) | (np.diff(offsets) < 0))
        self._report_slots(name, falls + 1, TIME_ENTRY_BYTES, "entry does not rise")
        largest = int(table[:, _TIMESTAMP].max()) if len(table) else -1
        if not is_last and largest >= 0 and (used == 0 or timestamps[-1] != largest):
            self._report(name, max(used - 1, 0) * TIME_ENTRY_BYTES, f"last entry is not {largest}")

    def _transaction_index(self, name: str, base: int) -> None:
        """Decodes, and last offsets rise from the base on."""
        try:
            table = unpack_aborted_entries(self._filesystem.read_file(f"{self._path}/{name}"))
        except FormatError as error:
            self._report(name, error.position or 0, error.reason)
            return
        previous = base - 1
        for slot, (_, _, last_offset, _) in enumerate(table.tolist()):
            if last_offset <= previous:
                self._report(name, slot * 34, f"last offset {last_offset} does not rise")
            previous = last_offset

    def _small_file(self, name: str) -> None:
        """Snapshots and the epoch checkpoint decode."""
        data = self._filesystem.read_file(f"{self._path}/{name}")
        try:
            if name.endswith(SNAPSHOT_SUFFIX):
                decode_snapshot(data)
            else:
                decode_leader_epochs(data)
        except FormatError as error:
            self._report(name, error.position or 0, error.reason)


def _padding(column: npt.NDArray[np.void], *, is_last: bool) -> int:
    """Zero entries at the end of the last segment's preallocated index."""
    if not is_last:
        return 0
    used = np.flatnonzero(column)
    return len(column) - (int(used[-1]) + 1 if len(used) else 0)
