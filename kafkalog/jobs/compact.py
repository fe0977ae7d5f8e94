"""Job ``compact``: write a new log directory with the latest record of each key.

Each partition is one task. Its active segment is rolled, and the daemon's cleaner cleans it in as
many rounds as its map needs: with one round the files are those of ``kafkalog offline compact
--roll`` with the same clock. The cleaner keeps what it always keeps: tombstones until their
horizon, markers, the last batch of each producer. The sources are only read
(``env.overlay_filesystem``) and never copied; their lock files are held, so that no daemon serves
them meanwhile. A damaged source is an error and is never left out.

The result has a temporary name until every partition is complete and synced; one rename publishes
it. Below it each run has a directory of its own, and each attempt of a task another one: a late
task of a killed run finds its directory missing, and cannot write into the result of another run.
An error or an interrupt removes everything; a killed job leaves the temporary directory, and the
next run refuses to start and names it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
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
from kafkalog.jobs.fleet import UnusableDirectory, locked_directories
from kafkalog.jobs.tasks import abandoned_on_error, run_job
from kafkalog.log.inspect.directory_facts import enclosing_log_dir, lies_in
from kafkalog.log.inspect.offline_log import naming_source
from kafkalog.spark.logs.object_store import scheme_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from kafkalog.env.filesystem import Filesystem
    from kafkalog.jobs.fleet import FleetPartition
    from kafkalog.jobs.tasks import Runner


class CompactedPartition(NamedTuple):
    """The result for one partition. Bytes are those of its ``.log`` files.

    records_removed       records that were read and dropped; aborted data is dropped unread
    records_without_key   those of them that had no key
    cleaned_to            first dirty offset of the next round
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
    """Make the directory of a new run in the temporary one. Raises OSError."""
    run = f"{staging}/{SystemRandom().uuid_bytes().hex()}"
    filesystem.make_dir(made_in(run))
    return run


def made_in(run: str) -> str:
    """The directory of the finished partitions of a run."""
    return f"{run}/made"


def make_attempt(work: str, filesystem: Filesystem) -> str:
    """Make a directory for one attempt of a task in ``work``, the directory of a run.

    Missing parents are not made: the job may have been abandoned, and its directory would stop the
    next run. Raises UnusableDirectory if ``work`` is missing, OSError.
    """
    made = f"{work}/attempt-{SystemRandom().uuid_bytes().hex()}"
    try:
        filesystem.make_dir(made, parents=False)
    except FileNotFoundError as error:
        raise UnusableDirectory(f"{work} is missing: the job was abandoned") from error
    return made


def _sync(directory: str, filesystem: Filesystem) -> None:
    """Make a compacted partition durable, without its deleted files. Raises OSError."""
    for stat in filesystem.list_dir_stats(directory):
        path = f"{directory}/{stat.name}"
        if stat.name.endswith(DELETED_SUFFIX):
            filesystem.unlink(path)
        else:
            filesystem.open_write(path, create=False).sync()  # copied files as well
    filesystem.sync_dir(directory)


def remove_directory(path: str, filesystem: Filesystem) -> None:
    """Remove a directory if it exists. Raises OSError."""
    if filesystem.exists(path):
        filesystem.remove_tree(path)


MAP_BYTES = 128 << 20
"""As log.cleaner.dedupe.buffer.size: memory of each process, for 5 million keys a round."""

_UNFINISHED = ".unfinished"

_log = structlog.get_logger(__name__)


def compact_directories(
    partitions: Sequence[FleetPartition],
    out: str,
    runner: Runner,
    *,
    now_ms: int,
    map_bytes: int = MAP_BYTES,
) -> list[CompactedPartition]:
    """Compact the partitions into the new log directory ``out``, an absolute path.

    ``now_ms`` is the time for delete horizons. Raises UnusableDirectory, TaskFailed, OSError; then
    there is no ``out``.
    """
    filesystem = SystemFilesystem()
    out = out.rstrip("/")
    staging = out + _UNFINISHED
    _check_target(out, staging, partitions, filesystem)
    log_dirs = sorted({each.log_dir for each in partitions})
    with (
        locked_directories(log_dirs, filesystem),
        abandoned_on_error("compact", lambda: remove_directory(staging, filesystem)),
    ):
        run = make_run(staging, filesystem)
        options = CompactOptions(now_ms=now_ms, roll=True, map_bytes=map_bytes)
        work = partial(compact_partition, run=run, options=options)
        rows = run_job("compact", partitions, work, list, runner)
        by_source = {row.source: row for row in rows}
        rows = [by_source[each.directory] for each in partitions]
        _publish(rows, made_in(run), out, filesystem)
    try:
        remove_directory(staging, filesystem)
    except OSError as error:  # it takes space, but the result is complete
        _log.warning("compact_left_files", path=staging, reason=str(error), what_to_do="remove it")
    return rows


def _check_target(
    out: str, staging: str, partitions: Sequence[FleetPartition], filesystem: Filesystem
) -> None:
    """Raise UnusableDirectory unless the target can be made and each partition is given once."""
    for each in partitions:
        if scheme_of(each.directory) is not None:
            raise UnusableDirectory(f"{each.label} is on a store: copy it to a disk first")
    if filesystem.exists(out):
        raise UnusableDirectory(f"{out} exists: give a new directory")
    if filesystem.exists(staging):
        raise UnusableDirectory(
            f"{staging} was left by a killed run, or another run is writing {out}: if none is, "
            "remove it"
        )
    parent = out.rpartition("/")[0] or "/"
    if not filesystem.exists(parent):
        raise UnusableDirectory(f"{parent} does not exist: make it first")
    real = f"{filesystem.real_path(parent)}/{out.rpartition('/')[2]}"
    sources = {each.directory if each.is_alone else each.log_dir for each in partitions}
    around = next((each for each in sources if lies_in(real, filesystem.real_path(each))), None)
    around = around or enclosing_log_dir(filesystem, real)
    if around is not None:
        raise UnusableDirectory(f"{out} would be in the log directory {around}: give another path")
    seen: dict[str, str] = {}
    for each in partitions:
        other = seen.setdefault(each.name, each.directory)
        if other != each.directory:
            raise UnusableDirectory(
                f"{each.name} is in {other} and in {each.directory}: only one of them can become "
                f"{out}/{each.name}"
            )


def compact_partition(
    source: FleetPartition, run: str, options: CompactOptions
) -> CompactedPartition:
    """The work of one task: afterwards the partition is among the finished ones, synced.

    run      the directory of the run
    options  of the first round

    ``bytes_after`` is the size of the files there, which another attempt may have written, on a
    machine with another version of a codec.
    """
    filesystem = SystemFilesystem()
    attempt = make_attempt(run, filesystem)
    made, place = f"{attempt}/{source.name}", f"{made_in(run)}/{source.name}"
    try:
        shown = overlay_in(made, source.directory, LOG_SUFFIX)
        with naming_source(made, source.directory, filesystem):
            row = _cleaned(made, source, options, shown)
        shown.fill(DELETED_SUFFIX)
        _sync(made, filesystem)
        try:
            filesystem.rename(made, place)
        except OSError:
            if not filesystem.exists(place):  # else another attempt of this task was faster
                raise
    finally:
        remove_directory(attempt, filesystem)
    logs = (each for each in filesystem.list_dir_stats(place) if each.name.endswith(LOG_SUFFIX))
    return row._replace(bytes_after=sum(each.size for each in logs))


def _cleaned(
    directory: str, source: FleetPartition, options: CompactOptions, filesystem: SystemFilesystem
) -> CompactedPartition:
    """Run rounds of the cleaner until the partition is clean."""
    config = replace(source.config, cleanup_policy=frozenset({"compact"}))
    log_start, known_end = source.log_start_offset, source.high_watermark or 0
    options = replace(options, log_start=log_start, known_end=known_end)
    done: list[dict[str, Any]] = []
    while True:
        last = clean_directory(directory, config, options, filesystem)
        done.append(last)
        if last["endOffset"] >= last["firstUncleanableOffset"] or "nothingToClean" in last:
            break  # empty segments are dirty, but need no round
        options = replace(options, roll=False, first_dirty=last["endOffset"])
    cleaned = [each for each in done if "messagesRead" in each]  # without rounds without work
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


def _publish(
    rows: Sequence[CompactedPartition], made: str, out: str, filesystem: Filesystem
) -> None:
    """Write the checkpoints of the partitions, then give the directory its name."""
    named = [(TopicPartition(row.topic, row.partition), row) for row in rows]
    checkpoints = {
        CLEANER_OFFSET_CHECKPOINT: {at: row.cleaned_to for at, row in named},
        LOG_START_OFFSET_CHECKPOINT: {
            at: row.log_start_offset for at, row in named if row.log_start_offset
        },
    }
    for name, offsets in checkpoints.items():
        filesystem.write_file_atomically(f"{made}/{name}", encode_offsets(offsets))
    filesystem.sync_dir(made)
    filesystem.rename(made, out)
    filesystem.sync_dir(out.rpartition("/")[0] or "/")
