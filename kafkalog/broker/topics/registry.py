"""TopicRegistry: the topics with ids, partition counts and overrides; dead ids; broker configs;
the log directories that served (``startup/missing``); which producer ids and epochs were given
(``transactions/producer_ids``).

Owns the file ``kafkalog.registry`` in the root of every online log directory. Every change is
written to all of them before it counts, each atomically with one fsync; one whose disk is full is
left behind while two others took it. At the start the highest generation of the whole copies wins;
equal generations with different content mean that directories of different histories were put
together: refused. A newer format is refused, naming it. A damaged copy is rewritten where
``registry_copies`` finds that it held nothing newer. Deleted ids are kept, so that a directory
that was away while its topic died is finished when it comes back.

Crash rule: between two directory writes the newer generation is in some directories only; the next
start takes it everywhere (the change then happened, though it was not answered).
Threads: one change at a time (``edit``); ``topics`` is an immutable snapshot for any thread. Has no
counterpart in Kafka, which keeps this in ``__cluster_metadata``.
"""

from __future__ import annotations

import json
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from kafkalog.broker.directory.log_dir import REGISTRY_FILE, read_root_file, replace_damaged
from kafkalog.errors import DiskFull, LogDirOffline, NotReady, StorageFault, UnusableLogDirs
from kafkalog.format.integers import INT16_MAX, INT32_MAX, INT32_MIN, INT64_MAX, FormatError
from kafkalog.format.topic_names import PARTITION_MAX, decode_id, encode_id, topic_name_fault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.env.filesystem import Filesystem, ReadFilesystem
    from kafkalog.env.threads import Mutex


FORMAT = 3
# Still written while nothing needs more: older versions read them.
_PLAIN_FORMAT = 1
_FORMAT_WITH_BROKER_CONFIGS = 2
RETIRED = INT16_MAX + 1
"""As a producer's epoch: it has none left, and takes no records any more."""

_COPIES_MIN = 2  # of a change that a full disk does not hold up: any one may be lost later

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RegisteredTopic:
    """One living topic. ``overrides`` are topic configs as the user wrote them.

    ``archived_offsets``: by partition, everything below is in an archive; 0 is left out.
    """

    topic_id: UUID
    name: str
    partition_count: int
    overrides: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    archived_offsets: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))


class ProducerEpoch(NamedTuple):
    """The epoch that a producer was given last, and when: older ones are fenced."""

    epoch: int  # or RETIRED
    since_ms: int  # wall clock


@dataclass(frozen=True, slots=True)
class RegistryState:
    """One generation: topics by name, names and ids unique; ids that were deleted.

    ``broker_configs`` are dynamic broker configs as the user wrote them. ``log_dirs``: directory.id
    and last path of the log directories that served; ``cluster_id`` and ``node_id``: whose they are
    (None: an older version wrote it). ``in_making``: by topic id, the first of its partitions that
    may be missing, because it is not noted yet that they were made. Producer ids from
    ``next_producer_id`` on were never given to anybody (0: none was); ``producer_epochs`` by id;
    ``forgotten_epoch``: no newer one was dropped from there.
    """

    generation: int = 0
    topics: Mapping[str, RegisteredTopic] = field(default_factory=lambda: MappingProxyType({}))
    deleted: frozenset[UUID] = frozenset()
    broker_configs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    log_dirs: Mapping[UUID, str] = field(default_factory=lambda: MappingProxyType({}))
    in_making: Mapping[UUID, int] = field(default_factory=lambda: MappingProxyType({}))
    next_producer_id: int = 0
    producer_epochs: Mapping[int, ProducerEpoch] = field(
        default_factory=lambda: MappingProxyType({})
    )
    forgotten_epoch: int = 0
    cluster_id: str | None = None
    node_id: int | None = None

    def with_topics(self, added: Iterable[RegisteredTopic]) -> RegistryState:
        """The next generation with topics that are new or have changed."""
        topics = {**self.topics, **{topic.name: topic for topic in added}}
        return replace(self, generation=self.generation + 1, topics=MappingProxyType(topics))

    def with_new_topics(self, added: Iterable[RegisteredTopic]) -> RegistryState:
        """The next generation with topics whose partitions are still to be made or found."""
        added = tuple(added)
        in_making = {**self.in_making, **{topic.topic_id: 0 for topic in added}}
        return replace(self.with_topics(added), in_making=MappingProxyType(in_making))

    def with_grown_topic(self, grown: RegisteredTopic) -> RegistryState:
        """The next generation with a topic whose new partitions may have been taken back."""
        first = self.topics[grown.name].partition_count
        first = min(first, self.in_making.get(grown.topic_id, first))
        in_making = {**self.in_making, grown.topic_id: first}
        return replace(self.with_topics([grown]), in_making=MappingProxyType(in_making))

    def with_partitions_made(self, topic_id: UUID, first: int) -> RegistryState:
        """The next generation, in which the topic has had its partitions from ``first`` on.

        Those before it are as they were: a creation that could not be taken back still waits for
        the next start.
        """
        in_making = dict(self.in_making)
        if in_making.get(topic_id, first) >= first:
            in_making.pop(topic_id, None)
        return replace(self, generation=self.generation + 1, in_making=MappingProxyType(in_making))

    def with_all_partitions_made(self) -> RegistryState:
        """The next generation, in which every topic has had all its partitions."""
        return replace(self, generation=self.generation + 1, in_making=MappingProxyType({}))

    def without_log_dirs(self, absent: Collection[UUID]) -> RegistryState:
        """The same generation without directories that are gone for good."""
        left = {each: path for each, path in self.log_dirs.items() if each not in absent}
        return replace(self, log_dirs=MappingProxyType(left))

    def without_topic(self, name: str) -> RegistryState:
        """The next generation without the topic, its id deleted."""
        topics = dict(self.topics)
        topic_id = topics.pop(name).topic_id
        in_making = {each: first for each, first in self.in_making.items() if each != topic_id}
        return replace(
            self,
            generation=self.generation + 1,
            topics=MappingProxyType(topics),
            deleted=self.deleted | {topic_id},
            in_making=MappingProxyType(in_making),
        )

    def with_broker_configs(self, configs: Mapping[str, str]) -> RegistryState:
        """The next generation with these dynamic broker configs instead of the former ones."""
        return replace(
            self, generation=self.generation + 1, broker_configs=MappingProxyType(dict(configs))
        )

    def with_next_producer_id(self, producer_id: int) -> RegistryState:
        """The next generation, in which the ids below are given."""
        assert producer_id > self.next_producer_id
        return replace(self, generation=self.generation + 1, next_producer_id=producer_id)

    def with_producer_epochs(self, epochs: Mapping[int, ProducerEpoch]) -> RegistryState:
        """The next generation with these epochs instead of the former ones."""
        dropped = (
            min(given.epoch, INT16_MAX)
            for producer_id, given in self.producer_epochs.items()
            if producer_id not in epochs
        )
        return replace(
            self,
            generation=self.generation + 1,
            producer_epochs=MappingProxyType(dict(epochs)),
            forgotten_epoch=max(self.forgotten_epoch, *dropped, 0),
        )


class NewerRegistryFormat(FormatError):
    """A later version of kafkalog wrote it: not damaged, but not for this one."""


def encode_registry(state: RegistryState) -> bytes:
    """The file: one JSON object, keys sorted, so that equal states are equal bytes."""
    body: dict[str, Any] = {
        "format": _format_of(state),
        "generation": state.generation,
        "topics": {encode_id(each.topic_id): _topic_body(each) for each in state.topics.values()},
        "deleted": sorted(map(encode_id, state.deleted)),
    }
    if state.broker_configs:
        body["broker_configs"] = dict(state.broker_configs)
    if _has_producers(state):
        epochs = {str(each): list(epoch) for each, epoch in state.producer_epochs.items()}
        body["producers"] = {
            "next_id": state.next_producer_id,
            "epochs": epochs,
            "forgotten_epoch": state.forgotten_epoch,
        }
    # No new format: older versions pass over these, and do what they did without them.
    if state.log_dirs:
        body["log_dirs"] = {encode_id(each): path for each, path in state.log_dirs.items()}
    if state.cluster_id is not None:
        body["cluster_id"] = state.cluster_id
    if state.node_id is not None:
        body["node_id"] = state.node_id
    if state.in_making:
        body["in_making"] = {encode_id(each): first for each, first in state.in_making.items()}
    body["checksum"] = _checksum(body)
    return json.dumps(body, indent=1, sort_keys=True).encode() + b"\n"


def _topic_body(topic: RegisteredTopic) -> dict[str, Any]:
    """Archived offsets need no new format: a version that drops them knows no hold either."""
    body: dict[str, Any] = {
        "name": topic.name,
        "partitions": topic.partition_count,
        "configs": dict(topic.overrides),
    }
    if topic.archived_offsets:
        body["archived"] = {str(number): at for number, at in topic.archived_offsets.items()}
    return body


def _format_of(state: RegistryState) -> int:
    """The oldest that holds the state.

    A version that knows no producers would drop them with its next change, and ids would be given
    twice after it: it must not read such a file.
    """
    if _has_producers(state):
        return FORMAT
    return _FORMAT_WITH_BROKER_CONFIGS if state.broker_configs else _PLAIN_FORMAT


def _has_producers(state: RegistryState) -> bool:
    return bool(state.next_producer_id or state.producer_epochs or state.forgotten_epoch)


def decode_registry(data: bytes) -> RegistryState:
    """Reverse of encode_registry. FormatError for anything else; NewerRegistryFormat."""
    try:
        body = json.loads(data.decode("utf-8"))  # bytes would be taken in any encoding of Unicode
    except UnicodeDecodeError as error:
        raise FormatError("The topic registry is not UTF-8", error.start) from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"The topic registry is no JSON: {error}") from error
    if not isinstance(body, dict) or not isinstance(body.get("format"), int):
        raise FormatError("The topic registry has no format")
    if body["format"] > FORMAT and not _has_rotten_format(body):
        raise NewerRegistryFormat(
            f"The topic registry has format {body['format']}; this version knows up to {FORMAT}"
        )
    checksum = body.pop("checksum", None)
    if checksum != _checksum(body):
        raise FormatError("The topic registry does not match its checksum")
    try:
        topics = [
            RegisteredTopic(
                decode_id(topic_id),
                topic["name"],
                int(topic["partitions"]),
                _texts(topic["configs"]),
                _archived_offsets(topic),
            )
            for topic_id, topic in body["topics"].items()
        ]
        deleted = frozenset(map(decode_id, body["deleted"]))
        generation = int(body["generation"])
        broker_configs = _texts(body.get("broker_configs", {}))
        log_dirs = {decode_id(key): path for key, path in _texts(body.get("log_dirs", {})).items()}
        in_making = {decode_id(key): int(first) for key, first in body.get("in_making", {}).items()}
        producers = _producers(body.get("producers"))
        owner = _owner(body)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(f"The topic registry is malformed: {error}") from error
    by_name = {topic.name: topic for topic in topics}
    if len(by_name) != len(topics):
        raise FormatError("The topic registry names a topic twice")
    for topic in topics:
        fault = topic_name_fault(topic.name)
        if fault or not 1 <= topic.partition_count <= PARTITION_MAX or topic.topic_id in deleted:
            raise FormatError(f"The topic registry has an impossible topic {topic.name!r}")
    return RegistryState(
        generation,
        MappingProxyType(by_name),
        deleted,
        broker_configs,
        MappingProxyType(log_dirs),
        MappingProxyType(in_making),
        *producers,
        *owner,
    )


def _has_rotten_format(body: Mapping[str, Any]) -> bool:
    """Whether the checksum says that a format of ours was written, and no newer one."""
    content = {key: value for key, value in body.items() if key != "checksum"}
    return any(
        body.get("checksum") == _checksum({**content, "format": known})
        for known in range(1, FORMAT + 1)
    )


def _owner(body: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Cluster and node; ValueError, and whatever a wrong shape raises."""
    cluster_id, node_id = body.get("cluster_id"), body.get("node_id")
    if cluster_id is not None and not isinstance(cluster_id, str):
        raise ValueError("cluster_id is no text")
    if node_id is not None and not INT32_MIN <= node_id <= INT32_MAX:
        raise ValueError("node_id is out of range")
    return cluster_id, node_id


def _archived_offsets(topic: Mapping[str, Any]) -> Mapping[int, int]:
    """By partition; ValueError, and whatever a wrong shape raises."""
    offsets = {int(number): int(offset) for number, offset in topic.get("archived", {}).items()}
    if not all(0 < offset <= INT64_MAX for offset in offsets.values()) or not all(
        0 <= number < int(topic["partitions"]) for number in offsets
    ):
        raise ValueError("an archived offset is out of range")
    return MappingProxyType(offsets)


def _producers(section: Mapping[str, Any] | None) -> tuple[int, Mapping[int, ProducerEpoch], int]:
    """The last three fields of the state; ValueError, and whatever a wrong shape raises."""
    if section is None:
        return 0, MappingProxyType({}), 0
    next_id, forgotten_epoch = int(section["next_id"]), int(section["forgotten_epoch"])
    epochs: dict[int, ProducerEpoch] = {}
    for producer_id, (epoch, since_ms) in section["epochs"].items():
        epochs[int(producer_id)] = ProducerEpoch(int(epoch), int(since_ms))
    ids, numbers = (next_id, *epochs), (forgotten_epoch, *(each.epoch for each in epochs.values()))
    if not all(0 <= each <= INT64_MAX for each in ids) or not all(
        0 <= each <= RETIRED for each in numbers
    ):
        raise ValueError("a producer id or epoch is out of range")
    return next_id, MappingProxyType(epochs), forgotten_epoch


def _texts(configs: Mapping[str, object]) -> Mapping[str, str]:
    return MappingProxyType({str(key): str(value) for key, value in configs.items()})


def _checksum(body: Mapping[str, Any]) -> str:
    """CRC-32 of the canonical text without the checksum: rot in a name must not become a topic."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return f"{zlib.crc32(canonical):08x}"


class DamagedCopy(NamedTuple):
    """A registry file that is not what was written. No data: a directory is in its place."""

    reason: str
    data: bytes


class TopicRegistry:
    """The registry of all directories."""

    def __init__(self, filesystem: Filesystem, lock: Mutex, log_dirs: Collection[LogDir]) -> None:
        """``log_dirs``: all that are configured; those that are online hold the file."""
        # constant after construction
        self._filesystem = filesystem
        self._log_dirs = log_dirs
        self.lock = lock  # held over each change of topics, configs and places of partitions
        # published; changed under the lock
        self.state = RegistryState()  # the generation in force
        # published; changed by the starting and stopping thread
        self.existed = False
        self.is_ready = False  # everything is loaded and the daemon does not stop
        # owned by the starting thread
        self.copies: dict[LogDir, RegistryState] = {}  # whole ones
        self.damaged: dict[LogDir, DamagedCopy] = {}
        self._behind: tuple[LogDir, ...] = ()

    def check_ready(self) -> None:
        """NotReady unless everything is loaded."""
        if not self.is_ready:
            raise NotReady("The daemon is starting or stopping")

    @contextmanager
    def edit(self) -> Iterator[RegistryState]:
        """One change at a time: hold the lock, give the state in force. NotReady."""
        with self.lock:
            self.check_ready()
            yield self.state

    def _online(self) -> list[LogDir]:
        return [log_dir for log_dir in self._log_dirs if log_dir.is_online]

    def read(self) -> None:
        """Read all files, the first step of a start; writes nothing.

        UnusableLogDirs when one is too new for this version. I/O errors take their directory
        offline; the rest decides.
        """
        for log_dir in self._online():
            try:
                self._read(log_dir)
            except StorageFault as fault:
                _log.error("registry_unreadable", log_dir=log_dir.path, reason=fault.message)

    def choose(self) -> None:
        """Take the highest generation of the whole copies; writes nothing: ``spread`` does.

        UnusableLogDirs when two of that generation differ.
        """
        log_dirs = self._online()
        found = {log_dir: self.copies[log_dir] for log_dir in log_dirs if log_dir in self.copies}
        self.existed = bool(found)
        if not found:
            return
        newest = newest_of({log_dir.path: state for log_dir, state in found.items()})
        self.state = newest
        self._behind = tuple(log_dir for log_dir in log_dirs if found.get(log_dir) != newest)

    def spread(self) -> list[LogDir]:
        """Bring the directories that ``choose`` found behind up to what is in force, durably.

        Those whose damaged copy was rewritten; its bytes are kept. One whose disk is full is left
        behind until the next change or start: an older generation does no harm as long as a
        newer one is there. A directory that fails goes offline.
        """
        behind = [each for each in self._behind if each.is_online]
        self._behind = ()
        self._write_best_effort(self.state, [each for each in behind if each not in self.damaged])
        data = encode_registry(self.state)
        repaired = []
        for log_dir in behind:
            if log_dir not in self.damaged:
                continue
            try:
                with log_dir.guard():
                    kept = replace_damaged(self._filesystem, _path_in(log_dir), data)
            except StorageFault as fault:
                _tell(log_dir, fault)
                continue
            repaired.append(log_dir)
            _log.error(
                "registry_repaired",
                file=_path_in(log_dir),
                reason=self.damaged[log_dir].reason,
                generation=self.state.generation,
                kept_as=kept,
            )
        return repaired

    def remember_log_dirs(self, present: Mapping[UUID, str], cluster_id: str, node_id: int) -> None:
        """These directories serve from now on, at these paths; durable unless nothing is new.

        A registry that was never written stays so, and its first change takes them along: there is
        no topic yet that one of them could hold. Raises as ``change``.
        """
        known = MappingProxyType({**self.state.log_dirs, **present})
        state = replace(self.state, log_dirs=known, cluster_id=cluster_id, node_id=node_id)
        if state == self.state:
            return
        if state.generation == 0:
            self.state = state
            return
        self.change(replace(state, generation=state.generation + 1))

    def change(self, state: RegistryState) -> None:
        """Make state, the next generation, the one in force: durable in every online directory.

        Under the lock, or before the daemon serves.

        A directory that fails goes offline and does not hold up the change; one whose disk is full
        stays behind, as in ``spread``, when two others took it: the loss of any one directory then
        loses no change. LogDirOffline when none is left, DiskFull or DescriptorsShort when a living
        one could not take it: then the state in force stays, though some directory may hold the new
        one already; the next change or start settles it, because a generation is never given twice
        with different content.
        """
        assert state.generation == self.state.generation + 1
        online = self._online()
        try:
            self._write_to_all(state, online)
        except StorageFault:
            # Some directory may hold this generation: it may never be used for other content.
            self.state = replace(self.state, generation=state.generation + 1)
            self._write_best_effort(self.state, online)
            raise
        self.state = state

    def _write_to_all(self, state: RegistryState, log_dirs: Sequence[LogDir]) -> None:
        """As ``change`` says."""
        data, written, full = encode_registry(state), 0, list[DiskFull]()
        for log_dir in log_dirs:
            try:
                self._write(data, log_dir)
                written += 1
            except (LogDirOffline, DiskFull) as fault:
                _tell(log_dir, fault)
                full += [fault] if isinstance(fault, DiskFull) else []
        if full and written < _COPIES_MIN:
            raise full[0]
        if not written:
            raise LogDirOffline("No log directory is left that could hold the topic registry")

    def _write_best_effort(self, state: RegistryState, log_dirs: Sequence[LogDir]) -> None:
        """Where a directory takes it; the others are logged and left behind."""
        data = encode_registry(state)
        for log_dir in log_dirs:
            try:
                self._write(data, log_dir)
            except StorageFault as fault:
                _tell(log_dir, fault)

    def _write(self, data: bytes, log_dir: LogDir) -> None:
        with log_dir.guard():
            self._filesystem.write_file_atomically(_path_in(log_dir), data)

    def _read(self, log_dir: LogDir) -> None:
        """Note the copy of one directory, whole or damaged, if it has one; guarded."""
        data = b""
        try:
            with log_dir.guard():
                found = read_root_file(self._filesystem, _path_in(log_dir))
            if found is None:
                return
            data = found
            self.copies[log_dir] = decode_registry(data)
        except NewerRegistryFormat as error:
            raise of_newer_version(_path_in(log_dir), error) from error
        except FormatError as error:
            self.damaged[log_dir] = DamagedCopy(str(error), data)


def of_newer_version(path: str, error: NewerRegistryFormat) -> UnusableLogDirs:
    """The refusal to use a file that only a later version understands."""
    return UnusableLogDirs(
        f"{path}: {error}. A newer version of kafkalog wrote it: start that version or a later "
        "one.",
        file=path,
    )


def newest_of(copies: Mapping[str, RegistryState]) -> RegistryState:
    """Of whole copies by log directory; UnusableLogDirs when two of that generation differ."""
    newest_path = max(copies, key=lambda path: copies[path].generation)
    newest = copies[newest_path]
    for path, state in copies.items():
        if state.generation == newest.generation and state != newest:
            raise UnusableLogDirs(
                f"{REGISTRY_FILE} of {path} and of {newest_path} have generation "
                f"{state.generation} and different content: the directories have different "
                "histories. Remove one of them from log.dirs, or the wrong file.",
                log_dir=path,
            )
    return newest


def _tell(log_dir: LogDir, fault: StorageFault) -> None:
    _log.error("registry_not_written", log_dir=log_dir.path, reason=fault.message)


def _path_in(log_dir: LogDir) -> str:
    return f"{log_dir.path}/{REGISTRY_FILE}"


def registered_configs(log_dir: str, filesystem: ReadFilesystem) -> Mapping[str, Mapping[str, str]]:
    """Overrides by topic, as the user wrote them; empty without a registry that can be read.

    OSError.
    """
    try:
        state = decode_registry(filesystem.read_file(f"{log_dir}/{REGISTRY_FILE}"))
    except (FileNotFoundError, NotADirectoryError, FormatError):
        return {}
    return {name: topic.overrides for name, topic in state.topics.items()}
