"""The partition directories that a start finds in the log directories, by name and id.

Reads, and renames what the plan puts aside; loads nothing, and decides only that the same partition
in two places is a reason not to start. Source: Kafka's LogManager.loadLogs; unlike Kafka a
directory whose name is no partition is skipped with a warning (``lost+found`` without one).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.directory.log_dir import CLEANER_OFFSETS, LOST_AND_FOUND, OWN_FILES
from kafkalog.broker.startup.plan import FoundPartition, contradicted_topic
from kafkalog.errors import UnusableLogDirs
from kafkalog.format.disk.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file_name,
)
from kafkalog.format.disk.properties import decode_partition_metadata
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import (
    CLUSTER_METADATA_TOPIC,
    REMOTE_LOG_INDEX_CACHE,
    DirectoryState,
    directory_name,
    parse_directory_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.broker.directory.unit import LogDirUnit
    from kafkalog.broker.topics.registry import RegistryState
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.env.random import Random
    from kafkalog.format.topic_names import TopicPartition

_FIRST_LOG = segment_file_name(0, LOG_SUFFIX)
_NEW_FILES = frozenset(
    (
        _FIRST_LOG,
        segment_file_name(0, OFFSET_INDEX_SUFFIX),
        segment_file_name(0, TIME_INDEX_SUFFIX),
        LEADER_EPOCH_CHECKPOINT,
        PARTITION_METADATA,
    )
)

_LOOK_BYTES = 1 << 20

_log = structlog.get_logger(__name__)


def find_partitions(
    log_dir: LogDir, filesystem: Filesystem, registry: RegistryState
) -> list[FoundPartition]:
    """Partition directories below a log directory; guarded. All else is left alone, and named.

    Those whose id the registry contradicts are looked into for records.
    """
    found: list[FoundPartition] = []
    compacted = log_dir.read_checkpoint(CLEANER_OFFSETS)
    with log_dir.guard():
        for entry in filesystem.list_dir_stats(log_dir.path):
            if not entry.is_dir:
                if entry.name not in OWN_FILES:
                    kind = "file" if entry.is_file else "link or device"
                    _log.warning(
                        "entry_left_alone", log_dir=log_dir.path, name=entry.name, kind=kind
                    )
                continue
            if entry.name == REMOTE_LOG_INDEX_CACHE:
                continue
            try:
                parsed = parse_directory_name(entry.name)
            except FormatError as error:
                # Every file system of the ext family has one in its root: no action is needed.
                tell = _log.info if entry.name == LOST_AND_FOUND else _log.warning
                tell("directory_skipped", log_dir=log_dir.path, name=entry.name, reason=str(error))
                continue
            if parsed.topic_partition.topic == CLUSTER_METADATA_TOPIC:
                continue
            topic_id = None
            if parsed.state is not DirectoryState.STRAY:
                topic_id = read_topic_id(filesystem, f"{log_dir.path}/{entry.name}")
            partition = FoundPartition(
                log_dir.path,
                entry.name,
                parsed.topic_partition,
                parsed.state,
                topic_id,
                was_compacted=parsed.topic_partition in compacted,
                unique_id=parsed.unique_id,
            )
            if (
                parsed.state is DirectoryState.LIVE
                and contradicted_topic(registry, partition) is not None
            ):
                partition = replace(
                    partition, has_records=not is_unused(filesystem, partition.path)
                )
            found.append(partition)
    return found


def read_topic_id(filesystem: Filesystem, path: str) -> UUID | None:
    """From ``partition.metadata``; None when absent or damaged: the name decides then."""
    try:
        return decode_partition_metadata(filesystem.read_file(f"{path}/{PARTITION_METADATA}"))
    except FileNotFoundError:
        return None
    except FormatError as error:
        _log.warning("partition_metadata_ignored", directory=path, reason=str(error))
        return None


def is_unused(filesystem: Filesystem, path: str) -> bool:
    """Whether a partition directory is as its creation makes it, or less: no record; unguarded.

    False as soon as it holds anything else.
    """
    return all(
        entry.name.removesuffix(TEMPORARY_SUFFIX) in _NEW_FILES
        and not (entry.name == _FIRST_LOG and _has_content(filesystem, f"{path}/{_FIRST_LOG}"))
        for entry in filesystem.list_dir_stats(path)
    )


def _has_content(filesystem: Filesystem, path: str) -> bool:
    """Whether a file holds anything but the zeros of ``preallocate``."""
    file = filesystem.open_read(path)
    try:
        starts = range(0, file.size(), _LOOK_BYTES)
        return any(file.pread(_LOOK_BYTES, start).strip(b"\0") for start in starts)
    finally:
        file.close()


def refuse_duplicates(found: Sequence[FoundPartition]) -> None:
    """UnusableLogDirs when two directories hold the same partition (fatal in Kafka too)."""
    seen: dict[TopicPartition, FoundPartition] = {}
    for partition in found:
        other = seen.setdefault(partition.topic_partition, partition)
        if other is not partition:
            raise UnusableLogDirs(
                f"Duplicate log directories for {partition.topic_partition} are found in both "
                f"{other.path} and {partition.path}. It is likely because log directory failure "
                "happened while the broker was replacing a replica. Move one of them away.",
                first=other.path,
                second=partition.path,
            )


def rename_with_suffix(
    unit: LogDirUnit,
    filesystem: Filesystem,
    random: Random,
    partition: FoundPartition,
    state: DirectoryState,
) -> str:
    """Give a directory its ``-delete`` or ``-stray`` name, durable on return; guarded."""
    name = directory_name(partition.topic_partition, state, random.uuid_bytes().hex())
    path = f"{partition.log_dir}/{name}"
    with unit.log_dir.guard():
        filesystem.rename(partition.path, path)
        filesystem.sync_dir(partition.log_dir)
    return path


def rename_to_live(
    unit: LogDirUnit, filesystem: Filesystem, future: FoundPartition
) -> FoundPartition:
    """Give a complete copy its partition's name, durable on return; guarded."""
    live = replace(future, name=str(future.topic_partition), state=DirectoryState.LIVE)
    with unit.log_dir.guard():
        filesystem.rename(future.path, live.path)
        filesystem.sync_dir(future.log_dir)
    _log.warning("move_completed", directory=live.path, was=future.name)
    return live
