"""HandOver: log directories that change hands between Kafka and kafkalog while neither runs.

Reads, judges and writes; ``adoption`` and ``hand_back`` say what. A plan is made without a lock and
without a write. It is carried out under the locks of all directories, after it was made once more
there: what was looked at before may have changed.

Crash rule: each change replaces or removes one file, durable before the next one begins. A daemon
takes the directories after each, and so does Kafka, before 3.7 once the last one of a hand-back is
done. What is left of a plan is in the next, and a hand-back undoes a part of an adoption.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kafkalog.broker.directory.identity import (
    IdentityFiles,
    doctor_command,
    known_node_id,
    read_identity_files,
)
from kafkalog.broker.directory.log_dir import (
    CLEAN_SHUTDOWN_MARKER,
    LOCK_FILE,
    META_PROPERTIES,
    REGISTRY_FILE,
    LogDir,
)
from kafkalog.broker.startup.scan import find_partitions
from kafkalog.errors import CorruptBatch, InvalidConfig, UnusableLogDirs
from kafkalog.format.disk.backup_manifest import RESTORE_MARKER
from kafkalog.format.disk.file_names import PARTITION_METADATA, SNAPSHOT_SUFFIX, parse_segment_file
from kafkalog.format.disk.producer_snapshot import decode_snapshot
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import DirectoryState, live_partition, new_id
from kafkalog.log.format_conversion import convert_partition
from kafkalog.log.inspect.directory_facts import check_apart, log_dir_path, segment_bases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from uuid import UUID

    from kafkalog.broker.startup.plan import FoundPartition
    from kafkalog.broker.topics.registry import RegistryState
    from kafkalog.env.clock import Clock
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.env.random import Random
    from kafkalog.env.threads import Threads

Level = Literal["error", "warning", "info"]
_NAMED = 10


@dataclass(frozen=True, slots=True)
class Note:
    """What the operator should know; an error forbids every change until it is mended."""

    level: Level
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file. ``data`` replaces its content; None: it is removed."""

    path: str
    message: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Conversion:
    """The segments of a partition's directory that are in message formats v0 and v1 become v2."""

    path: str
    message: str


@dataclass(slots=True)
class HandOverPlan:
    """Notes, and the changes in their order."""

    notes: list[Note] = field(default_factory=list)
    changes: list[Conversion | FileChange] = field(default_factory=list)
    is_partial: bool = False  # carried out, but for what a warning names

    @property
    def is_refused(self) -> bool:
        """Whether nothing may be changed."""
        return any(note.level == "error" for note in self.notes)

    def note(self, level: Level, subject: str, message: str) -> None:
        """Add one."""
        self.notes.append(Note(level, subject, message))


class HandOver:
    """See the module. One thread."""

    def __init__(
        self, entries: Sequence[str], seams: tuple[Filesystem, Clock, Random, Threads]
    ) -> None:
        """``entries`` as ``log.dirs`` has them. Nothing is touched yet."""
        # constant after construction
        self.filesystem, self.clock, self.random, threads = seams
        self.entries = list(entries)
        paths = dict.fromkeys(log_dir_path(self.filesystem, entry) for entry in entries)
        self.log_dirs = [
            LogDir(path, self.filesystem, self.clock, self.random, threads, min_free_bytes=0)
            for path in paths
        ]
        self.paths = list(paths)
        # owned by the one thread
        self._is_locked = False

    def run(
        self, plan_of: Callable[[HandOver], HandOverPlan], *, is_executed: bool
    ) -> HandOverPlan:
        """The plan; with ``is_executed`` it is carried out on return, unless it is refused.

        InvalidConfig when a directory was taken meanwhile; StorageFault, OSError.
        """
        plan = plan_of(self)
        if not is_executed or plan.is_refused:
            return plan
        with self._locked():
            plan = plan_of(self)
            if not plan.is_refused:
                for change in list(plan.changes):
                    if isinstance(change, Conversion):
                        self._convert(plan, change)
                    else:
                        self._carry_out(change)
        return plan

    def _convert(self, plan: HandOverPlan, change: Conversion) -> None:
        """What is damaged stays as it is, and is no change; the rest is adopted and served."""
        try:
            for done in convert_partition(self.filesystem, change.path, clock=self.clock):
                if done.tail_note is not None:
                    plan.note("warning", change.path, done.tail_note)
        except CorruptBatch as error:
            plan.changes.remove(change)
            plan.is_partial = True
            plan.note("warning", change.path, error.message)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            for log_dir in self.log_dirs:
                log_dir.open()
            self._is_locked = True
            yield
        finally:
            self._is_locked = False
            for log_dir in self.log_dirs:
                log_dir.release()

    def _carry_out(self, change: FileChange) -> None:
        if change.data is not None:
            self.filesystem.write_file_atomically(change.path, change.data)
            return
        self.filesystem.unlink(change.path)
        self.filesystem.sync_dir(change.path.rpartition("/")[0])

    # ---- facts

    def identities(self) -> list[IdentityFiles]:
        """What meta.properties and registries say; UnusableLogDirs when one is damaged."""
        found = [read_identity_files(path, self.filesystem) for path in self.paths]
        for each in found:
            name, reason = META_PROPERTIES, each.meta_damage
            if each.registry_damage is not None:
                name, reason = REGISTRY_FILE, each.registry_damage.reason
            if reason is not None:
                command = doctor_command(self.paths, known_node_id(found, None))
                raise UnusableLogDirs(
                    f"{each.path}/{name} is damaged ({reason}). Repair it first: {command}",
                    log_dir=each.path,
                )
        return found

    def partitions(self, state: RegistryState) -> list[FoundPartition]:
        """Partition directories of all; StorageFault."""
        return [
            partition
            for log_dir in self.log_dirs
            for partition in find_partitions(log_dir, self.filesystem, state)
        ]

    def is_clean(self, path: str) -> bool:
        """Whether whoever served the directory last stopped cleanly."""
        return self.filesystem.exists(f"{path}/{CLEAN_SHUTDOWN_MARKER}")

    def with_open_transactions(self, found: Iterable[FoundPartition]) -> list[str]:
        """Partitions in whose newest producer snapshot a transaction is open."""
        return [
            str(each.topic_partition)
            for each in found
            if each.state is DirectoryState.LIVE and self._has_open_transaction(each.path)
        ]

    def _has_open_transaction(self, directory: str) -> bool:
        newest = ""
        for name in self.filesystem.list_dir(directory):
            try:
                parsed = parse_segment_file(name)
            except FormatError:
                continue
            if parsed is not None and parsed.suffix == SNAPSHOT_SUFFIX and not parsed.stage:
                newest = max(newest, name)
        if not newest:
            return False
        try:
            entries = decode_snapshot(self.filesystem.read_file(f"{directory}/{newest}"))
        except FormatError:
            return False  # the start tries an older one
        return any(entry.current_txn_first_offset >= 0 for entry in entries)

    def new_id(self) -> UUID:
        """A random one."""
        return new_id(self.random.uuid_bytes)

    # ---- refusals

    def refusals(self) -> list[Note]:
        """Why these are not log directories that nobody uses, with what to do."""
        try:
            check_apart(self.filesystem, self.entries)
        except InvalidConfig as error:
            return [Note("error", str(error.details.get("value")), error.message)]
        notes = []
        for path in self.paths:
            reason = self._refusal_of(path)
            if reason is not None:
                notes.append(Note("error", path, reason))
        return notes

    def _refusal_of(self, path: str) -> str | None:
        filesystem = self.filesystem
        if not filesystem.exists(path):
            return "it does not exist: name the log.dirs of the broker's server.properties"
        if not filesystem.stat(path).is_dir:
            return "it is no directory"
        names = filesystem.list_dir(path)
        if PARTITION_METADATA in names or segment_bases(names):
            parent = path.rpartition("/")[0] or "/"
            return f"it is the directory of a partition: name the log directory around it, {parent}"
        if RESTORE_MARKER in names:
            return "a restore to it has not ended: wait for it, or empty it and restore again"
        lock = f"{path}/{LOCK_FILE}"
        if not self._is_locked and LOCK_FILE in names and filesystem.is_locked(lock):
            return (
                "a Kafka or kafkalog process is using it: stop the broker (kafka-server-stop.sh) "
                "or the daemon (SIGTERM), and wait until it has ended"
            )
        has_partitions = any(live_partition(name) is not None for name in names)
        if has_partitions or META_PROPERTIES in names or REGISTRY_FILE in names:
            return None
        inner = [
            f"{path}/{name}"
            for name in names
            if filesystem.exists(f"{path}/{name}/{META_PROPERTIES}")
        ]
        hint = f"; {inner[0]} is one" if inner else ""
        return (
            f"it is no log directory of Kafka: it has neither {META_PROPERTIES} nor a directory of "
            f"a partition (topic-0){hint}"
        )


def named(names: Iterable[str]) -> str:
    """The first ones, and how many more."""
    every = list(names)
    shown = ", ".join(every[:_NAMED])
    return shown if len(every) <= _NAMED else f"{shown} and {len(every) - _NAMED} others"


def counted(count: int, noun: str) -> str:
    """``1 topic``, ``2 topics``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
