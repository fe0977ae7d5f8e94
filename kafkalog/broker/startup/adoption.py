"""What ``kafkalog adopt`` finds in Kafka's log directories, and what it writes.

Into meta.properties an id of the directory if it has none (before Kafka 3.7), then the topic
registry with the topics that were found: Kafka's own ids, or new ones where a Kafka with ZooKeeper
had none. The logs stay as they are; the daemon's start loads them, or recovers them. Directories
that were adopted and handed back before bring a registry along: Kafka's word counts then, where it
made topics, gave them more partitions, or made one again under its name.
Source: KIP-858 (directory.id), KIP-516 (topic ids).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog.broker.directory.identity import (
    doctor_command,
    known_node_id,
    node_id_of,
    plan_identities,
    refusal,
)
from kafkalog.broker.directory.log_dir import META_PROPERTIES, REGISTRY_FILE, completed_meta
from kafkalog.broker.startup.hand_over import (
    Conversion,
    FileChange,
    HandOverPlan,
    Note,
    counted,
    named,
)
from kafkalog.broker.startup.plan import grown_topics, plan_startup, reason_of, suspects
from kafkalog.broker.startup.scan import is_unused, refuse_duplicates
from kafkalog.broker.topics.registry import RegistryState, encode_registry, newest_of
from kafkalog.errors import UnusableLogDirs
from kafkalog.format.disk.properties import encode_meta_properties
from kafkalog.format.topic_names import (
    CLUSTER_METADATA_TOPIC,
    DirectoryState,
    encode_id,
    is_partition_name,
    live_partition,
    topic_name_fault,
)
from kafkalog.log.format_conversion import needs_conversion

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from kafkalog.broker.directory.identity import IdentityFiles, IdentityPlan
    from kafkalog.broker.startup.hand_over import HandOver
    from kafkalog.broker.startup.plan import FoundPartition, StartupPlan
    from kafkalog.format.disk.properties import MetaProperties


def plan_adoption(hand_over: HandOver) -> HandOverPlan:
    """Look at the directories and decide; writes nothing. StorageFault, OSError."""
    notes = hand_over.refusals()
    if notes:
        return HandOverPlan(notes)
    try:
        return _planned(hand_over)
    except UnusableLogDirs as error:
        return HandOverPlan([Note("error", "log directories", error.message)])


def _planned(hand_over: HandOver) -> HandOverPlan:
    found = hand_over.identities()
    node_id = node_id_of(found, None)
    identities = plan_identities(found, node_id, lambda _path, _state: ())
    if identities.unproven:
        raise refusal(identities.unproven, found, known_node_id(found, None))
    cluster_id = identities.cluster_id or encode_id(hand_over.new_id())
    copies = {each.path: each.registry for each in found if each.registry is not None}
    before = newest_of(copies) if copies else RegistryState()
    refuse_changed(found, identities)
    _refuse_another_cluster(found, identities, before)
    wanted = {each.path: each.meta for each in found}
    wanted |= {path: meta for path, (meta, _) in identities.meta.items()}
    metas = {
        path: completed_meta(meta, cluster_id, node_id, hand_over.random)
        for path, meta in wanted.items()
    }
    ids = {meta.directory_id: path for path, meta in metas.items() if meta.directory_id is not None}
    elsewhere = {each: path for each, path in before.log_dirs.items() if path not in metas}
    absent = [path for each, path in elsewhere.items() if each not in ids]
    partitions = hand_over.partitions(before)
    startup = _startup(hand_over, _caught_up(before, partitions, absent), partitions)
    registry = replace(
        startup.registry,
        generation=before.generation,
        log_dirs={**elsewhere, **ids},
        cluster_id=cluster_id,
        node_id=node_id,
        made_cluster_id=before.made_cluster_id if identities.cluster_id else cluster_id,
    )
    if registry != before:
        registry = replace(registry, generation=before.generation + 1)
    plan = HandOverPlan()
    _note_directories(plan, hand_over, found, registry, partitions)
    _note_topics(plan, before, startup, absent)
    _note_partitions(plan, hand_over, startup)
    _add_changes(plan, hand_over, found, metas, registry)
    return plan


def refuse_changed(found: Sequence[IdentityFiles], identities: IdentityPlan) -> None:
    """UnusableLogDirs where one meta.properties names another owner than the other files.

    Which is right, the operator knows: Kafka refuses as well, and a start here would follow one of
    them.
    """
    for each in found:
        wanted, reason = identities.meta.get(each.path, (None, ""))
        if each.meta is None or wanted is None:
            continue
        if each.meta.directory_id is None:  # it is given again
            wanted = replace(wanted, directory_id=None, is_directory_id_given=False)
        if wanted != each.meta:
            command = doctor_command([one.path for one in found], node_id_of(found, None))
            raise UnusableLogDirs(
                f"{each.path}/{META_PROPERTIES} was changed: {reason}. If the registry is right: "
                f"{command}. If the file is right, the directory is another broker's: do not name "
                "it together with these",
                log_dir=each.path,
            )


def _refuse_another_cluster(
    found: Sequence[IdentityFiles], identities: IdentityPlan, before: RegistryState
) -> None:
    """UnusableLogDirs where all directories are of another cluster than the registry says.

    A cluster.id that was made here is no Kafka's, and gives way to one that is.
    """
    stored = identities.cluster_id
    if stored is not None and before.cluster_id not in (None, before.made_cluster_id, stored):
        raise UnusableLogDirs(
            f"cluster.id is {stored} in {META_PROPERTIES}, but {before.cluster_id} in "
            f"{REGISTRY_FILE}, from an adoption before. If the latter is right, write it into "
            f"{META_PROPERTIES}. If the directories are of another cluster now, move "
            f"{REGISTRY_FILE} away from all of them: the topics are adopted anew, without the "
            "configs that were set here",
            log_dir=found[0].path,
        )


def _caught_up(
    before: RegistryState, partitions: Sequence[FoundPartition], absent: Collection[str]
) -> RegistryState:
    """What the registry says once it follows what Kafka did since it was handed back.

    A topic of which only directories with another id are left was deleted and made again; while a
    log directory is absent, that is not known.
    """
    state = before
    live = [each for each in partitions if each.state is DirectoryState.LIVE]
    ids: dict[str, set[UUID | None]] = {}
    for each in live:
        ids.setdefault(each.topic_partition.topic, set()).add(each.topic_id)
    for name, topic in before.topics.items():
        found = ids.get(name, set())
        is_other = not found & before.deleted and not found & {None, topic.topic_id}
        if found and is_other and not absent:
            state = state.without_topic(name)
    grown = grown_topics(state, live)
    if not grown:
        return state
    return state.with_topics(
        replace(each, kafka_partition_count=each.kafka_partition_count and each.partition_count)
        for each in grown
    )


def _startup(
    hand_over: HandOver, state: RegistryState, partitions: Sequence[FoundPartition]
) -> StartupPlan:
    """What the start will do with the partitions; UnusableLogDirs when one is there twice."""
    unused = frozenset(
        each.path
        for each in suspects(state, partitions)
        if is_unused(hand_over.filesystem, each.path)
    )
    plan = plan_startup(state, partitions, unused, adopt=True, new_topic_id=hand_over.new_id)
    refuse_duplicates([partition for partition, _ in plan.load])
    return plan


def _add_changes(
    plan: HandOverPlan,
    hand_over: HandOver,
    found: Sequence[IdentityFiles],
    metas: Mapping[str, MetaProperties],
    registry: RegistryState,
) -> None:
    """Every meta.properties, then the registry, for it remembers what they say."""
    now_ms = hand_over.clock.wall_ms()
    for each in found:
        meta = metas[each.path]
        if meta != each.meta:
            keys = ", ".join(_added(each.meta, meta)) or "what the registry knows of it"
            data = encode_meta_properties(meta, now_ms)
            plan.changes.append(FileChange(f"{each.path}/{META_PROPERTIES}", f"gets {keys}", data))
    data = encode_registry(registry)
    topics = counted(len(registry.topics), "topic")
    for each in found:
        if each.registry != registry:
            path = f"{each.path}/{REGISTRY_FILE}"
            plan.changes.append(FileChange(path, f"the topic registry, with {topics}", data))


def _added(before: MetaProperties | None, meta: MetaProperties) -> list[str]:
    """Keys that it did not have."""
    pairs = {
        "cluster.id": (before and before.cluster_id, meta.cluster_id),
        "an id of the directory": (before and before.directory_id, meta.directory_id),
        "broker.id" if meta.is_of_zookeeper else "node.id": (
            None if before is None else before.node_id,
            meta.node_id,
        ),
    }
    return [key for key, (old, new) in pairs.items() if old is None and new is not None]


# ---- notes


def _note_directories(
    plan: HandOverPlan,
    hand_over: HandOver,
    found: Sequence[IdentityFiles],
    registry: RegistryState,
    partitions: Sequence[FoundPartition],
) -> None:
    for each in found:
        here = [one for one in partitions if one.log_dir == each.path]
        live = sum(
            one.state is DirectoryState.LIVE and topic_name_fault(one.topic_partition.topic) is None
            for one in here
        )
        what = f"{kind_of(each, registry)}, {counted(live, 'partition')}"
        if hand_over.is_clean(each.path):
            plan.note("info", each.path, f"{what}, stopped cleanly")
        elif live:
            plan.note(
                "warning",
                each.path,
                f"{what}, not stopped cleanly: the start recovers the partitions, as Kafka would, "
                "which takes time",
            )
        else:
            plan.note("info", each.path, what)
        for entry in hand_over.filesystem.list_dir_stats(each.path):
            if entry.is_dir and entry.name.startswith(f"{CLUSTER_METADATA_TOPIC}-"):
                message = f"{entry.name} stays as it is: it is KRaft's metadata log, no topic"
                plan.note("info", each.path, message)
            elif not entry.is_dir and live_partition(entry.name) is not None:
                message = f"{entry.name} is a link, and is not served: move its directory here"
                plan.note("warning", each.path, message)
            elif entry.is_dir and not is_partition_name(entry.name):
                message = f"{entry.name} stays as it is: its name is no partition's"
                plan.note("info", each.path, message)


def kind_of(each: IdentityFiles, registry: RegistryState) -> str:
    """What wrote a directory, as far as its files tell, and whose it is."""
    meta = each.meta
    if meta is None:
        return "no meta.properties: partitions that were copied"
    if is_made_here(each, registry):
        return f"made by kafkalog, node.id {meta.node_id}, cluster.id {meta.cluster_id}"
    written, key = ("ZooKeeper", "broker.id") if meta.is_of_zookeeper else ("KRaft", "node.id")
    cluster = "" if meta.cluster_id is None else f", cluster.id {meta.cluster_id}"
    before = "" if each.registry is None else ", adopted before"
    return f"of Kafka with {written}, {key} {meta.node_id}{cluster}{before}"


def is_made_here(each: IdentityFiles, registry: RegistryState) -> bool:
    """Whether no Kafka knows the directory's cluster."""
    cluster_id = None if each.meta is None else each.meta.cluster_id
    return cluster_id is not None and cluster_id == registry.made_cluster_id


def _note_topics(
    plan: HandOverPlan, before: RegistryState, startup: StartupPlan, absent: Sequence[str]
) -> None:
    adopted = [topic.name for topic in startup.adopted]
    if adopted:
        count = counted(len(adopted), "topic")
        message = f"{count} adopted: {named(adopted)}. Retention is off until you set it"
        plan.note("info", "topics", message)
    for name in sorted(before.topics.keys() & adopted):
        message = "Kafka deleted it and made it again: it begins anew, without the configs set here"
        plan.note("warning", f"topic {name}", message)
    for path in absent:
        message = "it served before, and is not named: its partitions will be out of service"
        plan.note("warning", path, message)
    _note_missing(plan, startup, set(adopted))


def _note_missing(plan: HandOverPlan, startup: StartupPlan, adopted: Collection[str]) -> None:
    """Partitions that the start finds nowhere."""
    loaded: dict[str, set[int]] = {}
    for partition, topic in startup.load:
        loaded.setdefault(topic.name, set()).add(partition.topic_partition.partition)
    for topic in startup.registry.topics.values():
        numbers = sorted(set(range(topic.partition_count)) - loaded.get(topic.name, set()))
        if not numbers:
            continue
        shown = named(map(str, numbers))
        if topic.name in adopted:
            message = (
                "the start makes them, empty. If another broker has them, copy them from there "
                "before"
            )
        else:
            message = (
                "the start keeps them out of service. If Kafka deleted the topic, delete it here "
                "as well, once the daemon runs"
            )
        where = f"partitions {shown} of {topic.partition_count} are in none of these directories"
        plan.note("warning", f"topic {topic.name}", f"{where}: {message}")


def _note_partitions(plan: HandOverPlan, hand_over: HandOver, startup: StartupPlan) -> None:
    """Directories that the start does not serve, and what is special in those that it does."""
    registry = startup.registry
    for each in startup.stray:
        name, reason = each.topic_partition.topic, reason_of(registry, each)
        if name not in registry.topics:
            reason = topic_name_fault(name) or (
                "its partition.metadata has the topic id of another topic, or another one than a "
                "second directory of this topic"
            )
        message = f"the start renames it to {each.name}.ID-stray and does not serve it: {reason}"
        plan.note("warning", each.path, message)
    for each, _ in startup.contradicted:
        message = f"the start keeps it out of service: {reason_of(registry, each)}"
        plan.note("warning", each.path, message)
    for each in (*startup.delete, *startup.remove):
        plan.note("warning", each.path, "the start deletes it: its topic was deleted")
    left = [each.name for each in (*startup.left_alone, *startup.orphans)]
    if left:
        message = f"they stay as they are, and are not served: {named(left)}"
        plan.note("info", "put aside or moving", message)
    served = [partition for partition, _ in startup.load]
    opened = hand_over.with_open_transactions(served)
    if opened:
        message = (
            f"{counted(len(opened), 'partition')} with an open transaction, which stays open: "
            f"{named(opened)}. See kafkalog transactions list and abort"
        )
        plan.note("warning", "transactions", message)
    for each in served:
        if segments := needs_conversion(hand_over.filesystem, each.path):
            size_bytes = sum(segment.size_bytes for segment in segments)
            message = (
                f"{counted(len(segments), 'segment')} of message format v0 or v1, {size_bytes:,} "
                "bytes, become v2, which a Kafka before 0.11 cannot read"
            )
            plan.changes.append(Conversion(each.path, message))
