"""A compacted partition on a simulated disk, and rounds of the cleaner over it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from kafkalog.cleaner.cleaner import Cleaner
from kafkalog.cleaner.config import CleanerConfig
from kafkalog.cleaner.plan import LogToClean
from kafkalog.cleaner.record_batches import RecordBatches
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.format.disk.file_names import LOG_SUFFIX, segment_file_name
from kafkalog.format.records.batch_scan import scan
from kafkalog.format.records.record import Record
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.segment.index_repair import floor_entry
from tests.log_world import LogHolder, environment_of
from tests.naive.cleaner import PlainAborted, PlainCleaner, PlainSegment, split_batches
from tests.naive.cleaning_logs import MadeSegment
from tests.naive.stored_batches import stored_batch
from tests.sim.sim_clock import SimClock
from tests.sim.sim_filesystem import SimFilesystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.cleaner.cleaner import CleaningResult
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.segment.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog
    from tests.naive.cleaner import PlainBatch, PlainClean

T = TypeVar("T")
SMALL_BUFFERS = CleanerConfig(io_buffer_bytes=4_096)
DIRECTORY = "/logs/orders-0"
NOW_MS = 1_700_000_000_000
COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_index_bytes=12 * 200,
    index_interval_bytes=100,
    delete_retention_ms=1_000,
)


def batches_in(
    data: bytes, max_decompressed_bytes: int = 1 << 20, position: int = 0
) -> RecordBatches:
    """As read from a file."""
    rows = scan(data, check_crc=False)
    batches = RecordBatches(data, "a.log", position, rows, max_decompressed_bytes)
    batches.check_order(-1)
    return batches


def record(offset: int, key: bytes | None, value: bytes | None, stamp: int = NOW_MS) -> Record:
    return Record(offset, stamp, key, value)


def one(offset: int, key: bytes | None, value: bytes | None = b"v") -> bytes:
    return stored_batch([record(offset, key, value)])


def plant(disk: Filesystem, segments: list[MadeSegment]) -> None:
    disk.make_dir(DIRECTORY)
    for segment in segments:
        path = f"{DIRECTORY}/{segment_file_name(segment.base, LOG_SUFFIX)}"
        disk.open_write(path).pwrite(b"".join(segment.batches), 0)
        disk.set_mtime_ms(path, segment.modified_ms)


def segments_of(*batches: list[bytes], bases: list[int] | None = None) -> list[MadeSegment]:
    """Segments that begin with their first batch, and an empty active one behind them."""
    made = []
    for place, each in enumerate(batches):
        base = split_batches(each[0])[0].header.base_offset if bases is None else bases[place]
        made.append(MadeSegment(base, NOW_MS, each))
    end = split_batches(batches[-1][-1])[0].header.next_offset
    return [*made, MadeSegment(end, NOW_MS)]


@dataclass
class CleanerWorld(LogHolder):
    """One life of the partition. ``disk`` holds it already, or ``segments`` are planted first."""

    segments: list[MadeSegment] = field(default_factory=list)
    config: LogConfig = COMPACT
    disk: SimFilesystem = field(default_factory=SimFilesystem)
    keys_max: int = 1_000
    cleaner_config: CleanerConfig = SMALL_BUFFERS
    log_start: int = 0

    def __post_init__(self) -> None:
        """Loads as after a crash, with everything readable."""
        if self.segments:
            plant(self.disk, self.segments)
            self.disk.sync_all()
        self.clock = SimClock(NOW_MS)
        self.disk.clock = self.clock
        self.throttled_bytes = 0
        self.log: UnifiedLog = load_log(
            DIRECTORY,
            self.config,
            environment_of(self.disk, self.clock),
            clean=False,
            log_start_offset=self.log_start,
            may_have_gaps=True,
        )
        self.log.update_high_watermark(self.log.log_end_offset)
        self.offset_map = SkimpyOffsetMap(
            24 * (self.keys_max + 1), self.keys_max / (self.keys_max + 1)
        )

    def look(self, checkpoint: int | None = None, now_ms: int = NOW_MS) -> LogToClean:
        return LogToClean.of(self.log, checkpoint, now_ms)

    def round(
        self,
        checkpoint: int | None = None,
        now_ms: int = NOW_MS,
        *,
        on_writer: OnWriterLike | None = None,
        check_done: Callable[[], None] = lambda: None,
        dry_run: bool = False,
    ) -> CleaningResult:
        return self.cleaner().clean(
            self.look(checkpoint, now_ms),
            now_ms,
            on_writer=on_writer or at_once,
            check_done=check_done,
            dry_run=dry_run,
        )

    def cleaner(self) -> Cleaner:
        def throttle(count: int) -> None:
            self.throttled_bytes += count

        return Cleaner(self.offset_map, self.cleaner_config, throttle)

    def rounds(self, now_ms: int = NOW_MS) -> int:
        """Rounds until nothing is left to clean; how many."""
        checkpoint: int | None = None
        for count in range(1, 1_000):
            result = self.round(checkpoint, now_ms)
            if checkpoint == result.end_offset:
                return count
            checkpoint = result.end_offset
        raise AssertionError("it never ends")

    def reopened(self) -> CleanerWorld:
        self.log.close_handles()
        start = self.log.log_start_offset
        return CleanerWorld([], self.config, self.disk.kill(), self.keys_max, log_start=start)

    # ---- what is there

    def batches(self) -> list[PlainBatch]:
        return [each for segment in self.log.segments for each in self.batches_of(segment)]

    def batches_of(self, segment: LogSegment) -> list[PlainBatch]:
        if not segment.size_bytes:
            return []
        return split_batches(segment.log_file.acquire().pread(segment.size_bytes, 0))

    def records(self) -> list[Record]:
        return [
            record for batch in self.batches() if not batch.is_control for record in batch.records
        ]

    def visible(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of the records that no aborted transaction holds."""
        aborted = self.aborted()
        return [
            (record.offset, record.key, record.value)
            for batch in self.batches()
            if not batch.is_control
            for record in batch.records
            if not batch.is_transactional
            or not any(
                each.producer_id == batch.header.producer_id
                and each.first <= record.offset < each.last
                for each in aborted
            )
        ]

    def staged_names(self) -> list[str]:
        names = self.disk.list_dir(DIRECTORY)
        return [name for name in names if name.endswith((".cleaned", ".swap"))]

    def aborted(self) -> list[PlainAborted]:
        return [each for segment in self.log.segments for each in aborted_of(segment)]

    def twin(
        self, to_clean: LogToClean, now_ms: int = NOW_MS, *, by_segment: bool = False
    ) -> PlainClean:
        """What the plain twin would make of this log now."""
        closed = self.log.segments.values[:-1]
        floor = to_clean.first_dirty_offset
        holder = self.log.segments.floor(floor)
        entry = None if holder is None else floor_entry(holder, floor)
        return PlainCleaner(
            [
                PlainSegment(
                    each.base_offset,
                    self.batches_of(each),
                    each.last_modified_ms,
                    aborted_of(each),
                    each.offset_index.size_in_bytes(),
                    each.time_index.size_in_bytes(),
                )
                for each in closed
            ],
            floor,
            to_clean.first_uncleanable_offset,
            now_ms,
            self.offset_map.capacity,
            self.config.delete_retention_ms,
            self.config.max_segment_bytes,
            self.config.segment_index_bytes,
            {pid: (each[0], each[1]) for pid, each in self.log.producers.last_records().items()},
            self.log.log_start_offset,
            0 if entry is None or not entry.position else entry.offset,
            aborted_of(self.log.segments.active),
            by_segment,
        ).run()


class OnWriterLike:
    """An on_writer that counts its calls and may refuse one of them."""

    def __init__(self, refuse: Callable[[int], None] = lambda _: None) -> None:
        self.calls = 0
        self._refuse = refuse

    def __call__(self, call: Callable[[], T], /) -> T:
        """Run the call, unless refused."""
        self.calls += 1
        self._refuse(self.calls)
        return call()


def at_once(call: Callable[[], T], /) -> T:
    return call()


def aborted_of(segment: LogSegment) -> list[PlainAborted]:
    """Entries of one transaction index."""
    return [
        PlainAborted(each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset)
        for each in segment.transaction_index.entries()
    ]


def with_config(**changes: object) -> LogConfig:
    """COMPACT with other values."""
    return replace(COMPACT, **changes)  # type: ignore[arg-type] # names and types are the caller's
