"""Segments of message formats v0 and v1 become segments of v2 batches: offline, one by one.

Theory. The segments of a log may have any format, each on its own, so each is converted on its own:
its messages are read chunk by chunk and written into a ``.cleaned`` segment, which takes the place
of the old one as after a clean (``SegmentSwap``). A kill at any operation leaves the old segment or
the new one whole, and the next call goes on with those that are left. What is durable before a step
stays durable after it, so a mark of a clean stop stays true. Offsets, timestamps and modification
times are what they were: checkpoints, retention and gaps of compaction as well. v2 batches in
between are copied, with the aborted transactions that end in the segment.

Damage ends the conversion before its segment changes (CorruptBatch). What a crash may have left
after the last message of the log is no damage: as at a load it is kept beside the segment
(``.torn``), unless it is zeros.

Nobody else may have the directory open. One thread. Needs space for one segment more. Source:
Kafka 4.1 MemoryRecords.filterTo, which its cleaner converts with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.env.clock import SystemClock
from kafkalog.errors import CorruptBatch
from kafkalog.format.disk.file_names import (
    CLEAN_SHUTDOWN,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file_name,
)
from kafkalog.format.disk.index_entries import unpack_offset_entries
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.records.batch_scan import BatchColumn, ScanStop, has_messages, scan, walk
from kafkalog.format.records.message_set import MalformedMessage, convert
from kafkalog.log.inspect.directory_facts import segment_bases
from kafkalog.log.inspect.offline_log import tool_environment
from kafkalog.log.local_log import LocalLog, LogSegments
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.corruption_policy import keep_bytes
from kafkalog.log.recovery.loader_files import LoaderFiles
from kafkalog.log.segment.segment_file import (
    MovableDirectory,
    has_message_at,
    read_chunk,
    scan_chunks,
)
from kafkalog.log.segment.segment_recovery import SegmentOffsetOverflow
from kafkalog.log.segment.segment_swap import CleanedSegment, SegmentSwap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.env.clock import Clock
    from kafkalog.env.filesystem import Filesystem, ReadableFile, ReadFilesystem
    from kafkalog.format.records.batch_scan import ScannedChunk
    from kafkalog.log.environment import LogEnvironment
    from kafkalog.log.segment.log_segment import LogSegment

CHUNK_BYTES = 1 << 20
MAX_INFLATED_BYTES = 1 << 30
_RENAMES_MAX = 64


class OldSegment(NamedTuple):
    """A segment with messages of format v0 or v1."""

    base_offset: int
    file: str  # name of the ``.log``
    size_bytes: int


class ConvertedSegment(NamedTuple):
    """The same, once it is converted."""

    base_offset: int
    file: str
    size_bytes: int  # before
    new_size_bytes: int
    message_count: int  # of format v0 and v1
    torn_bytes: int = 0  # after the last message: what a crash left, or zeros
    torn_file: str | None = None  # where they are now; None: they were zeros, or there were none

    @property
    def tail_note(self) -> str | None:
        """A sentence on what followed the last message."""
        if not self.torn_bytes:
            return None
        now = "were zeros and are gone" if self.torn_file is None else f"are in {self.torn_file}"
        return f"{self.torn_bytes} bytes after the last whole message of {self.file} {now}"


def needs_conversion(
    filesystem: ReadFilesystem, partition_directory: str, *, is_thorough: bool = False
) -> tuple[OldSegment, ...]:
    """The segments to convert, rising. Reads only; a load may have to end a swap first. OSError.

    Looks at the first entry of each segment and at the last one that its index knows: Kafka changes
    the format once in a log, at an upgrade. ``is_thorough``: at all entries.
    """
    stats = {each.name: each for each in filesystem.list_dir_stats(partition_directory)}
    found = []
    for base in segment_bases(stats):
        name = segment_file_name(base, LOG_SUFFIX)
        if _is_old(filesystem, partition_directory, base, is_thorough=is_thorough):
            found.append(OldSegment(base, name, stats[name].size))
    return tuple(found)


def convert_partition(
    filesystem: Filesystem,
    partition_directory: str,
    *,
    is_thorough: bool = False,
    max_inflated_bytes: int = MAX_INFLATED_BYTES,
    clock: Clock | None = None,
    on_segment: Callable[[ConvertedSegment], None] = lambda _: None,
) -> tuple[ConvertedSegment, ...]:
    """Convert what ``needs_conversion`` names, durably; what was converted, also to ``on_segment``.

    What an interrupted swap or deletion left is ended first, as by a load. Raises CorruptBatch for
    damage, which names file and position and leaves that segment and later ones as they are, and
    OSError.
    """
    environment = tool_environment(clock or SystemClock(), filesystem)
    directory = MovableDirectory(partition_directory)
    files = LoaderFiles(environment, directory, LogConfig())
    files.reconcile()
    bases = files.offsets_of(LOG_SUFFIX)
    converted = []
    for base, end_offset in zip(bases, [*bases[1:], INT64_MAX], strict=True):
        if not _is_old(filesystem, partition_directory, base, is_thorough=is_thorough):
            continue
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if not files.has_file(base, suffix):
                files.create_empty(base, suffix)  # before Kafka 0.10.1 there were no time indexes
        one = _Conversion(
            environment, directory, files.segment(base), end_offset, max_inflated_bytes
        ).run()
        converted.append(one)
        on_segment(one)
    return tuple(converted)


def _is_old(
    filesystem: ReadFilesystem, directory: str, base_offset: int, *, is_thorough: bool
) -> bool:
    """Whether a segment holds messages of format v0 or v1."""
    file = filesystem.open_read(f"{directory}/{segment_file_name(base_offset, LOG_SUFFIX)}")
    try:
        if not is_thorough:
            places = (0, _last_indexed(filesystem, directory, base_offset))
            return any(has_message_at(file, position) for position in places)
        chunks = walk(
            file.pread, 0, file.size(), check_crc=False, chunk_bytes=CHUNK_BYTES, with_messages=True
        )
        return any(has_messages(chunk.rows) for chunk in chunks)
    finally:
        file.close()


def _last_indexed(filesystem: ReadFilesystem, directory: str, base_offset: int) -> int:
    """Position of the last entry of the offset index; 0 without one."""
    path = f"{directory}/{segment_file_name(base_offset, OFFSET_INDEX_SUFFIX)}"
    try:
        positions = unpack_offset_entries(filesystem.read_file(path))[:, 1]
    except FileNotFoundError:
        return 0
    used = np.flatnonzero(positions > 0)
    return int(positions[used[-1]]) if len(used) else 0


class _Conversion:
    """Of one segment."""

    def __init__(
        self,
        environment: LogEnvironment,
        directory: MovableDirectory,
        segment: LogSegment,
        end_offset: int,
        max_inflated_bytes: int,
    ) -> None:
        """``end_offset``: where the next segment begins, INT64_MAX for the last one."""
        self._environment = environment
        self._directory = directory
        self._segment = segment
        self._end_offset = end_offset
        self._max_inflated_bytes = max_inflated_bytes
        self._last_offset = segment.base_offset - 1
        self._message_count = 0
        self._torn: tuple[int, str | None] = (0, None)
        self._made: list[CleanedSegment] = []

    def run(self) -> ConvertedSegment:
        """All of it; see ``convert_partition``."""
        segment = self._segment
        try:
            self._begin(segment.base_offset)
            self._copy()
            self._made[-1].add_aborted(segment.transaction_index.entries())
            new = [each.finish(segment.last_modified_ms) for each in self._made]
        except BaseException as error:
            self._discard(error)
            raise
        self._swap_in(new)
        return ConvertedSegment(
            segment.base_offset,
            segment_file_name(segment.base_offset, LOG_SUFFIX),
            segment.size_bytes,
            sum(each.size_bytes for each in new),
            self._message_count,
            *self._torn,
        )

    def _copy(self) -> None:
        """Write all messages and batches, and keep what a crash left after them."""
        segment, position, stop = self._segment, 0, ScanStop.END
        for chunk in scan_chunks(
            segment.log_file,
            0,
            segment.size_bytes,
            check_crc=True,
            chunk_bytes=CHUNK_BYTES,
            with_messages=True,
        ):
            if chunk.rows.count:
                self._append(chunk)
            position, stop = chunk.position + chunk.rows.consumed_bytes, chunk.rows.stop
        if position < segment.size_bytes:
            self._pass_tail(position, stop)

    def _append(self, chunk: ScannedChunk) -> None:
        """The rows of a chunk as v2 batches."""
        try:
            data, count = convert(chunk.data, chunk.rows.table, max_bytes=self._max_inflated_bytes)
        except MalformedMessage as error:
            raise self._corrupt(chunk.position + (error.position or 0), error.reason) from error
        rows = scan(data, check_crc=False)
        wrong = rows.first_disorder(self._last_offset, end_offset=self._end_offset)
        if wrong is not None:
            offset = int(rows.column(BatchColumn.BASE_OFFSET)[wrong])
            reason = f"offset {offset} does not follow those before it, or reaches the next segment"
            raise self._corrupt(chunk.position, reason)
        if not self._made[-1].has_room_for(len(data)):
            self._begin(int(rows.column(BatchColumn.BASE_OFFSET)[0]))
        try:
            self._made[-1].append(data, rows)
        except SegmentOffsetOverflow as overflow:
            # The loader splits such a segment when it recovers it.
            raise self._corrupt(chunk.position, str(overflow)) from overflow
        self._last_offset = int(rows.column(BatchColumn.LAST_OFFSET)[-1])
        self._message_count += count

    def _pass_tail(self, position: int, stop: ScanStop) -> None:
        """What is left of the last segment after a crash; CorruptBatch for anything else."""
        file, size = self._segment.log_file.acquire(), self._segment.size_bytes
        is_last = self._end_offset == INT64_MAX
        if is_last and _is_zeros(file, position, size):
            self._torn = (size - position, None)
            return  # of a file that was made at its full size
        log_dir = self._directory.path.rpartition("/")[0]
        filesystem = self._environment.filesystem
        was_stopped = filesystem.exists(f"{log_dir}/{CLEAN_SHUTDOWN}")
        if not is_last or was_stopped or stop not in (ScanStop.END, ScanStop.PARTIAL):
            raise self._corrupt(
                position, f"no whole message: {stop.name.lower().replace('_', ' ')}"
            )
        data = read_chunk(file, position, size - position, may_block=True)
        self._torn = (size - position, keep_bytes(filesystem, self._segment, position, data))

    def _begin(self, base_offset: int) -> None:
        self._made.append(
            CleanedSegment(self._environment, self._directory, base_offset, LogConfig())
        )

    def _discard(self, cause: BaseException) -> None:
        """Delete what was written; what cannot be deleted is left to the next load."""
        self._segment.close_handles()
        try:
            for each in self._made:
                each.delete()
        except OSError as error:
            cause.add_note(f"removing .cleaned files of {self._directory.path} failed: {error}")

    def _swap_in(self, new: Sequence[LogSegment]) -> None:
        """The new segments take the place of the old one, whose files are deleted at once."""
        local = LocalLog(
            self._environment,
            self._directory,
            LogConfig(),
            LogSegments((self._segment,)),
            recovery_point=0,
            log_end_offset=0,
        )
        swap = SegmentSwap(
            self._environment, local, new, (self._segment,), renames_max=_RENAMES_MAX
        )
        for gone in swap.run(lambda call: call()):
            gone.delete_files()
        for each in new:
            each.close_handles()

    def _corrupt(self, position: int, reason: str) -> CorruptBatch:
        return CorruptBatch(
            f"Not converted, because it is damaged: {reason}",
            file=self._segment.log_file.path,
            position=position,
        )


def _is_zeros(file: ReadableFile, position: int, end: int) -> bool:
    """Whether there is nothing else from position on."""
    while position < end:
        data = file.pread(min(CHUNK_BYTES, end - position), position)
        if not data or any(data):
            return False
        position += len(data)
    return True
