"""LocalLog: the segments of one partition as one append-only file.

Owns the set of segments, the log end offset and the recovery point; knows offsets and files, but
no producers, epochs, watermarks or retention rules (UnifiedLog). Changes are the writer thread's;
reads are for any thread. Fsyncs never run here: ``plan_flush`` says what is dirty, the flusher
thread runs the plan, ``mark_flushed`` takes the result back. Crash rule: files are renamed to
``.deleted`` before they are deleted, so a crash in between leaves only what the loader removes.

``LogSegments`` is the sorted set: an immutable view (bases and segments, both tuples) that is
replaced as a whole, so that readers take no lock and work on what they saw. Adding a segment copies
two tuples: with 20,000 segments tens of microseconds a roll. Source: Kafka's LocalLog and
LogSegments (4.1).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from kafkalog.errors import UnsupportedMessageFormat
from kafkalog.format.disk.file_names import DELETED_SUFFIX, SEGMENT_SUFFIXES, segment_file_name
from kafkalog.format.integers import INT64_MAX, FormatError
from kafkalog.format.topic_names import parse_directory_name
from kafkalog.log import kafka_messages
from kafkalog.log.segment import segment_reader
from kafkalog.log.segment.log_segment import LogSegment
from kafkalog.log.values import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalog.env.filesystem import Buffer, File, Filesystem
    from kafkalog.log.environment import LogEnvironment
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.segment.checked_batches import CheckedSpan
    from kafkalog.log.segment.segment_file import MovableDirectory, SegmentFile
    from kafkalog.log.segment.segment_reader import SegmentRead
    from kafkalog.log.values import AbortedTransaction, AppendedBatch, FetchSpan

    OnWriter = Callable[[Callable[[], None]], None]
    View = tuple[tuple[int, ...], tuple[LogSegment, ...]]


_log = structlog.get_logger(__name__)

DELETE_FILE_TASK = "delete-file"


@dataclass(frozen=True, slots=True)
class DeletingSegment:
    """A segment that no reader finds any more and whose files are still there."""

    base_offset: int
    size_bytes: int
    files_gone_ms: int  # wall time at which its ``delete-file`` task is due


@dataclass(frozen=True, slots=True)
class LocalFlush:
    """What has to be synced so that everything below ``end_offset`` is durable."""

    end_offset: int
    files: tuple[SegmentFile, ...]
    versions: tuple[tuple[LogSegment, int], ...]  # changes that the files hold
    names_version: int  # changes of names that the directory holds
    directory: MovableDirectory | None  # None: no name in it is new
    filesystem: Filesystem

    def run(self) -> None:
        """The fsyncs, on the flusher thread: data before names. Deleted files are passed over."""
        for file in self.files:
            file.datasync()
        if self.directory is not None:
            try:
                self.filesystem.sync_dir(self.directory.path)
            except FileNotFoundError:
                return  # renamed or deleted meanwhile; that syncs the parent


class LocalLog:
    """See the module."""

    def __init__(
        self,
        environment: LogEnvironment,
        directory: MovableDirectory,
        config: LogConfig,
        segments: LogSegments,
        *,
        recovery_point: int,
        log_end_offset: int,
        has_unsynced_names: bool = True,
    ) -> None:
        """``segments`` is not empty and its last one is active (``LogSegment.become_active``).

        ``has_unsynced_names``: file names that the load found or made may not be durable.
        """
        # constant after construction
        self._environment = environment
        self.directory = directory
        self._loaded_ms = environment.clock.wall_ms()
        # owned by the writer thread
        self.config = config
        self.recovery_point = recovery_point
        self.last_flush_ms = environment.clock.wall_ms()
        self._names_version = int(has_unsynced_names)
        self._synced_names_version = 0
        # owned by the thread that cleans this log, set by the writer: does the other renames of a
        # swap that was published, and returns the old segments that went
        self.pending_swap: Callable[[OnWriter], tuple[LogSegment, ...]] | None = None
        # single dictionary operations by any thread
        self._deleting: dict[LogSegment, DeletingSegment] = {}
        # published to readers
        self.segments = segments
        self.log_end_offset = log_end_offset
        self.swap_count = 0  # since the load
        self.aborted_in_lost: tuple[AbortedTransaction, ...] = ()  # set by the loader

    @property
    def active_segment(self) -> LogSegment:
        """The one that is appended to."""
        return self.segments.active

    @property
    def generation(self) -> str:
        """Another one whenever records below the log end may not be what they were.

        A clean replaces segments, a load may have cut off what was not durable.
        """
        return f"{self._loaded_ms:x}.{self.swap_count}"

    @property
    def size_bytes(self) -> int:
        """Bytes of all ``.log`` files; indexes do not count."""
        return sum(segment.size_bytes for segment in self.segments.values)

    # ---- append and roll

    def append(self, buffers: Sequence[Buffer], batches: Sequence[AppendedBatch]) -> None:
        """Append to the active segment, then move the log end. All or nothing, see LogSegment."""
        self.active_segment.append(buffers, batches)
        self.log_end_offset = batches[-1].last_offset + 1

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Close the active segment and start one at max(expected_next_offset, log end offset).

        An empty active segment of that very base is replaced by a fresh one (its index may be
        full). The log end moves to the new base. The old segment is flushed later: it is part of
        the next ``plan_flush``. On OSError all is undone and the same roll may be tried again; the
        active segment ``is_broken`` when undoing failed too.
        """
        base_offset = max(expected_next_offset, self.log_end_offset)
        active, started_ns = self.active_segment, self._environment.clock.monotonic_ns()
        if active.base_offset == base_offset:
            assert active.size_bytes == 0, f"a segment of base {base_offset} holds data"
            path = self.directory.path
            text = kafka_messages.empty_segment_rolled(
                base_offset,
                expected_next_offset,
                self.log_end_offset,
                timed=active.time_index.entry_count(),
                indexed=active.offset_index.entry_count(),
            )
            _log.warning(text, directory=path)
            segment = self._replace_segment(active, base_offset)
            text = kafka_messages.empty_segment_recreated(base_offset, "log roll")
            _log.warning(text, directory=path, remedy="a larger segment.index.bytes")
        else:
            assert base_offset > active.base_offset, "a roll may not go back"
            self._remove_left_overs(base_offset)
            segment = self._create_segment(base_offset)  # first: it is what a full disk refuses
            try:
                active.on_become_inactive()
            except OSError as error:
                segment.close_handles()
                self._withdraw_files(base_offset, error)
                raise
            self.segments.add(segment)
        self.log_end_offset = base_offset
        duration_ms = (self._environment.clock.monotonic_ns() - started_ns) // 1_000_000
        _log.info(kafka_messages.rolled(base_offset, duration_ms), directory=self.directory.path)
        return segment

    def note_name_change(self) -> None:
        """A file was made or renamed in the directory; the next flush makes that durable."""
        self._names_version += 1

    @property
    def has_unsynced_names(self) -> bool:
        """Whether a power cut could take back the name of a file, or a renaming."""
        return self._names_version != self._synced_names_version

    def sync_names(self) -> None:
        """Make the names durable now; for threads that may block."""
        if self.has_unsynced_names:
            self._environment.filesystem.sync_dir(self.directory.path)
            self._synced_names_version = self._names_version

    def _create_segment(self, base_offset: int) -> LogSegment:
        """Files of a new active segment; none of them is left on OSError."""
        self.note_name_change()
        try:
            return LogSegment.create(self._environment, self.directory, base_offset, self.config)
        except OSError as error:
            self._withdraw_files(base_offset, error)
            raise

    def _withdraw_files(self, base_offset: int, cause: OSError) -> None:
        """Remove what was made; what cannot be removed is a left-over of the next attempt."""
        try:
            self._remove_left_overs(base_offset)
        except OSError as error:
            cause.add_note(f"removing the files of segment {base_offset} failed: {error}")

    def _replace_segment(self, old: LogSegment, base_offset: int) -> LogSegment:
        """Publish a fresh segment at base_offset instead of old, whose files go later."""
        try:
            self._mark_deleted((old,))
            segment = self._create_segment(base_offset)
        except OSError as error:
            old.restore_names(error)
            raise
        self.segments.replace(add=(segment,), remove=(old,))
        self.delete_later((old,))
        return segment

    def _remove_left_overs(self, base_offset: int) -> None:
        """Delete files that carry the name of a segment about to be made."""
        filesystem = self._environment.filesystem
        for suffix in SEGMENT_SUFFIXES:
            path = f"{self.directory.path}/{segment_file_name(base_offset, suffix)}"
            if filesystem.exists(path):
                _log.warning("left_over_file_deleted", path=path)
                filesystem.unlink(path)

    # ---- read

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        max_offset: int = INT64_MAX,
        min_one_batch: bool = True,
        may_block: bool = True,
        remembers: bool = False,
    ) -> SegmentRead | None:
        """Whole batches of one segment, from the first batch that ends at or after start_offset.

        No batch that starts at or after max_offset (a watermark). None when there is none; bounds
        against log start and end are the caller's. ``remembers``: that these were checked. Errors
        as of ``segment_reader.read``, and UnsupportedMessageFormat.
        """
        segment = self.segments.floor(start_offset)
        if segment is None and len(self.segments):
            segment = self.segments.first
        checked = self._environment.checked_batches
        while segment is not None and segment.base_offset < max_offset:
            if segment.holds_messages:
                raise self.unsupported(segment)
            following = self.segments.higher(segment.base_offset)
            found = segment_reader.read(
                segment,
                start_offset,
                max_bytes,
                max_offset=max_offset,
                end_offset=self._end_of(segment) if following is None else following.base_offset,
                min_one_batch=min_one_batch,
                may_block=may_block,
                checked=checked,
                remembers=remembers,
            )
            if found is not None:
                return found
            segment = following
        return None

    def unsupported(self, segment: LogSegment) -> UnsupportedMessageFormat:
        """The refusal of a segment with messages of format v0 or v1."""
        following = self.segments.higher(segment.base_offset)
        end = self.log_end_offset if following is None else following.base_offset
        return UnsupportedMessageFormat(self.directory.path, segment.base_offset, end - 1)

    def read_checked(
        self, start_offset: int, max_bytes: int, *, max_offset: int
    ) -> tuple[File, int, CheckedSpan] | None:
        """Handle, its descriptor, and place of what ``read`` would answer.

        None unless all of it was checked and is in the page cache.
        """
        segment = self.segments.floor(start_offset)
        if segment is None:
            return None
        checked = self._environment.checked_batches
        try:
            file = segment.log_file.acquire(may_block=False)
        except WouldBlock:
            return None
        span = checked.find(file, start_offset, max_bytes, max_offset, segment.size_bytes)
        if span is None:
            return None
        descriptor = file.cached_descriptor(span.position, span.size_bytes)
        if descriptor is None:
            checked.forget(file)
            return None
        return file, descriptor, span

    def read_again(self, span: FetchSpan) -> memoryview:
        """What ``read_checked`` found, from the disk; CorruptBatch, OSError. Blocks."""
        self._environment.checked_batches.forget(span.file)
        return segment_reader.read_again(span)

    def _end_of(self, active: LogSegment) -> int:
        """What no offset in the active segment may reach, for a reader of offsets below the end.

        The first batch of a segment is there a moment before the log end moves.
        """
        end = self.log_end_offset
        return end if end > active.base_offset else INT64_MAX

    def collect_aborted(
        self, start_offset: int, upper_bound_offset: int, *, may_block: bool = True
    ) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [start_offset, upper_bound_offset)."""
        aborted: list[AbortedTransaction] = []
        segment = self.segments.floor(start_offset)
        while segment is not None:
            index = segment.transaction_index
            found = index.search(start_offset, upper_bound_offset, may_block=may_block)
            aborted.extend(found.aborted)
            if found.is_complete:
                break
            segment = self.segments.higher(segment.base_offset)
        aborted.extend(
            each
            for each in self.aborted_in_lost
            if each.last_offset >= start_offset and each.first_offset < upper_bound_offset
        )
        return aborted

    # ---- flush

    def plan_flush(
        self, *, include_active: bool = True, has_other_files: bool = False
    ) -> LocalFlush | None:
        """Files to sync so that offsets below the log end are durable.

        include_active False leaves out the active segment (after a roll: flush up to its base).
        None when nothing is dirty, unless the caller ``has_other_files`` to sync. No I/O.
        """
        end = self.log_end_offset
        if not include_active:
            end = min(end, self.active_segment.base_offset)
        segments = self._unflushed_segments(end + 1 if include_active else end)
        files = tuple(file for segment in segments for file in segment.files_to_flush())
        if not files and end <= self.recovery_point and not has_other_files:
            return None
        return LocalFlush(
            end_offset=end,
            files=files,
            versions=tuple((segment, segment.version) for segment in segments),
            names_version=self._names_version,
            directory=self.directory if self.has_unsynced_names else None,
            filesystem=self._environment.filesystem,
        )

    def _unflushed_segments(self, end: int) -> list[LogSegment]:
        """Segments below end with changes that are not durable, rising.

        Those at and after the recovery point, and before it the ones that were closed after
        their last byte was flushed: closing wrote to their indexes.
        """
        segments = list(self.segments.values_between(self.recovery_point, end))
        first = segments[0].base_offset if segments else end
        while (before := self.segments.lower(first)) is not None and before.files_to_flush():
            segments.insert(0, before)
            first = before.base_offset
        return segments

    def mark_flushed(self, plan: LocalFlush) -> None:
        """The plan's fsyncs succeeded: the recovery point moves up, never back."""
        end = min(plan.end_offset, self.log_end_offset)
        if end > self.recovery_point:
            self.recovery_point = end
        if plan.directory is not None:
            self._synced_names_version = max(self._synced_names_version, plan.names_version)
        self.last_flush_ms = self._environment.clock.wall_ms()
        for segment, version in plan.versions:
            segment.mark_flushed(version)

    # ---- delete, truncate

    def delete_segments(self, segments: Sequence[LogSegment]) -> None:
        """Take closed segments out of the set, rename their files and delete them later.

        Renaming is done on return; the files go with a ``delete-file`` task after
        ``file.delete.delay.ms``. Missing files are logged, not errors.
        """
        self.segments.remove(segments)
        self._mark_deleted(segments)
        self.delete_later(segments)

    def delete_all_segments(self) -> None:
        """Delete the files of the whole log at once (topic deletion); the log is dead then."""
        segments = self.segments.values
        self.segments.remove(segments)
        _delete_files(segments, self.directory.path)

    def truncate_to(self, offset: int) -> tuple[LogSegment, ...]:
        """Drop everything at or above offset; returns the segments that went as a whole.

        The first segment must start at or below offset. Later segments are renamed first, then the
        one that holds the offset is cut and becomes the active one.
        """
        assert self.segments.first.base_offset <= offset, "truncate_fully_and_start_at is needed"
        deleted = self.segments.higher_values(offset)
        self.delete_segments(deleted)
        self.active_segment.truncate_to(offset)
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        return deleted

    def truncate_fully_and_start_at(self, offset: int) -> tuple[LogSegment, ...]:
        """Drop everything and continue empty at offset; returns the segments that went."""
        deleted = self.segments.values
        self._mark_deleted(deleted)
        self._remove_left_overs(offset)
        segment = self._create_segment(offset)
        self.segments.replace(add=(segment,), remove=deleted)
        self.delete_later(deleted)
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        return deleted

    def _mark_deleted(self, segments: Sequence[LogSegment]) -> None:
        """Rename the files of each segment to ``.deleted``."""
        self.note_name_change()
        for segment in segments:
            for name in segment.change_suffix(DELETED_SUFFIX):
                _log.warning("segment_file_missing", directory=self.directory.path, name=name)

    def delete_later(self, segments: Sequence[LogSegment]) -> None:
        """Remove files renamed to ``.deleted`` after the delay, under the directory's guard."""
        if not segments:
            return
        gone_ms = self._environment.clock.wall_ms() + self.config.file_delete_delay_ms
        for segment in segments:
            self._deleting[segment] = DeletingSegment(
                segment.base_offset, segment.size_bytes, gone_ms
            )

        def delete_files() -> None:
            _delete_files(segments, self.directory.path)
            for segment in segments:
                self._deleting.pop(segment, None)

        self._environment.scheduler.schedule_once(
            DELETE_FILE_TASK,
            self._environment.guarded(delete_files),
            self.config.file_delete_delay_ms,
        )

    @property
    def deleting(self) -> list[DeletingSegment]:
        """What waits for its ``delete-file`` task, in the order in which it was given up."""
        return list(self._deleting.values())

    # ---- life

    def rename_dir(self, new_path: str) -> None:
        """Move the partition directory; the caller syncs both parents. Readers follow."""
        self.directory.rename(self._environment.filesystem, new_path)

    def close(self) -> None:
        """Trim and close every file; the caller has flushed or accepts recovery.

        Syncs the time index entry that closing forces: a clean start could not tell it from a lost
        one. Sizes are not synced; padding is noticed when the index is loaded.
        """
        active = self.active_segment
        if active.is_active:
            entry_count = active.time_index.entry_count()
            active.on_become_inactive()
            if active.time_index.entry_count() != entry_count:
                active.time_index.file.datasync()
            if self.config.preallocate:
                active.log_file.datasync()
        for segment in self.segments:
            segment.close()

    def close_handles(self) -> None:
        """Drop descriptors without writing (the directory failed)."""
        self.segments.close_handles()


def _delete_files(segments: Sequence[LogSegment], path: str) -> None:
    """Delete the files of segments that no reader finds any more. path: of the directory."""
    name = path.rpartition("/")[2]
    with suppress(FormatError):  # a directory of an offline tool
        name = str(parse_directory_name(name).topic_partition)
    for several in kafka_messages.groups_of_one_line(segments):
        descriptions = [segment.description(may_read=False) for segment in several]
        _log.info(kafka_messages.files_deleted(descriptions), partition=name, directory=path)
    for segment in segments:
        for name in segment.delete_files():
            _log.info("segment_file_already_gone", name=name)


class LogSegments:
    """Segments by base offset, each base once."""

    __slots__ = ("_view",)

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        # published to readers
        self._view: View = ((), ())
        self.replace(add=segments, remove=())

    def replace(self, *, add: Iterable[LogSegment], remove: Iterable[LogSegment]) -> None:
        """Publish at once: without the segments of ``remove``, with those of ``add``.

        ``remove`` goes by identity, so a replacement of the same base survives; an added segment
        takes the place of another one of its base.
        """
        bases, segments = self._view
        by_base = dict(zip(bases, segments, strict=True))
        for segment in remove:
            if by_base.get(segment.base_offset) is segment:
                del by_base[segment.base_offset]
        for segment in add:
            by_base[segment.base_offset] = segment
        ordered = tuple(sorted(by_base))
        self._view = (ordered, tuple(by_base[base] for base in ordered))

    def add(self, segment: LogSegment) -> None:
        """Add one; a segment of the same base gives way."""
        bases, segments = self._view
        if not bases or segment.base_offset > bases[-1]:
            self._view = ((*bases, segment.base_offset), (*segments, segment))
        else:
            self.replace(add=(segment,), remove=())

    def remove(self, segments: Iterable[LogSegment]) -> None:
        """Remove; those that are not there are ignored."""
        self.replace(add=(), remove=segments)

    def close_handles(self) -> None:
        """Drop descriptors and entries of all without writing anything."""
        for segment in self.values:
            segment.close_handles()

    @property
    def values(self) -> tuple[LogSegment, ...]:
        """All, by rising base offset."""
        return self._view[1]

    @property
    def active(self) -> LogSegment:
        """The one with the highest base offset; the set must not be empty."""
        return self._view[1][-1]

    @property
    def first(self) -> LogSegment:
        """The one with the lowest base offset; the set must not be empty."""
        return self._view[1][0]

    def contains(self, base_offset: int) -> bool:
        """Whether a segment has exactly this base."""
        return self.get(base_offset) is not None

    def get(self, base_offset: int) -> LogSegment | None:
        """The segment of exactly this base."""
        found = self.floor(base_offset)
        return found if found is not None and found.base_offset == base_offset else None

    def floor(self, offset: int) -> LogSegment | None:
        """Greatest base at or below offset: the one that would hold it."""
        bases, segments = self._view
        slot = bisect_right(bases, offset) - 1
        return segments[slot] if slot >= 0 else None

    def lower(self, offset: int) -> LogSegment | None:
        """Greatest base below offset."""
        bases, segments = self._view
        slot = bisect_left(bases, offset) - 1
        return segments[slot] if slot >= 0 else None

    def higher(self, offset: int) -> LogSegment | None:
        """Least base above offset."""
        bases, segments = self._view
        slot = bisect_right(bases, offset)
        return segments[slot] if slot < len(segments) else None

    def values_between(self, from_offset: int, to_offset: int) -> tuple[LogSegment, ...]:
        """From the segment that would hold from_offset up to bases below to_offset."""
        bases, segments = self._view
        start = max(bisect_right(bases, from_offset) - 1, 0)
        return segments[start : max(bisect_left(bases, to_offset), start)]

    def higher_values(self, offset: int) -> tuple[LogSegment, ...]:
        """All with a base above offset."""
        bases, segments = self._view
        return segments[bisect_right(bases, offset) :]

    def __len__(self) -> int:
        return len(self._view[1])

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._view[1])
