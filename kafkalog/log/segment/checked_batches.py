"""Where the batches of open ``.log`` files are whose CRC was found right.

A range is checked when it is read for the first time through a handle, or was written by us; as
long as the handle is open and the pages stay in the cache, it can be sent as it is. What is known
of a file goes with its handle: who opens the file again checks again. A fetch that reads the disk,
or finds a bad batch, forgets it too (``forget``), because other bytes may come back than those that
were checked. Other processes and read-ahead may bring them back unseen.

Only what is worth it is kept: batches of some size, up to a bound for all files together. Any
thread.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from kafkalog.format.records.batch_scan import BatchColumn, scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.env.filesystem import File
    from kafkalog.env.threads import Mutex
    from kafkalog.log.values import AppendedBatch

# Smaller ones would take much memory, and most of a read's time goes into them one by one anyway.
_LEAST_BATCH_BYTES = 4096
_MOST_BATCHES = 1 << 20  # 24 bytes each; beyond, all are forgotten
_MOST_RUNS = 16  # of one file


class CheckedSpan(NamedTuple):
    """Whole batches of a file."""

    position: int
    size_bytes: int
    base_offset: int
    next_offset: int


class _Run:
    """Batches back to back: where each begins, its base offset, and the offset after it."""

    __slots__ = ("bases", "end", "nexts", "positions", "start")

    def __init__(self, start: int) -> None:
        self.positions, self.bases, self.nexts = array("q"), array("q"), array("q")
        self.start = self.end = start

    def reaches(self, position: int) -> bool:
        """Whether batches that begin there continue this run, or lie in it."""
        return self.start <= position <= self.end

    def extend(
        self, positions: Sequence[int], bases: Sequence[int], nexts: Sequence[int], end: int
    ) -> int:
        """Add those of these batches that come after its own; how many. It reaches the first."""
        new = bisect_left(positions, self.end)
        if end <= self.end or new == len(positions) or positions[new] != self.end:
            return 0  # nothing new, or no batch begins where this run ends
        self.positions.extend(positions[new:])
        self.bases.extend(bases[new:])
        self.nexts.extend(nexts[new:])
        self.end = end
        return len(positions) - new

    def span(
        self, number: int, max_bytes: int, max_offset: int, size_bytes: int
    ) -> CheckedSpan | None:
        """What a read from this batch on answers; None if that is more than is known here."""
        start = self.positions[number]
        after = bisect_right(self.positions, start + max_bytes, number) - 1  # fit before this one
        if self.end <= start + max_bytes:
            after = len(self.positions)
        after = min(max(after, number + 1), bisect_left(self.bases, max_offset, number))
        if after == number:
            return None
        if after < len(self.positions):
            end = self.positions[after]
        elif self.end < min(size_bytes, start + max_bytes) and self.nexts[-1] < max_offset:
            return None  # a part of the next batch may be beyond max_bytes: the read finds out
        else:
            end = self.end
        return CheckedSpan(start, end - start, self.bases[number], self.nexts[after - 1])


class CheckedBatches:
    """See the module; of all files of a log directory."""

    def __init__(self, mutex: Mutex) -> None:
        # constant after construction
        self._mutex = mutex
        # guarded by the mutex
        self._runs: WeakKeyDictionary[File, list[_Run]] = WeakKeyDictionary()
        self._count = 0  # of batches, those of handles that are closed too

    def note_read(self, file: File, data: memoryview, position: int, batch_count: int) -> None:
        """So many whole batches were read through the handle, and checked."""
        if not batch_count or len(data) < batch_count * _LEAST_BATCH_BYTES:
            return
        rows = scan(data, check_crc=False)
        positions = (rows.column(BatchColumn.POSITION) + position).tolist()
        bases = rows.column(BatchColumn.BASE_OFFSET).tolist()
        nexts = (rows.column(BatchColumn.LAST_OFFSET) + 1).tolist()
        self._add(file, positions, bases, nexts, position + rows.consumed_bytes)

    def note_appended(self, file: File, position: int, batches: Sequence[AppendedBatch]) -> None:
        """These were checked and written through the handle, from ``position`` on."""
        sizes = [batch.size_bytes for batch in batches]
        if sum(sizes) < len(sizes) * _LEAST_BATCH_BYTES:
            return
        positions = [position]
        for size in sizes:
            positions.append(positions[-1] + size)
        bases = [batch.base_offset for batch in batches]
        nexts = [batch.last_offset + 1 for batch in batches]
        self._add(file, positions[:-1], bases, nexts, positions[-1])

    def find(
        self, file: File, offset: int, max_bytes: int, max_offset: int, size_bytes: int
    ) -> CheckedSpan | None:
        """What ``segment_reader.read`` answers if all of it was checked; else None.

        ``size_bytes``: of the segment, as published.
        """
        with self._mutex:
            for run in self._runs.get(file, ()):
                if run.bases[0] <= offset < run.nexts[-1]:
                    number = bisect_right(run.bases, offset) - 1
                    if offset < run.nexts[number]:
                        return run.span(number, max_bytes, max_offset, size_bytes)
        return None

    def forget(self, file: File) -> None:
        """The bytes of the file were changed, or may come back from the disk as others."""
        with self._mutex:
            self._runs.pop(file, None)

    def _add(
        self, file: File, positions: list[int], bases: list[int], nexts: list[int], end: int
    ) -> None:
        """To the run that ends where these begin or among them, else as a new one."""
        with self._mutex:
            runs = self._runs.setdefault(file, [])
            run = next((each for each in runs if each.reaches(positions[0])), None)
            if run is None:
                run = _Run(positions[0])
                runs.append(run)
            self._count += run.extend(positions, bases, nexts, end)
            for other in [each for each in runs if each is not run and run.reaches(each.start)]:
                runs.remove(other)
                run.extend(other.positions, other.bases, other.nexts, other.end)
            if len(runs) > _MOST_RUNS:
                runs.remove(min(runs, key=lambda each: len(each.positions)))
            if self._count > _MOST_BATCHES:
                self._runs.clear()
                self._count = 0
