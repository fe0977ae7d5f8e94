"""A compacted partition and cleaned segments to swap in, on any file system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.records.record_batch import read_header
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.segment.log_segment import LogSegment
from kafkalog.log.segment.segment_swap import SegmentSwap
from kafkalog.log.values import AppendedBatch, AppendOrigin, CompletedTransaction, Isolation
from tests.log_world import LogHolder, environment_of
from tests.partition_world import NOW_MS, batch, checked
from tests.sim.sim_clock import SimClock

if TYPE_CHECKING:
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.local_log import OnWriter
    from kafkalog.log.unified_log import UnifiedLog

DIRECTORY = "/logs/orders-0"
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_index_bytes=96, index_interval_bytes=100
)
EACH = 4  # offsets a segment
LOG_END = 18
BASES = [0, 4, 8, 12, 16]
PRODUCER = 5
ABORTED = (1, 6)  # first offset, offset of the marker
EVERYTHING = 1 << 20


class Content(NamedTuple):
    batches: bytes
    aborted: list[tuple[int, int]]


@dataclass(frozen=True)
class Case:
    """New segments, each with the offsets that it keeps, and the old ones that they replace."""

    new: dict[int, list[int]]
    old: list[int]
    blank_base: int | None = None  # of the empty segment that a crash may leave

    @property
    def bases(self) -> list[int]:
        return sorted({*BASES} - {*self.old} | {*self.new})


CASES = {
    "one": Case({0: [1, 5, 6, 9, 10, 11]}, [0, 4, 8]),
    "several": Case({0: [1, 5], 6: [6, 9, 10], 12: [12, 15]}, [0, 4, 8, 12]),
    "nothing behind the first": Case({0: [1]}, [0, 4, 8], blank_base=8),
    "nothing behind the second": Case({0: [1], 4: [5, 6]}, [0, 4, 8, 12], blank_base=12),
    "nothing at all": Case({4: []}, [4]),
}


class SwapWorld(LogHolder):
    """One life of the partition."""

    def __init__(
        self, filesystem: Filesystem, directory: str = DIRECTORY, *, log_start_offset: int = 0
    ) -> None:
        """Loads the log as after a crash, with a recovery point as ``fill`` leaves it."""
        self.directory = directory
        self.clock = SimClock(NOW_MS)
        self.environment = environment_of(filesystem, self.clock)
        self.log: UnifiedLog = load_log(
            directory,
            CONFIG,
            self.environment,
            clean=False,
            recovery_point=LOG_END,
            log_start_offset=log_start_offset,
        )

    def fill(self) -> None:
        """Segments of four batches of one record, some of a producer's transactions."""
        for offset in range(LOG_END):
            if offset and offset % EACH == 0:
                self.log.roll()
            origin = AppendOrigin.CLIENT
            if offset in (ABORTED[1], 10):
                origin = AppendOrigin.COORDINATOR
                kind = ControlRecordType.COMMIT if offset == 10 else ControlRecordType.ABORT
                data = build_end_transaction_marker(PRODUCER, 0, 0, kind, timestamp_ms=NOW_MS)
            elif offset in (1, 5, 9):
                sequence = (1, 5, 9).index(offset)
                data = batch(
                    [b"t"],
                    keys=[b"%d" % offset],
                    producer=(PRODUCER, 0, sequence),
                    is_transactional=True,
                )
            else:
                data = batch([b"v" * 50], keys=[b"%d" % offset], timestamps=NOW_MS + offset)
            self.log.append(checked(data, CONFIG, origin=origin), synced=True)
        self.flush()

    def content(self) -> Content:
        self.log.update_high_watermark(self.log.log_end_offset)
        data, offset, aborted = b"", 0, set()
        while (found := self.log.read(offset, EVERYTHING, Isolation.LAST_STABLE)).data:
            data += bytes(found.data)
            offset = found.next_offset
            aborted |= {(each.first_offset, each.last_offset) for each in found.aborted}
        return Content(data, sorted(aborted))

    def make_cleaned(self, case: Case) -> list[LogSegment]:
        """The new segments, not synced."""
        batches = self._batches()
        made = []
        for base, offsets in case.new.items():
            segment = LogSegment.create(
                self.environment, self.log.local.directory, base, CONFIG, suffix=".cleaned"
            )
            for offset in offsets:
                data = batches[offset]
                stamp = read_header(data).max_timestamp
                segment.append([data], [AppendedBatch(offset, offset, len(data), stamp)])
                if offset == ABORTED[1]:
                    segment.update_transaction_index(
                        CompletedTransaction(PRODUCER, *ABORTED, is_aborted=True), offset + 1
                    )
            segment.on_become_inactive()
            made.append(segment)
        return made

    def _batches(self) -> dict[int, bytes]:
        found, rest = {}, self.content().batches
        while rest:
            header = read_header(rest)
            found[header.base_offset] = rest[: header.size_bytes]
            rest = rest[header.size_bytes :]
        return found

    def swap_of(self, case: Case, *, renames_max: int = 64) -> SegmentSwap:
        old = [segment for segment in self.log.segments if segment.base_offset in case.old]
        new = self.make_cleaned(case)
        return SegmentSwap(self.environment, self.log.local, new, old, renames_max=renames_max)

    def swap(self, case: Case, on_writer: OnWriter | None = None) -> None:
        """All of it, and the deletion of the old files."""
        self.swap_of(case).run(on_writer or (lambda call: call()))
        self.clock.advance_ms(CONFIG.file_delete_delay_ms)

    def staged_names(self) -> list[str]:
        names = self.environment.filesystem.list_dir(self.directory)
        return [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
