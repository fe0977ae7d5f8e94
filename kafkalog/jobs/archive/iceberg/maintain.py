"""Job ``archive maintain``: fewer files, snapshots and bytes in an Iceberg archive, same rows.

1. Small files are merged (`merge_files`). A commit replaces the files of many merges at once.
2. Snapshots above an age expire, and with them the files that no other snapshot has.
3. Files below the table's location that belong to nothing, left by killed runs, are removed.

It works beside running archives and other maintenance. Each commit is made on the snapshot that was
read, and only if the files that it replaces are still there: a commit of others in between is no
conflict, the commit is made again on top of it. Of two that merge the same files the later one
removes what it wrote. A merge says ``replace`` in its snapshot and repeats the archive's position.

What is no orphan: a file that a running archive has written is in no commit until its commit is
made. Only files that were last written before the grace period are removed, and only if the table,
loaded after the listing, does not have them. So a file is lost only if its writer commits it later
than the grace period after it wrote it. After an error of unknown outcome nothing is removed.

Snapshots that a branch or tag names are retained, and the one with the archive's position.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import structlog

from kafkalog.env.backoff import Backoff
from kafkalog.env.clock import SystemClock
from kafkalog.env.random import SystemRandom
from kafkalog.jobs.archive.archive_table import UnusableTable
from kafkalog.jobs.archive.file_layout import FileLayout
from kafkalog.jobs.archive.iceberg.data_files import (
    MARKS,
    THREADS,
    ancestors,
    clean_files,
    data_file,
    properties_of,
    replace_files,
    shape_of,
    without_retries,
)
from kafkalog.jobs.archive.iceberg.merge_files import (
    Merge,
    Merged,
    SmallFile,
    merge_files,
    merges_of,
)
from kafkalog.jobs.tasks import TaskFailed, progress, result_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyiceberg.types import NestedField

    from kafkalog.env.clock import Clock
    from kafkalog.jobs.archive.iceberg.data_files import DataFile, LoadedTable, Snapshot
    from kafkalog.jobs.archive.iceberg_table import IcebergTable
    from kafkalog.jobs.tasks import Ended, Runner

TARGET_FILE_BYTES = 512 << 20
MIN_FILES = 5
SNAPSHOT_AGE_MS = 5 * 86_400_000
ORPHAN_AGE_MS = 3 * 86_400_000
"""These four are the defaults of Iceberg's own procedures."""
_RACES = Backoff(tries=10, first_seconds=0.1, seconds_max=5.0)

T = TypeVar("T")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MaintainOptions:
    """What is merged and removed.

    target_file_bytes  the size of a merged file
    min_files          fewer small files are merged only if they fill a file
    max_commit_bytes   bytes of merged files in a commit
    expire_before_ms   older snapshots expire
    snapshots_kept     but not the newest ones
    orphans_before_ms  files that were last written before this are removed, if they are orphans
    """

    expire_before_ms: int
    orphans_before_ms: int
    target_file_bytes: int = TARGET_FILE_BYTES
    min_files: int = MIN_FILES
    max_commit_bytes: int = 10 << 30
    snapshots_kept: int = 1


class MaintainedStep(NamedTuple):
    """What a step did, or would do; after: None if that is not known before it is done.

    merge    files and bytes are those of the current snapshot
    expire   those of all snapshots
    orphans  all that is stored below the table's location
    problem  why something was left as it is
    """

    step: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int | None
    snapshots_before: int
    snapshots_after: int
    problem: str | None = None


def maintain(
    table: IcebergTable,
    options: MaintainOptions,
    runner: Runner,
    *,
    execute: bool,
    clock: Clock | None = None,
) -> list[MaintainedStep]:
    """The three steps; without ``execute`` what they would do.

    clock  for the pauses between two tries of a commit; None: the machine's

    Raises UnusableTable, TaskFailed, OSError. Commits before an error stay.
    """
    with table.loaded() as loaded:
        if loaded.properties.get("gc.enabled", "true").lower() == "false":
            raise UnusableTable(
                f"{table.name} has gc.enabled=false: its files may belong to another table. Set "
                "gc.enabled=true if they do not"
            )
        lacking = {"topic", "partition", "offset"} - set(loaded.schema().column_names)
    if lacking:
        raise UnusableTable(f"{table.name} is no archive: it has no {', '.join(sorted(lacking))}")
    job = _Job(table, options, runner, clock or SystemClock(), execute=execute)
    return [job.merge(), job.expire(), job.remove_orphans()]


@dataclass
class _Job:
    """One run.

    cached  the data files of manifests, which never change, by path
    """

    table: IcebergTable
    options: MaintainOptions
    runner: Runner
    clock: Clock
    execute: bool
    cached: dict[str, dict[str, int]] = field(default_factory=dict)

    # ---- merge

    def merge(self) -> MaintainedStep:
        """Merge small files."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        with self.table.loaded() as loaded:
            before = _live(loaded)
            snapshots = len(loaded.snapshots())
            layout = FileLayout(schema_to_pyarrow(loaded.schema()), shape_of(loaded))
            merges = merges_of(
                _small_files(loaded), self.options.target_file_bytes, self.options.min_files
            )
        problem: str | None = None
        if self.execute:
            problem = self._do_merges(merges, layout)
            with self.table.loaded() as loaded:
                after = _live(loaded)
                snapshots_after = len(loaded.snapshots())
            return MaintainedStep(
                "merge", *_pairs(before, after), snapshots, snapshots_after, problem
            )
        files = len(before) - sum(len(each.files) - 1 for each in merges)
        size = sum(before.values())
        known = None if merges else size
        return MaintainedStep(
            "merge", len(before), files, size, known, snapshots, snapshots + bool(merges)
        )

    def _do_merges(self, merges: Sequence[Merge], layout: FileLayout) -> str | None:
        """Do them in commits of bounded size; the reason if something was left out."""
        work = partial(merge_files, store=self.table.store, layout=layout)
        waiting: list[tuple[Merge, Merged]] = []
        problem: str | None = None
        with progress("merge", merges) as on_done:
            try:
                with closing(self.runner.stream(merges, work)) as all_ended:
                    for ended in all_ended:
                        on_done(ended.task)
                        problem = self._take(ended, waiting) or problem
                        size = sum(each.size_bytes for _, each in waiting)
                        if size >= self.options.max_commit_bytes:
                            ready, waiting = waiting, []
                            problem = self._commit(ready) or problem
            except BaseException:
                self._remove([each.path for _, each in waiting])
                raise
        return (self._commit(waiting) if waiting else None) or problem

    def _take(self, ended: Ended[Merge, Merged], waiting: list[tuple[Merge, Merged]]) -> str | None:
        try:
            waiting.append((ended.task, result_of(ended)))
        except TaskFailed as failure:
            if not ended.done.is_of_part:
                raise
            _log.error("files_not_merged", files=ended.task.label, reason=failure.message)
            return failure.message
        return None

    def _commit(self, ready: Sequence[tuple[Merge, Merged]]) -> str | None:
        """Replace the files of all merges whose files are still there."""
        done = self._racing(partial(self._replace, ready))
        late = [each for each in ready if each not in done]
        if not late:
            return None
        self._remove([merged.path for _, merged in late])
        labels = ", ".join(merge.label for merge, _ in late)
        _log.warning("files_not_merged", files=labels, reason="another job replaced them meanwhile")
        return f"Another job replaced files of {len(late)} merges meanwhile"

    def _replace(
        self, ready: Sequence[tuple[Merge, Merged]], loaded: LoadedTable
    ) -> list[tuple[Merge, Merged]]:
        """On the table as it is; the merges that are in the commit."""
        live = clean_files(loaded)
        spec = loaded.spec().spec_id
        done = [
            (merge, merged)
            for merge, merged in ready
            if all(each.path in live and live[each.path].spec_id == spec for each in merge.files)
        ]
        if done:
            old = [live[each.path] for merge, _ in done for each in merge.files]
            new = [
                data_file(loaded, merged.path, merged.size_bytes, merge.files[0].values)
                for merge, merged in done
            ]
            replace_files(loaded, old, new, _position_marks(loaded))
        return done

    # ---- snapshots

    def expire(self) -> MaintainedStep:
        """Let old snapshots expire, and remove the files that only they have."""
        with self.table.loaded() as loaded:
            expired = _expired(loaded, self.options)
            before = self._reachable(loaded, loaded.snapshots())
            kept = [each for each in loaded.snapshots() if each.snapshot_id not in expired]
            after = self._reachable(loaded, kept)
            snapshots = len(loaded.snapshots())
        if expired and self.execute:
            self._racing(partial(_expire, expired))
            with self.table.loaded() as loaded:  # with what others have committed meanwhile
                now = self._reachable(loaded, loaded.snapshots())
            self._remove([each for each in before if each not in now and each not in after])
        return MaintainedStep("expire", *_pairs(before, after), snapshots, snapshots - len(expired))

    def _reachable(self, loaded: LoadedTable, snapshots: Iterable[Snapshot]) -> dict[str, int]:
        """The files of snapshots, with their bytes; of a list of manifests they are unknown."""
        found: dict[str, int] = {}
        manifests: dict[str, Any] = {}
        with ThreadPoolExecutor(THREADS, "kafkalog-manifests") as threads:
            lists = [each for each in snapshots if each.manifest_list]
            for snapshot, listed in zip(
                lists, threads.map(lambda each: each.manifests(loaded.io), lists), strict=True
            ):
                found[snapshot.manifest_list] = 0
                for each in listed:
                    found[each.manifest_path] = each.manifest_length
                    manifests[each.manifest_path] = each
            new = [each for path, each in manifests.items() if path not in self.cached]
            read = threads.map(lambda each: each.fetch_manifest_entry(loaded.io), new)
            for manifest, entries in zip(new, read, strict=True):
                files = [each.data_file for each in entries]
                self.cached[manifest.manifest_path] = {
                    each.file_path: each.file_size_in_bytes for each in files
                }
        for path in manifests:
            found |= self.cached[path]
        return found

    # ---- orphans

    def remove_orphans(self) -> MaintainedStep:
        """Remove old files that belong to nothing."""
        stored = self.table.store.stored_files()
        with self.table.loaded() as loaded:  # after the listing
            snapshots = len(loaded.snapshots())
            known = {*self._reachable(loaded, loaded.snapshots()), *_metadata_files(loaded)}
        orphans = _orphans(self.table, stored, known, self.options.orphans_before_ms)
        if self.execute:
            self._remove(orphans)
        before = {path: each.size_bytes for path, each in stored.items()}
        after = {path: before[path] for path in before.keys() - set(orphans)}
        return MaintainedStep("orphans", *_pairs(before, after), snapshots, snapshots)

    # ---- parts

    def _racing(self, commit: Callable[[LoadedTable], T]) -> T:
        """A commit on the table as it is, made again after a commit of others, and only then.

        After an error of unknown outcome the files of the commit may be in the table.
        """
        from pyiceberg.exceptions import CommitFailedException

        random = SystemRandom()
        for tries in range(1, _RACES.tries + 1):
            with self.table.loaded() as loaded, suppress(CommitFailedException):
                return commit(loaded)
            self.clock.sleep(_RACES.pause_seconds(tries, random))
        raise UnusableTable(
            f"{self.table.name} was changed during each of {_RACES.tries} commits: try again"
        )

    def _remove(self, paths: Sequence[str]) -> None:
        self.table.store.remove_all(paths)


def _pairs(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[int, int, int, int]:
    return len(before), len(after), sum(before.values()), sum(after.values())


def _live(loaded: LoadedTable) -> dict[str, int]:
    """The bytes of each data file in the current snapshot."""
    files = [each.file for each in loaded.scan().plan_files()]
    return {each.file_path: each.file_size_in_bytes for each in files}


def _small_files(loaded: LoadedTable) -> list[SmallFile]:
    """The files that may be merged: of the current spec, with rows of one partition of a topic."""
    from pyiceberg.conversions import from_bytes

    schema, spec = loaded.schema(), loaded.spec()
    fields = [schema.find_field(name) for name in ("topic", "partition", "offset")]
    at_topic = next(
        (
            at
            for at, each in enumerate(spec.fields)
            if each.source_id == fields[0].field_id and str(each.transform) == "identity"
        ),
        None,
    )

    def bounds_of(file: DataFile, field: NestedField) -> tuple[Any, ...]:
        return tuple(
            from_bytes(field.field_type, bounds[field.field_id])
            for bounds in (file.lower_bounds, file.upper_bounds)
        )

    found: list[SmallFile] = []
    for file in clean_files(loaded).values():
        has_bounds = all(each.field_id in (file.lower_bounds or {}) for each in fields)
        if file.spec_id != spec.spec_id or not has_bounds:
            continue
        values = tuple(file.partition[at] for at in range(len(spec.fields)))
        topics = bounds_of(file, fields[0])  # of a long name only the beginning
        if at_topic is not None:
            topics = (values[at_topic],) * 2
        partitions, offsets = bounds_of(file, fields[1]), bounds_of(file, fields[2])
        if topics[0] == topics[1] and partitions[0] == partitions[1]:
            found.append(
                SmallFile(
                    file.file_path,
                    values,
                    topics[0],
                    partitions[0],
                    offsets[0],
                    offsets[1],
                    file.record_count,
                    file.file_size_in_bytes,
                )
            )
    return found


def _position_marks(loaded: LoadedTable) -> dict[str, str]:
    """The archive's position, to be repeated: the snapshot that has it may expire one day."""
    holder = _position_holder(loaded)
    marks = {} if holder is None else properties_of(holder)
    return {name: marks[name] for name in marks if name.startswith(MARKS)}


def _position_holder(loaded: LoadedTable) -> Snapshot | None:
    """The nearest snapshot with a position, or None."""
    for each in ancestors(loaded):
        if any(name.startswith(MARKS) for name in properties_of(each)):
            return each
    return None


def _expired(loaded: LoadedTable, options: MaintainOptions) -> set[int]:
    """The ids of the snapshots that expire."""
    kept = {each.snapshot_id for each in loaded.refs().values()}
    kept |= {each.snapshot_id for each in list(ancestors(loaded))[: options.snapshots_kept]}
    holder = _position_holder(loaded)
    if holder is not None:
        kept.add(holder.snapshot_id)
    return {
        each.snapshot_id
        for each in loaded.snapshots()
        if each.timestamp_ms < options.expire_before_ms and each.snapshot_id not in kept
    }


def _expire(expired: set[int], loaded: LoadedTable) -> None:
    """Commit the end of snapshots; one that a branch or tag has got meanwhile stays."""
    named = {each.snapshot_id for each in loaded.refs().values()}
    there = {each.snapshot_id for each in loaded.snapshots()}
    ids = (expired & there) - named
    if ids:
        without_retries(loaded)
        loaded.maintenance.expire_snapshots().by_ids(sorted(ids)).commit()


def _metadata_files(loaded: LoadedTable) -> set[str]:
    """The files of a table that are in no snapshot."""
    metadata = loaded.metadata
    found = {loaded.metadata_location, *(each.metadata_file for each in metadata.metadata_log)}
    for each in (*metadata.statistics, *metadata.partition_statistics):
        found.add(each.statistics_path)
    return found


def _orphans(
    table: IcebergTable, stored: Mapping[str, Any], known: set[str], before_ms: int
) -> list[str]:
    """The stored files that nobody knows and that are old enough. Raises UnusableTable.

    Paths are compared without scheme. A known name at another path means that the table was moved
    or is named in two ways: then nothing can be told by paths.
    """
    places = {table.store.place_of(each) for each in known}
    names = {each.rpartition("/")[2] for each in places}
    orphans: list[str] = []
    for path, file in stored.items():
        if table.store.place_of(path) in places:
            continue
        name = path.rpartition("/")[2]
        if name in names:
            raise UnusableTable(
                f"{table.name} names {name} by another path than {path}: its location "
                "has two names, so that orphans cannot be told from files of the table"
            )
        is_hidden = name.startswith((".", "_")) or name == "version-hint.text"
        if not is_hidden and file.modified_ms is not None and file.modified_ms < before_ms:
            orphans.append(path)
    return orphans
