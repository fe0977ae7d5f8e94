"""CompactedPartition: what a compaction made of one partition, and how it gets into its place.

Everything that a task of the job ``compact`` makes has a name of its own below the directory of the
run until it is whole; one rename gives it the name that the job looks for. A run has a directory of
its own below the staging one: a task that comes late, of a run that was killed, finds it gone, and
gets nothing into the place of another run's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.env.random import SystemRandom
from kafkalog.format.disk.file_names import DELETED_SUFFIX
from kafkalog.spark.jobs.fleet import UnusableDirectory

if TYPE_CHECKING:
    from kafkalog.env.filesystem import Filesystem


class CompactedPartition(NamedTuple):
    """What became of one partition. Bytes are those of its ``.log`` files.

    records_removed       that were read and not kept; aborted data goes without being read
    records_without_key   of those; the cleaner drops them
    cleaned_to            the next round's first dirty offset
    """

    topic: str
    partition: int
    source: str
    bytes_before: int
    bytes_after: int
    records_removed: int
    records_without_key: int
    rounds: int
    log_start_offset: int
    cleaned_to: int


def make_run(staging: str, filesystem: Filesystem) -> str:
    """The directory of a new run in the staging one, which is made too. OSError."""
    run = f"{staging}/{SystemRandom().uuid_bytes().hex()}"
    filesystem.make_dir(made_in(run))
    return run


def made_in(run: str) -> str:
    """The directory of a run that its finished partitions lie in."""
    return f"{run}/made"


def make_attempt(work: str, filesystem: Filesystem) -> str:
    """A new directory in ``work``, the directory of a run, that no other task uses.

    Its parents are never made again: the job may be given up at any moment, and the next run would
    take what lies there for a killed one's. Raises UnusableDirectory when ``work`` is gone,
    OSError.
    """
    made = f"{work}/attempt-{SystemRandom().uuid_bytes().hex()}"
    try:
        filesystem.make_dir(made, parents=False)
    except FileNotFoundError as error:
        raise UnusableDirectory(f"{work} has gone: the job was given up") from error
    return made


def settle(made: str, place: str, filesystem: Filesystem) -> None:
    """Into its place; another try of this task may have been faster, with the same files."""
    try:
        filesystem.rename(made, place)
    except OSError:
        if not filesystem.exists(place):
            raise


def finish_directory(directory: str, filesystem: Filesystem) -> None:
    """Make a compacted partition durable, without the files that its log no longer has. OSError."""
    for stat in filesystem.list_dir_stats(directory):
        path = f"{directory}/{stat.name}"
        if stat.name.endswith(DELETED_SUFFIX):
            filesystem.unlink(path)
        else:
            filesystem.open_write(path, create=False).sync()  # what is only a copy, too
    filesystem.sync_dir(directory)


def remove_directory(path: str, filesystem: Filesystem) -> None:
    """A directory, if it is there. OSError."""
    if filesystem.exists(path):
        filesystem.remove_tree(path)
