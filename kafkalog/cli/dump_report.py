"""What DumpLogSegments found wrong, collected over all files and printed at the end.

Owns the wording and order of the report. Never reads a file. Source: Kafka 4.1
`DumpLogSegments` and its `TimeIndexDumpErrors`, log-format.md 14.5. Files appear in the order in
which they were dumped (Kafka: the order of its hash map).
"""

from __future__ import annotations

from typing import TextIO

Pairs = dict[str, list[tuple[int, int]]]


class DumpReport:
    """Findings by absolute path of the file."""

    def __init__(self) -> None:
        self._index_mismatches: Pairs = {}
        self._time_mismatches: Pairs = {}
        self._out_of_order_timestamps: Pairs = {}
        self._offsets_not_found: Pairs = {}
        self._non_consecutive: Pairs = {}

    def index_mismatch(self, path: str, index_offset: int, log_offset: int) -> None:
        """The batch at an index entry's position ends with another offset."""
        # Kafka prepends: the newest comes first.
        self._index_mismatches.setdefault(path, []).insert(0, (index_offset, log_offset))

    def time_mismatch(self, path: str, index_timestamp: int, log_timestamp: int) -> None:
        """The batch of a time index entry has another largest timestamp."""
        self._time_mismatches.setdefault(path, []).append((index_timestamp, log_timestamp))

    def out_of_order_timestamp(self, path: str, timestamp: int, previous: int) -> None:
        """A time index entry is not above its predecessor."""
        self._out_of_order_timestamps.setdefault(path, []).append((timestamp, previous))

    def offset_not_found(self, path: str, indexed_offset: int, found_offset: int) -> None:
        """No batch ends with the offset of a time index entry; found_offset -1: none follows."""
        self._offsets_not_found.setdefault(path, []).append((indexed_offset, found_offset))

    def non_consecutive(self, path: str, first: int, second: int) -> None:
        """Two neighbouring records whose offsets have a gap, normal in a compacted log."""
        self._non_consecutive.setdefault(path, []).insert(0, (first, second))

    def write(self, err: TextIO) -> None:
        """Print all groups that have findings."""
        _write_group(
            err,
            self._index_mismatches,
            "Mismatches in :{path}",
            "  Index offset: {0}, log offset: {1}",
        )
        _write_group(
            err,
            self._time_mismatches,
            "Found timestamp mismatch in :{path}",
            "  Index timestamp: {0}, log timestamp: {1}",
        )
        _write_group(
            err,
            self._out_of_order_timestamps,
            "Found out of order timestamp in :{path}",
            "  Index timestamp: {0}, Previously indexed timestamp: {1}",
        )
        _write_group(
            err,
            self._offsets_not_found,
            "The following indexed offsets are not found in the log.",
            "Indexed offset: {0}, found log offset: {1}",
        )
        _write_group(
            err,
            self._non_consecutive,
            "Non-consecutive offsets in {path}",
            "  {0} is followed by {1}",
        )


def _write_group(err: TextIO, findings: Pairs, heading: str, line: str) -> None:
    for path, pairs in findings.items():
        err.write(heading.format(path=path) + "\n")
        for pair in pairs:
            err.write(line.format(*pair) + "\n")
