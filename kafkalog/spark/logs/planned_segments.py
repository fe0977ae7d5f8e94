"""The segments that a plan of pieces is made of, and the reads of many plans at once.

Sizes come from the listing of a partition's directory. Whether an index belongs to its ``.log`` is
not asked again: both are of one listing, and a reader checks what an entry says.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from kafkalog.errors import UnknownPartition, UnknownTopic
from kafkalog.format.disk.file_names import OFFSET_INDEX_SUFFIX
from kafkalog.format.disk.index_entries import OFFSET_ENTRY
from kafkalog.spark.logs.listed_store import ListedStore
from kafkalog.spark.logs.partition_files import PartitionFiles, retried
from kafkalog.spark.logs.piece_plan import IndexedSegment, PiecePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from kafkalog.env.filesystem import ReadFilesystem
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.spark.logs.listed_store import Requests
    from kafkalog.spark.logs.piece_plan import IndexRead
    from kafkalog.spark.logs.plan_cache import Neighbours, Versions
    from kafkalog.spark.logs.values import OffsetRange, Piece

    Steps = Generator[list[IndexRead], list[bytes], list[Piece]]

T = TypeVar("T")

PLANS_AT_ONCE = 16
"""Ranges that are planned together: their reads are what memory holds."""

_BASE_OFFSET = attrgetter("base_offset")


class PlannedSegments:
    """The segments of partitions for one call; the last partition's are held for its next range."""

    def __init__(
        self,
        filesystem: ReadFilesystem,
        place_of: Callable[[str, int], str],
        store: ListedStore | None,
    ) -> None:
        """``place_of``: the directory of a topic's partition. ``store``: the file system."""
        self._filesystem = filesystem
        self._place_of = place_of
        self._store = store
        self._held: tuple[tuple[str, int], str, list[IndexedSegment]] | None = None

    def list_files(self, at: TopicPartition) -> None:
        """List a partition's directory, so that its plan need not wait for it."""
        deleted = FileNotFoundError, UnknownTopic, UnknownPartition
        with contextlib.suppress(*deleted):  # see its plan
            self._filesystem.list_dir(self._place_of(at.topic, at.partition))

    def plan(
        self, wanted: OffsetRange, target_bytes: int, cache: Versions[str, Neighbours]
    ) -> Steps:
        """The plan of a range."""
        partition = wanted.topic, wanted.partition
        if self._held is None or self._held[0] != partition:
            self._held = None
            name = f"{wanted.topic}-{wanted.partition}"
            self._held = (partition, *retried(lambda: self._listed(*partition), name))
        _, place, segments = self._held
        first = max(bisect_right(segments, wanted.from_offset, key=_BASE_OFFSET) - 1, 0)
        end = bisect_left(segments, wanted.to_offset, key=_BASE_OFFSET)
        some = segments[first:end]
        return PiecePlan(place, wanted, some, target_bytes=target_bytes, cache=cache).steps()

    def _listed(self, topic: str, partition: int) -> tuple[str, list[IndexedSegment]]:
        place = self._place_of(topic, partition)
        files = PartitionFiles.listed(self._filesystem, place)
        sizes = {each.name: each.size for each in self._filesystem.list_dir_stats(place)}
        found: list[IndexedSegment] = []
        ends = [*(each.base_offset for each in files.segments[1:]), None]
        for segment, end_offset in zip(files.segments, ends, strict=False):
            log, index = segment.path(), segment.path(OFFSET_INDEX_SUFFIX)
            log_name, index_name = log.rpartition("/")[2], index.rpartition("/")[2]
            if log_name not in sizes:
                raise FileNotFoundError(log)  # renamed between the two listings
            has_index = index_name in sizes
            identity = None
            if self._store is not None and has_index:
                both = self._store.identity(log), self._store.identity(index)
                identity = None if None in both else both
            entries = sizes.get(index_name, 0) // OFFSET_ENTRY.size
            found.append(
                IndexedSegment(
                    segment.base_offset,
                    end_offset,
                    sizes[log_name],
                    index,
                    entries,
                    bool(segment.stage),
                    identity,
                )
            )
        return place, found


def read_index(filesystem: ReadFilesystem, part: IndexRead) -> bytes:
    """A part of an index; shorter if it is shorter, empty if it is gone."""
    try:
        if isinstance(filesystem, ListedStore):
            return filesystem.read_part(*part)
        file = filesystem.open_read(part.path)
    except FileNotFoundError:
        return b""
    try:
        return file.pread(part.size, part.position)
    finally:
        file.close()


def run_steps(
    plans: Iterable[Generator[list[IndexRead], list[bytes], T]],
    read: Callable[[IndexRead], bytes],
    requests: Requests,
) -> list[T]:
    """The results of all plans in order. The reads of some plans are made together."""
    coming = enumerate(plans)
    under_way: list[tuple[int, Generator[list[IndexRead], list[bytes], T], list[IndexRead]]] = []
    found: dict[int, T] = {}

    def go_on(
        number: int, plan: Generator[list[IndexRead], list[bytes], T], data: list[bytes] | None
    ) -> None:
        try:
            reads = next(plan) if data is None else plan.send(data)
        except StopIteration as done:
            found[number] = done.value
        else:
            under_way.append((number, plan, reads))

    is_more = True
    while is_more or under_way:
        while is_more and len(under_way) < PLANS_AT_ONCE:
            number, plan = next(coming, (0, None))
            is_more = plan is not None
            if plan is not None:
                go_on(number, plan, None)
        waiting, under_way = under_way, []
        results = iter(requests.map(read, [each for _, _, reads in waiting for each in reads]))
        for number, plan, reads in waiting:
            go_on(number, plan, [next(results) for _ in reads])
    return [found[number] for number in sorted(found)]
