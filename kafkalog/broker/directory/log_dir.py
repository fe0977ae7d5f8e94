"""LogDir: one entry of ``log.dirs``: its lock, identity, marker, checkpoint files and fate.

Owns the files in the root of a log directory except the topic registry, and the decision what an
OSError below that root means (``guard``). Never touches a partition's files. State changes are one
way: online, then perhaps offline for good until a restart. Any thread; ``open``, ``claim`` and
``release`` belong to the thread that starts and stops the daemon.

Crash rules: checkpoints and ``meta.properties`` are replaced atomically; the clean-shutdown marker
is deleted (and that is made durable) before any log is loaded and written after everything else.
Source: Kafka's LogManager, MetaProperties, CleanShutdownFileHandler, LogDirFailureChannel.
"""

from __future__ import annotations

import errno
import itertools
from contextlib import contextmanager, suppress
from shlex import quote
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.directory.free_space import UNKNOWN_SPACE, FreeSpace
from kafkalog.broker.directory.storage_fault import FILE_LIMIT_REMEDY, fault_of, remedy_of
from kafkalog.broker.values import LogDirFault
from kafkalog.errors import DiskFull, InvalidConfig, LogDirOffline, StorageFault
from kafkalog.format.disk.backup_manifest import RESTORE_MARKER
from kafkalog.format.disk.checkpoints import DamagedLine, decode_offsets, salvage_offsets
from kafkalog.format.disk.file_names import CLEAN_SHUTDOWN_CONTENT, LOG_PROOFS, TEMPORARY_SUFFIX
from kafkalog.format.disk.log_proofs import NewerProofsFormat, decode_proofs
from kafkalog.format.disk.properties import (
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import encode_id, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkalog.env.clock import Clock
    from kafkalog.env.filesystem import DirLock, DiskSpace, Filesystem, ReadFilesystem
    from kafkalog.env.random import Random
    from kafkalog.env.threads import Threads
    from kafkalog.format.disk.log_proofs import CheckedOffsets, LogKey
    from kafkalog.format.topic_names import TopicPartition

LOCK_FILE = ".lock"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
REGISTRY_FILE = "kafkalog.registry"
PROOFS = LOG_PROOFS

_WITHOUT_ENTRY = {
    RECOVERY_POINTS: "a partition without an entry is recovered from its first segment",
    LOG_START_OFFSETS: "a partition without an entry starts at its first segment: look for deleted "
    "records that are served again, and delete them once more",
    HIGH_WATERMARKS: "none: a partition without an entry is readable to its end",
    CLEANER_OFFSETS: "a partition without an entry is cleaned from its start; an adopted topic "
    "does not count as compacted",
    PROOFS: "what the other checkpoints say is believed unchecked until this file is written again",
}
ASIDE_SUFFIX = ".damaged"
_SHOWN_CHARACTERS = 200
_FAILING_SHOWN_NS = 60_000_000_000
_NO_FILE = [DamagedLine(0, "", "is a directory")]
LOST_AND_FOUND = "lost+found"
_REPLACED_FILES = (*_WITHOUT_ENTRY, REGISTRY_FILE, META_PROPERTIES, CLEAN_SHUTDOWN_MARKER)
_TEMPORARY_FILES = tuple(f"{name}{TEMPORARY_SUFFIX}" for name in _REPLACED_FILES)
OWN_FILES = frozenset((LOCK_FILE, *_REPLACED_FILES, *_TEMPORARY_FILES))

_log = structlog.get_logger(__name__)


def read_root_file(filesystem: ReadFilesystem, path: str) -> bytes | None:
    """Its content, None when there is none; FormatError for a directory in its place; OSError."""
    try:
        return filesystem.read_file(path)
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise FormatError("is a directory") from error


def names_aside(path: str) -> itertools.chain[str]:
    """Names under which the file at ``path`` may be kept: ``-n`` would be a partition."""
    first = f"{path}{ASIDE_SUFFIX}"
    return itertools.chain((first,), (f"{first}.{number}" for number in itertools.count(2)))


def free_name_aside(filesystem: Filesystem, path: str) -> str:
    """The first of those names that nothing has."""
    return next(name for name in names_aside(path) if not filesystem.exists(name))


def replace_damaged(filesystem: Filesystem, path: str, data: bytes) -> str | None:
    """Put ``data`` in the place of a damaged file; where its bytes are kept, None: it was missing.

    Durable on return. Crash: the damaged file is there or the new one, the kept bytes before it.
    """
    kept = _keep_aside(filesystem, path)
    filesystem.write_file_atomically(path, data)
    return kept


def _keep_aside(filesystem: Filesystem, path: str) -> str | None:
    try:
        data = read_root_file(filesystem, path)
    except FormatError:
        target = free_name_aside(filesystem, path)
        filesystem.rename(path, target)
        filesystem.sync_dir(path.rpartition("/")[0])
        return target
    if data is None:
        return None
    for target in names_aside(path):
        if not filesystem.exists(target):
            filesystem.write_file_atomically(target, data)
            return target
        with suppress(FormatError):
            if read_root_file(filesystem, target) == data:
                return target  # kept by a start that a crash ended
    raise AssertionError("the names do not end")


def completed_meta(
    meta: MetaProperties | None, cluster_id: str, node_id: int, random: Random
) -> MetaProperties:
    """What a directory's ``meta.properties`` shall say; what Kafka wrote is kept.

    One of a Kafka with ZooKeeper gets no cluster.id: a later Kafka compares it with ZooKeeper's.
    """
    known = meta or MetaProperties(None, None, None)
    has_id = known.directory_id is not None
    return MetaProperties(
        cluster_id=known.cluster_id or (None if known.is_of_zookeeper else cluster_id),
        node_id=node_id if known.node_id is None else known.node_id,
        directory_id=known.directory_id if has_id else new_id(random.uuid_bytes),
        version=known.version,
        is_directory_id_given=known.is_directory_id_given or (meta is not None and not has_id),
    )


class LogDir:
    """See the module."""

    def __init__(
        self,
        path: str,
        filesystem: Filesystem,
        clock: Clock,
        random: Random,
        threads: Threads,
        *,
        min_free_bytes: int,
    ) -> None:
        """``path`` is absolute. Nothing is touched before ``open``."""
        # constant after construction
        self.path = path
        self._filesystem = filesystem
        self._clock = clock
        self._random = random
        self._mutex = threads.mutex()
        self._checkpoint_mutex = threads.mutex()
        self.free_space = FreeSpace(
            path, min_free_bytes, self.measure_space, clock, threads.mutex()
        )
        # replaced by any thread
        self._logged_damage: dict[str, list[DamagedLine]] = {}  # by checkpoint file
        # under the mutex of the checkpoints
        self._proofs: bytes | None = None  # as they are on disk; None: not known
        # owned by the starting thread
        self._lock: DirLock | None = None
        self.meta: MetaProperties | None = None
        self.meta_damage: FormatError | None = None
        self._proven: tuple[MetaProperties, str] | None = None
        self.is_fresh = False  # had no meta.properties
        self.was_clean = False
        self.is_loaded = False
        # published; changed by LogDirChanges
        self.is_cordoned = False  # takes no new partitions
        # published; changed under the mutex
        self.offline_reason: str | None = None  # None: online; stays until a restart
        # False after the first I/O error that is neither a full disk nor a shortage
        self.is_online = True
        # Why calls fail though it is online, and until when that is shown; None: until a restart.
        self._failing: tuple[str, int | None] | None = None
        self._on_offline: tuple[Callable[[LogDir], None], ...] = ()

    # ---- fate

    @property
    def shown_fault(self) -> LogDirFault | None:
        """For people and probes: what keeps the directory from full service, if anything."""
        if self.offline_reason is not None:
            return LogDirFault(self.path, "offline", self.offline_reason)
        space = self.free_space
        if space.full_reason is not None:
            return LogDirFault(self.path, "full", space.full_reason)
        failing = self._failing
        if failing and (failing[1] is None or self._clock.monotonic_ns() <= failing[1]):
            return LogDirFault(self.path, "failing", failing[0])
        return None if space.low_reason is None else LogDirFault(self.path, "low", space.low_reason)

    def note_broken(self, reason: str) -> None:
        """One of its logs takes no appends until a restart."""
        self._failing = reason, None
        _log.error(
            "log_takes_no_appends",
            log_dir=self.path,
            reason=reason,
            remedy="Restart the daemon: the log is recovered then.",
        )

    def when_offline(self, callback: Callable[[LogDir], None]) -> None:
        """Call once, on the thread that sees the failure, when the directory goes offline."""
        with self._mutex:
            self._on_offline = (*self._on_offline, callback)

    def check_online(self) -> None:
        """Raise LogDirOffline when it is not online."""
        if self.offline_reason is not None:
            raise LogDirOffline(self.offline_reason, log_dir=self.path)

    def take_offline(self, reason: str, file: str | None = None) -> None:
        """Mark it offline; the first call logs and calls the listeners, later ones do nothing.

        ``file``: what the failed call named, for the log alone; None when it named nothing.
        """
        with self._mutex:
            if self.offline_reason is not None:
                return
            self.offline_reason = reason  # first: who sees the end finds it
            self.is_online = False
            listeners = self._on_offline
        remedy = remedy_of(LogDirOffline(reason))
        _log.error("log_dir_offline", log_dir=self.path, reason=reason, file=file, remedy=remedy)
        for listener in listeners:
            listener(self)

    def fault(self, error: OSError) -> StorageFault:
        """The fault that error is, after its consequence for the directory was drawn."""
        fault = fault_of(error, self.path)
        if isinstance(fault, LogDirOffline):
            self.take_offline(fault.message, error.filename)
        elif isinstance(fault, DiskFull):
            remedy = FILE_LIMIT_REMEDY if error.errno == errno.EFBIG else None
            self.free_space.note_full(fault.message, remedy)
        else:
            if self._failing is None or self._failing[1] is not None:
                until_ns = self._clock.monotonic_ns() + _FAILING_SHOWN_NS
                self._failing = fault.message, until_ns
            remedy = remedy_of(fault)
            _log.error("descriptors_short", log_dir=self.path, reason=fault.message, remedy=remedy)
        return fault

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Around any disk work below the root: OSError becomes its StorageFault."""
        self.check_online()
        try:
            yield
        except OSError as error:
            raise self.fault(error) from error

    @contextmanager
    def or_offline(self) -> Iterator[None]:
        """Around a step of the start: its StorageFault takes the directory offline."""
        try:
            yield
        except StorageFault as fault:
            self.take_offline(fault.message)

    # ---- space

    def measure_space(self) -> DiskSpace:
        """Of its file system now, published as ``space``; guarded.

        Whether appends are taken follows from them, see ``FreeSpace``.
        """
        with self.guard():
            space = self._filesystem.space(self.path)
        self.free_space.note(space, self._clock.monotonic_ns())
        return space

    @property
    def space(self) -> DiskSpace:
        """Of its file system when it was last measured; UNKNOWN_SPACE before and offline."""
        return self.free_space.known if self.is_online else UNKNOWN_SPACE

    @property
    def is_full(self) -> bool:
        """Whether appends are refused until there is space again."""
        return self.free_space.full_reason is not None

    # ---- start and stop

    def open(self) -> None:
        """Create the directory if missing, lock it and read who it belongs to.

        InvalidConfig when another process holds the lock, or a restore has not ended; an I/O error
        takes the directory offline and raises its StorageFault. A damaged ``meta.properties`` is
        noted in ``meta_damage``.
        """
        filesystem = self._filesystem
        with self.guard():
            self._make_durably(self.path)
            filesystem.list_dir(self.path)
            try:
                self._lock = filesystem.lock(self._file(LOCK_FILE))
            except BlockingIOError as error:
                raise InvalidConfig(
                    f"Failed to acquire lock on file {LOCK_FILE} in {self.path}. A Kafka or "
                    "kafkalog process is already using this directory. Stop it (fuser -v "
                    f"{quote(self._file(LOCK_FILE))} names it), or name another directory in "
                    "log.dirs.",
                    log_dir=self.path,
                ) from error
            if filesystem.exists(self._file(RESTORE_MARKER)):
                # Some of its partitions may be missing, and would be made again, empty.
                raise InvalidConfig(
                    f"A restore to {self.path} has not ended ({RESTORE_MARKER} is there). Wait for "
                    "it; if none runs, empty the directory and restore again.",
                    log_dir=self.path,
                )
            try:
                data = read_root_file(filesystem, self._file(META_PROPERTIES))
                self.meta = None if data is None else decode_meta_properties(data)
            except FormatError as error:
                self.meta_damage = error
            self.is_fresh = self.meta is None and self.meta_damage is None

    def prove(self, meta: MetaProperties, reason: str) -> None:
        """What ``claim`` writes in the place of a damaged ``meta.properties``."""
        self._proven = (meta, reason)

    def claim(self, cluster_id: str, node_id: int) -> bool:
        """Give a fresh directory its ``meta.properties`` (or complete one of old); guarded.

        True when a damaged file was rewritten from what ``prove`` was given; its bytes are kept.
        """
        if self._proven is not None:
            proven, reason = self._proven
            path = self._file(META_PROPERTIES)
            with self.guard():
                data = encode_meta_properties(proven, self._clock.wall_ms())
                kept = replace_damaged(self._filesystem, path, data)
            self.meta = proven
            _log.error("meta_properties_repaired", file=path, reason=reason, kept_as=kept)
            return True
        completed = completed_meta(self.meta, cluster_id, node_id, self._random)
        if completed == self.meta:
            return False
        self.meta = completed
        with self.guard():
            data = encode_meta_properties(self.meta, self._clock.wall_ms())
            self._filesystem.write_file_atomically(self._file(META_PROPERTIES), data)
        return False

    def take_clean_shutdown_marker(self) -> bool:
        """Whether the last shutdown was clean; the marker is gone durably on return. Guarded.

        So is what keeps the files of the root from being written: left-overs, directories there.
        Syncs the directory in any case: a process that was killed may have made partition
        directories whose names no power cut has spared yet, and they are about to be served.
        """
        marker = self._file(CLEAN_SHUTDOWN_MARKER)
        with self.guard():
            self.was_clean = self._filesystem.exists(marker)
            if self.was_clean:
                self._filesystem.unlink(marker)
            for name in _TEMPORARY_FILES:  # a process ended in the middle of replacing the file
                if self._filesystem.exists(self._file(name)):
                    self._filesystem.unlink(self._file(name))
            for entry in self._filesystem.list_dir_stats(self.path):
                if entry.is_dir and entry.name in _WITHOUT_ENTRY:  # no checkpoint could be written
                    path = self._file(entry.name)
                    target = free_name_aside(self._filesystem, path)
                    self._log_damage(entry.name, _NO_FILE)
                    self._filesystem.rename(path, target)
                    _log.warning("directory_put_aside", directory=path, moved_to=target)
            self._filesystem.sync_dir(self.path)
        return self.was_clean

    def write_clean_shutdown_marker(self) -> None:
        """The last write of an orderly shutdown; guarded."""
        with self.guard():
            self._filesystem.write_file_atomically(
                self._file(CLEAN_SHUTDOWN_MARKER), CLEAN_SHUTDOWN_CONTENT
            )

    def release(self) -> None:
        """Unlock. The lock file is kept, as Kafka's is."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _make_durably(self, path: str) -> None:
        """Create a directory with its missing parents, each name durable on return."""
        if self._filesystem.exists(path):
            return
        parent = path.rpartition("/")[0] or "/"
        self._make_durably(parent)
        self._filesystem.make_dir(path)
        self._filesystem.sync_dir(parent)

    # ---- checkpoints

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Entries of a checkpoint file, of a damaged one those of its good lines. Guarded.

        Each bad line is logged at level error, once. A missing entry is always safe for what is
        stored: a log without a recovery point is recovered from its start, one without a start
        offset starts at its first segment. Differs from Kafka, which gives up the directory or
        every entry; and so for a directory in the file's place, which the next start puts aside.
        """
        data = self._read_checkpoint_file(name)
        if data is None:
            return {}
        try:
            read = decode_offsets(data)
            if all(key.partition >= 0 and offset >= 0 for key, offset in read.items()):
                return read
        except FormatError:
            pass  # its lines are looked at one by one
        offsets, bad_lines = salvage_offsets(data)
        self._log_damage(name, bad_lines)
        return offsets

    def has_checkpoint(self, name: str) -> bool:
        """Whether the file is there. Guarded."""
        with self.guard():
            return self._filesystem.exists(self._file(name))

    def _read_checkpoint_file(self, name: str) -> bytes | None:
        """Its content; None when it is missing, or a directory, which is logged. Guarded."""
        with self.guard():
            try:
                return read_root_file(self._filesystem, self._file(name))
            except FormatError:
                self._log_damage(name, _NO_FILE)
                return None

    def _log_damage(self, name: str, bad_lines: list[DamagedLine]) -> None:
        """Once, as long as it is the same: a start reads the cleaner's file twice. Line 0: all."""
        if self._logged_damage.get(name) == bad_lines:
            return
        self._logged_damage[name] = bad_lines
        for bad in bad_lines:
            _log.error(
                "checkpoint_damaged",
                file=self._file(name),
                line=bad.number,
                text=bad.text[:_SHOWN_CHARACTERS],
                count=bad.count,
                reason=bad.reason,
                consequence=_WITHOUT_ENTRY[name],
            )

    def read_proofs(self) -> dict[LogKey, CheckedOffsets]:
        """What ``kafkalog.checkpoint`` says of each log; guarded.

        Nothing when it is missing, damaged (logged at level error), of a later version or of
        another directory: then nothing is proven, and the start continues.
        """
        path, data = self._file(PROOFS), self._read_checkpoint_file(PROOFS)
        if data is None:
            return {}
        try:
            directory_id, entries = decode_proofs(data)
        except NewerProofsFormat as error:
            _log.warning("proofs_not_used", file=path, reason=error.reason)
            return {}
        except FormatError as error:
            self._log_damage(PROOFS, [DamagedLine(0, "", error.reason)])
            return {}
        own_id = None if self.meta is None else self.meta.directory_id
        if own_id is None or directory_id != encode_id(own_id):
            reason = f"it is of the log directory with the id {directory_id}"
            _log.warning("proofs_not_used", file=path, reason=reason)
            return {}
        return entries

    def write_checkpoints(self, collect: Callable[[], Mapping[str, bytes]]) -> None:
        """Replace checkpoint files by what ``collect`` says now, durable on return; guarded.

        By name; ``kafkalog.checkpoint`` only where it changes, and durable before the others: a
        power cut may keep the later of two renamings alone. Collecting happens under the lock of
        the writing: a slow writer cannot put an older state over a newer one that was reported as
        durable.
        """
        with self.guard(), self._checkpoint_mutex:
            files = dict(collect())
            proofs = files.get(PROOFS, self._proofs)
            if proofs == self._proofs:
                files.pop(PROOFS, None)
            if not files:
                return
            self._proofs = None  # a failed write may leave either
            if PROOFS in files and len(files) > 1:
                self._filesystem.write_files_atomically(self.path, {PROOFS: files.pop(PROOFS)})
            self._filesystem.write_files_atomically(self.path, files)
            self._proofs = proofs

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"
