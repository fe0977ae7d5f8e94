"""Which log directory holds a partition, also while a daemon moves it to another one.

A move renames the old directory to ``-delete`` before the new one gets its name: for a moment there
is none, never two. Two that stay are an operator's mistake, which nobody may guess away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.format.format_error import FormatError
from kafkalog.format.topic_partition import (
    DirectoryState,
    TopicPartition,
    directory_name,
    is_internal,
    parse_directory_name,
)
from kafkalog.spark.logs import AmbiguousPartition
from kafkalog.spark.object_store import shown
from kafkalog.spark.partition_files import stable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.env.filesystem import ReadFilesystem

_LOOKS = 3  # of a partition that is nowhere: a rename ends sooner than these


def partitions_in(filesystem: ReadFilesystem, path: str) -> list[TopicPartition]:
    """The partitions of clients in a log directory; what is deleted, moved in or stray is none."""
    found: list[TopicPartition] = []
    for stat in filesystem.list_dir_stats(path):
        try:
            parsed = parse_directory_name(stat.name) if stat.is_dir else None
        except FormatError:
            continue  # lost+found and the like
        if parsed is None or parsed.state is not DirectoryState.LIVE:
            continue
        if not is_internal(parsed.topic_partition.topic):
            found.append(parsed.topic_partition)
    return found


def place_of(
    filesystem: ReadFilesystem, paths: Sequence[str], topic: str, partition: int
) -> str | None:
    """The directory of a partition in one of the log directories; None: it is nowhere.

    Raises AmbiguousPartition.
    """
    name = directory_name(TopicPartition(topic, partition))

    def look() -> list[str]:
        places = [f"{path}/{name}" for path in paths]
        return [place for place in places if filesystem.exists(place)]

    for _ in range(_LOOKS):
        places = stable(look)
        if len(places) > 1:
            raise AmbiguousPartition(f"{name} lies in {' and in '.join(map(shown, places))}")
        if places:
            return places[0]
    return None
