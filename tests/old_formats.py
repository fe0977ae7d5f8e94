"""A partition that Kafka 0.8 began: segments of formats v0 and v1, and then v2."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.format.disk.file_names import LOG_SUFFIX, segment_file_name
from kafkalog.format.records.record import Record, iterate_records
from kafkalog.format.records.record_batch import Codec, iterate_batches
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.values import Isolation
from tests.log_world import LogHolder, environment_of
from tests.naive.message_sets import APPEND_TIME, PlainMessage, bare, wrapper
from tests.naive.stored_batches import stored_batch
from tests.sim.sim_clock import SimClock
from tests.sim.sim_filesystem import SimFilesystem

if TYPE_CHECKING:
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.recovery.corruption_policy import Corruption
    from kafkalog.log.unified_log import UnifiedLog

DIRECTORY = "/logs/orders-0"
NOW_MS = 1_700_000_000_000
EVERYTHING = 1 << 20
Line = tuple[int, int, bytes | None, bytes | None]


def message(offset: int, timestamp: int = -1) -> PlainMessage:
    """One whose content tells its offset; without a time, as format v0 has it."""
    return PlainMessage(offset, timestamp, b"k%d" % offset, b"v%d" % offset)


def v0(*offsets: int) -> list[PlainMessage]:
    return [message(offset) for offset in offsets]


def v1(*offsets: int) -> list[PlainMessage]:
    return [message(offset, NOW_MS + offset) for offset in offsets]


def v2(*offsets: int, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(each.offset, each.timestamp, each.key, each.value) for each in v1(*offsets)]
    return stored_batch(records, codec=codec)


def plain(magic: int, messages: list[PlainMessage]) -> bytes:
    return b"".join(bare(magic, each) for each in messages)


SEGMENTS = {
    0: plain(0, v0(0, 1))
    + wrapper(0, Codec.LZ4, v0(2, 3, 4))
    + wrapper(0, Codec.GZIP, v0(5, 6, 7))
    + plain(0, v0(8, 9)),
    10: plain(1, v1(10, 11, 12))
    + wrapper(1, Codec.SNAPPY, v1(13, 15, 18), first_offset=13)
    + bare(1, message(19, NOW_MS + 500), APPEND_TIME),
    20: wrapper(1, Codec.LZ4, v1(20, 21), append_time=NOW_MS + 600) + v2(*range(22, 30)),
    30: v2(30, 31) + v2(32, codec=Codec.ZSTD),
}
LINES: list[Line] = [
    *((each.offset, -1, each.key, each.value) for each in v0(*range(10))),
    *((each.offset, each.timestamp, each.key, each.value) for each in v1(10, 11, 12, 13, 15, 18)),
    (19, NOW_MS + 500, b"k19", b"v19"),
    *((offset, NOW_MS + 600, b"k%d" % offset, b"v%d" % offset) for offset in (20, 21)),
    *((each.offset, each.timestamp, each.key, each.value) for each in v1(*range(22, 33))),
]
LOG_END = 33
OLD_BASES = (0, 10, 20)


def path_of(base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    return f"{DIRECTORY}/{segment_file_name(base_offset, suffix)}"


def plant(disk: Filesystem, segments: dict[int, bytes] | None = None) -> None:
    """The ``.log`` files alone, a day apart."""
    disk.make_dir(DIRECTORY)
    for number, (base, data) in enumerate((SEGMENTS if segments is None else segments).items()):
        disk.open_write(path_of(base)).pwrite(data, 0)
        disk.set_mtime_ms(path_of(base), NOW_MS + number * 86_400_000)


def planted(segments: dict[int, bytes] | None = None) -> SimFilesystem:
    disk = SimFilesystem()
    plant(disk, segments)
    disk.sync_all()
    return disk


def logs_of(disk: Filesystem) -> dict[str, bytes]:
    """Content of each ``.log`` that is not empty."""
    names = [name for name in disk.list_dir(DIRECTORY) if name.endswith(LOG_SUFFIX)]
    content = {name: disk.read_file(f"{DIRECTORY}/{name}") for name in names}
    return {name: data for name, data in content.items() if data}


@dataclass
class OldWorld(LogHolder):
    """The partition, loaded; all of it is readable."""

    disk: SimFilesystem = field(default_factory=planted)
    config: LogConfig = field(default_factory=LogConfig)
    corruption: Corruption = "keep"

    def __post_init__(self) -> None:
        self.clock = SimClock(NOW_MS)
        self.disk.clock = self.clock
        self.log = self.open(clean=False)

    def open(self, *, clean: bool, log_start_offset: int = 0) -> UnifiedLog:
        self.log = load_log(
            DIRECTORY,
            self.config,
            environment_of(self.disk, self.clock),
            clean=clean,
            log_start_offset=log_start_offset,
            corruption=self.corruption,
        )
        self.log.update_high_watermark(self.log.log_end_offset)
        return self.log

    def reopen(self) -> UnifiedLog:
        """After a clean stop."""
        start = self.log.log_start_offset
        self.flush()
        self.log.close()
        return self.open(clean=True, log_start_offset=start)

    def lines(self, offset: int = 0, until: int = LOG_END) -> list[Line]:
        """All records of these offsets."""
        found: list[Line] = []
        while offset < until:
            read = self.log.read(offset, EVERYTHING, Isolation.LOG_END)
            if not read.data:
                break
            for _, batch in iterate_batches(read.data):
                found += [
                    (each.offset, each.timestamp, each.key, each.value)
                    for each in iterate_records(batch)
                ]
            offset = read.next_offset
        return found
