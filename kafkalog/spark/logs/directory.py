"""Logs in log directories, also under a running daemon: topics, bounds, pieces, offsets by time.

The end of a log (`Bounds`) while a process holds the ``.lock`` of its directory is the high
watermark in ``replication-offset-checkpoint``, which is up to five seconds old. A power cut may
remove records above it, and other records would get their offsets after a reader has passed them:
it is better to be late, and a reader that must be current asks the daemon. Without a daemon a log
ends with its last valid batch, as after a start.

The first record at or after a time is looked up in the time indexes. An index entry (timestamp,
offset) says that no record up to the offset is newer. It is a hint: the answer is a record that
was read. Source: Kafka's LogSegment.findOffsetByTimestamp.

On an object store a look-up begins with `topics`: until the next one everything is answered from
the listings that it began with (`listed_store`), and requests are made at once where they do not
depend on each other.

One thread. No descriptor is kept between calls.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

import structlog

from kafkalog.env.clock import SystemClock
from kafkalog.errors import UnknownPartition, UnknownTopic
from kafkalog.format.disk.file_names import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.offset_ranges import not_accepted
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.inspect.directory_facts import proof_of
from kafkalog.spark.logs.directory_reader import LogWalk, last_stable_offset, newest_snapshot
from kafkalog.spark.logs.listed_store import Concurrent, ListedStore, OneByOne
from kafkalog.spark.logs.object_store import ObjectStore, RequestRetries, filesystem_for, shown
from kafkalog.spark.logs.partition_files import (
    Checkpoints,
    PartitionFiles,
    partitions_in,
    place_of,
    readable_offsets,
    retried,
    topic_id_in,
)
from kafkalog.spark.logs.plan_cache import OF_PROCESS
from kafkalog.spark.logs.planned_segments import PlannedSegments, read_index, run_steps
from kafkalog.spark.logs.time_search import candidates, first_in, newer_from
from kafkalog.spark.logs.values import (
    AmbiguousPartition,
    Bounds,
    CorruptLog,
    OffsetRange,
    Piece,
    UnusableLogDir,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Mapping

    from kafkalog.env.clock import Clock
    from kafkalog.env.filesystem import ReadFilesystem
    from kafkalog.spark.logs.listed_store import Requests
    from kafkalog.spark.logs.piece_plan import IndexRead
    from kafkalog.spark.logs.plan_cache import PlanCache
    from kafkalog.spark.logs.planned_segments import Steps
    from kafkalog.spark.logs.values import Access

_log = structlog.get_logger(__name__)

_CHECKPOINTS = (HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT)


class DirectoryLogs:
    """See `Logs`, and the module."""

    def __init__(
        self,
        access: Access,
        filesystem: ReadFilesystem | None = None,
        *,
        requests: Requests | None = None,
        cache: PlanCache = OF_PROCESS,
        clock: Clock | None = None,
    ) -> None:
        """None: the file system of the paths, with concurrent requests if it is a store.

        ``clock``: for pauses between tries of a request.
        """
        self.access = access
        self._cache = cache
        self._store: ListedStore | None = None
        if filesystem is None:
            retries = RequestRetries(clock=clock or SystemClock())
            filesystem = filesystem_for(access.paths, retries)
        self._requests: Requests = requests or OneByOne()
        if isinstance(filesystem, ObjectStore):
            filesystem = self._store = ListedStore(filesystem, cache)
            self._requests = requests or Concurrent(access.max_concurrent_requests)
        self._filesystem: ReadFilesystem = filesystem
        self._checkpoints = Checkpoints(self._filesystem)
        # A query for one of these raises UnusableLogDir; all other partitions can be read.
        self._problems: dict[TopicPartition, str] = {}
        self._warned = set[str]()

    def close(self) -> None:
        """End the threads of requests: no descriptor is kept."""
        self._requests.close()

    def topics(self) -> dict[str, list[int]]:
        """See Logs."""
        if self._store is not None:
            self._store.forget()
        return self._topics()

    def _topics(self) -> dict[str, list[int]]:
        found: dict[str, set[int]] = {}
        problems: dict[TopicPartition, str] = {}
        for path in self.access.paths:
            for each, problem in partitions_in(self._filesystem, path).items():
                found.setdefault(each.topic, set()).add(each.partition)
                if problem is not None:
                    problems[each] = problem
        self._problems = problems
        return {topic: sorted(found[topic]) for topic in sorted(found)}

    def bounds(self, topic: str, partition: int) -> Bounds:
        """See Logs. Raises CorruptCheckpoint, too."""
        name = TopicPartition(topic, partition)
        return retried(lambda: self._bounds_at(self._place(topic, partition), name), str(name))

    def all_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """See Logs. Raises CorruptCheckpoint, too."""
        wanted = list(partitions)
        if self._store is not None and wanted:
            for path in self.access.paths:  # once, not in every thread
                for name in _CHECKPOINTS:
                    self._checkpoints.offsets(path, name)

        def bounds_or_none(at: TopicPartition) -> Bounds | None:
            try:
                return self.bounds(at.topic, at.partition)
            except (UnknownTopic, UnknownPartition):  # deleted since it was listed
                return None

        found = zip(wanted, self._requests.map(bounds_or_none, wanted), strict=True)
        return {at: bounds for at, bounds in found if bounds is not None}

    def _bounds_at(self, place: str, name: TopicPartition) -> Bounds:
        log_dir = place.rsplit("/", 1)[0]
        is_live = self._filesystem.is_locked(f"{log_dir}/{LOCK}")
        # Before the listing, so that the files have everything below the high watermark.
        high_watermark = self._checkpoints.offsets(log_dir, HIGH_WATERMARK_CHECKPOINT).get(name, 0)
        start = self._checkpoints.offsets(log_dir, LOG_START_OFFSET_CHECKPOINT).get(name, 0)
        files = PartitionFiles.listed(self._filesystem, place)
        if files.segments:
            start = max(start, self._first_offset(files))
        wanted = OffsetRange(name.topic, name.partition, start, INT64_MAX)
        end = high_watermark if is_live else self._valid_end(log_dir, files, wanted)
        if self.access.read_committed and end > start:
            end = self._last_stable_offset(files, wanted._replace(to_offset=end))
        return Bounds(start, max(start, end))

    def _first_offset(self, files: PartitionFiles) -> int:
        """The first offset, or that of a loss before it that was neither accepted nor deleted."""
        first = files.segments[0].base_offset
        orphans = [each for each in files.orphans if each < first]
        if not orphans:
            return first
        proof = proof_of(self._filesystem, files.path)
        begin = max(orphans[0], proof.log_start_offset)  # retention stores its log start there
        lost = not_accepted([(begin, first - 1)] if begin < first else [], proof.accepted_losses)
        return lost[0].first_offset if lost else first

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """See Logs. Raises CorruptLog, DataLost if the range is deleted meanwhile."""
        at = TopicPartition(topic, partition)
        return self.all_offsets_at({at: timestamp_ms})[at]

    def all_offsets_at(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """See Logs. Raises what `offset_at` raises."""
        known = self.all_bounds(times_ms)
        ranges = []
        for at in times_ms:
            bounds = known[at] if at in known else self.bounds(at.topic, at.partition)
            ranges.append(OffsetRange(at.topic, at.partition, *bounds))
        if self._store is not None:
            steps = (self._newer_from(each, times_ms[TopicPartition(*each[:2])]) for each in ranges)
            firsts = run_steps(steps, partial(read_index, self._filesystem), self._requests)
            ranges = [
                each._replace(from_offset=first) for each, first in zip(ranges, firsts, strict=True)
            ]

        def offset_of(wanted: OffsetRange) -> int | None:
            return self._offset_in(wanted, times_ms[TopicPartition(*wanted[:2])])

        return dict(zip(times_ms, self._requests.map(offset_of, ranges), strict=True))

    def _newer_from(
        self, wanted: OffsetRange, timestamp_ms: int
    ) -> Generator[list[IndexRead], list[bytes], int]:
        assert self._store is not None
        files = retried(partial(self._files_of, wanted), f"{wanted.topic}-{wanted.partition}")
        return newer_from(self._store, self._cache, files, wanted, timestamp_ms)

    def _files_of(self, wanted: OffsetRange) -> PartitionFiles:
        place = self._place(wanted.topic, wanted.partition)
        return PartitionFiles.listed(self._filesystem, place)

    def _offset_in(self, wanted: OffsetRange, timestamp_ms: int) -> int | None:
        """The first record of a range that is not older."""
        filesystem, paths = self._filesystem, self.access.paths
        place = self._place(wanted.topic, wanted.partition)
        whole = LogWalk(filesystem, place, wanted, paths=paths)

        def candidate_in(left: OffsetRange) -> OffsetRange | None:
            return next(candidates(filesystem, whole.listed(), left, timestamp_ms), None)

        while wanted.from_offset < wanted.to_offset:
            candidate = retried(partial(candidate_in, wanted), shown(place))
            if candidate is None:
                return None
            walk = LogWalk(filesystem, place, candidate, paths=paths, check_crcs=True)
            for read in walk.chunks():
                found = first_in(read, candidate, timestamp_ms)
                if found is not None:
                    return found
            wanted = wanted._replace(from_offset=candidate.to_offset)
        return None

    def pieces(self, wanted: OffsetRange, target_bytes: int) -> list[Piece]:
        """See Logs."""
        return self._pieces([wanted], target_bytes, left_out=())

    def all_pieces(self, ranges: Iterable[OffsetRange], target_bytes: int) -> list[Piece]:
        """See Logs."""
        deleted = UnknownTopic, UnknownPartition
        return self._pieces(ranges, target_bytes, left_out=deleted)

    def _pieces(
        self,
        ranges: Iterable[OffsetRange],
        target_bytes: int,
        *,
        left_out: tuple[type[Exception], ...],
    ) -> list[Piece]:
        wanted = [each for each in ranges if each.from_offset < each.to_offset]
        segments = PlannedSegments(self._filesystem, self._place, self._store)
        if self._store is not None:
            partitions = dict.fromkeys(TopicPartition(*each[:2]) for each in wanted)
            self._requests.map(segments.list_files, partitions)

        def plans() -> Iterator[Steps]:
            for each in wanted:
                with contextlib.suppress(*left_out):
                    yield segments.plan(each, target_bytes, self._cache.neighbours)

        parts = run_steps(plans(), partial(read_index, self._filesystem), self._requests)
        return [piece for part in parts for piece in part]

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The ids of these topics in their partitions' directories, without topics that have none.

        Raises OSError, CorruptData, AmbiguousPartition.
        """
        found: dict[str, str] = {}
        for path in self.access.paths:
            there = partitions_in(self._filesystem, path)
            named = [each for each in there if each.topic in topics]
            topic_ids = self._requests.map(
                partial(topic_id_in, self._filesystem), [f"{path}/{each}" for each in named]
            )
            for each, topic_id in zip(named, topic_ids, strict=True):
                if topic_id is not None and found.setdefault(each.topic, topic_id) != topic_id:
                    raise AmbiguousPartition(
                        f"Partitions of two topics have the name {each.topic}: one has the id "
                        f"{found[each.topic]}, {shown(path)}/{each} has {topic_id}"
                    )
        return found

    def all_durable_ends(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """``ends`` after a clean shutdown, else at most the checkpointed recovery points.

        A power cut loses nothing below them. 0 for a partition that is in no directory, because
        it is being moved. Raises AmbiguousPartition, OSError.
        """

        def log_dir_of(at: TopicPartition) -> str | None:
            place = place_of(self._filesystem, self.access.paths, at.topic, at.partition)
            return None if place is None else place.rpartition("/")[0]

        log_dirs = dict(zip(ends, self._requests.map(log_dir_of, ends), strict=True))
        points = {each: self._recovery_points(each) for each in set(log_dirs.values()) if each}
        return {
            at: 0 if log_dir is None else self._durable_end(log_dir, points[log_dir], at, ends[at])
            for at, log_dir in log_dirs.items()
        }

    def _recovery_points(self, log_dir: str) -> Mapping[TopicPartition, int] | None:
        """None: everything is durable, because the directory was shut down cleanly."""
        is_served = self._filesystem.is_locked(f"{log_dir}/{LOCK}")
        if not is_served and self._filesystem.exists(f"{log_dir}/{CLEAN_SHUTDOWN}"):
            return None
        return readable_offsets(self._filesystem, log_dir, RECOVERY_POINT_CHECKPOINT)[0]

    def _durable_end(
        self,
        log_dir: str,
        points: Mapping[TopicPartition, int] | None,
        at: TopicPartition,
        end: int,
    ) -> int:
        """The lower of ``end`` and the recovery point; says once that records are left out."""
        if points is None or points.get(at, 0) >= end:
            return end
        is_served = self._filesystem.is_locked(f"{log_dir}/{LOCK}")
        if not is_served and log_dir not in self._warned:
            self._warned.add(log_dir)
            _log.warning(
                "archive_ends_at_recovery_point",
                directory=shown(log_dir),
                reason="no daemon has shut it down cleanly: records above may not be durable",
                what_to_do="start the daemon and stop it, or archive while it runs",
            )
        return points.get(at, 0)

    def report_archived(self, topic: str, offsets: Mapping[int, int], topic_id: str) -> None:
        """Nothing: only a run over a daemon's URL reports to it."""

    def _place(self, topic: str, partition: int) -> str:
        problem = self._problems.get(TopicPartition(topic, partition))
        if problem is not None:
            raise UnusableLogDir(problem)
        place = place_of(self._filesystem, self.access.paths, topic, partition)
        if place is not None:
            return place
        paths = ", ".join(map(shown, self.access.paths))
        if topic in self._topics():
            raise UnknownPartition(f"Topic {topic} has no partition {partition} in {paths}")
        raise UnknownTopic(f"There is no topic {topic} in {paths}")

    def _valid_end(self, log_dir: str, files: PartitionFiles, wanted: OffsetRange) -> int:
        """The end of the last valid batch; all below the recovery point are durable and valid.

        Without a recovery point only the last segment is read. On a store the end is remembered
        as long as the segments that were read are the same objects.
        """
        if not files.segments:
            return wanted.from_offset
        first, last = files.segments[0].base_offset, files.segments[-1].base_offset
        recovery_points = self._checkpoints.offsets(log_dir, RECOVERY_POINT_CHECKPOINT)
        begin = recovery_points.get(TopicPartition(wanted.topic, wanted.partition), last)
        begin = max(first, begin)
        walk = LogWalk(
            self._filesystem, files.path, wanted._replace(from_offset=begin), check_crcs=True
        )

        def end() -> int:
            with contextlib.suppress(CorruptLog):  # a torn tail, or zeros: a start truncates it
                for _ in walk.chunks():
                    pass
            return walk.end_offset

        identity = self._identity_of(files, begin)
        if identity is None:
            return end()
        return self._cache.ends.get_or(files.path, identity, end)

    def _identity_of(self, files: PartitionFiles, begin: int) -> object:
        """Of the segments from an offset on; None: not known."""
        if self._store is None:
            return None
        floor = files.floor(begin)
        paths = [
            each.path()
            for each in files.segments
            if floor is None or each.base_offset >= floor.base_offset
        ]
        identities = [self._store.identity(each) for each in paths]
        return None if None in identities else (begin, *paths, *identities)

    def _last_stable_offset(self, files: PartitionFiles, wanted: OffsetRange) -> int:
        known, opened = newest_snapshot(self._filesystem, files, wanted.to_offset)
        begin = wanted._replace(from_offset=max(known, wanted.from_offset))
        walk = LogWalk(self._filesystem, files.path, begin, paths=self.access.paths)
        return last_stable_offset(opened, (read.table for read in walk.chunks()), wanted.to_offset)
