"""Checkpoints: which offsets of the logs are in which checkpoint file of their log directory.

Owns the collecting; LogDir owns the files, the cleaner its offsets. Reads only what logs publish,
so any thread may write (tasks, the flusher, cleaner threads, the shutdown). A partition that is not
served keeps the entries it was found with. A copy on its way into a directory (``-future``) has its
entries there, as in Kafka.

``kafkalog.checkpoint`` says of every log under a checksum what three of Kafka's files say, and more
(``format/disk/log_proofs``). It is written with each of them, by the same fsync of the directory,
and first: after a crash it is as new as they are, or newer. Of a recovery point and of a first
dirty offset the smaller counts at the start, which only checks and cleans more; of the log start
see ``log/state/start_offsets``. Source: Kafka's LogManager.checkpoint*,
ReplicaManager.checkpointHighWatermarks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog.broker.directory.log_dir import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PROOFS,
    RECOVERY_POINTS,
)
from kafkalog.format.disk.checkpoints import encode_offsets
from kafkalog.format.disk.log_proofs import CheckedOffsets, LogKey, encode_proofs
from kafkalog.format.topic_names import TopicPartition, encode_id
from kafkalog.log.values import NO_PROOF, LogProof

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalog.broker.catalog import PartitionTable
    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.broker.topics.registry import TopicRegistry
    from kafkalog.log.unified_log import UnifiedLog


class Checkpoints:
    """Writes the five files of a directory; also when its load was stopped half way."""

    def __init__(
        self, table: PartitionTable, first_dirty: dict[TopicPartition, int], registry: TopicRegistry
    ) -> None:
        # constant after construction
        self._table = table
        self._registry = registry
        self._first_dirty = first_dirty
        # filled while loading
        self._found: dict[tuple[str, str], dict[TopicPartition, int]] = {}
        self._proofs: dict[str, dict[TopicPartition, CheckedOffsets]] = {}
        self._expected: dict[str, set[TopicPartition]] = {}
        # changed by the start, then under the lock of the registry; replaced as a whole
        self._awaited: dict[str, frozenset[TopicPartition]] = {}
        # changed under the lock of the registry
        self._stale: set[str] = set()
        # replaced as a whole by any thread
        self._cleaner_files: dict[str, dict[TopicPartition, int]] = {}  # as they are on disk

    def read(self, log_dir: LogDir) -> None:
        """All files of the directory, before its load; guarded."""
        topics = self._registry.state.topics.values()
        names = {encode_id(each.topic_id): each.name for each in topics}
        proofs = {
            TopicPartition(names[key.topic_id], key.partition): entry
            for key, entry in log_dir.read_proofs().items()
            if key.topic_id in names
        }
        points = log_dir.read_checkpoint(RECOVERY_POINTS)
        for partition, entry in proofs.items():
            # Else a Kafka, which does not know our file, has had the directory since.
            if points.get(partition, entry.end_offset) != entry.end_offset:
                proofs[partition] = replace(entry, end_offset=None)
        self._proofs[log_dir.path] = proofs
        cleaned = log_dir.read_checkpoint(CLEANER_OFFSETS)
        for name, offsets in (
            (RECOVERY_POINTS, _checked(points, proofs, lambda entry: entry.recovery_point)),
            (LOG_START_OFFSETS, log_dir.read_checkpoint(LOG_START_OFFSETS)),
            (HIGH_WATERMARKS, log_dir.read_checkpoint(HIGH_WATERMARKS)),
            (CLEANER_OFFSETS, _checked(cleaned, proofs, lambda entry: entry.first_dirty_offset)),
        ):
            self._found[log_dir.path, name] = offsets  # for partitions that cannot be loaded, too
        cleaned = self._found[log_dir.path, CLEANER_OFFSETS]
        self._first_dirty.update(cleaned)
        self._cleaner_files[log_dir.path] = cleaned

    def proof_of(self, log_dir: LogDir, partition: TopicPartition, *, was_clean: bool) -> LogProof:
        """What is proven of a log that is about to be loaded; its end after a clean stop only."""
        entry = self._proofs.get(log_dir.path, {}).get(partition)
        if entry is None:
            return NO_PROOF
        return LogProof(
            entry.log_start_offset,
            entry.end_offset if was_clean else None,
            entry.is_gapless,
            entry.accepted_losses,
        )

    def found(self, log_dir: LogDir, name: str) -> dict[TopicPartition, int]:
        """What counted of the file at the start, to be read only."""
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
        again would inherit the offsets of its predecessor. Where it fails, ``renew`` repeats it.
        """
        here = {log.topic_partition for log in self._table.logs_in(log_dir.path)}
        here |= {TopicPartition(*key) for key in self._table.faults()}
        here |= self._awaited.get(log_dir.path, frozenset())
        # Also for a partition that cannot be made now, and is made while the daemon serves.
        proofs = self._proofs.get(log_dir.path, {})
        self._proofs[log_dir.path] = {each: proofs[each] for each in proofs.keys() & here}
        is_stale = bool(proofs.keys() - here)
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS):
            found = self.found(log_dir, name)
            gone = found.keys() - here
            if not gone:
                continue
            is_stale = True
            self._found[log_dir.path, name] = {each: found[each] for each in found.keys() & here}
            if name == CLEANER_OFFSETS:
                for topic_partition in gone:
                    self._first_dirty.pop(topic_partition, None)
        if is_stale:
            self.note_removal(log_dir)
            self.renew(log_dir)

    def make_cleaner_offsets(self, log_dir: LogDir) -> None:
        """``cleaner-offset-checkpoint`` from the start, as Kafka; guarded, durable on return.

        The other files get their first content from periodic tasks, this one from a first clean.
        """
        if not log_dir.has_checkpoint(CLEANER_OFFSETS):
            self._write(log_dir, CLEANER_OFFSETS)

    def write_recovery_points(self, log_dir: LogDir) -> None:
        """How far every log is durable; guarded, durable on return.

        Not raised to the log start as the published recovery point is: the start may not be in its
        own checkpoint yet, and the records between would then be served unchecked.
        """
        self._write(log_dir, PROOFS, RECOVERY_POINTS)

    def write_high_watermarks(self, log_dir: LogDir) -> None:
        """Every log's high watermark; guarded, durable on return."""
        self._write(log_dir, HIGH_WATERMARKS)

    def write_start_offsets(self, log_dir: LogDir) -> None:
        """Start offsets that differ from the first segment's name; guarded, durable on return."""
        self._write(log_dir, PROOFS, LOG_START_OFFSETS)

    def write_cleaner_offsets(self, log_dir: LogDir) -> None:
        """First dirty offsets of the logs that were cleaned; guarded, durable on return."""
        self._write(log_dir, PROOFS, CLEANER_OFFSETS)

    def write_proofs(self, log_dir: LogDir) -> None:
        """``kafkalog.checkpoint`` alone, if it is to say something else; guarded, durable."""
        self._write(log_dir, PROOFS)

    def write_all(self, log_dir: LogDir, *, is_stopped: bool = False) -> None:
        """All, at shutdown and after a deletion; the cleaner's only where it is another one.

        ``is_stopped``: the logs are closed, so where they end is known for the next start.
        """
        names = [PROOFS, RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS]
        offsets = self._collect(log_dir, CLEANER_OFFSETS)
        if offsets != self._cleaner_files.get(log_dir.path, {}):
            names.append(CLEANER_OFFSETS)
        self._write(log_dir, *names, is_stopped=is_stopped)
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

    def _write(self, log_dir: LogDir, *names: str, is_stopped: bool = False) -> None:
        """Replace the files."""
        cleaners: dict[TopicPartition, int] | None = None
        starts: list[tuple[UnifiedLog, int]] = []

        def collect() -> dict[str, bytes]:
            nonlocal cleaners
            files: dict[str, bytes] = {}
            for name in names:
                if name != PROOFS:
                    offsets = self._collect(log_dir, name)
                    files[name] = encode_offsets(offsets)
                    cleaners = offsets if name == CLEANER_OFFSETS else cleaners
            if PROOFS not in names:
                return files
            starts[:] = [(log, log.log_start_offset) for log in self._undisputed(log_dir)]
            # Looked at last: a log start that moves meanwhile is higher here, which disputes none.
            return {PROOFS: self._encoded_proofs(log_dir, is_stopped=is_stopped), **files}

        log_dir.write_checkpoints(collect)
        for log, offset in starts:
            log.durable_start_offset = offset
        if cleaners is not None:
            self._cleaner_files[log_dir.path] = cleaners

    def _undisputed(self, log_dir: LogDir) -> list[UnifiedLog]:
        """Logs of which the checked file holds the log start, not what it is disputed with."""
        return [
            log for log in self._table.held_in(log_dir.path) if log.disputed_start_offset is None
        ]

    def _collect(self, log_dir: LogDir, name: str) -> dict[TopicPartition, int]:
        """What a file of Kafka's is to hold now."""
        found = self.found(log_dir, name)
        unserved = self._unserved(log_dir)
        offsets = {partition: found[partition] for partition in unserved if partition in found}
        # How far a moving log is clean is in the checkpoint of its current directory.
        is_cleaners = name == CLEANER_OFFSETS
        logs = self._table.logs_in if is_cleaners else self._table.held_in
        for log in logs(log_dir.path):
            offset = self._offset_in(name, log)
            if offset is not None:
                offsets[log.topic_partition] = offset
        return offsets

    def _unserved(self, log_dir: LogDir) -> set[TopicPartition]:
        """Partitions that keep what was found of them."""
        unserved = {TopicPartition(*key) for key in self._table.faults()}
        unserved |= self._expected.get(log_dir.path, set())
        return unserved | self._awaited.get(log_dir.path, frozenset())

    def _offset_in(self, name: str, log: UnifiedLog) -> int | None:
        """What a file of Kafka's is to say of a log."""
        if name == RECOVERY_POINTS:
            return log.local.recovery_point
        if name == LOG_START_OFFSETS:
            return checkpointed_start_offset(log)
        if name == HIGH_WATERMARKS:
            return log.high_watermark
        return self._first_dirty.get(log.topic_partition)

    def _encoded_proofs(self, log_dir: LogDir, *, is_stopped: bool) -> bytes:
        """What our file is to hold now."""
        assert log_dir.meta is not None, "a directory is claimed before anything is written there"
        assert log_dir.meta.directory_id is not None, "a directory is claimed before"
        found, topics = self._proofs.get(log_dir.path, {}), self._registry.state.topics
        entries: dict[LogKey, CheckedOffsets] = {}
        for partition in self._unserved(log_dir):
            if partition in found and partition.topic in topics:
                topic_id = encode_id(topics[partition.topic].topic_id)
                entries[LogKey(topic_id, partition.partition)] = found[partition]
        for log in self._table.held_in(log_dir.path):
            assert log.topic_id is not None, "the manager's logs have one"
            first_dirty = self._first_dirty.get(log.topic_partition)
            if first_dirty is not None and not self._table.serves(log):
                first_dirty = None  # a copy on its way: as in the cleaner's file
            disputed, proof = (
                log.disputed_start_offset,
                log.losses.proof,
            )  # the writer may change them
            entries[LogKey(log.topic_id, log.topic_partition.partition)] = CheckedOffsets(
                log_start_offset=log.log_start_offset if disputed is None else disputed,
                recovery_point=log.local.recovery_point,
                first_dirty_offset=first_dirty,
                end_offset=log.log_end_offset if is_stopped else None,
                # From the first clean on, before it changes anything, for good.
                is_gapless=proof.is_gapless and first_dirty is None,
                accepted_losses=proof.accepted_losses,
            )
        return encode_proofs(encode_id(log_dir.meta.directory_id), entries)


def _checked(
    offsets: Mapping[TopicPartition, int],
    proofs: Mapping[TopicPartition, CheckedOffsets],
    offset_of: Callable[[CheckedOffsets], int | None],
) -> dict[TopicPartition, int]:
    """The smaller of what a file of Kafka's and the proofs say; a line that is gone is the proofs'.

    A line of a log of which the proofs know none is 0: it may have been another's, or a Kafka wrote
    it that had the directory meanwhile.
    """
    checked = dict(offsets)
    for partition, entry in proofs.items():
        proven = offset_of(entry)
        if partition in offsets:
            checked[partition] = min(offsets[partition], proven or 0)
        elif proven is not None:
            checked[partition] = proven
    return checked


def checkpointed_start_offset(log: UnifiedLog) -> int | None:
    """The start offset where it is inside the first segment; None otherwise (Kafka).

    Differs from Kafka: also while a power cut could bring deleted segments back.
    """
    start = log.log_start_offset
    is_untold = start > log.segments.first.base_offset
    return start if is_untold or (start and log.local.has_unsynced_names) else None
