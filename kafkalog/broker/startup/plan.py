"""The plan for what was found in the log directories at the start: load, delete, put aside, adopt.

Pure: directories and the registry in, decisions out. A partition directory is known by the topic id
in its ``partition.metadata``, and by its name only where that file is missing (a crash before it
was durable, or a Kafka before 2.8). Differs from Kafka, which makes a stray of it and an empty
partition in its place: a directory with records and the name of a topic's partition, but with an id
that was never deleted and is not the topic's, keeps its place and its partition out of service.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kafkalog.broker.topics.registry import RegisteredTopic
from kafkalog.format.disk.sink_state import MAX_MESSAGE_BYTES
from kafkalog.format.topic_names import (
    SINK_STATE_TOPIC,
    DirectoryState,
    TopicPartition,
    encode_id,
    is_reserved,
    is_unique_id,
    topic_name_fault,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from kafkalog.broker.topics.registry import RegistryState

# What Kafka's brokers set on the topics that hold their own state. The overrides of an adopted
# topic are lost with Kafka's metadata; without these, retention would eat committed offsets.
_COMPACTED: Mapping[str, str] = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
_OF_MOVES = (DirectoryState.FUTURE, DirectoryState.DELETE)
COMPACTED_OVERRIDES: Mapping[str, str] = {"cleanup.policy": "compact"}
# What any other topic was configured to keep is unknown: nothing is deleted until it is set.
KEPT_OVERRIDES: Mapping[str, str] = {"retention.ms": "-1", "retention.bytes": "-1"}
INTERNAL_OVERRIDES: Mapping[str, Mapping[str, str]] = {
    "__consumer_offsets": _COMPACTED,
    "__transaction_state": _COMPACTED,
    SINK_STATE_TOPIC: {**_COMPACTED, "max.message.bytes": str(MAX_MESSAGE_BYTES)},
    "__share_group_state": {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    },
}


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """One partition directory. ``topic_id`` None: it has no ``partition.metadata``.

    ``was_compacted``: Kafka's cleaner has left an offset in the directory's checkpoint.
    ``has_records``: it may hold some, or held some; looked at only where the registry contradicts
    the id. ``unique_id``: the part before the suffix, None when LIVE.
    """

    log_dir: str
    name: str
    topic_partition: TopicPartition
    state: DirectoryState
    topic_id: UUID | None
    was_compacted: bool = False
    has_records: bool = False
    unique_id: str | None = None

    @property
    def path(self) -> str:
        """Absolute."""
        return f"{self.log_dir}/{self.name}"


@dataclass(frozen=True, slots=True)
class CommittedMove:
    """A move that a crash stopped between its two renamings: the copy is whole and durable."""

    future: FoundPartition  # gets the partition's name
    doomed: FoundPartition  # deleted once that is durable
    topic: RegisteredTopic


@dataclass(slots=True)
class StartupPlan:
    """What to do with each; ``registry`` is the next generation when topics were adopted."""

    registry: RegistryState
    load: list[tuple[FoundPartition, RegisteredTopic]] = field(default_factory=list)
    delete: list[FoundPartition] = field(default_factory=list)  # rename to -delete, then remove
    remove: list[FoundPartition] = field(default_factory=list)  # already renamed to -delete
    stray: list[FoundPartition] = field(default_factory=list)  # rename to -stray
    left_alone: list[FoundPartition] = field(default_factory=list)  # -future and -stray
    adopted: list[RegisteredTopic] = field(default_factory=list)
    committed: list[CommittedMove] = field(default_factory=list)
    moving: list[FoundPartition] = field(default_factory=list)  # -future of a partition that loads
    # -future and -delete of a living topic's partition that no directory serves; left alone too
    orphans: list[FoundPartition] = field(default_factory=list)
    # in the place of a topic's partition, but with another id: not served, not touched
    contradicted: list[tuple[FoundPartition, RegisteredTopic]] = field(default_factory=list)


def suspects(registry: RegistryState, found: Iterable[FoundPartition]) -> list[FoundPartition]:
    """Left-overs of a growth or creation that failed, as far as names tell, if they are unused.

    Directories of a living topic that are there twice, or whose number the topic does not have. One
    without an id counts only where no other has the topic's: both were made half.
    """
    by_partition: dict[TopicPartition, list[FoundPartition]] = {}
    suspected: list[FoundPartition] = []
    for partition in found:
        own = partition.topic_partition
        topic = registry.topics.get(own.topic)
        if partition.state is not DirectoryState.LIVE or topic is None:
            continue
        if own.partition >= topic.partition_count:
            if partition.topic_id in (None, topic.topic_id):
                suspected.append(partition)
        elif partition.topic_id in (None, topic.topic_id):
            by_partition.setdefault(own, []).append(partition)
    for several in by_partition.values():
        rivals = [each for each in several if each.topic_id is not None] or several
        if len(rivals) > 1:
            suspected += rivals
    return suspected


def plan_startup(
    registry: RegistryState,
    found: Iterable[FoundPartition],
    unused: Collection[str] = frozenset(),
    *,
    adopt: bool,
    new_topic_id: Callable[[], UUID],
) -> StartupPlan:
    """Decide every found directory; see the module and design 4.6.

    ``unused``: paths of those suspects that hold nothing.
    """
    plan = StartupPlan(registry)
    unknown: list[FoundPartition] = []
    found = tuple(found)
    left_over = _left_over(registry, found, unused)
    identified = {
        (partition.topic_partition, partition.topic_id)
        for partition in found
        if partition.state is DirectoryState.LIVE
    }
    loaded = {
        partition.topic_partition
        for partition in found
        if partition.state is DirectoryState.LIVE and _topic_of(registry, partition) is not None
    }
    for partition in found:
        if partition.state in _OF_MOVES:
            continue
        if partition.state is DirectoryState.STRAY:
            plan.left_alone.append(partition)
        elif partition.topic_id in registry.deleted or partition.path in left_over:
            plan.delete.append(partition)
        elif (topic := _topic_of(registry, partition)) is not None:
            is_proven = (partition.topic_partition, topic.topic_id) in identified
            if partition.topic_id is None and is_proven:
                plan.stray.append(partition)  # a creation that failed here and succeeded elsewhere
            else:
                plan.load.append((partition, topic))
        elif (
            partition.has_records
            and partition.topic_partition not in loaded
            and (topic := contradicted_topic(registry, partition)) is not None
        ):
            plan.contradicted.append((partition, topic))
        else:
            unknown.append(partition)
    _plan_moves(plan, [each for each in found if each.state in _OF_MOVES], loaded)
    if adopt:
        _adopt(plan, unknown, new_topic_id)
    else:
        plan.stray.extend(unknown)
    return plan


def _plan_moves(
    plan: StartupPlan, found: Sequence[FoundPartition], loaded: Collection[TopicPartition]
) -> None:
    """Directories that a move, or a deletion, has named; loaded: partitions that are LIVE.

    A move renames the served directory ``-delete`` first and then its ``-future``, both with the
    move's own id. So a pair of one id with nothing LIVE proves that the copy was complete. A copy
    without its pair proves nothing, nor does a ``-delete``: the directory that served may be
    offline. Nothing of a partition is removed while nothing of it is served.
    """
    doomed = {
        (each.topic_partition, each.unique_id): each
        for each in found
        if each.state is DirectoryState.DELETE
    }
    served = set(loaded)
    moving: set[TopicPartition] = set()
    for future in found:
        if future.state is not DirectoryState.FUTURE:
            continue
        own, topic = future.topic_partition, _topic_of(plan.registry, future)
        pair = doomed.get((own, future.unique_id))
        if future.topic_id in plan.registry.deleted:
            plan.delete.append(future)
        elif topic is None or not is_unique_id(future.unique_id):
            plan.left_alone.append(future)
        elif pair is not None and own not in served:
            plan.committed.append(CommittedMove(future, pair, topic))
            served.add(own)
            del doomed[own, future.unique_id]
        elif own not in served:
            plan.orphans.append(future)
        elif own in moving:
            plan.delete.append(future)
        else:
            plan.moving.append(future)
            moving.add(own)
    for each in doomed.values():
        is_served = each.topic_partition in served
        if each.topic_id is None or is_served or _topic_of(plan.registry, each) is None:
            plan.remove.append(each)
        else:
            plan.orphans.append(each)


def _left_over(
    registry: RegistryState, found: Sequence[FoundPartition], unused: Collection[str]
) -> set[str]:
    """Paths of unused suspects; of those for one partition the last is kept if all are unused."""
    left_over: set[str] = set()
    doubtful = suspects(registry, found)
    for partition in doubtful:
        if partition.path not in unused:
            continue
        own = partition.topic_partition
        has_other = any(
            each.topic_partition == own and each is not partition and each.path not in left_over
            for each in doubtful
        )
        if own.partition >= registry.topics[own.topic].partition_count or has_other:
            left_over.add(partition.path)
    return left_over


def contradicted_topic(
    registry: RegistryState, partition: FoundPartition
) -> RegisteredTopic | None:
    """The living topic whose partition's name the directory has, with another topic's id.

    An id that was deleted contradicts nothing: the directory was away while its topic died.
    """
    name, number = partition.topic_partition.topic, partition.topic_partition.partition
    topic, topic_id = registry.topics.get(name), partition.topic_id
    is_same = topic is None or number >= topic.partition_count or topic_id == topic.topic_id
    return None if is_same or topic_id is None or topic_id in registry.deleted else topic


def unexplained(registry: RegistryState, found: Iterable[FoundPartition]) -> Iterator[str]:
    """Partitions that the registry would know, or know as deleted, were it the newest.

    Directories without an id, and those that were put aside, do not count.
    """
    for partition in found:
        is_told = partition.topic_id is None or partition.topic_id in registry.deleted
        if (
            partition.state is DirectoryState.LIVE
            and not is_told
            and _topic_of(registry, partition) is None
        ):
            yield str(partition.topic_partition)


def grown_topics(registry: RegistryState, found: Iterable[FoundPartition]) -> list[RegisteredTopic]:
    """Topics that have directories, by name and id, of more partitions than are registered."""
    grown: dict[str, RegisteredTopic] = {}
    for partition in found:
        own = partition.topic_partition
        topic = grown.get(own.topic, registry.topics.get(own.topic))
        is_beyond = topic is not None and own.partition >= topic.partition_count
        if topic is not None and is_beyond and partition.topic_id == topic.topic_id:
            grown[own.topic] = replace(topic, partition_count=own.partition + 1)
    return list(grown.values())


def reason_of(registry: RegistryState, partition: FoundPartition) -> str:
    """Why the plan deletes the directory or puts it aside, for a line of the log."""
    topic = registry.topics.get(partition.topic_partition.topic)
    if partition.topic_id in registry.deleted:
        return "its topic was deleted"
    if partition.state is DirectoryState.FUTURE:
        return "another directory holds a copy on its way already"
    if topic is None:
        return "the registry knows no such topic"
    if partition.topic_partition.partition >= topic.partition_count:
        return f"topic {topic.name} has {topic.partition_count} partitions"
    if partition.topic_id is None or partition.topic_id == topic.topic_id:
        return "another directory holds the partition: this one is left from a creation that failed"
    return (
        f"its partition.metadata names topic id {encode_id(partition.topic_id)}, but topic "
        f"{topic.name} has {encode_id(topic.topic_id)}"
    )


def _topic_of(registry: RegistryState, partition: FoundPartition) -> RegisteredTopic | None:
    """The living topic that the directory belongs to."""
    name, number = partition.topic_partition.topic, partition.topic_partition.partition
    topic = registry.topics.get(name)
    if topic is None or number >= topic.partition_count:
        return None
    return topic if partition.topic_id in (None, topic.topic_id) else None


def _adopt(
    plan: StartupPlan, unknown: list[FoundPartition], new_topic_id: Callable[[], UUID]
) -> None:
    """Make topics of unknown directories; those that contradict one another become stray."""
    by_name: dict[str, list[FoundPartition]] = {}
    for partition in unknown:
        by_name.setdefault(partition.topic_partition.topic, []).append(partition)
    used_ids = {topic.topic_id for topic in plan.registry.topics.values()}
    for name, partitions in sorted(by_name.items()):
        ids = sorted({p.topic_id for p in partitions if p.topic_id is not None})
        topic_id = ids[0] if ids else new_topic_id()
        is_impossible = name in plan.registry.topics or topic_name_fault(name) is not None
        if is_impossible or len(ids) > 1 or topic_id in used_ids or is_reserved(topic_id):
            plan.stray.extend(partitions)
            continue
        used_ids.add(topic_id)
        count = max(p.topic_partition.partition for p in partitions) + 1
        overrides = INTERNAL_OVERRIDES.get(name, KEPT_OVERRIDES)
        if name not in INTERNAL_OVERRIDES and any(
            partition.was_compacted for partition in partitions
        ):
            # Retention would eat it, and recovery would take its missing offsets for a loss.
            overrides = COMPACTED_OVERRIDES
        topic = RegisteredTopic(
            topic_id, name, count, overrides, kafka_partition_count=count, is_id_given=not ids
        )
        plan.adopted.append(topic)
        plan.load.extend((partition, topic) for partition in partitions)
    if plan.adopted:
        plan.registry = plan.registry.with_new_topics(plan.adopted)
