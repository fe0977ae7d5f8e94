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
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import structlog

from kafkalog.broker.directory.log_dir import REGISTRY_FILE, read_root_file, replace_damaged
from kafkalog.broker.values import UncleanStart  # noqa: TC001 - msgspec resolves it
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
    """One living topic. ``overrides`` are topic configs as the user wrote them, in plain numbers.

    ``archived_offsets``: by partition, everything below is in an archive; 0 is left out.
    ``kafka_partition_count``: how many Kafka had when its directories were adopted; 0: it does not
    know the topic. ``is_id_given``: Kafka had no id for it, ``topic_id`` was made here.
    """

    topic_id: UUID
    name: str
    partition_count: int
    overrides: Mapping[str, str] = field(default_factory=dict)
    archived_offsets: Mapping[int, int] = field(default_factory=dict)
    kafka_partition_count: int = 0
    is_id_given: bool = False


_NaturalNumber = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
_Epoch = Annotated[int, msgspec.Meta(ge=0, le=RETIRED)]


class ProducerEpoch(NamedTuple):
    """The epoch that a producer was given last, and when: older ones are fenced."""

    epoch: _Epoch  # RETIRED: none is left
    since_ms: int  # wall clock


class ClockTrust(NamedTuple):
    """Which wall clock retention trusts, and what it held because of another one.

    ``offset_ms``: of the trusted wall clock, without the time since the boot. ``jump_ms``: how far
    ahead of it the wall clock was at ``wall_ms``. ``held``: partitions by topic.
    """

    boot_id: str
    offset_ms: int
    jump_ms: int
    wall_ms: int
    held: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class RegistryState:
    """One generation: topics by name, names and ids unique; ids that were deleted.

    ``broker_configs`` are dynamic broker configs as the user wrote them. ``log_dirs``: directory.id
    and last path of the log directories that served; ``cluster_id`` and ``node_id``: whose they are
    (None: an older version wrote it). ``made_cluster_id``: the id that was made here, because no
    directory had one; one that Kafka writes later counts more. ``in_making``: by topic id, the
    first of its partitions that may be missing, because it is not noted yet that they were made.
    Producer ids from ``next_producer_id`` on were never given to anybody (0: none was);
    ``producer_epochs`` by id; ``forgotten_epoch``: no newer one was dropped from there. ``clock``:
    None before a first check. ``unclean_start``: the last one, also after clean starts.
    """

    generation: int = 0
    topics: Mapping[str, RegisteredTopic] = field(default_factory=dict)
    deleted: frozenset[UUID] = frozenset()
    broker_configs: Mapping[str, str] = field(default_factory=dict)
    log_dirs: Mapping[UUID, str] = field(default_factory=dict)
    in_making: Mapping[UUID, int] = field(default_factory=dict)
    next_producer_id: int = 0
    producer_epochs: Mapping[int, ProducerEpoch] = field(default_factory=dict)
    forgotten_epoch: int = 0
    cluster_id: str | None = None
    node_id: int | None = None
    made_cluster_id: str | None = None
    clock: ClockTrust | None = None
    unclean_start: UncleanStart | None = None

    def with_topics(self, added: Iterable[RegisteredTopic]) -> RegistryState:
        """The next generation with topics that are new or have changed."""
        topics = {**self.topics, **{topic.name: topic for topic in added}}
        return replace(self, generation=self.generation + 1, topics=topics)

    def with_new_topics(self, added: Iterable[RegisteredTopic]) -> RegistryState:
        """The next generation with topics whose partitions are still to be made or found."""
        added = tuple(added)
        in_making = {**self.in_making, **{topic.topic_id: 0 for topic in added}}
        return replace(self.with_topics(added), in_making=in_making)

    def with_grown_topic(self, grown: RegisteredTopic) -> RegistryState:
        """The next generation with a topic whose new partitions may have been taken back."""
        first = self.topics[grown.name].partition_count
        first = min(first, self.in_making.get(grown.topic_id, first))
        in_making = {**self.in_making, grown.topic_id: first}
        return replace(self.with_topics([grown]), in_making=in_making)

    def with_partitions_made(self, topic_id: UUID, first: int) -> RegistryState:
        """The next generation, in which the topic has had its partitions from ``first`` on.

        Those before it are as they were: a creation that could not be taken back still waits for
        the next start.
        """
        in_making = dict(self.in_making)
        if in_making.get(topic_id, first) >= first:
            in_making.pop(topic_id, None)
        return replace(self, generation=self.generation + 1, in_making=in_making)

    def with_all_partitions_made(self) -> RegistryState:
        """The next generation, in which every topic has had all its partitions."""
        return replace(self, generation=self.generation + 1, in_making={})

    def without_log_dirs(self, absent: Collection[UUID]) -> RegistryState:
        """The same generation without directories that are gone for good."""
        left = {each: path for each, path in self.log_dirs.items() if each not in absent}
        return replace(self, log_dirs=left)

    def without_topic(self, name: str) -> RegistryState:
        """The next generation without the topic, its id deleted."""
        topics = dict(self.topics)
        topic_id = topics.pop(name).topic_id
        in_making = {each: first for each, first in self.in_making.items() if each != topic_id}
        return replace(
            self,
            generation=self.generation + 1,
            topics=topics,
            deleted=self.deleted | {topic_id},
            in_making=in_making,
        )

    def with_broker_configs(self, configs: Mapping[str, str]) -> RegistryState:
        """The next generation with these dynamic broker configs instead of the former ones."""
        return replace(self, generation=self.generation + 1, broker_configs=dict(configs))

    def with_clock(self, clock: ClockTrust) -> RegistryState:
        """The next generation, which trusts this clock."""
        return replace(self, generation=self.generation + 1, clock=clock)

    def with_unclean_start(self, found: UncleanStart) -> RegistryState:
        """The next generation, which remembers this start."""
        return replace(self, generation=self.generation + 1, unclean_start=found)

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
            producer_epochs=dict(epochs),
            forgotten_epoch=max(self.forgotten_epoch, *dropped, 0),
        )


class NewerRegistryFormat(FormatError):
    """A later version of kafkalog wrote it: not damaged, but not for this one."""


class _TopicBody(msgspec.Struct, omit_defaults=True):
    """Archived offsets need no new format: a version that drops them knows no hold either.

    Nor does what is known of Kafka: a version that drops it hands nothing back.
    """

    name: str
    partitions: Annotated[int, msgspec.Meta(ge=1, le=PARTITION_MAX)]
    configs: dict[str, str]
    archived: dict[_NaturalNumber, Annotated[int, msgspec.Meta(ge=1, le=INT64_MAX)]] = {}
    kafka_partitions: Annotated[int, msgspec.Meta(ge=0, le=PARTITION_MAX)] = 0
    id_given: bool = False


class _ProducersBody(msgspec.Struct):
    next_id: _NaturalNumber
    epochs: dict[_NaturalNumber, ProducerEpoch]
    forgotten_epoch: _Epoch


class _Body(msgspec.Struct, omit_defaults=True):
    """The JSON object, without its checksum; ids are texts."""

    format: int
    generation: int
    topics: dict[str, _TopicBody]
    deleted: list[str]
    broker_configs: dict[str, str] = {}
    producers: _ProducersBody | None = None
    # No new format: older versions pass over these, and do what they did without them.
    log_dirs: dict[str, str] = {}
    cluster_id: str | None = None
    node_id: Annotated[int, msgspec.Meta(ge=INT32_MIN, le=INT32_MAX)] | None = None
    in_making: dict[str, int] = {}
    made_cluster_id: str | None = None
    clock: ClockTrust | None = None
    unclean_start: UncleanStart | None = None


AFTER_CHECKSUM = tuple(each for each in _Body.__struct_fields__ if "checksum" < each <= "deleted")
"""One of these follows the checksum: keys are sorted, and ``deleted`` is always there."""


def encode_registry(state: RegistryState) -> bytes:
    """The file: one JSON object, keys sorted, so that equal states are equal bytes."""
    topics = {
        encode_id(each.topic_id): _TopicBody(
            each.name,
            each.partition_count,
            dict(each.overrides),
            dict(each.archived_offsets),
            each.kafka_partition_count,
            each.is_id_given,
        )
        for each in state.topics.values()
    }
    producers = _ProducersBody(
        state.next_producer_id, dict(state.producer_epochs), state.forgotten_epoch
    )
    has_producers = producers != _ProducersBody(0, {}, 0)
    # The oldest format that holds the state. A version that knows no producers would drop them with
    # its next change, and ids would be given twice after it: it must not read such a file.
    plain_format = _FORMAT_WITH_BROKER_CONFIGS if state.broker_configs else _PLAIN_FORMAT
    body = _Body(
        FORMAT if has_producers else plain_format,
        state.generation,
        topics,
        sorted(map(encode_id, state.deleted)),
        dict(state.broker_configs),
        producers if has_producers else None,
        {encode_id(each): path for each, path in state.log_dirs.items()},
        state.cluster_id,
        state.node_id,
        {encode_id(each): first for each, first in state.in_making.items()},
        state.made_cluster_id,
        state.clock,
        state.unclean_start,
    )
    content: dict[str, Any] = msgspec.to_builtins(body, str_keys=True)
    content["checksum"] = _checksum(content)
    return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"


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
        found = msgspec.convert(body, _Body, str_keys=True)
        topics = [
            RegisteredTopic(
                decode_id(topic_id),
                each.name,
                each.partitions,
                each.configs,
                each.archived,
                each.kafka_partitions,
                each.id_given,
            )
            for topic_id, each in found.topics.items()
        ]
        deleted = frozenset(map(decode_id, found.deleted))
        log_dirs = {decode_id(key): path for key, path in found.log_dirs.items()}
        in_making = {decode_id(key): first for key, first in found.in_making.items()}
    except (msgspec.ValidationError, ValueError) as error:
        raise FormatError(f"The topic registry is malformed: {error}") from error
    by_name = {topic.name: topic for topic in topics}
    if len(by_name) != len(topics):
        raise FormatError("The topic registry names a topic twice")
    for topic in topics:
        has_others = any(number >= topic.partition_count for number in topic.archived_offsets)
        if topic_name_fault(topic.name) or has_others or topic.topic_id in deleted:
            raise FormatError(f"The topic registry has an impossible topic {topic.name!r}")
    producers = found.producers or _ProducersBody(0, {}, 0)
    return RegistryState(
        found.generation,
        by_name,
        deleted,
        found.broker_configs,
        log_dirs,
        in_making,
        producers.next_id,
        producers.epochs,
        producers.forgotten_epoch,
        found.cluster_id,
        found.node_id,
        found.made_cluster_id,
        found.clock,
        found.unclean_start,
    )


def _has_rotten_format(body: Mapping[str, Any]) -> bool:
    """Whether the checksum says that a format of ours was written, and no newer one."""
    content = {key: value for key, value in body.items() if key != "checksum"}
    return any(
        body.get("checksum") == _checksum({**content, "format": known})
        for known in range(1, FORMAT + 1)
    )


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
            data = b""
            try:
                with log_dir.guard():
                    found = read_root_file(self._filesystem, _path_in(log_dir))
                if found is not None:
                    data = found
                    self.copies[log_dir] = decode_registry(found)
            except StorageFault as fault:
                _log.error("registry_unreadable", log_dir=log_dir.path, reason=fault.message)
            except NewerRegistryFormat as error:
                raise of_newer_version(_path_in(log_dir), error) from error
            except FormatError as error:
                self.damaged[log_dir] = DamagedCopy(str(error), data)

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
        self._write(self.state, [each for each in behind if each not in self.damaged])
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
        no topic yet that one of them could hold. But who made the cluster.id, no other file says.
        Raises as ``change``.
        """
        known = {**self.state.log_dirs, **present}
        state = replace(self.state, log_dirs=known, cluster_id=cluster_id, node_id=node_id)
        if state == self.state:
            return
        if state.generation == 0:
            self.state = state
            if state.made_cluster_id is None:
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
        faults = self._write(state, online, tolerated=(LogDirOffline, DiskFull))
        written = len(online) - len(faults)
        for fault in faults:
            is_behind = isinstance(fault, DiskFull) and written >= _COPIES_MIN
            if not (is_behind or isinstance(fault, LogDirOffline)):
                raise self._refused(state, online, fault)
        if not written:
            message = "No log directory is left that could hold the topic registry"
            raise self._refused(state, online, LogDirOffline(message))
        self.state = state

    def _refused(
        self, state: RegistryState, online: Sequence[LogDir], fault: StorageFault
    ) -> StorageFault:
        """Some directory may hold this generation: it may never be used for other content."""
        self.state = replace(self.state, generation=state.generation + 1)
        self._write(self.state, online)
        return fault

    def _write(
        self,
        state: RegistryState,
        log_dirs: Sequence[LogDir],
        *,
        tolerated: tuple[type[StorageFault], ...] = (StorageFault,),
    ) -> list[StorageFault]:
        """Where a directory takes it; why others do not, which is logged. A fault that is not
        tolerated ends it: what is refused shall come to few directories, a start could find it.
        """
        data, faults = encode_registry(state), list[StorageFault]()
        for log_dir in log_dirs:
            try:
                with log_dir.guard():
                    self._filesystem.write_file_atomically(_path_in(log_dir), data)
            except StorageFault as fault:
                _tell(log_dir, fault)
                faults.append(fault)
                if not isinstance(fault, tolerated):
                    break
        return faults


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
