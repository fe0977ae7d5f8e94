"""What ``kafkalog hand-back`` finds in directories that return to their Kafka, and what it writes.

Files and checkpoints are Kafka's all the time. Two things are taken out: the id that a directory of
a Kafka before 3.7 got in its meta.properties, for such a Kafka starts on no directories whose files
differ; and, where a Kafka with ZooKeeper gave no topic ids, the ``partition.metadata`` that the
daemon wrote, for a later Kafka compares it with its own id. The registry stays: Kafka does not read
it, and the next adoption begins with it. What Kafka will do with the rest is said.
Source: Kafka 2.8, BrokerMetadataCheckpoint.getBrokerMetadataAndOfflineDirs; KIP-516.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog.broker.directory.identity import node_id_of, plan_identities
from kafkalog.broker.directory.log_dir import META_PROPERTIES, REGISTRY_FILE
from kafkalog.broker.startup.adoption import is_made_here, kind_of, refuse_changed
from kafkalog.broker.startup.hand_over import FileChange, HandOverPlan, Note, counted, named
from kafkalog.broker.topics.registry import RegistryState, newest_of
from kafkalog.errors import UnusableLogDirs
from kafkalog.format.disk.file_names import PARTITION_METADATA
from kafkalog.format.disk.properties import encode_meta_properties
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import REMOTE_LOG_INDEX_CACHE, DirectoryState, parse_directory_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.broker.directory.identity import IdentityFiles
    from kafkalog.broker.startup.hand_over import HandOver
    from kafkalog.broker.startup.plan import FoundPartition
    from kafkalog.broker.topics.registry import RegisteredTopic

_GUIDE = "docs/how-to/adopt-and-hand-back.md"


def plan_hand_back(hand_over: HandOver) -> HandOverPlan:
    """Look at the directories and decide; writes nothing. StorageFault, OSError."""
    notes = hand_over.refusals()
    if notes:
        return HandOverPlan(notes)
    try:
        found = hand_over.identities()
        copies = {each.path: each.registry for each in found if each.registry is not None}
        if not copies and not any(map(_has_given_id, found)):
            message = f"it has no {REGISTRY_FILE}: kafkalog did not adopt it"
            return HandOverPlan([Note("error", each.path, message) for each in found])
        node_id = node_id_of(found, None)
        refuse_changed(found, plan_identities(found, node_id, lambda _path, _state: ()))
        return _planned(hand_over, found, newest_of(copies) if copies else RegistryState())
    except UnusableLogDirs as error:
        return HandOverPlan([Note("error", "log directories", error.message)])


def _planned(
    hand_over: HandOver, found: Sequence[IdentityFiles], state: RegistryState
) -> HandOverPlan:
    plan = HandOverPlan()
    is_begun = any(map(_has_given_id, found))  # an adoption may have ended after that
    if not is_begun and not any(each.kafka_partition_count for each in state.topics.values()):
        message = (
            "none of its topics was adopted from Kafka, so no broker knows them. Create them with "
            f"the broker and copy the directories of their partitions: {_GUIDE}"
        )
        plan.note("error", "log directories", message)
        return plan
    for each in found:
        if is_made_here(each, state):
            message = (
                f"{kind_of(each, state)}: no broker has this cluster.id, and none starts on it. "
                f"Copy the directories of the partitions to a broker: {_GUIDE}"
            )
            plan.note("error", each.path, message)
    if plan.is_refused:
        return plan
    found_here = hand_over.partitions(state)
    live = [each for each in found_here if each.state is DirectoryState.LIVE]
    _note_directories(plan, hand_over, found, state, live)
    _note_topics(plan, state, live)
    _note_names(plan, hand_over)
    opened = hand_over.with_open_transactions(live)
    if opened:
        message = (
            f"{counted(len(opened), 'partition')} with an open transaction: {named(opened)}. Kafka "
            "ends its own; what a sink of kafkalog began must be ended before (GET /v1/sinks)"
        )
        plan.note("warning", "transactions", message)
    message = "Kafka's configs of the topics are in force again, not those that were set here"
    plan.note("info", "configs", message)
    _add_changes(plan, hand_over, found, state, live)
    return plan


def _has_given_id(each: IdentityFiles) -> bool:
    return each.meta is not None and each.meta.is_directory_id_given


def _add_changes(
    plan: HandOverPlan,
    hand_over: HandOver,
    found: Sequence[IdentityFiles],
    state: RegistryState,
    live: Sequence[FoundPartition],
) -> None:
    of_zookeeper = {
        each.path for each in found if each.meta is not None and each.meta.is_of_zookeeper
    }
    for each in live:
        topic = state.topics.get(each.topic_partition.topic)
        if topic is None or each.topic_id != topic.topic_id or each.log_dir not in of_zookeeper:
            continue
        if topic.is_id_given or not topic.kafka_partition_count:
            path = f"{each.path}/{PARTITION_METADATA}"
            message = "is removed: the topic id in it was made here"
            plan.changes.append(FileChange(path, message, None))
    for identity in found:
        if identity.meta is not None and _has_given_id(identity):
            meta = replace(identity.meta, directory_id=None, is_directory_id_given=False)
            data = encode_meta_properties(meta, hand_over.clock.wall_ms())
            path = f"{identity.path}/{META_PROPERTIES}"
            message = "loses the id of the directory, which was made here"
            plan.changes.append(FileChange(path, message, data))


def _note_directories(
    plan: HandOverPlan,
    hand_over: HandOver,
    found: Sequence[IdentityFiles],
    state: RegistryState,
    live: Sequence[FoundPartition],
) -> None:
    for each in found:
        count = sum(one.log_dir == each.path for one in live)
        what = f"{kind_of(each, state)}, {counted(count, 'partition')}"
        if hand_over.is_clean(each.path):
            plan.note("info", each.path, f"{what}, stopped cleanly: Kafka trusts the indexes")
        else:
            message = f"{what}, not stopped cleanly: Kafka recovers the partitions at its start"
            plan.note("warning", each.path, message)
    present = {each.meta.directory_id for each in found if each.meta is not None}
    for directory_id, path in state.log_dirs.items():
        if directory_id not in present and path not in hand_over.paths:
            message = "it served as well, and is not named: hand it back together with these"
            plan.note("warning", path, message)


def _note_topics(plan: HandOverPlan, state: RegistryState, live: Sequence[FoundPartition]) -> None:
    """Topics of which Kafka knows something else."""
    numbers: dict[str, set[int]] = {}
    for each in live:
        numbers.setdefault(each.topic_partition.topic, set()).add(each.topic_partition.partition)
    for topic in state.topics.values():
        here = numbers.get(topic.name, set())
        for message in _differences(topic, here):
            plan.note("warning", f"topic {topic.name}", message)


def _differences(topic: RegisteredTopic, here: set[int]) -> list[str]:
    known = topic.kafka_partition_count
    if not known:
        return [
            "it was made here, and Kafka does not know it: its start puts the directories aside "
            "(-stray) or does not serve them. Create it there and copy its partitions: "
            f"{_GUIDE}"
        ]
    messages = []
    if topic.partition_count > known:
        messages.append(
            f"it has {topic.partition_count} partitions, Kafka knows {known}: its start puts the "
            "others aside (-stray) or does not serve them. Give it as many there and copy them: "
            f"{_GUIDE}"
        )
    missing = sorted(set(range(known)) - here)
    if missing:
        shown = named(map(str, missing))
        message = f"partitions {shown} are in none of these directories: Kafka makes them, empty"
        messages.append(message)
    return messages


def _note_names(plan: HandOverPlan, hand_over: HandOver) -> None:
    """Directories at whose names a Kafka may end its start."""
    for path in hand_over.paths:
        for entry in hand_over.filesystem.list_dir_stats(path):
            if not entry.is_dir or entry.name == REMOTE_LOG_INDEX_CACHE:
                continue
            try:
                parsed = parse_directory_name(entry.name)
            except FormatError:
                message = "Kafka ends its start at a directory of such a name: move it away"
                plan.note("warning", f"{path}/{entry.name}", message)
                continue
            if parsed.state is DirectoryState.STRAY:
                message = "an older Kafka ends its start at a -stray directory: move it away"
                plan.note("warning", f"{path}/{entry.name}", message)
