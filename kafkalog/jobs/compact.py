"""Job ``compact``: a cold or archived log directory becomes a new one with the latest per key.

A partition is one task: its active segment rolled, and cleaned by the daemon's own cleaner in as
many rounds as its map asks for, so that with one round the files are those of ``kafkalog offline
compact --roll`` with the same clock. What the cleaner keeps stays: tombstones until their horizon,
markers, the last batch of each producer. The sources are only read, from where they lie
(``env.overlay_filesystem``): what is cleaned is never copied. Their lock files are held, so that no
daemon serves them meanwhile.

The result lies under a temporary name beside its own until every partition is done and synced; one
rename publishes it. An error or an interrupt removes what was made; a killed job leaves the
temporary directory, which the next run names. A damaged source is an error, never left out.

CompactedPartition: what a compaction made of one partition, and how it gets into its place.

Everything that a task of the job ``compact`` makes has a name of its own below the directory of the
run until it is whole; one rename gives it the name that the job looks for. A run has a directory of
its own below the staging one: a task that comes late, of a run that was killed, finds it gone, and
gets nothing into the place of another run's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import structlog

from kafkalog.cleaner.offline import CompactOptions, clean_directory
from kafkalog.env.overlay_filesystem import overlay_in
from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.disk.checkpoints import encode_offsets
from kafkalog.format.disk.file_names import (
    CLEANER_OFFSET_CHECKPOINT,
    DELETED_SUFFIX,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
)
from kafkalog.format.topic_names import TopicPartition
from kafkalog.jobs.fleet import HeldDirectories, UnusableDirectory
from kafkalog.jobs.tasks import Job, run_job, taken_back
from kafkalog.log.inspect.directory_facts import enclosing_log_dir, lies_in
from kafkalog.log.inspect.offline_log import naming_source
from kafkalog.spark.logs.object_store import scheme_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from kafkalog.env.filesystem import Filesystem
    from kafkalog.jobs.fleet import FleetPartition
    from kafkalog.jobs.tasks import Progress, Runner


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


MAP_BYTES = 128 << 20
"""As log.cleaner.dedupe.buffer.size: the memory of each process, 5 million keys in a round."""

_UNFINISHED = ".unfinished"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CompactTask:
    """One partition, and the directory of the run."""

    partition: FleetPartition
    run: str
    now_ms: int
    map_bytes: int

    @property
    def label(self) -> str:
        """See Task."""
        return self.partition.label

    @property
    def size_bytes(self) -> int:
        """See Task."""
        return self.partition.size_bytes


def compact_directories(
    partitions: Sequence[FleetPartition],
    out: str,
    runner: Runner,
    *,
    now_ms: int,
    map_bytes: int = MAP_BYTES,
    progress: Progress | None = None,
) -> list[CompactedPartition]:
    """Compact the partitions into the new log directory ``out``, an absolute path.

    ``now_ms`` is the time that horizons are held against. Raises UnusableDirectory, TaskFailed,
    KafkalogError of a log that cannot be loaded, and OSError; nothing of ``out`` is there then.
    """
    filesystem = SystemFilesystem()
    out = out.rstrip("/")
    staging = out + _UNFINISHED
    _check_target(out, staging, partitions, filesystem)
    log_dirs = sorted({each.log_dir for each in partitions})
    with (
        HeldDirectories(log_dirs, filesystem),
        taken_back("compact", lambda: remove_directory(staging, filesystem)),
    ):
        run = make_run(staging, filesystem)
        tasks = [CompactTask(each, run, now_ms, map_bytes) for each in partitions]
        rows = run_job(Job("compact", tasks, compact_partition, list), runner, progress)
        by_source = {row.source: row for row in rows}
        rows = [by_source[each.directory] for each in partitions]
        _publish(rows, made_in(run), out, filesystem)
    _clear(staging, filesystem)
    return rows


def _check_target(
    out: str, staging: str, partitions: Sequence[FleetPartition], filesystem: Filesystem
) -> None:
    """UnusableDirectory unless the target can be made and each partition is there once."""
    for each in partitions:
        if scheme_of(each.directory) is not None:
            raise UnusableDirectory(f"{each.label} is on a store: copy it to a disk first")
    if filesystem.exists(out):
        raise UnusableDirectory(f"{out} exists: name a directory that does not")
    if filesystem.exists(staging):
        raise UnusableDirectory(
            f"{staging} was left by a run that was killed, or another one is making {out}: remove "
            "it when none is"
        )
    parent = out.rpartition("/")[0] or "/"
    if not filesystem.exists(parent):
        raise UnusableDirectory(f"{parent} does not exist: make it first")
    real = f"{filesystem.real_path(parent)}/{out.rpartition('/')[2]}"
    sources = {each.directory if each.is_alone else each.log_dir for each in partitions}
    around = next((each for each in sources if lies_in(real, filesystem.real_path(each))), None)
    around = around or enclosing_log_dir(filesystem, real)
    if around is not None:
        raise UnusableDirectory(f"{out} would lie in {around}, a log directory: name another place")
    seen: dict[str, str] = {}
    for each in partitions:
        other = seen.setdefault(each.name, each.directory)
        if other != each.directory:
            raise UnusableDirectory(
                f"{each.name} lies in {other} and in {each.directory}: only one of them can become "
                f"{out}/{each.name}"
            )


def compact_partition(task: CompactTask) -> CompactedPartition:
    """The work of one task; the partition lies among the run's finished ones afterwards, synced.

    Its bytes are those that lie there: another try, whose machine may compress otherwise, may have
    made them.
    """
    filesystem, source = SystemFilesystem(), task.partition
    attempt = make_attempt(task.run, filesystem)
    made, place = f"{attempt}/{source.name}", f"{made_in(task.run)}/{source.name}"
    try:
        shown = overlay_in(made, source.directory, LOG_SUFFIX)
        with naming_source(made, source.directory, filesystem):
            row = _cleaned(made, task, shown)
        shown.fill(DELETED_SUFFIX)
        finish_directory(made, filesystem)
        settle(made, place, filesystem)
    finally:
        remove_directory(attempt, filesystem)
    logs = (each for each in filesystem.list_dir_stats(place) if each.name.endswith(LOG_SUFFIX))
    return row._replace(bytes_after=sum(each.size for each in logs))


def _cleaned(directory: str, task: CompactTask, filesystem: SystemFilesystem) -> CompactedPartition:
    """Rounds of the cleaner until nothing dirty is left."""
    source = task.partition
    config = replace(source.config, cleanup_policy=frozenset({"compact"}))
    options = CompactOptions(
        now_ms=task.now_ms,
        log_start=source.log_start_offset,
        known_end=source.high_watermark or 0,
        roll=True,
        map_bytes=task.map_bytes,
    )
    done = [clean_directory(directory, config, options, filesystem)]
    while _is_dirty(done[-1]):
        options = replace(options, roll=False, first_dirty=done[-1]["endOffset"])
        done.append(clean_directory(directory, config, options, filesystem))
    cleaned = [each for each in done if "messagesRead" in each]  # not one that found nothing to do
    return CompactedPartition(
        topic=source.topic,
        partition=source.partition,
        source=source.directory,
        bytes_before=done[0]["before"]["size"],
        bytes_after=done[-1]["after"]["size"],
        records_removed=sum(each["messagesRead"] - each["messagesWritten"] for each in cleaned),
        records_without_key=sum(each["invalidMessagesRead"] for each in cleaned),
        rounds=len(cleaned),
        log_start_offset=done[-1]["after"]["logStartOffset"],
        cleaned_to=done[-1]["endOffset"],
    )


def _is_dirty(result: Mapping[str, Any]) -> bool:
    """Whether a round left something; empty segments are dirty and nothing to clean."""
    is_clean = result["endOffset"] >= result["firstUncleanableOffset"]
    return not is_clean and "nothingToClean" not in result


def _publish(
    rows: Sequence[CompactedPartition], made: str, out: str, filesystem: Filesystem
) -> None:
    """The checkpoints that keep the partitions what they are, then the directory's own name."""
    starts = {_key(row): row.log_start_offset for row in rows if row.log_start_offset}
    checkpoints: dict[str, Mapping[TopicPartition, int]] = {
        CLEANER_OFFSET_CHECKPOINT: {_key(row): row.cleaned_to for row in rows},
        LOG_START_OFFSET_CHECKPOINT: starts,
    }
    for name, offsets in checkpoints.items():
        filesystem.write_file_atomically(f"{made}/{name}", encode_offsets(offsets))
    filesystem.sync_dir(made)
    filesystem.rename(made, out)
    filesystem.sync_dir(out.rpartition("/")[0] or "/")


def _clear(staging: str, filesystem: Filesystem) -> None:
    """What is left of a run that is over; it costs room, but not the result."""
    try:
        remove_directory(staging, filesystem)
    except OSError as error:
        _log.warning("compact_left_files", path=staging, reason=str(error), what_to_do="remove it")


def _key(row: CompactedPartition) -> TopicPartition:
    return TopicPartition(row.topic, row.partition)


def totals_of(rows: Sequence[CompactedPartition]) -> dict[str, Any]:
    """The sums of a run."""
    return {
        "partitions": len(rows),
        "bytes_before": sum(row.bytes_before for row in rows),
        "bytes_after": sum(row.bytes_after for row in rows),
        "records_removed": sum(row.records_removed for row in rows),
        "records_without_key": sum(row.records_without_key for row in rows),
    }
