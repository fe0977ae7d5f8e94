"""Backup: a consistent copy of log directories while they are written; they are only read.

Owns the order: check the target, each partition at a moment of its own (``partition_backup``), the
files in the root of each log directory, the manifest. The registry is the one of the beginning, so
topics and partitions that are made meanwhile are not in the backup; topics that are deleted
meanwhile leave it. There is no ``.kafka_cleanshutdown``: who starts on what is restored, kafkalog
or Kafka, recovers the last segment of each partition, and believes the recovery point of the rest.

What is known of sinks comes along with any topic, and first of all: a batch that it calls committed
was in its topics before, and is in theirs. Without it, or with a later one, open and decided
batches would be aborted, and what is committed would be written again, or never. The converse does
not hold: a batch that is decided after that capture is shown by the partitions that were captured
after its marker, and is aborted in the others by the first start on the copy.

Crash rule: the manifest is there first and says ``complete`` only after everything else was synced.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.backup.files import BackupFiles, SourceGone, copied_bytes
from kafkalog.broker.backup.partition_backup import PartitionBackup, capture
from kafkalog.broker.directory.commands import Until
from kafkalog.broker.directory.log_dir import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    REGISTRY_FILE,
)
from kafkalog.broker.topics.registry import encode_registry
from kafkalog.errors import (
    BackupFailed,
    DiskFull,
    NotReady,
    PartitionMoving,
    UnknownPartition,
    UnknownTopic,
)
from kafkalog.format.disk.backup_manifest import (
    FORMAT,
    MANIFEST_FILE,
    BackupLogDir,
    BackupManifest,
    BackupPartition,
    encode_manifest,
)
from kafkalog.format.disk.checkpoints import encode_offsets
from kafkalog.format.disk.properties import encode_meta_properties
from kafkalog.format.topic_names import SINK_STATE_TOPIC, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kafkalog.broker.background import BackgroundOperation, BackgroundOperations
    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.directory.unit import LogDirUnit
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.topics.registry import RegistryState
    from kafkalog.log.unified_log import UnifiedLog

_ATTEMPTS = 16  # of one partition; each takes only what was replaced since the one before
_PROBE = "link-probe"

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Target:
    """One log directory of the backup, as far as it has come."""

    name: str
    unit: LogDirUnit
    is_linked: bool
    cleaner_offsets: Mapping[TopicPartition, int]
    partitions: list[BackupPartition] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class BackupRequest:
    """What is backed up and where to. ``topics`` empty: all."""

    directory: str
    topics: Collection[str]
    may_link: bool
    cluster_id: str


class Backup:
    """One backup. ``prepare`` refuses what cannot work; ``run`` does it, on a background thread."""

    def __init__(
        self, logs: Logs, runtime: Runtime, background: BackgroundOperations, wanted: BackupRequest
    ) -> None:
        """Nothing is touched yet. UnknownTopic."""
        # constant after construction
        self._logs = logs
        self._registry = logs.registry
        self._background = background
        self._wanted = wanted
        self._clock = runtime.clock
        self._filesystem = runtime.filesystem
        self._min_free_bytes = runtime.config.log_dir_min_free_bytes
        self._progress: dict[str, int] = {}
        self._files = BackupFiles(
            self._filesystem,
            wanted.directory,
            check_stop=background.check_stop,
            note_bytes=lambda count: self._count("copied_bytes", count),
        )
        state, topics = self._registry.state, wanted.topics
        for topic in topics:
            logs.registered(topic)
        self._state = _only(state, {*topics, SINK_STATE_TOPIC} if topics else state.topics)
        self._partitions = [
            TopicPartition(topic.name, number)
            # First of all the state of sinks; see the module.
            for topic in sorted(
                self._state.topics.values(), key=lambda t: t.name != SINK_STATE_TOPIC
            )
            for number in range(topic.partition_count)
        ]
        # owned by the thread that prepares, then by the one that runs
        self._targets: dict[str, _Target] = {}  # by path of the log directory
        self._created_ms = 0

    # ---- before

    def prepare(self) -> None:
        """Check the target and every partition; on return the target exists and says incomplete.

        InvalidBackupTarget; DiskFull when the room would not do; the reason of a partition that is
        not served; BackupFailed.
        """
        logs = [self._logs.log_of(each.topic, each.partition) for each in self._partitions]
        self._files.check_fresh(unit.log_dir.path for unit in self._logs.units)
        self._created_ms = self._clock.wall_ms()
        self._files.make_root()
        try:
            # First of all: whatever happens from here on, the directory says what it is not.
            self._write_manifest(is_complete=False)
            for number, unit in enumerate(self._logs.units):
                if unit.log_dir.is_online:
                    self._targets[unit.log_dir.path] = self._new_target(f"log-dir-{number}", unit)
            self._check_space(logs)
        except DiskFull:
            self._discard()
            raise

    def _new_target(self, name: str, unit: LogDirUnit) -> _Target:
        self._files.make_dir(name)
        return _Target(
            name=name,
            unit=unit,
            is_linked=self._wanted.may_link and self._can_link(name, unit),
            # Before any segment: what was cleaned later counts as not cleaned, never the reverse.
            cleaner_offsets=unit.log_dir.read_checkpoint(CLEANER_OFFSETS),
        )

    def _can_link(self, name: str, unit: LogDirUnit) -> bool:
        """Try it with a file that is replaced and never written to."""
        probe = f"{name}/{_PROBE}"
        try:
            is_linked = self._files.link(f"{unit.log_dir.path}/{META_PROPERTIES}", probe)
        except SourceGone as error:
            raise BackupFailed(f"{error} is missing", log_dir=unit.log_dir.path) from error
        self._files.remove(probe)
        return is_linked

    def _check_space(self, logs: Sequence[UnifiedLog]) -> None:
        """DiskFull when the backup would not leave ``log.dir.min.free.bytes`` on its disk."""
        needed = sum(
            copied_bytes(
                log.size_bytes,
                log.segments.active.size_bytes,
                is_linked=self._target(log).is_linked,
            )
            for log in logs
        )
        with self._files.guard():
            usable = self._filesystem.space(self._files.directory).usable_bytes
        self._progress["estimated_bytes"] = needed
        if usable - needed < self._min_free_bytes:
            raise DiskFull(
                f"The backup needs about {needed} bytes in {self._files.directory}, which has "
                f"{usable} to use; log.dir.min.free.bytes are left free",
                directory=self._files.directory,
            )

    def _discard(self) -> None:
        """What was made before the room was found too small: directories and a manifest."""
        for target in self._targets.values():
            self._files.remove(target.name)
        self._files.remove(MANIFEST_FILE)
        self._files.remove_root()

    # ---- the work

    def run(self, operation: BackgroundOperation) -> None:
        """Everything; BackupFailed, DiskFull, DescriptorsShort, NotReady, LogDirOffline."""
        self._progress = operation.progress = {
            "partitions": len(self._partitions),
            "partitions_done": 0,
            "linked_files": 0,
            "copied_files": 0,
            "linked_bytes": 0,
            "copied_bytes": 0,
            **self._progress,
        }
        deleted: set[str] = set()
        for topic_partition in self._partitions:
            if topic_partition.topic not in deleted:
                try:
                    self._back_up(topic_partition)
                except (UnknownTopic, UnknownPartition, NotReady):
                    if not self._is_deleted(topic_partition.topic):
                        raise
                    deleted.add(topic_partition.topic)
            self._count("partitions_done", 1)
        deleted |= {each for each in self._state.topics if self._is_deleted(each)}
        registry = _only(self._state, self._state.topics.keys() - deleted)
        log_dirs = []
        for target in self._targets.values():
            self._drop(target, deleted)
            log_dirs.append(self._finish(target, registry))
        self._files.sync_dir()
        self._write_manifest(is_complete=True, log_dirs=tuple(log_dirs))
        operation.result = {
            "directory": self._files.directory,
            "deleted_topics": sorted(deleted),
            "log_dirs": [
                {
                    "name": target.name,
                    "source": target.unit.log_dir.path,
                    "is_linked": target.is_linked,
                    "partitions": len(target.partitions),
                }
                for target in self._targets.values()
            ],
        }
        _log.info("backup_complete", directory=self._files.directory, **self._progress)

    def _back_up(self, topic_partition: TopicPartition) -> None:
        """One partition; UnknownTopic and its like when its topic is deleted meanwhile."""
        taker, gone = None, ""
        for _ in range(_ATTEMPTS):
            self._background.check_stop()
            log = self._logs.log_of(topic_partition.topic, topic_partition.partition)
            target = self._target(log)
            if taker is None or taker.log_dir is not target.unit.log_dir:
                if taker is not None:
                    taker.discard()  # the partition has moved
                taker = PartitionBackup(
                    self._filesystem,
                    self._files,
                    f"{target.name}/{topic_partition}",
                    target.unit.log_dir,
                    is_linked=target.is_linked,
                    count=self._count,
                )
            try:
                captured = target.unit.writer.change(log, partial(capture, log), Until.FLUSHED)
            except PartitionMoving:
                with self._registry.lock:
                    continue  # the swap held it: from now on the partition is elsewhere
            assert log.high_watermark >= captured.state.end_offset or log.refusal is not None
            try:
                target.partitions.append(taker.take(captured))
            except SourceGone as error:
                gone = str(error).rpartition("/")[2]
                continue
            return
        raise BackupFailed(
            f"{topic_partition}: {gone} is missing, or was replaced {_ATTEMPTS} times meanwhile",
            topic=topic_partition.topic,
            partition=topic_partition.partition,
        )

    # ---- after

    def _drop(self, target: _Target, deleted: Collection[str]) -> None:
        """Topics that were deleted meanwhile leave the backup, with what was begun of them."""
        for key in self._partitions:
            if key.topic in deleted:
                self._files.remove(f"{target.name}/{key}")
        target.partitions = [
            each for each in target.partitions if each.topic_partition.topic not in deleted
        ]

    def _finish(self, target: _Target, registry: RegistryState) -> BackupLogDir:
        """The files in the root of a log directory, as a daemon that stopped now leaves them."""
        log_dir = target.unit.log_dir
        assert log_dir.meta is not None, "an online directory has been claimed"
        starts, ends, cleaned = {}, {}, {}
        for partition in target.partitions:
            key = partition.topic_partition
            ends[key] = partition.end_offset
            if partition.log_start_offset:
                starts[key] = partition.log_start_offset
            if key in target.cleaner_offsets:
                cleaned[key] = target.cleaner_offsets[key]
        contents = {
            RECOVERY_POINTS: encode_offsets(ends),
            HIGH_WATERMARKS: encode_offsets(ends),
            LOG_START_OFFSETS: encode_offsets(starts),
            CLEANER_OFFSETS: encode_offsets(cleaned),
            REGISTRY_FILE: encode_registry(registry),
            META_PROPERTIES: encode_meta_properties(log_dir.meta, self._created_ms),
        }
        files = {
            name: self._files.write(f"{target.name}/{name}", data)
            for name, data in contents.items()
        }
        self._files.sync_dir(target.name)
        return BackupLogDir(target.name, log_dir.path, files, tuple(target.partitions))

    def _write_manifest(
        self, *, is_complete: bool, log_dirs: tuple[BackupLogDir, ...] = ()
    ) -> None:
        manifest = BackupManifest(
            format=FORMAT,
            is_complete=is_complete,
            created_ms=self._created_ms,
            cluster_id=self._wanted.cluster_id,
            log_dirs=log_dirs,
        )
        self._files.replace(MANIFEST_FILE, encode_manifest(manifest))

    def _target(self, log: UnifiedLog) -> _Target:
        return self._targets[self._logs.unit_of(log).log_dir.path]

    def _is_deleted(self, topic: str) -> bool:
        """Whether the topic of the beginning is gone, be there another one of its name."""
        now = self._registry.state.topics.get(topic)
        return now is None or now.topic_id != self._state.topics[topic].topic_id

    def _count(self, name: str, count: int) -> None:
        self._progress[name] = self._progress.get(name, 0) + count


def _only(state: RegistryState, topics: Collection[str]) -> RegistryState:
    """The same generation with some of its topics."""
    kept = {name: topic for name, topic in state.topics.items() if name in topics}
    return replace(state, topics=kept)
