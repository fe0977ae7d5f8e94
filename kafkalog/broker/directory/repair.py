"""``kafkalog doctor --repair``: rebuilds damaged files of log directories from what proves them.

Runs without a daemon, under the locks of all directories of ``log.dirs``: what one has lost the
others may know. A step names its file and says what it takes from where and what is lost; the
damaged bytes are kept beside each file that is written. Steps that need an operator's word say so
and write nothing. ``REPAIRS`` is the list of what can be repaired: one function each, in this
order, because identities are proven by the registry. One thread.

Where two files disagree about the start of a log, the file under a checksum is believed: what it
says was true when it was written. A line of Kafka's file that says more has rotted, unless the
leader epochs say the same. An operator who wants the higher start deletes records up to it instead,
while the daemon runs. Source: ``log/state/start_offsets``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkalog.broker.directory.identity import (
    IdentityFiles,
    node_id_of,
    plan_identities,
    read_identity_files,
)
from kafkalog.broker.directory.log_dir import (
    LOG_START_OFFSETS,
    META_PROPERTIES,
    REGISTRY_FILE,
    LogDir,
    read_root_file,
    replace_damaged,
)
from kafkalog.broker.startup.plan import grown_topics, plan_startup, unexplained
from kafkalog.broker.startup.scan import find_partitions
from kafkalog.broker.topics.registry import RegistryState, encode_registry, newest_of
from kafkalog.broker.topics.registry_copies import corrected_registry, doubt_of, shown_generation
from kafkalog.broker.transactions.producer_ids import past_backup
from kafkalog.errors import UnusableLogDirs
from kafkalog.format.disk.checkpoints import decode_leader_epochs, encode_offsets
from kafkalog.format.disk.file_names import LEADER_EPOCH_CHECKPOINT
from kafkalog.format.disk.properties import MetaProperties, encode_meta_properties
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import TopicPartition, decode_id, encode_id, is_reserved, new_id
from kafkalog.log.inspect.directory_facts import segment_bases
from kafkalog.log.state.start_offsets import LogStart, log_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from kafkalog.broker.startup.plan import FoundPartition
    from kafkalog.broker.topics.registry import RegisteredTopic
    from kafkalog.env.clock import Clock
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.env.random import Random
    from kafkalog.env.threads import Threads

_SHOWN_CLUSTER = re.compile(r"cluster\.id=([!-~]+)")
_SHOWN_DIRECTORY = re.compile(r"directory\.id=([A-Za-z0-9_-]{22})(?![A-Za-z0-9_-])")


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One file. ``data`` replaces its content; None: nothing does, and ``message`` says why."""

    file: str
    message: str
    data: bytes | None = None


class LogDirRepair:
    """The log directories of a configuration, and what is known of them; closed by ``close``."""

    def __init__(
        self,
        log_dirs: Iterable[str],
        node_id: int | None,
        accepted_cluster_id: str | None,
        seams: tuple[Filesystem, Clock, Random, Threads],
    ) -> None:
        """``log_dirs`` are absolute paths of directories that exist. Nothing is touched yet."""
        # constant after construction
        self.filesystem, self.clock, self.random, threads = seams
        self._configured_node_id = node_id
        self.accepted_cluster_id = accepted_cluster_id
        self.log_dirs = [
            LogDir(path, self.filesystem, self.clock, self.random, threads, min_free_bytes=0)
            for path in log_dirs
        ]
        # owned by the one thread
        self.found: list[IdentityFiles] = []
        self.state: RegistryState | None = None  # that all registries have after the repair

    def open(self) -> None:
        """Lock all and read their files. InvalidConfig when one is in use; StorageFault."""
        for log_dir in self.log_dirs:
            log_dir.open()
        for log_dir in self.log_dirs:
            with log_dir.guard():
                self.found.append(read_identity_files(log_dir.path, self.filesystem))

    @property
    def node_id(self) -> int:
        """The configured one, or that of the directories; UnusableLogDirs when these disagree."""
        return node_id_of(self.found, self._configured_node_id)

    def close(self) -> None:
        """Release the locks."""
        for log_dir in self.log_dirs:
            log_dir.release()

    def run(self, *, dry_run: bool) -> Iterator[tuple[RepairStep, str | None]]:
        """Each step once it is done, with where the former bytes are; StorageFault ends it."""
        for repair in REPAIRS:
            for step in repair(self):
                kept = None
                if step.data is not None and not dry_run:
                    with self.log_dir_of(step.file).guard():
                        kept = replace_damaged(self.filesystem, step.file, step.data)
                yield step, kept

    def log_dir_of(self, file: str) -> LogDir:
        """The directory in whose root a file is."""
        parent = file.rpartition("/")[0]
        return next(log_dir for log_dir in self.log_dirs if log_dir.path == parent)

    def partitions(self, path: str, state: RegistryState) -> list[FoundPartition]:
        """Partition directories of one log directory."""
        return find_partitions(self.log_dir_of(f"{path}/"), self.filesystem, state)

    def new_id(self) -> UUID:
        """A random one."""
        return new_id(self.random.uuid_bytes)


def repair_registries(repair: LogDirRepair) -> Iterator[RepairStep]:
    """Damaged topic registries: from one flipped bit, from whole copies, from the partitions."""
    damaged = {
        each.path: each.registry_damage for each in repair.found if each.registry_damage is not None
    }
    corrected = {path: corrected_registry(copy.data) for path, copy in damaged.items()}
    copies = {each.path: each.registry for each in repair.found if each.registry is not None}
    copies |= {path: state for path, state in corrected.items() if state is not None}
    clusters = {state.cluster_id for state in copies.values()} - {None}
    try:
        newest = newest_of(copies) if copies else None
        if len(clusters) > 1:
            raise UnusableLogDirs(f"The registries belong to different clusters: {clusters}")
    except UnusableLogDirs as error:
        yield RepairStep(f"{next(iter(copies))}/{REGISTRY_FILE}", error.message)
        return
    repair.state = newest
    reasons, doubts = {}, {}
    for path, copy in damaged.items():
        doubt: str | None = "no log directory has a whole copy"
        if corrected[path] is not None:
            reasons[path] = "one bit of it has flipped: put right by its checksum, nothing is lost"
            continue
        if newest is not None:
            unknown = unexplained(newest, repair.partitions(path, newest))
            doubt = doubt_of(copy.data, newest, _absent(repair, newest), unknown)
        if doubt is not None:
            doubts[path] = doubt
        else:
            reasons[path] = (
                f"it is damaged ({copy.reason}): rewritten from the newest whole copy, nothing"
                " is lost"
            )
    if doubts:
        repair.state, told = _rebuilt(repair, newest)
        reasons |= {path: f"it is damaged, and {doubt}: {told}" for path, doubt in doubts.items()}
    if repair.state is None:
        return
    data = encode_registry(repair.state)
    for each in repair.found:
        if each.path in damaged or (each.registry is not None and doubts):
            message = reasons.get(each.path, "it gets the generation that was rebuilt")
            yield RepairStep(f"{each.path}/{REGISTRY_FILE}", message, data)


def _absent(repair: LogDirRepair, state: RegistryState) -> Iterator[str]:
    """Last paths of remembered log directories that are not here, by id nor by path."""
    ids = {each.meta.directory_id for each in repair.found if each.meta is not None}
    paths = {each.path for each in repair.found if each.meta is None}
    for directory_id, path in state.log_dirs.items():
        if directory_id not in ids and path not in paths:
            yield path


def _rebuilt(repair: LogDirRepair, base: RegistryState | None) -> tuple[RegistryState, str]:
    """A generation above any that is shown, which knows every partition that was found.

    Topics that ``base`` does not know get their names, ids and partition counts from the partition
    directories, and the overrides of adopted ones; producer ids continue far above those given.
    """
    state = base or RegistryState()
    found = [
        partition for each in repair.found for partition in repair.partitions(each.path, state)
    ]
    grown = grown_topics(state, found)
    plan = plan_startup(state.with_topics(grown), found, adopt=True, new_topic_id=repair.new_id)
    names = [topic.name for topic in plan.adopted]
    shown = [
        shown_generation(each.registry_damage.data)
        for each in repair.found
        if each.registry_damage is not None
    ]
    own = [each.meta for each in repair.found if each.meta is not None]
    clusters = {meta.cluster_id for meta in own}
    paths = {
        each.meta.directory_id: each.path
        for each in repair.found
        if each.meta is not None and each.meta.directory_id is not None
    }
    rebuilt = replace(
        past_backup(state.with_topics([*grown, *plan.adopted])),
        generation=max(state.generation, *shown, 0) + 1,
        log_dirs={**state.log_dirs, **paths},
        cluster_id=state.cluster_id or (clusters.pop() if len(clusters) == 1 else None),
        node_id=repair.node_id,
    )
    topics = f"{len(names)} topics" if len(names) != 1 else "1 topic"
    lost = (
        "deleted topic ids since the whole copy and changes of configs that it does not have"
        if base is not None
        else "configs of topics and of the broker, deleted topic ids, archived offsets, epochs of "
        "producers"
    )
    return rebuilt, (
        f"rebuilt from the partition directories"
        f"{' and the newest whole copy' if base is not None else ''}, {topics} with the configs of"
        f" adopted ones ({', '.join(names) or 'none'}); lost: {lost}. Retention of these topics is"
        " off until you set it: kafkalog configs"
    )


def repair_identities(repair: LogDirRepair) -> Iterator[RepairStep]:
    """Damaged meta.properties: from the registry, the other directories, or what is left of it."""
    found = [
        each
        if each.registry_damage is None
        else replace(each, registry=repair.state, registry_damage=None)
        for each in repair.found
    ]
    try:
        plan = plan_identities(found, repair.node_id, lambda _path, _state: ())
    except UnusableLogDirs as error:
        path = repair.found[0].path
        yield RepairStep(f"{path}/{META_PROPERTIES}", error.message)
        return
    now_ms = repair.clock.wall_ms()
    for path, (meta, reason) in plan.meta.items():
        message = f"it is damaged ({reason}): rewritten with the ids that the registry proves"
        data = encode_meta_properties(meta, now_ms)
        yield RepairStep(f"{path}/{META_PROPERTIES}", message, data)
    for path in plan.unproven:
        yield _accepted_identity(repair, path, plan.cluster_id)


def _accepted_identity(repair: LogDirRepair, path: str, cluster_id: str | None) -> RepairStep:
    """What an operator has to vouch for, because nothing proves it."""
    file = f"{path}/{META_PROPERTIES}"
    try:
        text = (read_root_file(repair.filesystem, file) or b"").decode("latin-1")
    except FormatError:
        text = ""
    shown = _SHOWN_CLUSTER.search(text)
    accepted = repair.accepted_cluster_id
    if accepted is None:
        known = cluster_id or (shown[1] if shown else None)
        hint = "what the others have" if cluster_id else "what the file shows"
        return RepairStep(
            file,
            "it is damaged, and nothing proves which cluster.id it had. To accept one, add "
            f"--cluster-id {known or 'ID'}" + (f" ({hint})" if known else ""),
        )
    shown_id = _SHOWN_DIRECTORY.search(text)
    directory_id = None if shown_id is None else decode_id(shown_id[1])
    message = f"it is damaged: rewritten with the cluster.id that you gave, {accepted}, and "
    if directory_id is None or is_reserved(directory_id):
        directory_id = repair.new_id()
        message += "a new directory.id, which a Kafka that gets the directory back does not know"
    else:
        message += f"the directory.id that it shows, {encode_id(directory_id)}"
    meta = MetaProperties(accepted, repair.node_id, directory_id)
    return RepairStep(file, message, encode_meta_properties(meta, repair.clock.wall_ms()))


def repair_log_starts(repair: LogDirRepair) -> Iterator[RepairStep]:
    """Log starts that Kafka's file and the checked one dispute: the checked one is believed."""
    if repair.state is None:
        return
    for log_dir in repair.log_dirs:
        disputed = disputed_starts(log_dir, repair.filesystem, repair.state.topics)
        if not disputed:
            continue
        lines, messages = log_dir.read_checkpoint(LOG_START_OFFSETS), []
        for partition, start in sorted(disputed.items()):
            assert start.other is not None, "a disputed start has another one"
            lines[partition] = start.other
            messages.append(
                f"{partition} starts at {start.other} again, as kafkalog.checkpoint says: the line "
                f"with {start.offset} has rotted"
            )
        file = f"{log_dir.path}/{LOG_START_OFFSETS}"
        yield RepairStep(file, "; ".join(messages), encode_offsets(lines))


def disputed_starts(
    log_dir: LogDir, filesystem: Filesystem, topics: Mapping[str, RegisteredTopic]
) -> dict[TopicPartition, LogStart]:
    """The logs from which a start would delete nothing, with both offsets; guarded.

    ``log_dir`` is open, so that its ``meta.properties`` were read.
    """
    names = {encode_id(topic.topic_id): topic.name for topic in topics.values()}
    lines = log_dir.read_checkpoint(LOG_START_OFFSETS)
    disputed: dict[TopicPartition, LogStart] = {}
    for key, entry in log_dir.read_proofs().items():
        if key.topic_id not in names:
            continue
        partition = TopicPartition(names[key.topic_id], key.partition)
        kafkas, directory = lines.get(partition, 0), f"{log_dir.path}/{partition}"
        if kafkas <= entry.log_start_offset:
            continue  # as nearly always: nothing is read
        with log_dir.guard():
            if not filesystem.exists(directory):
                continue
            bases = segment_bases(filesystem.list_dir(directory))
            epoch = _first_epoch_in(directory, filesystem)
        start = log_start(kafkas, entry.log_start_offset, bases, epoch, clean=False)
        if start.is_disputed:
            disputed[partition] = start
    return disputed


def _first_epoch_in(directory: str, filesystem: Filesystem) -> int | None:
    """Where the first leader epoch begins."""
    try:
        epochs = decode_leader_epochs(
            filesystem.read_file(f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        )
    except (FileNotFoundError, FormatError):
        return None
    return epochs[0][1] if epochs else None


REPAIRS: Sequence[Callable[[LogDirRepair], Iterator[RepairStep]]] = (
    repair_registries,
    repair_identities,
    repair_log_starts,
)
