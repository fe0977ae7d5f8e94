"""A `.log` file as the dump tool walks it: batch after batch, by position, whatever is in them.

Owns the iteration rules of Kafka's `FileLogInputStream` (log-format.md 1.5). Unlike recovery it
does not stop at a wrong CRC: the tool shows such batches. Reads one batch at a time, so memory is
bounded by the largest batch. One thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.errors import CorruptBatch
from kafkalog.format.integers import FormatError
from kafkalog.format.records.record_batch import (
    HEADER_BYTES,
    HEADER_UP_TO_MAGIC,
    LEGACY_LENGTH_MIN,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    BatchHeader,
    read_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.env.filesystem import Filesystem


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """One whole batch and where it lies."""

    position: int
    header: BatchHeader
    data: bytes


class DumpedLog:
    """An open log file, cut to its first max_bytes."""

    def __init__(self, filesystem: Filesystem, path: str, max_bytes: int | None = None) -> None:
        self.path = path
        self._file = filesystem.open_read(path)
        size = self._file.size()
        self.size_bytes = size if max_bytes is None else min(size, max_bytes)

    def batches(self, start: int = 0, max_bytes: int | None = None) -> Iterator[DumpedBatch]:
        """Whole batches from start, a position at which one begins.

        Ends quietly at a partial batch. Raises CorruptBatch where no batch can begin: its size is
        impossible, as in zeros, or it is a message set of before Kafka 0.11; and for a negative
        start, as a damaged index may name.
        """
        if start < 0:
            raise self._corrupt("Invalid position", start)
        end = self.size_bytes if max_bytes is None else min(self.size_bytes, start + max_bytes)
        position = start
        while position < end - HEADER_UP_TO_MAGIC:
            head = self._file.pread(HEADER_UP_TO_MAGIC, position)
            size = int.from_bytes(head[8:12], "big", signed=True)
            if size < LEGACY_LENGTH_MIN:
                raise self._corrupt(
                    f"Found record size {size} smaller than minimum record overhead "
                    f"({LEGACY_LENGTH_MIN})",
                    position,
                )
            if position > end - LOG_OVERHEAD - size:
                return
            magic = head[MAGIC_AT]
            if magic < MAGIC_V2:
                raise self._corrupt(f"A message set of format {magic} is not supported", position)
            if size + LOG_OVERHEAD < HEADER_BYTES:
                raise self._corrupt(f"Found record batch size {size} below its header", position)
            data = self._file.pread(size + LOG_OVERHEAD, position)
            try:
                header = read_header(data)
            except FormatError as error:
                raise self._corrupt(error.reason, position) from error
            yield DumpedBatch(position, header, data)
            position += len(data)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _corrupt(self, reason: str, position: int) -> CorruptBatch:
        return CorruptBatch(reason, file=self.path, position=position)
