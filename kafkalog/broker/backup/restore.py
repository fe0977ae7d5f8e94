"""Restore: log directories made from a backup, by copying; no daemon runs on them.

Never links and never writes to the backup, so it can be restored again. With as many targets as the
backup has log directories each gets one of them; with another number the partitions are spread by
size. Every file is held against the manifest. A derived file (index, snapshot) that does not agree
is left out, because the first start rebuilds it; any other ends the restore.

Crash rule: all targets hold ``RESTORE_MARKER`` from before the first file until everything is
durable, and the daemon starts on no such directory; they get their ``meta.properties`` last,
without which Kafka does not start.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from kafkalog.broker.backup.files import BackupFiles, is_derived
from kafkalog.broker.directory.log_dir import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOCK_FILE,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    REGISTRY_FILE,
)
from kafkalog.broker.topics.registry import decode_registry, encode_registry
from kafkalog.broker.transactions.producer_ids import past_backup
from kafkalog.errors import BackupFailed, DiskFull, InvalidBackupTarget, KafkalogError
from kafkalog.format.disk.backup_manifest import MANIFEST_FILE, RESTORE_MARKER, decode_manifest
from kafkalog.format.disk.checkpoints import decode_offsets, encode_offsets
from kafkalog.format.disk.properties import (
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import new_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.env.clock import Clock
    from kafkalog.env.filesystem import DirLock, Filesystem
    from kafkalog.env.random import Random
    from kafkalog.format.disk.backup_manifest import (
        BackupFile,
        BackupLogDir,
        BackupManifest,
        BackupPartition,
    )
    from kafkalog.format.topic_names import TopicPartition

_CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)


@dataclass(frozen=True, slots=True)
class Restored:
    """What a log directory got."""

    path: str
    partitions: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """``left_out``: derived files that did not agree with the manifest, below the backup."""

    log_dirs: tuple[Restored, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """A partition and the log directory of the backup that holds it."""

    log_dir: BackupLogDir
    partition: BackupPartition


def place_partitions(
    log_dirs: Sequence[BackupLogDir], target_count: int
) -> list[list[PlacedPartition]]:
    """The partitions of each target. Pure; the largest first, each to the emptiest target."""
    if target_count == len(log_dirs):
        return [[PlacedPartition(each, p) for p in each.partitions] for each in log_dirs]
    every = [PlacedPartition(log_dir, p) for log_dir in log_dirs for p in log_dir.partitions]
    every.sort(key=lambda each: (-each.partition.size_bytes, each.partition.topic_partition))
    placed: list[list[PlacedPartition]] = [[] for _ in range(target_count)]
    loads = [(0, 0)] * target_count  # bytes, and partitions between equals
    for each in every:
        number = loads.index(min(loads))
        placed[number].append(each)
        size_bytes, count = loads[number]
        loads[number] = (size_bytes + each.partition.size_bytes, count + 1)
    return placed


class Restore:
    """One restore; ``run`` does everything."""

    def __init__(
        self,
        filesystem: Filesystem,
        clock: Clock,
        random: Random,
        directory: str,
        targets: Sequence[str],
    ) -> None:
        """Paths are absolute; ``targets`` is not empty. Nothing is touched yet."""
        # constant after construction
        self._filesystem = filesystem
        self._clock = clock
        self._random = random
        self._directory = directory.rstrip("/")
        self._targets = [BackupFiles(filesystem, target) for target in targets]
        # owned by the running thread
        self._left_out: list[str] = []

    def run(self) -> RestoreReport:
        """Check the backup and the targets, copy, sync, and let go of the targets.

        BackupFailed: the backup is no complete one, or a file does not agree with its manifest.
        InvalidBackupTarget, DiskFull, DescriptorsShort. Whatever ends it says which directories
        have to be emptied before another try; none when nothing was written.
        """
        manifest = self._manifest()
        usable = {log_dir.name: self._check_files(log_dir) for log_dir in manifest.log_dirs}
        self._check_targets()
        placed = place_partitions(manifest.log_dirs, len(self._targets))
        self._check_space(placed)
        try:
            restored = self._write(manifest, placed, usable)
        except KafkalogError as error:
            made = [target.directory for target in self._targets if target.is_made]
            if not made:
                raise
            message = f"{error.message}. Before another try empty: {', '.join(made)}"
            raise type(error)(message, **error.details) from error
        return RestoreReport(tuple(restored), tuple(self._left_out))

    def _check_targets(self) -> None:
        """InvalidBackupTarget unless all are fresh, apart, and in no log directory."""
        directories = [target.directory for target in self._targets]
        for target in self._targets:
            if directories.count(target.directory) > 1:
                message = f"{target.directory} is named twice"
                raise InvalidBackupTarget(message, directory=target.directory)
        for target in self._targets:
            others = [each for each in directories if each != target.directory]
            target.check_fresh([self._directory, *others])

    def _check_space(self, placed: Sequence[Sequence[PlacedPartition]]) -> None:
        """DiskFull when a file system has less room than its targets need."""
        needed: dict[int, int] = {}
        for target, here in zip(self._targets, placed, strict=True):
            device, usable_bytes = target.usable_space()
            needed[device] = needed.get(device, 0) + sum(p.partition.size_bytes for p in here)
            if needed[device] > usable_bytes:
                raise DiskFull(
                    f"The restore needs at least {needed[device]} bytes on the file system of "
                    f"{target.directory}, which has {usable_bytes} to use; nothing was written",
                    directory=target.directory,
                )

    def _write(
        self,
        manifest: BackupManifest,
        placed: Sequence[Sequence[PlacedPartition]],
        usable: dict[str, set[str]],
    ) -> list[Restored]:
        """Fill the targets, each locked until all are durable."""
        checkpoints = self._checkpoints(manifest)
        registry = self._registry(manifest)
        restored = []
        locks: list[DirLock] = []
        try:
            for target in self._targets:
                locks.append(self._claim(target))  # noqa: PERF401 - released if the next one fails
            for number, target in enumerate(self._targets):
                size_bytes = 0
                for each in placed[number]:
                    size_bytes += self._copy(each, usable[each.log_dir.name], target)
                here = [each.partition.topic_partition for each in placed[number]]
                for name, offsets in checkpoints.items():
                    mine = {key: offsets[key] for key in here if key in offsets}
                    target.write(name, encode_offsets(mine))
                target.write(REGISTRY_FILE, registry)
                target.sync_dir()
                restored.append(Restored(target.directory, len(here), size_bytes))
            for number, target in enumerate(self._targets):
                target.write(META_PROPERTIES, self._meta_properties(manifest, number))
                target.sync_dir()
            for target in self._targets:
                target.remove(RESTORE_MARKER)
                target.sync_dir()
        finally:
            for lock in locks:
                lock.release()
        return restored

    # ---- the backup

    def _manifest(self) -> BackupManifest:
        path = f"{self._directory}/{MANIFEST_FILE}"
        with self._reading():
            if not self._filesystem.exists(path):
                raise BackupFailed(f"{self._directory} is no backup: {MANIFEST_FILE} is missing")
            data = self._filesystem.read_file(path)
        try:
            manifest = decode_manifest(data)
        except FormatError as error:
            raise BackupFailed(f"{path}: {error.reason}") from error
        if not manifest.is_complete or not manifest.log_dirs:
            raise BackupFailed(
                f"{self._directory} is not complete: the backup still runs, or ended half way. "
                "Take another one, and remove this one"
            )
        return manifest

    def _check_files(self, log_dir: BackupLogDir) -> set[str]:
        """Partition files of the right size, by path below the backup; before anything is made."""
        for name, file in log_dir.files.items():
            self._check_size(f"{log_dir.name}/{name}", file)
        return {
            path
            for partition in log_dir.partitions
            for name, file in partition.files.items()
            if self._check_size(path := f"{log_dir.name}/{partition.topic_partition}/{name}", file)
        }

    def _check_size(self, name: str, file: BackupFile) -> bool:
        """Whether the file is as long as the manifest says; BackupFailed unless it is derived."""
        with self._reading():
            try:
                stat = self._filesystem.stat(f"{self._directory}/{name}")
            except FileNotFoundError:
                found = "is missing"
            else:
                if stat.is_file and stat.size == file.size_bytes:
                    return True
                found = f"has {stat.size} bytes" if stat.is_file else "is no file"
        return self._leave_out(name, f"{found}, the manifest says {file.size_bytes} bytes")

    def _leave_out(self, name: str, reason: str) -> bool:
        """Note a derived file as left out, and say False; BackupFailed for any other."""
        if not is_derived(name.rpartition("/")[2]):
            raise BackupFailed(f"{self._directory}/{name} {reason}", file=name)
        self._left_out.append(name)
        return False

    def _checkpoints(self, manifest: BackupManifest) -> dict[str, dict[TopicPartition, int]]:
        """Entries of all log directories together."""
        return {
            name: {
                key: offset
                for log_dir in manifest.log_dirs
                for key, offset in decode_offsets(self._small_file(log_dir, name)).items()
            }
            for name in _CHECKPOINTS
        }

    def _registry(self, manifest: BackupManifest) -> bytes:
        """The registry, in which the producer ids given since the backup count as given."""
        log_dir = manifest.log_dirs[0]
        data = self._small_file(log_dir, REGISTRY_FILE)
        try:
            return encode_registry(past_backup(decode_registry(data)))
        except FormatError as error:
            path = f"{self._directory}/{log_dir.name}/{REGISTRY_FILE}"
            raise BackupFailed(f"{path}: {error.reason}", file=REGISTRY_FILE) from error

    def _small_file(self, log_dir: BackupLogDir, name: str) -> bytes:
        """A file in the root of a log directory, checked against its CRC."""
        expected = log_dir.files.get(name)
        path = f"{self._directory}/{log_dir.name}/{name}"
        with self._reading():
            data = self._filesystem.read_file(path)
        if expected is None or crc32c(data) != expected.crc32c:
            raise BackupFailed(f"{path} does not match its CRC-32C in the manifest", file=name)
        return data

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Around reading the backup: OSError becomes BackupFailed."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise BackupFailed(f"Reading {self._directory} failed: {reason}") from error

    # ---- the targets

    def _claim(self, target: BackupFiles) -> DirLock:
        """Make and lock the directory; from here on no daemon starts on it."""
        target.make_root()
        with target.guard():
            try:
                lock = self._filesystem.lock(f"{target.directory}/{LOCK_FILE}")
            except BlockingIOError as error:
                raise InvalidBackupTarget(f"{target.directory} is in use") from error
        target.write(RESTORE_MARKER, b"kafkalog restore has not ended\n")
        target.sync_dir()
        return lock

    def _copy(self, placed: PlacedPartition, usable: set[str], target: BackupFiles) -> int:
        """One partition, durable on return; the bytes that were copied."""
        directory = str(placed.partition.topic_partition)
        where = f"{placed.log_dir.name}/{directory}"
        target.make_dir(directory)
        size_bytes = 0
        for name, file in placed.partition.files.items():
            source, path = f"{where}/{name}", f"{directory}/{name}"
            if source not in usable:
                continue
            copied = target.copy(
                f"{self._directory}/{source}", path, file.size_bytes, self._reading
            )
            if file.crc32c in (None, copied.crc32c):
                size_bytes += file.size_bytes
            elif not self._leave_out(source, "does not match its CRC-32C in the manifest"):
                target.remove(path)
        target.sync_dir(directory)
        return size_bytes

    def _meta_properties(self, manifest: BackupManifest, number: int) -> bytes:
        """That of a log directory of the backup, or of a new one of the same cluster and node."""
        if number < len(manifest.log_dirs):
            return self._small_file(manifest.log_dirs[number], META_PROPERTIES)
        first = decode_meta_properties(self._small_file(manifest.log_dirs[0], META_PROPERTIES))
        meta = MetaProperties(
            cluster_id=first.cluster_id,
            node_id=first.node_id,
            directory_id=new_id(self._random.uuid_bytes),
            version=first.version,
            is_directory_id_given=first.is_directory_id_given,
        )
        return encode_meta_properties(meta, self._clock.wall_ms())
