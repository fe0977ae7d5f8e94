"""Whom the log directories belong to, and what proves a damaged file of theirs. Pure.

Each directory says in ``meta.properties`` its cluster, its node and its own ``directory.id``, under
no checksum; the topic registry, which has one, remembers these of every directory that served, with
its last path. So of one that is damaged or contradicts the others the registry says what was
written; a directory that nothing proves is out of service, alone. A directory that the registry
does not know is not damaged but another broker's: the start is refused, as Kafka refuses.
``read_identity_files`` reads the two files, for tools.
Source: Kafka's MetaPropertiesEnsemble.verify; Kafka takes a directory whose file cannot be parsed
offline, and knows no repair.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import TYPE_CHECKING

from kafkalog.broker.directory.log_dir import META_PROPERTIES, REGISTRY_FILE, read_root_file
from kafkalog.broker.topics.registry import (
    DamagedCopy,
    NewerRegistryFormat,
    RegistryState,
    decode_registry,
    newest_of,
    of_newer_version,
)
from kafkalog.broker.topics.registry_copies import doubt_of
from kafkalog.errors import UnusableLogDirs
from kafkalog.format.disk.properties import MetaProperties, decode_meta_properties
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import encode_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from kafkalog.env.filesystem import ReadFilesystem


NEW_NODE_ID = 1  # of directories that have none yet, unless the configuration says another
_ROTTEN_CHARACTERS_MAX = 2  # two ids that differ in no more are one id and its rot

_SHOWN_NODE = re.compile(rb"^(?:node|broker)\.id=([0-9]{1,9})\r?$", re.MULTILINE)


@dataclass(slots=True)
class IdentityPlan:
    """What is to be done with each log directory, by path; nothing for those that are whole.

    meta      what its meta.properties says from now on, and why it does not yet
    registry  its registry is rewritten from the newest whole copy
    unproven  why it cannot be used
    """

    cluster_id: str | None = None  # None: none has one yet
    meta: dict[str, tuple[MetaProperties, str]] = field(default_factory=dict)
    registry: list[str] = field(default_factory=list)
    unproven: dict[str, list[str]] = field(default_factory=dict)

    def refuse(self, path: str, reason: str) -> None:
        """The directory cannot be used."""
        self.unproven.setdefault(path, []).append(reason)


def plan_identities(
    found: Sequence[IdentityFiles],
    node_id: int,
    unknown_partitions: Callable[[str, RegistryState], Iterable[str]],
) -> IdentityPlan:
    """Decide about all directories that could be opened; UnusableLogDirs as Kafka, and see module.

    ``unknown_partitions`` in the directory at a path: those that a state does not explain.
    """
    known: dict[UUID, str] = {}
    for each in found:
        directory_id = None if each.meta is None else each.meta.directory_id
        if directory_id is not None and known.setdefault(directory_id, each.path) != each.path:
            raise UnusableLogDirs(
                f"{each.path} and {known[directory_id]} have the same directory.id: one is a "
                "copy of the other. Remove the copy from log.dirs",
                log_dir=each.path,
            )
    plan = IdentityPlan(_cluster_id(found))
    for each in found:
        _plan_meta(each, found, node_id, plan)
    whole = {
        each.path: each.registry
        for each in found
        if each.registry is not None and each.path not in plan.unproven
    }
    damaged = [(each, each.registry_damage) for each in found if each.registry_damage is not None]
    if not damaged:
        return plan
    told = {
        each.path: f"{each.path}/{REGISTRY_FILE} is damaged ({damage.reason})"
        for each, damage in damaged
    }
    if not whole:
        for path, reason in told.items():
            plan.refuse(path, f"{reason}, and no log directory has a whole copy")
        return plan
    newest = newest_of(whole)
    present = {_id_of(each, plan) for each in found if each.path not in plan.unproven}
    absent = [path for each, path in newest.log_dirs.items() if each not in present]
    for each, damage in damaged:
        own_id = _id_of(each, plan)
        unknown = unknown_partitions(each.path, newest)
        doubt = doubt_of(damage.data, newest, absent, unknown)
        if doubt is None and own_id not in newest.log_dirs and newest.log_dirs:
            doubt = "no whole copy knows this log directory"
        if doubt is None:
            plan.registry.append(each.path)
        else:
            plan.refuse(each.path, f"{told[each.path]}, and {doubt}")
    return plan


def node_id_of(found: Sequence[IdentityFiles], configured: int | None) -> int:
    """The node.id that all directories must have: the configured one, else that which they have.

    The newest registry's counts before those of single files, which have no checksum.
    UnusableLogDirs when they disagree.
    """
    known = known_node_id(found, configured)
    return NEW_NODE_ID if known is None else known


def known_node_id(found: Sequence[IdentityFiles], configured: int | None) -> int | None:
    """As ``node_id_of``; None when nothing names one. Damaged files count last."""
    if configured is not None:
        return configured
    states = [each.registry for each in found if each.registry is not None]
    newest = max(states, key=lambda state: state.generation, default=None)
    if newest is not None and newest.node_id is not None:
        return newest.node_id
    stored = {
        each.meta.node_id: each.path
        for each in found
        if each.meta is not None and each.meta.node_id is not None
    }
    if len(stored) > 1:
        shown = ", ".join(f"{path} has {node_id}" for node_id, path in sorted(stored.items()))
        raise UnusableLogDirs(
            f"Log directories belong to brokers with different node ids: {shown}. A daemon serves "
            "those of one broker: remove the others from log.dirs."
        )
    remains = (each.shown_node_id for each in found if each.shown_node_id is not None)
    return next(iter(stored), next(remains, None))


def _id_of(each: IdentityFiles, plan: IdentityPlan) -> UUID | None:
    """The directory.id that it has or gets."""
    meta = plan.meta[each.path][0] if each.path in plan.meta else each.meta
    return None if meta is None else meta.directory_id


def _cluster_id(found: Sequence[IdentityFiles]) -> str | None:
    """The cluster.id of the directories; None when none has one. UnusableLogDirs: of several."""
    stored: dict[str, list[str]] = {}
    for each in found:
        if each.meta is not None and each.meta.cluster_id is not None:
            stored.setdefault(each.meta.cluster_id, []).append(each.path)
    remembered = {
        each.registry.cluster_id
        for each in found
        if each.registry is not None and each.registry.cluster_id is not None
    }
    witness = next(iter(remembered)) if len(remembered) == 1 else None
    if not stored:
        return witness
    if len(stored) == 1:
        ((only, paths),) = stored.items()
        is_rot = witness is not None and len(paths) == 1 and is_rot_of(only, witness)
        return witness if is_rot else only
    if witness is not None:
        return witness
    most = max(stored.values(), key=len)
    if [len(paths) for paths in stored.values()].count(len(most)) == 1:
        return next(cluster_id for cluster_id, paths in stored.items() if paths is most)
    raise _different_clusters(found)


def _different_clusters(found: Iterable[IdentityFiles]) -> UnusableLogDirs:
    clusters = {
        each.meta.cluster_id: each.path
        for each in found
        if each.meta is not None and each.meta.cluster_id is not None
    }
    return UnusableLogDirs(
        f"Log directories belong to different clusters: {clusters}. A daemon serves those of one "
        "cluster: remove the others from log.dirs."
    )


def _plan_meta(
    each: IdentityFiles, found: Sequence[IdentityFiles], node_id: int, plan: IdentityPlan
) -> None:
    """What becomes of one meta.properties; UnusableLogDirs when the directory is not ours."""
    witness = _witness_of(each, found, plan.cluster_id)
    registered = _registered_id(each, found, witness)
    damage = each.meta_damage
    if each.meta is None:
        has_registry = each.registry is not None or each.registry_damage is not None
        if damage is None and has_registry:
            damage = "it is missing"
        if damage is None:
            return  # a fresh directory
        if _is_foreign(each, registered, plan.cluster_id):
            reason = f"{each.path}/{META_PROPERTIES} is damaged ({damage})"
            plan.refuse(each.path, f"{reason}, and the registry beside it is another cluster's")
        elif registered is not None and plan.cluster_id is not None:
            plan.meta[each.path] = (MetaProperties(plan.cluster_id, node_id, registered), damage)
        elif each.meta_damage is not None:
            plan.refuse(
                each.path,
                f"{each.path}/{META_PROPERTIES} is damaged ({damage}), and no registry of another "
                "log directory tells what it said",
            )
        return
    meta = each.meta
    own_id = meta.directory_id
    is_rotten_id = (
        own_id is not None
        and registered not in (None, own_id)
        and is_rot_of(encode_id(own_id), encode_id(registered))
    )
    is_ours = is_rotten_id or (witness is not None and own_id in witness.log_dirs)
    wanted = meta
    if is_rotten_id:
        wanted = replace(meta, directory_id=registered)
    elif own_id is None and registered is not None:  # it was handed back to a Kafka that has none
        wanted = replace(meta, directory_id=registered, is_directory_id_given=True)
    if meta.cluster_id not in (None, plan.cluster_id):
        if not is_ours:
            raise _different_clusters(found)
        wanted = replace(wanted, cluster_id=plan.cluster_id)
    if meta.node_id not in (None, node_id):
        if not (is_ours and _knows_node(node_id, each, found, witness)):
            raise _another_node(each.path, meta.node_id, found, node_id)
        wanted = replace(wanted, node_id=node_id)
    if wanted != meta:
        differing = ", ".join(_differences(meta, wanted))
        plan.meta[each.path] = (wanted, f"it contradicts what is registered: {differing}")


def _another_node(
    path: str, stored: int | None, found: Iterable[IdentityFiles], node_id: int
) -> UnusableLogDirs:
    """The remedy depends on who says the other number: a registry, or the configuration."""
    if any(each.registry is not None and each.registry.node_id == node_id for each in found):
        of = " of the registry"
        remedy = "It is another broker's: do not name it together with the others"
    else:
        of, remedy = "", f"Set node.id={stored}, or leave node.id out of the configuration"
    return UnusableLogDirs(
        f"Stored node id {stored} of {path} does not match node.id {node_id}{of}. {remedy}",
        log_dir=path,
    )


def _witness_of(
    each: IdentityFiles, found: Iterable[IdentityFiles], cluster_id: str | None
) -> RegistryState | None:
    """The newest registry that can speak for a directory: another one's, else its own.

    Its own does not count when it is of another cluster, or of one that it does not name, while
    others speak: what is foreign brings its own registry along.
    """
    others = [
        other.registry
        for other in found
        if other.path != each.path
        and other.registry is not None
        and other.registry.cluster_id in (None, cluster_id)
    ]
    if others:
        return max(others, key=lambda state: state.generation)
    own = each.registry
    return own if own is not None and own.cluster_id in (None, cluster_id) else None


def _registered_id(
    each: IdentityFiles, found: Iterable[IdentityFiles], witness: RegistryState | None
) -> UUID | None:
    """The one directory.id that was registered at the path and that no other directory has."""
    if witness is None:
        return None
    others = {
        other.meta.directory_id
        for other in found
        if other.meta is not None and other.path != each.path
    }
    ids = {known for known, path in witness.log_dirs.items() if path == each.path} - others
    own_id = None if each.meta is None else each.meta.directory_id
    if own_id in ids:
        return own_id
    return next(iter(ids)) if len(ids) == 1 else None


def _is_foreign(each: IdentityFiles, registered: UUID | None, cluster_id: str | None) -> bool:
    """Whether a directory's own registry says that it is not the one registered at its path."""
    own = each.registry
    if own is None:
        return False
    own_ids = {known for known, path in own.log_dirs.items() if path == each.path}
    is_another = registered is not None and bool(own_ids) and registered not in own_ids
    return is_another or own.cluster_id not in (None, cluster_id)


def _knows_node(
    node_id: int, each: IdentityFiles, found: Iterable[IdentityFiles], witness: RegistryState | None
) -> bool:
    """Whether another file says that the directories are of that node."""
    if witness is not None and witness.node_id is not None:
        return witness.node_id == node_id
    return any(
        other.meta is not None and other.meta.node_id == node_id
        for other in found
        if other.path != each.path
    )


def _differences(meta: MetaProperties, wanted: MetaProperties) -> Iterable[str]:
    if meta.cluster_id != wanted.cluster_id:
        yield f"cluster.id is {meta.cluster_id}, not {wanted.cluster_id}"
    if meta.node_id != wanted.node_id:
        yield f"node.id is {meta.node_id}, not {wanted.node_id}"
    if meta.directory_id != wanted.directory_id:
        shown = "missing" if meta.directory_id is None else encode_id(meta.directory_id)
        known = "unknown" if wanted.directory_id is None else encode_id(wanted.directory_id)
        yield f"directory.id is {shown}, not {known}"


def is_rot_of(text: str, original: str) -> bool:
    """Whether a value is another one with a character or two changed.

    One that became a line end cuts the value, a line end that became another one adds to it; one
    that became a blank before it or a backslash takes a character from it.
    """
    if original.startswith(text) or text.startswith(original):
        return text != original
    if len(text) == len(original):
        return _differing(text, original) <= _ROTTEN_CHARACTERS_MAX
    shorter = (original[:at] + original[at + 1 :] for at in range(len(original)))
    return len(text) == len(original) - 1 and any(_differing(text, each) <= 1 for each in shorter)


def _differing(text: str, other: str) -> int:
    return sum(left != right for left, right in zip(text, other, strict=True))


def doctor_command(log_dirs: Iterable[str], node_id: int | None) -> str:
    """The whole command that repairs these directories, for a message; see ``known_node_id``."""
    pairs = ["log.dirs=" + ",".join(log_dirs)]
    if node_id is not None:
        pairs.append(f"node.id={node_id}")
    return "kafkalog doctor --repair " + " ".join(f"--override {quote(pair)}" for pair in pairs)


def refusal(
    unproven: Mapping[str, Sequence[str]], found: Sequence[IdentityFiles], node_id: int | None
) -> UnusableLogDirs:
    """That no directory can be used: damaged files with their reasons, whole copies, the remedy."""
    reasons = ". ".join(reason for each in unproven.values() for reason in each)
    copies = "".join(
        f" {each.path}/{REGISTRY_FILE} is whole (generation {each.registry.generation})."
        for each in found
        if each.registry is not None
    )
    command = doctor_command([each.path for each in found], node_id)
    return UnusableLogDirs(
        f"{reasons}.{copies} Remedy: {command} . It rewrites what can be proven, keeps the "
        "damaged files beside the new ones, and says what is lost; --dry-run shows it first. Or "
        "restore the files from a backup.",
        log_dir=next(iter(unproven)),
    )


@dataclass(frozen=True, slots=True)
class IdentityFiles:
    """What the two files of one log directory say; None: not there, or damaged.

    ``shown_node_id``: what is still to be read in a damaged meta.properties.
    """

    path: str
    meta: MetaProperties | None = None
    meta_damage: str | None = None
    registry: RegistryState | None = None
    registry_damage: DamagedCopy | None = None
    shown_node_id: int | None = None


def read_identity_files(path: str, filesystem: ReadFilesystem) -> IdentityFiles:
    """For tools; takes no lock. OSError; UnusableLogDirs: a later version wrote the registry."""
    meta, meta_damage, shown = None, None, None
    data = None
    try:
        data = read_root_file(filesystem, f"{path}/{META_PROPERTIES}")
        meta = None if data is None else decode_meta_properties(data)
    except FormatError as error:
        meta_damage = str(error)
        shown = _SHOWN_NODE.search(data or b"")
    registry, registry_damage, copy = None, None, b""
    try:
        data = read_root_file(filesystem, f"{path}/{REGISTRY_FILE}")
        if data is not None:
            copy = data
            registry = decode_registry(data)
    except NewerRegistryFormat as error:
        raise of_newer_version(f"{path}/{REGISTRY_FILE}", error) from error
    except FormatError as error:
        registry_damage = DamagedCopy(str(error), copy)
    node_id = None if shown is None else int(shown[1])
    return IdentityFiles(path, meta, meta_damage, registry, registry_damage, node_id)
