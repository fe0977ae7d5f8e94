"""DirectoryLogs: topics, bounds and pieces of log directories, offline or under a running daemon.

Where reading ends (`Bounds`): while a process holds the directory's ``.lock``, at the high
watermark that it last wrote to ``replication-offset-checkpoint``, up to five seconds behind the
truth. What lies behind may be taken back by a power cut, and other records would get the offsets
that a reader has passed already: being late is the lesser evil, and who needs to be current asks
the daemon. Without a daemon the log ends with its last valid batch, which a start would keep.

One thread. Keeps no descriptor between calls.

The first record at or after a time, by the time indexes of a partition's directory.

An index entry (timestamp, offset) says that nothing up to the offset is newer. It is a hint: the
answer is a record that was read. Source: Kafka's LogSegment.findOffsetByTimestamp.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np
import structlog

from kafkalog.errors import CorruptData, KafkalogError, UnknownPartition, UnknownTopic
from kafkalog.format.disk.file_names import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkalog.format.disk.properties import decode_partition_metadata
from kafkalog.format.integers import INT64_MAX, FormatError
from kafkalog.format.offset_ranges import not_accepted
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.format.records.record import read_records
from kafkalog.format.topic_names import TopicPartition, encode_id
from kafkalog.log.inspect.directory_proof import proof_of
from kafkalog.spark.logs.directory_reader import LogWalk, last_stable_offset, newest_snapshot
from kafkalog.spark.logs.object_store import filesystem_for, shown
from kafkalog.spark.logs.partition_files import (
    LISTINGS_MAX,
    Checkpoints,
    PartitionFiles,
    offset_entries,
    partitions_in,
    place_of,
    readable_offsets,
    time_entries,
)
from kafkalog.spark.logs.pieces import Cuts, cut
from kafkalog.spark.logs.values import (
    AmbiguousPartition,
    Bounds,
    CorruptLog,
    OffsetRange,
    Piece,
    UnusableLogDir,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from kafkalog.env.filesystem import ReadFilesystem
    from kafkalog.spark.logs.directory_reader import Walked
    from kafkalog.spark.logs.values import Access

_log = structlog.get_logger(__name__)


def first_record_at(
    filesystem: ReadFilesystem,
    paths: Sequence[str],
    place: str,
    wanted: OffsetRange,
    timestamp_ms: int,
) -> int | None:
    """Offset of the first record of the range that is not older; None: all are.

    Raises CorruptLog, DataLost when retention took the range meanwhile, and OSError.
    """
    whole = LogWalk(filesystem, place, wanted, paths=paths)
    for _ in range(LISTINGS_MAX):
        files = whole.listed()
        try:
            candidates = list(_candidates(filesystem, files, wanted, timestamp_ms))
        except FileNotFoundError:
            continue  # a segment lost its name meanwhile
        break
    else:
        raise FileNotFoundError(2, "Its segments vanish at every look", shown(place))
    for candidate in candidates:
        walk = LogWalk(filesystem, files.path, candidate, paths=paths, check_crcs=True)
        for read in walk.chunks():
            found = _first_in(read, candidate, timestamp_ms)
            if found is not None:
                return found
    return None


def _candidates(
    filesystem: ReadFilesystem, files: PartitionFiles, wanted: OffsetRange, timestamp_ms: int
) -> Iterator[OffsetRange]:
    """Where it may be, segment by segment."""
    for segment in files.segments:
        following = files.behind(segment)
        end = wanted.to_offset if following is None else following.base_offset
        begin, end = max(wanted.from_offset, segment.base_offset), min(wanted.to_offset, end)
        if begin >= end:
            continue
        file = filesystem.open_read(segment.path())
        entries = time_entries(filesystem, segment, file)
        slot = int(np.searchsorted(entries[:, 0], timestamp_ms)) - 1
        if slot >= 0 and slot == len(entries) - 1 and following is not None:
            continue  # of a closed segment the last entry is the newest record
        if slot >= 0:
            begin = max(begin, int(entries[slot, 1]))
        if begin < end:
            yield wanted._replace(from_offset=begin, to_offset=end)


def _first_in(read: Walked, wanted: OffsetRange, timestamp_ms: int) -> int | None:
    """The first record of a read that is not older, in the batches whose header promises one."""
    rows = read.table[read.table[:, BatchColumn.MAX_TIMESTAMP] >= timestamp_ms]
    for row in rows.tolist():
        start = row[BatchColumn.POSITION]
        batch = read.data[start : start + row[BatchColumn.SIZE]]
        try:
            records = read_records(batch)
        except (FormatError, KafkalogError) as error:
            raise CorruptLog(
                wanted,
                row[BatchColumn.BASE_OFFSET],
                str(error),
                file=read.file,
                position=read.position + start,
            ) from error
        hits = np.flatnonzero(
            (records.timestamps >= timestamp_ms)
            & (records.offsets >= wanted.from_offset)
            & (records.offsets < wanted.to_offset)
        )
        if len(hits):
            return int(records.offsets[hits[0]])
    return None


class DirectoryLogs:
    """See `Logs`, and the module."""

    def __init__(self, access: Access, filesystem: ReadFilesystem | None = None) -> None:
        self.access = access
        self._filesystem = filesystem or filesystem_for(access.paths)
        self._checkpoints = Checkpoints(self._filesystem)
        # A query for one of these raises UnusableLogDir; all other partitions can be read.
        self._problems: dict[TopicPartition, str] = {}
        self._warned = set[str]()

    def close(self) -> None:
        """Nothing is kept open."""

    def topics(self) -> dict[str, list[int]]:
        """See Logs."""
        found: dict[str, set[int]] = {}
        problems: dict[TopicPartition, str] = {}
        for path in self.access.paths:
            for each, problem in partitions_in(self._filesystem, path):
                found.setdefault(each.topic, set()).add(each.partition)
                if problem is not None:
                    problems[each] = problem
        self._problems = problems
        return {topic: sorted(found[topic]) for topic in sorted(found)}

    def bounds(self, topic: str, partition: int) -> Bounds:
        """See Logs. Raises CorruptCheckpoint, too."""
        for _ in range(LISTINGS_MAX):
            place = self._place(topic, partition)
            with contextlib.suppress(FileNotFoundError):  # it moves to another directory
                return self._bounds_at(place, TopicPartition(topic, partition))
        raise FileNotFoundError(2, "It moves at every look", shown(place))

    def _bounds_at(self, place: str, name: TopicPartition) -> Bounds:
        log_dir = place.rsplit("/", 1)[0]
        is_live = self._filesystem.is_locked(f"{log_dir}/{LOCK}")
        # Before the listing: what it says to be readable is in the files then.
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
        """Of the first segment, or of what is lost in front of it and nobody gave up or deleted."""
        first = files.segments[0].base_offset
        orphans = [each for each in files.orphans if each < first]
        if not orphans:
            return first
        proof = proof_of(self._filesystem, files.path)
        begin = max(orphans[0], proof.log_start_offset)  # what retention moves is told there alone
        lost = not_accepted([(begin, first - 1)] if begin < first else [], proof.accepted_losses)
        return lost[0].first_offset if lost else first

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """See Logs. Raises CorruptLog where it meets what is no sound batch."""
        start, end = self.bounds(topic, partition)
        wanted = OffsetRange(topic, partition, start, end)
        place = self._place(topic, partition)
        return first_record_at(self._filesystem, self.access.paths, place, wanted, timestamp_ms)

    def pieces(self, wanted: OffsetRange, target_bytes: int) -> list[Piece]:
        """See Logs."""
        if wanted.from_offset >= wanted.to_offset:
            return []
        for _ in range(LISTINGS_MAX):
            place = self._place(wanted.topic, wanted.partition)
            with contextlib.suppress(FileNotFoundError):  # a segment or all lost their names
                cuts = self._cuts(PartitionFiles.listed(self._filesystem, place), wanted)
                return cut(place, wanted, cuts, target_bytes)
        raise FileNotFoundError(2, "Its segments vanish at every look", shown(place))

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The ids of these topics in their partitions' directories, without topics that have none.

        Raises OSError, CorruptData, AmbiguousPartition.
        """
        found: dict[str, str] = {}
        for path in self.access.paths:
            for each, _ in partitions_in(self._filesystem, path):
                if each.topic not in topics:
                    continue
                topic_id = self._topic_id(f"{path}/{each}/{PARTITION_METADATA}")
                if topic_id is not None and found.setdefault(each.topic, topic_id) != topic_id:
                    raise AmbiguousPartition(
                        f"Partitions of two topics have the name {each.topic}: one has the id "
                        f"{found[each.topic]}, {shown(path)}/{each} has {topic_id}"
                    )
        return found

    def _topic_id(self, path: str) -> str | None:
        try:
            return encode_id(decode_partition_metadata(self._filesystem.read_file(path)))
        except FileNotFoundError:  # a Kafka without ids wrote the partition, or it is being moved
            return None
        except FormatError as error:
            raise CorruptData(error.reason, file=shown(path), position=0) from error

    def durable_end(self, topic: str, partition: int, end: int) -> int:
        """``end`` after a clean shutdown, else at most the checkpointed recovery point.

        A power cut loses nothing below it. 0 for a partition that is in no directory, because it
        is being moved. Raises AmbiguousPartition, OSError.
        """
        place = place_of(self._filesystem, self.access.paths, topic, partition)
        if place is None:
            return 0
        log_dir = place.rpartition("/")[0]
        is_served = self._filesystem.is_locked(f"{log_dir}/{LOCK}")
        if not is_served and self._filesystem.exists(f"{log_dir}/{CLEAN_SHUTDOWN}"):
            return end
        points, _ = readable_offsets(self._filesystem, log_dir, RECOVERY_POINT_CHECKPOINT)
        recovery_point = points.get(TopicPartition(topic, partition), 0)
        if recovery_point < end and not is_served and log_dir not in self._warned:
            self._warned.add(log_dir)
            _log.warning(
                "archive_ends_at_recovery_point",
                directory=shown(log_dir),
                reason="no daemon has shut it down cleanly: records above may not be durable",
                what_to_do="start the daemon and stop it, or archive while it runs",
            )
        return min(end, recovery_point)

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
        if topic in self.topics():
            raise UnknownPartition(f"Topic {topic} has no partition {partition} in {paths}")
        raise UnknownTopic(f"There is no topic {topic} in {paths}")

    def _valid_end(self, log_dir: str, files: PartitionFiles, wanted: OffsetRange) -> int:
        """Behind the last valid batch: below the recovery point all were made durable.

        Without one only the last segment is looked through.
        """
        if not files.segments:
            return wanted.from_offset
        first, last = files.segments[0].base_offset, files.segments[-1].base_offset
        recovery_points = self._checkpoints.offsets(log_dir, RECOVERY_POINT_CHECKPOINT)
        begin = recovery_points.get(TopicPartition(wanted.topic, wanted.partition), last)
        walk = LogWalk(
            self._filesystem,
            files.path,
            wanted._replace(from_offset=max(first, begin)),
            check_crcs=True,
        )
        with contextlib.suppress(CorruptLog):  # a torn tail, or zeros: a start would cut it off
            for _ in walk.chunks():
                pass
        return walk.end_offset

    def _last_stable_offset(self, files: PartitionFiles, wanted: OffsetRange) -> int:
        known, opened = newest_snapshot(self._filesystem, files, wanted.to_offset)
        begin = wanted._replace(from_offset=max(known, wanted.from_offset))
        walk = LogWalk(self._filesystem, files.path, begin, paths=self.access.paths)
        return last_stable_offset(opened, (read.table for read in walk.chunks()), wanted.to_offset)

    def _cuts(self, files: PartitionFiles, wanted: OffsetRange) -> Cuts:
        """Where the range may be cut: the beginnings of segments, and behind index entries."""
        first = files.floor(wanted.from_offset) or next(iter(files.segments), None)
        cuts = Cuts()
        for segment in files.segments:
            if first is None or segment.base_offset < first.base_offset:
                continue
            if segment.base_offset >= wanted.to_offset:
                break
            file = self._filesystem.open_read(segment.path())
            size = file.size()
            entries = offset_entries(self._filesystem, segment, file, size)
            cuts.add_segment(segment.base_offset, size, entries)
        return cuts
