"""Which log directory holds a partition, also while a daemon moves it to another one.

A move renames the old directory to ``-delete`` before the new one gets its name: for a moment there
is none, never two. Two that stay are an operator's mistake, which nobody may guess away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import (
    DirectoryState,
    TopicPartition,
    directory_name,
    is_internal,
    parse_directory_name,
)
from kafkalog.spark.logs import AmbiguousPartition, UnusableLogDir
from kafkalog.spark.object_store import shown
from kafkalog.spark.partition_files import stable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.env.filesystem import ReadFilesystem

_LOOKS = 3  # of a partition that is nowhere: a rename ends sooner than these


class ListedPartition(NamedTuple):
    """A name in a log directory; ``problem`` says why what has it cannot be read, None: it can."""

    topic_partition: TopicPartition
    problem: str | None


def partitions_in(filesystem: ReadFilesystem, path: str) -> list[ListedPartition]:
    """The partitions of clients in a log directory; what is deleted, moved in or stray is none.

    Raises UnusableLogDir: it is missing or no directory.
    """
    found: list[ListedPartition] = []
    try:
        stats = filesystem.list_dir_stats(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnusableLogDir(
            f"{shown(path)} is no directory here: path has to name log directories that this "
            "machine and every worker see"
        ) from error
    for stat in stats:
        try:
            parsed = None if stat.is_file else parse_directory_name(stat.name)
        except FormatError:
            continue  # lost+found and the like
        if parsed is None or parsed.state is not DirectoryState.LIVE:
            continue
        if not is_internal(parsed.topic_partition.topic):
            problem = None if stat.is_dir else is_a_link(f"{path}/{stat.name}")
            found.append(ListedPartition(parsed.topic_partition, problem))
    return found


def is_a_link(path: str) -> str:
    """Why a partition that is no directory of its own is not read: the daemon serves none."""
    return (
        f"{shown(path)} is a link or a device, which kafkalog does not serve: put the partition's "
        "own directory in its place, or remove it"
    )


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
