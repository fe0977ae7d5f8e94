"""PartitionBackup: one partition of a backup, taken while it is written, rolled, cleaned and cut.

Theory. The writer thread notes segments, bytes, offsets and epochs of one moment
(``capture``, no disk) and answers after a flush of what it noted: all of it is then durable
and below the high watermark, and neither a power cut nor a recovery of the source changes a byte of
it. The files are taken after that, by another thread, under the names that the segments say they
have. Meanwhile

* appends are written after what was noted;
* retention takes segments below a log start that it has raised before: the backup begins later;
* the cleaner publishes new segments before any file changes its name: whoever finds a captured
  segment published after its last file was taken has its files. One that is not published any more
  is thrown away, and the partition is captured again; what was taken of the others is kept.

Never writes to the source. One background thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.broker.backup.files import PartitionState, SourceGone, plan_partition
from kafkalog.format.disk.backup_manifest import BackupFile, BackupPartition
from kafkalog.format.disk.checkpoints import encode_leader_epochs
from kafkalog.format.disk.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    SEGMENT_SUFFIXES,
    STAGE_SUFFIXES,
    segment_file_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.broker.backup.files import BackupFiles, PlannedFile
    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.segment.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog


@dataclass(frozen=True, slots=True)
class CapturedPartition:
    """What the writer thread noted. ``segments`` are those of ``state``, in the same order."""

    log: UnifiedLog
    segments: tuple[LogSegment, ...]
    state: PartitionState
    epochs: tuple[tuple[int, int], ...]

    def with_ends(self) -> Iterator[tuple[LogSegment, int]]:
        """Each segment with the offset at which the next one begins, the newest first."""
        end_offset = self.state.end_offset
        for segment in reversed(self.segments):
            yield segment, end_offset
            end_offset = segment.base_offset


def capture(log: UnifiedLog) -> CapturedPartition:
    """On the writer: note the log as it is now. No disk."""
    segments = log.segments.values
    active = segments[-1]
    return CapturedPartition(
        log=log,
        segments=segments,
        state=PartitionState(
            segments=tuple((each.base_offset, each.size_bytes) for each in segments),
            active_index_bytes=(
                active.offset_index.size_in_bytes(),
                active.time_index.size_in_bytes(),
            ),
            log_start_offset=log.log_start_offset,
            end_offset=log.log_end_offset,
            snapshot_offsets=log.producers.snapshot_offsets,
        ),
        epochs=log.epochs.entries,
    )


class PartitionBackup:
    """See the module."""

    def __init__(
        self,
        filesystem: Filesystem,
        files: BackupFiles,
        name: str,
        log_dir: LogDir,
        *,
        is_linked: bool,
        count: Callable[[str, int], None],
    ) -> None:
        """``name`` is the directory below the backup; ``count`` hears what was linked and copied.

        ``log_dir`` holds the partition.
        """
        # constant after construction
        self.log_dir = log_dir
        self._filesystem = filesystem
        self._files = files
        self._name = name
        self._is_linked = is_linked
        self._count = count
        # owned by the thread that works
        self._taken: dict[LogSegment, dict[str, BackupFile]] = {}
        self._growing: LogSegment | None = None  # was active when it was taken

    def take(self, captured: CapturedPartition) -> BackupPartition:
        """Link and copy, durable on return; SourceGone: call again with a new capture."""
        self._files.make_dir(self._name)
        current = set(captured.segments)
        gone = [each for each in self._taken if each not in current or each is self._growing]
        self._throw_away(gone)
        self._growing = captured.segments[-1]
        log, state = captured.log, captured.state
        sources, sizes = self._sources(captured)
        plan = plan_partition(state, sizes, is_linked=self._is_linked)
        ends = dict(captured.with_ends())
        by_base = {segment.base_offset: segment for segment in captured.segments}
        for base_offset, planned in plan.segments.items():
            segment = by_base[base_offset]
            try:
                if segment not in self._taken:
                    self._taken[segment] = self._take_all(planned, sources)
            except SourceGone:
                if ends[segment] > log.log_start_offset:
                    raise
                break
        first_base = self._keep_published(captured)
        files = {name: file for taken in self._taken.values() for name, file in taken.items()}
        for other in plan.others:
            try:
                files |= self._take_all([other], sources)
            except SourceGone:
                continue  # a snapshot that went with its segment
        epochs = encode_leader_epochs(captured.epochs)
        files[LEADER_EPOCH_CHECKPOINT] = self._files.write(
            f"{self._name}/{LEADER_EPOCH_CHECKPOINT}", epochs
        )
        self._files.sync_dir(self._name)
        return BackupPartition(
            log.topic_partition.topic,
            log.topic_partition.partition,
            max(state.log_start_offset, first_base),
            state.end_offset,
            files,
        )

    def discard(self) -> None:
        """Remove what was taken."""
        self._taken.clear()
        self._files.remove(self._name)

    def _sources(self, captured: CapturedPartition) -> tuple[dict[str, str], dict[str, int]]:
        """Path now and size, by name in the backup, of every file that there is.

        A cleaned segment has names that end in ``.swap`` from its publication to its last renaming,
        and a file of its final name may still be another segment's: its own files say what they are
        called. SourceGone when one has just been renamed.
        """
        directory, listing = captured.log.directory, self._listing(captured.log)
        paths, sizes = {}, {}
        for segment in captured.segments:
            for suffix, file in zip(SEGMENT_SUFFIXES, segment.files, strict=False):
                name, path = segment_file_name(segment.base_offset, suffix), file.path
                now = path.rpartition("/")[2]
                if now in listing:
                    paths[name], sizes[name] = path, listing[now]
                elif any(f"{name}{stage}" in listing for stage in ("", *STAGE_SUFFIXES)):
                    raise SourceGone(path)
        for name, size_bytes in listing.items():
            if not name.endswith(SEGMENT_SUFFIXES):
                paths[name], sizes[name] = f"{directory}/{name}", size_bytes
        return paths, sizes

    def _listing(self, log: UnifiedLog) -> dict[str, int]:
        """Sizes by name; SourceGone when the directory has been renamed since."""
        with self.log_dir.guard():
            try:
                entries = self._filesystem.list_dir_stats(log.directory)
            except FileNotFoundError as error:
                raise SourceGone(log.directory) from error
        return {entry.name: entry.size for entry in entries if entry.is_file}

    def _take_all(
        self, planned: Sequence[PlannedFile], sources: dict[str, str]
    ) -> dict[str, BackupFile]:
        """All of these files or, with SourceGone, none."""
        try:
            return {file.name: self._take_file(file, sources) for file in planned}
        except SourceGone:
            for file in planned:
                self._files.remove(f"{self._name}/{file.name}")
            raise

    def _take_file(self, planned: PlannedFile, sources: dict[str, str]) -> BackupFile:
        """One file, linked or copied; SourceGone."""
        path = f"{self._name}/{planned.name}"
        if planned.size_bytes == 0 and not planned.is_link:
            return self._files.write(path, b"")  # a roll may replace an empty segment at any time
        source = sources.get(planned.name)
        if source is None:
            raise SourceGone(planned.name)
        if planned.is_link and self._files.link(source, path):
            self._count("linked_files", 1)
            self._count("linked_bytes", planned.size_bytes)
            return BackupFile(planned.size_bytes, None)
        copied = self._files.copy(source, path, planned.size_bytes, self.log_dir.guard)
        self._count("copied_files", 1)
        return copied

    def _keep_published(self, captured: CapturedPartition) -> int:
        """Base offset of the oldest segment that is whole and true, older ones thrown away.

        SourceGone when one that is not below the log start is missing or was replaced.
        """
        published = set(captured.log.segments.values)
        log_start, first_base = captured.log.log_start_offset, captured.state.end_offset
        for segment, end_offset in captured.with_ends():
            # An empty active segment may be replaced by another one of its name and content.
            is_current = segment in published or segment.base_offset == captured.state.end_offset
            if segment not in self._taken or not is_current:
                if segment is captured.segments[-1] or end_offset > log_start:
                    self._throw_away([segment])
                    raise SourceGone(segment.log_file.path)
                break
            first_base = segment.base_offset
        self._throw_away([each for each in self._taken if each.base_offset < first_base])
        return first_base

    def _throw_away(self, segments: Sequence[LogSegment]) -> None:
        """Remove what was taken of these."""
        for segment in segments:
            for name in self._taken.pop(segment, ()):
                self._files.remove(f"{self._name}/{name}")
