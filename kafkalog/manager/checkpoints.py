"""Which offset of which log goes into which checkpoint file of its log directory.

Owns the collecting; LogDir owns the files, the cleaner its offsets. Reads only what logs publish,
so any thread may write (tasks, the flusher, cleaner threads, the shutdown). A partition that is not
served keeps the entries it was found with. A copy on its way into a directory (``-future``) has its
entries there, as in Kafka.
Source: Kafka's LogManager.checkpoint*, ReplicaManager.checkpointHighWatermarks; log-format.md 10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkalog.format.topic_partition import TopicPartition
from kafkalog.manager.log_dir import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.manager.log_dir import LogDir
    from kafkalog.manager.partition_table import PartitionTable


class FirstDirtyOffsets(Protocol):
    """Where the cleaner is in each log; it owns these offsets, here they become a file."""

    def load_checkpoint(self, offsets: Mapping[TopicPartition, int]) -> None:
        """What a file held at the start."""
        ...

    def first_dirty_offset(self, topic_partition: TopicPartition) -> int | None:
        """Of one log now; None: no clean has begun."""
        ...

    def forget(self, topic_partition: TopicPartition) -> None:
        """The partition is gone."""
        ...


class Checkpoints:
    """Writes the four files of a directory; also when its load was stopped half way."""

    def __init__(self, table: PartitionTable, first_dirty: FirstDirtyOffsets) -> None:
        # constant after construction
        self._table = table
        self._first_dirty = first_dirty
        # filled while loading
        self._found: dict[tuple[str, str], dict[TopicPartition, int]] = {}
        self._expected: dict[str, set[TopicPartition]] = {}
        # changed by the start, then under the topics lock; replaced as a whole
        self._awaited: dict[str, frozenset[TopicPartition]] = {}
        # changed under the topics lock
        self._stale: set[str] = set()
        # replaced as a whole by any thread
        self._cleaner_files: dict[str, dict[TopicPartition, int]] = {}  # as they are on disk

    def keep_found(self, log_dir: LogDir, name: str, offsets: dict[TopicPartition, int]) -> None:
        """Remember what the file held at the start, for partitions that cannot be loaded."""
        self._found[log_dir.path, name] = offsets
        if name == CLEANER_OFFSETS:
            self._first_dirty.load_checkpoint(offsets)
            self._cleaner_files[log_dir.path] = offsets

    def found(self, log_dir: LogDir, name: str) -> dict[TopicPartition, int]:
        """What the file held at the start, to be read only."""
        return self._found.get((log_dir.path, name), {})

    def expect(self, log_dir: LogDir, partitions: Iterable[TopicPartition]) -> None:
        """These are about to be loaded: until they are settled they keep their found entries."""
        self._expected[log_dir.path] = set(partitions)

    def settle(self, log_dir: LogDir, partition: TopicPartition) -> None:
        """The partition was loaded or put out of service. Any recovery thread."""
        self._expected[log_dir.path].discard(partition)

    def were_read(self, log_dir: LogDir) -> bool:
        """Whether the load has read the files; before, writing them would lose what they say."""
        return log_dir.path in self._expected

    def are_complete(self, log_dir: LogDir) -> bool:
        """Whether every partition of the directory is settled."""
        return self.were_read(log_dir) and not self._expected[log_dir.path]

    def await_future(self, log_dir: LogDir, partition: TopicPartition) -> None:
        """The directory has a ``-future`` copy that will be loaded: until then as found."""
        awaited = self._awaited.get(log_dir.path, frozenset())
        self._awaited[log_dir.path] = awaited | {partition}

    def settle_future(self, log_dir: LogDir, partition: TopicPartition) -> None:
        """The copy was loaded, or is given up."""
        awaited = self._awaited.get(log_dir.path, frozenset())
        self._awaited[log_dir.path] = awaited - {partition}

    def awaits_futures(self, log_dir: LogDir) -> bool:
        """Whether a copy was not loaded, and so not recovered, since the start."""
        return bool(self._awaited.get(log_dir.path))

    def drop_stale(self, log_dir: LogDir) -> None:
        """Rewrite the files that name partitions which are not here any more; guarded.

        Before new partitions are made: a topic that was deleted right before a crash and is created
        again would inherit the offsets of its predecessor.
        """
        here = {log.topic_partition for log in self._table.logs_in(log_dir.path)}
        here |= {TopicPartition(*key) for key in self._table.faults()}
        here |= self._awaited.get(log_dir.path, frozenset())
        for name, write in (
            (RECOVERY_POINTS, self.write_recovery_points),
            (LOG_START_OFFSETS, self.write_start_offsets),
            (HIGH_WATERMARKS, self.write_high_watermarks),
            (CLEANER_OFFSETS, self.write_cleaner_offsets),
        ):
            found = self.found(log_dir, name)
            gone = found.keys() - here
            if gone:
                # Also for a partition that cannot be made now, and is made while the daemon serves.
                kept = {partition: found[partition] for partition in found.keys() & here}
                self.keep_found(log_dir, name, kept)
                if name == CLEANER_OFFSETS:
                    for topic_partition in gone:
                        self._first_dirty.forget(topic_partition)
                write(log_dir)

    def write_recovery_points(self, log_dir: LogDir) -> None:
        """How far every log is durable; guarded, durable on return.

        Not raised to the log start as the published recovery point is: the start may not be in its
        own checkpoint yet, and what lies between would then be served unchecked.
        """
        self._write(log_dir, RECOVERY_POINTS, lambda log: log.local.recovery_point)

    def write_high_watermarks(self, log_dir: LogDir) -> None:
        """Every log's high watermark; guarded, durable on return."""
        self._write(log_dir, HIGH_WATERMARKS, lambda log: log.high_watermark)

    def write_start_offsets(self, log_dir: LogDir) -> None:
        """Start offsets that the first segment's name does not tell; guarded, durable on return."""
        self._write(log_dir, LOG_START_OFFSETS, untold_start_offset)

    def write_cleaner_offsets(self, log_dir: LogDir) -> None:
        """First dirty offsets of the logs that were cleaned; guarded, durable on return."""
        self._cleaner_files[log_dir.path] = self._write(
            log_dir, CLEANER_OFFSETS, self._first_dirty_of
        )

    def _first_dirty_of(self, log: UnifiedLog) -> int | None:
        return self._first_dirty.first_dirty_offset(log.topic_partition)

    def write_all(self, log_dir: LogDir) -> None:
        """All, at shutdown and after a deletion; the cleaner's only where it is another one."""
        self.write_recovery_points(log_dir)
        self.write_start_offsets(log_dir)
        self.write_high_watermarks(log_dir)
        offsets = self._collect(log_dir, CLEANER_OFFSETS, self._first_dirty_of)
        if offsets != self._cleaner_files.get(log_dir.path, {}):
            self.write_cleaner_offsets(log_dir)
        self._stale.discard(log_dir.path)

    def note_removal(self, log_dir: LogDir) -> None:
        """The files may name partitions that were removed, until ``write_all`` succeeds."""
        self._stale.add(log_dir.path)

    def renew(self, log_dir: LogDir) -> None:
        """Before new partitions are made in it: no file names a removed one; guarded.

        A new partition of an old name would begin at the log start of its predecessor.
        """
        if log_dir.path in self._stale:
            self.write_all(log_dir)

    def _write(
        self, log_dir: LogDir, name: str, offset_of: Callable[[UnifiedLog], int | None]
    ) -> dict[TopicPartition, int]:
        """Replace the file; what it holds now."""
        written: dict[TopicPartition, int] = {}

        def collect() -> dict[TopicPartition, int]:
            written.update(self._collect(log_dir, name, offset_of))
            return written

        log_dir.write_checkpoint(name, collect)
        return written

    def _collect(
        self, log_dir: LogDir, name: str, offset_of: Callable[[UnifiedLog], int | None]
    ) -> dict[TopicPartition, int]:
        """What the file is to hold now."""
        found = self.found(log_dir, name)
        unserved = {TopicPartition(*key) for key in self._table.faults()}
        unserved |= self._expected.get(log_dir.path, set())
        unserved |= self._awaited.get(log_dir.path, frozenset())
        offsets = {partition: found[partition] for partition in unserved if partition in found}
        # Of a copy on its way the current log's directory tells how far it is clean.
        is_cleaners = name == CLEANER_OFFSETS
        logs = self._table.logs_in if is_cleaners else self._table.held_in
        for log in logs(log_dir.path):
            offset = offset_of(log)
            if offset is not None:
                offsets[log.topic_partition] = offset
        return offsets


def untold_start_offset(log: UnifiedLog) -> int | None:
    """The start offset where it lies inside the first segment; None otherwise (Kafka).

    Differs from Kafka: told also while a power cut could bring deleted segments back.
    """
    start = log.log_start_offset
    is_untold = start > log.segments.first.base_offset
    return start if is_untold or (start and log.local.has_unsynced_names) else None
