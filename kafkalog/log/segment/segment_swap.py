"""Cleaned segments: how they are written, and how they replace their sources, whole or not at all.

Theory. File names alone say how far a swap is, and the loader (Kafka's or ours) ends or undoes it:
while the lowest new segment has a ``.cleaned`` file the old segments count; once all are ``.swap``
the new ones do, and everything old within [least base, greatest next offset) is deleted. That
holds for every subset of renames only if some are durable before others (Kafka leaves that to the
file system), so the cleaner's thread syncs between the turns of the writer, which never syncs. A
crash before the swap leaves ``.cleaned`` files (``CleanedSegment``), which every load removes.

| step | thread | what | a crash in it loads |
| --- | --- | --- | --- |
| prepare | cleaner | sync ``.cleaned``; rename to ``.swap``, sync, the lowest last | old |
| publish | writer | replace the segments of the log | new |
| retire | writer | rename the old files to ``.deleted``; then the cleaner syncs | new |
| rename | writer | final names, rising: ``.log``, sync, indexes with the next ``.log`` | new |
| end | any | ``delete-file`` after the delay | new |

A ``.log`` gets its final name before its indexes: beside a ``.log.swap`` the loader takes a final
index for an old one. Of old segments that start after the last retained record the loader knows
nothing; *blanks*, empty ``.swap`` files of the last such segment, widen the range over them and
are removed when all old names are gone. A crash before that leaves an empty segment more.

No other thread may change these segments meanwhile (abort and pause the cleaning first). Source:
Kafka's LocalLog.replaceSegments (4.1). Differs from Kafka: the syncs, and the blanks.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import structlog

from kafkalog.format.disk.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    segment_file_name,
)
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.log.segment.index_repair import next_offset
from kafkalog.log.segment.indexes import IndexCadence
from kafkalog.log.segment.log_segment import MAX_SEGMENT_BYTES, LogSegment
from kafkalog.log.segment.segment_file import SegmentFile
from kafkalog.log.segment.segment_recovery import SegmentOffsetOverflow
from kafkalog.log.values import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, TimestampOffset

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.env.filesystem import Buffer
    from kafkalog.format.records.batch_scan import BatchRows
    from kafkalog.log.environment import LogEnvironment
    from kafkalog.log.local_log import LocalLog, OnWriter
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.segment.segment_file import MovableDirectory
    from kafkalog.log.values import AbortedTransaction

_log = structlog.get_logger(__name__)
_BASE_OFFSET = attrgetter("base_offset")


class CleanedSegment:
    """A segment under the name ``.cleaned`` while its batches are being written.

    It becomes like one that was appended to in one go: the same index cadence, the forced last time
    index entry, trimmed indexes, and the modification time of the last source. No Python statement
    per batch: the index entries come from the cadence kernel and are written at the end. The thread
    that cleans. Nothing is synced here: ``SegmentSwap.prepare`` does.
    Source: Kafka's UnifiedLog.createNewCleanedSegment. Differs from Kafka: an index that is smaller
    than the entries of the merged segment stays sparse at its end, where Kafka gives up.
    """

    __slots__ = ("_cadence", "_config", "_directory", "_environment", "_segment", "size_bytes")

    def __init__(
        self,
        environment: LogEnvironment,
        directory: MovableDirectory,
        base_offset: int,
        config: LogConfig,
    ) -> None:
        """Make the ``.log.cleaned``, without what an earlier attempt left."""
        self._environment = environment
        self._directory = directory
        self._config = config
        remove_cleaned_files(environment, directory, base_offset)
        self._segment = self._closed(base_offset, size_bytes=0, last_modified_ms=0, aborted=False)
        self._segment.log_file.pin_for_write(create=True)
        self._cadence = IndexCadence(config.index_interval_bytes)
        self.size_bytes = 0

    @property
    def base_offset(self) -> int:
        """Of the segment."""
        return self._segment.base_offset

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether positions still fit: a segment holds at most 2^31 - 1 bytes."""
        return self.size_bytes + size_bytes <= MAX_SEGMENT_BYTES

    def append(self, data: Buffer, rows: BatchRows) -> None:
        """Write whole batches at the end; ``rows`` are those of ``data``, not none.

        Raises SegmentOffsetOverflow before anything is written, and OSError: ``delete`` it then.
        """
        last_offset = int(rows.column(BatchColumn.LAST_OFFSET)[-1])
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            raise SegmentOffsetOverflow(self.base_offset, last_offset)
        assert self.has_room_for(len(data)), "the caller asked before"
        self._segment.log_file.pin_for_write().pwrite(data, self.size_bytes)
        self._cadence.add(rows, self.size_bytes)
        self.size_bytes += len(data)

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Entries of the transaction index, by rising last offset."""
        for each in transactions:
            self._segment.transaction_index.append(each)

    def finish(self, last_modified_ms: int) -> LogSegment:
        """Write the indexes, set the modification times; the closed ``.cleaned`` segment."""
        segment = self._segment
        offsets, times = self._cadence.entries(segment)
        segment.offset_index.replace_entries(offsets)
        segment.time_index.replace_entries(times)
        nothing = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        segment.restore(self.size_bytes, self._cadence.largest or nothing)
        segment.seal()
        segment.close_handles()
        for file in (segment.log_file, segment.offset_index.file, segment.time_index.file):
            self._environment.filesystem.set_mtime_ms(file.path, last_modified_ms)
        return self._closed(
            self.base_offset,
            size_bytes=self.size_bytes,
            last_modified_ms=last_modified_ms,
            aborted=segment.transaction_index.exists,
        )

    def delete(self) -> None:
        """Give it up: none of its files stays."""
        self._segment.close_handles()
        remove_cleaned_files(self._environment, self._directory, self.base_offset)

    def _closed(
        self, base_offset: int, *, size_bytes: int, last_modified_ms: int, aborted: bool
    ) -> LogSegment:
        return LogSegment(
            self._environment,
            self._directory,
            base_offset,
            self._config,
            size_bytes=size_bytes,
            last_modified_ms=last_modified_ms,
            has_transaction_index=aborted,
            suffix=CLEANED_SUFFIX,
        )


def remove_cleaned_files(
    environment: LogEnvironment, directory: MovableDirectory, base_offset: int
) -> None:
    """Delete the ``.cleaned`` files of a base; missing ones are fine."""
    filesystem = environment.filesystem
    for suffix in SEGMENT_SUFFIXES:
        path = f"{directory.path}/{segment_file_name(base_offset, suffix, CLEANED_SUFFIX)}"
        if filesystem.exists(path):
            filesystem.unlink(path)


class StagedFile(NamedTuple):
    """A file of a segment on its way from stage to stage."""

    base_offset: int
    suffix: str
    file: SegmentFile

    def name_at(self, stage: str) -> str:
        """Its name at a stage."""
        return segment_file_name(self.base_offset, self.suffix, stage)


@dataclass(frozen=True, slots=True)
class Turn:
    """Renames of one command on the writer; those done already are passed over."""

    files: tuple[StagedFile, ...]
    old_stage: str
    new_stage: str

    def run(self) -> None:
        """Rename. On OSError the turn may be run again. Missing files are logged, not errors."""
        for staged in self.files:
            if staged.file.name == staged.name_at(self.old_stage) and not staged.file.rename(
                staged.name_at(self.new_stage)
            ):
                _log.warning("segment_file_missing", path=staged.file.path)


def staged_files(segment: LogSegment) -> tuple[StagedFile, ...]:
    """The files of a segment, the ``.log`` first."""
    return tuple(
        StagedFile(segment.base_offset, suffix, file)
        for suffix, file in zip(SEGMENT_SUFFIXES, segment.files, strict=False)
    )


def plan_blanks(
    new: Sequence[LogSegment], new_end: int, old: Sequence[LogSegment]
) -> tuple[tuple[int, str], ...]:
    """Base offset and suffix of each blank; both sequences rise, new_end is the next offset."""
    behind = [segment for segment in old if segment.base_offset >= new_end]
    if not behind:
        return ()
    taken = {(each.base_offset, each.suffix) for segment in new for each in staged_files(segment)}
    names = ((each.base_offset, each.suffix) for each in staged_files(behind[-1]))
    return tuple(name for name in names if name not in taken)


def plan_retirement(old: Sequence[LogSegment], renames_max: int) -> tuple[Turn, ...]:
    """The old files become ``.deleted``, at most renames_max a turn; their order is free."""
    files = [each for segment in old for each in staged_files(segment)]
    return tuple(
        Turn(tuple(files[start : start + renames_max]), "", DELETED_SUFFIX)
        for start in range(0, len(files), renames_max)
    )


def plan_final_names(new: Sequence[LogSegment]) -> tuple[Turn, ...]:
    """The new files get their final names; each turn is durable before the next one begins."""
    turns: list[tuple[StagedFile, ...]] = []
    indexes: tuple[StagedFile, ...] = ()
    for segment in new:
        log, *rest = staged_files(segment)
        turns.append((*indexes, log))
        indexes = tuple(rest)
    return tuple(Turn(files, SWAP_SUFFIX, "") for files in (*turns, indexes))


class SegmentSwap:
    """One swap, driven by the thread that cleaned; see the module."""

    def __init__(
        self,
        environment: LogEnvironment,
        log: LocalLog,
        new: Sequence[LogSegment],
        old: Sequence[LogSegment],
        *,
        renames_max: int,
    ) -> None:
        """``new`` are closed ``.cleaned`` segments, ``old`` closed ones of the log; none is empty.

        ``renames_max`` bounds what the writer does in one command. Reads the ends of ``new``.
        """
        self._environment = environment
        self._log = log
        self._new = tuple(sorted(new, key=_BASE_OFFSET))
        self._old = tuple(sorted(old, key=_BASE_OFFSET))
        assert all(each.log_file.name.endswith(CLEANED_SUFFIX) for each in self._new)
        assert not any(each.is_active for each in (*self._new, *self._old)), "closed ones only"
        new_end = max(next_offset(segment) for segment in self._new)
        directory = log.directory
        self._blanks = tuple(
            StagedFile(
                base,
                suffix,
                SegmentFile(
                    environment, directory, segment_file_name(base, suffix, CLEANED_SUFFIX)
                ),
            )
            for base, suffix in plan_blanks(self._new, new_end, self._old)
        )
        self._retirement = plan_retirement(self._old, renames_max)
        self._final_names = plan_final_names(self._new)
        self._gone: tuple[LogSegment, ...] | None = None  # None: not published

    def run(self, on_writer: OnWriter) -> tuple[LogSegment, ...]:
        """All of it on the cleaner's thread; returns the old segments that went.

        ``on_writer`` runs a call on the writer of the directory and returns when it is done; what
        it raises instead of the first one (a refused clean) withdraws the new segments. OSError
        after that leaves the log sound and ``complete`` to be tried again (``pending_swap``); else
        the next load ends the swap. Snapshots of the bases that went are the caller's.
        """
        try:
            self.prepare()
            on_writer(self.publish)
        finally:
            if self._gone is None:
                self.withdraw()
        return self.complete(on_writer)

    def complete(self, on_writer: OnWriter) -> tuple[LogSegment, ...]:
        """What follows the publication; may be run again after an OSError."""
        for turn in self._retirement:
            on_writer(turn.run)
        self._sync_names()  # no old file beside final names, neither its index nor its records
        for blank in self._blanks:
            blank.file.unlink()
        for turn in self._final_names:
            on_writer(turn.run)
            self._sync_names()  # rising: what is left of the range holds no final file
        assert self._gone is not None, "not published"
        self._log.delete_later(self._gone)
        self._log.pending_swap = None
        return self._gone

    def prepare(self) -> None:
        """Bring the new segments to ``.swap``, durably; blocks for syncs.

        FileNotFoundError when one of their files is gone: nothing old may go for it.
        """
        for blank in self._blanks:
            blank.file.pin_for_write(create=True).truncate(0)
        staged = self._staged()
        for each in staged:
            if not each.file.datasync():
                raise FileNotFoundError(2, "No such file or directory", each.file.path)
        for segment in self._new:
            segment.mark_flushed(segment.version)
        self._sync_names()  # a lost ``.cleaned`` would make the set look complete
        lowest = self._new[0].base_offset
        above = tuple(each for each in staged if each.base_offset > lowest)
        if above:
            Turn(above, CLEANED_SUFFIX, SWAP_SUFFIX).run()
            self._sync_names()  # the lowest ``.swap`` says that all above it are there
        last = tuple(each for each in staged if each.base_offset == lowest)
        Turn(last, CLEANED_SUFFIX, SWAP_SUFFIX).run()
        self._sync_names()  # before any old name goes
        for blank in self._blanks:
            blank.file.release()

    def publish(self) -> None:
        """Writer thread: from here on readers see the new segments."""
        present = (each for each in self._old if self._log.segments.get(each.base_offset) is each)
        self._gone = tuple(present)
        self._log.pending_swap = self.complete
        self._log.segments.replace(add=self._new, remove=self._gone)
        self._log.swap_count += 1  # after the segments: no tag of new ones names old records
        self._log.note_name_change()

    def withdraw(self) -> None:
        """Instead of the publication: delete the new segments; a crash in it loads the old ones."""
        for segment in self._new:
            segment.close_handles()
        lowest = self._new[0].log_file
        lowest.rename(staged_files(self._new[0])[0].name_at(CLEANED_SUFFIX))
        self._sync_names()  # from here on no ``.swap`` counts, and none may outlive this name
        for each in self._staged():
            if each.file is not lowest:
                each.file.unlink()
        self._sync_names()
        lowest.unlink()

    def _staged(self) -> list[StagedFile]:
        """All files of the new segments and the blanks."""
        return [*(each for segment in self._new for each in staged_files(segment)), *self._blanks]

    def _sync_names(self) -> None:
        """What was renamed and deleted so far is durable."""
        self._environment.filesystem.sync_dir(self._log.directory.path)
