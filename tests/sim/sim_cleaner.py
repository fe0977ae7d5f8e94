"""SimCleaner: a clean that reads nothing and changes nothing, but keeps to the protocol of one.

It goes through the segments of its range one chunk at a time, asks each time whether it is to end,
pays for the bytes, and hands one call a segment to the writer. What it may meet on the way is said
by the test: an error, or a call that is made at a certain chunk.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kafkalog.cleaner.cleaner import CleaningResult
from kafkalog.cleaner.stats import CleanerStats

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.cleaner.cleaner import OnWriter
    from kafkalog.cleaner.config import LogCleanerConfig
    from kafkalog.cleaner.plan import LogToClean
    from kafkalog.format.topic_names import TopicPartition

CHUNK_BYTES = 256


class SimCleaners:
    """Makes SimCleaners and remembers what they did."""

    def __init__(self) -> None:
        self.errors: deque[Exception] = deque()  # each ends one clean, in turn
        self.on_chunk: Callable[[TopicPartition], None] = lambda _: None
        self.at_work: set[TopicPartition] = set()
        self.cleaned: list[tuple[TopicPartition, int, int, bool]] = []  # from, to, dry

    def make(
        self,
        config: LogCleanerConfig,
        throttle: Callable[[int], None],
        chunk_bytes: Callable[[], int],
    ) -> SimCleaner:
        """As LogCleaner wants it."""
        del config, chunk_bytes
        return SimCleaner(self, throttle)


class SimCleaner:
    def __init__(self, world: SimCleaners, throttle: Callable[[int], None]) -> None:
        self._world = world
        self._throttle = throttle

    def clean(
        self,
        to_clean: LogToClean,
        now_ms: int,
        *,
        on_writer: OnWriter,
        check_done: Callable[[], None],
        dry_run: bool = False,
    ) -> CleaningResult:
        del now_ms
        key = to_clean.log.topic_partition
        assert key not in self._world.at_work, f"two threads clean {key}"
        self._world.at_work.add(key)
        try:
            self._walk(to_clean, on_writer, check_done, dry_run=dry_run)
        finally:
            self._world.at_work.remove(key)
        end = to_clean.first_uncleanable_offset
        self._world.cleaned.append((key, to_clean.first_dirty_offset, end, dry_run))
        size = to_clean.clean_bytes + to_clean.cleanable_bytes
        return CleaningResult(end, CleanerStats(bytes_read=size, bytes_written=size))

    def _walk(
        self,
        to_clean: LogToClean,
        on_writer: OnWriter,
        check_done: Callable[[], None],
        *,
        dry_run: bool,
    ) -> None:
        world, key = self._world, to_clean.log.topic_partition
        for segment in to_clean.log.segments.values:
            if segment.base_offset >= to_clean.first_uncleanable_offset:
                return
            for _ in range(0, segment.size_bytes, CHUNK_BYTES):
                check_done()
                world.on_chunk(key)
                self._throttle(CHUNK_BYTES)
            if world.errors:
                raise world.errors.popleft()
            if not dry_run:
                check_done()
                on_writer(lambda: None)
