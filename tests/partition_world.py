"""One partition on simulated clock, disk and scheduler, for the tests of the upper half of log/."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.errors import CorruptBatch
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.record import Record, iterate_records
from kafkalog.format.records.record_batch import Codec, read_header
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.validator import validate
from kafkalog.log.values import (
    NO_PROOF,
    AppendOrigin,
    Isolation,
    LogAppendInfo,
    LogProof,
    ValidatedRecords,
)
from tests.log_world import LogHolder, environment_of
from tests.sim.sim_clock import SimClock
from tests.sim.sim_filesystem import SimFilesystem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.log.environment import LogEnvironment
    from kafkalog.log.recovery.corruption_policy import Corruption
    from kafkalog.log.unified_log import UnifiedLog

NOW_MS = 1_700_000_000_000
DIRECTORY = "/logs/orders-0"
INFLATED_MAX = 1 << 20


def batch(
    values: Sequence[bytes | str | None],
    *,
    timestamps: list[int] | int = NOW_MS,
    keys: list[bytes | None] | None = None,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    is_transactional: bool = False,
) -> bytes:
    """One client batch; producer is (id, epoch, base sequence)."""
    columns = RecordColumns.of(keys or [None] * len(values), values, timestamps)
    return build_batch(
        columns,
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=is_transactional,
    )


def checked(
    data: bytes,
    config: LogConfig | None = None,
    *,
    now_ms: int = NOW_MS,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    allow_many: bool = True,
) -> ValidatedRecords:
    """What the validator makes of bytes."""
    return validate(
        data,
        config or LogConfig(),
        now_ms,
        origin,
        max_decompressed_bytes=INFLATED_MAX,
        allow_many=allow_many,
    )


def split_batches(data: bytes) -> list[bytes]:
    batches, position = [], 0
    while position < len(data):
        size = read_header(data, position).size_bytes
        batches.append(data[position : position + size])
        position += size
    return batches


def records_of(data: bytes | memoryview) -> list[Record]:
    return [record for batch in split_batches(bytes(data)) for record in iterate_records(batch)]


@dataclass
class PartitionWorld(LogHolder):
    """A log that can be closed, killed and loaded again."""

    config: LogConfig = field(default_factory=LogConfig)
    corruption: Corruption = "kafka"

    def __post_init__(self) -> None:
        self.clock = SimClock(NOW_MS)
        self.filesystem = SimFilesystem(self.clock)
        self.filesystem.make_dir(DIRECTORY)
        self.log = self.open(clean=False)

    def environment(self) -> LogEnvironment:
        return environment_of(self.filesystem, self.clock)

    def open(
        self,
        *,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        proof: LogProof = NO_PROOF,
    ) -> UnifiedLog:
        """Load the log and make all of it readable."""
        self.log = load_log(
            DIRECTORY,
            self.config,
            self.environment(),
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            corruption=self.corruption,
            proof=proof,
        )
        self.log.update_high_watermark(self.log.log_end_offset)
        return self.log

    def reopen(self, *, clean: bool) -> UnifiedLog:
        """Close (clean) or drop (unclean, nothing lost) the log and load it again."""
        start, point = self.log.log_start_offset, self.log.recovery_point
        if clean:
            self.flush()
            self.log.close()
        else:
            self.log.close_handles()
        return self.open(clean=clean, recovery_point=point, log_start_offset=start)

    def append(
        self, data: bytes, *, synced: bool = False, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> LogAppendInfo:
        return self.log.append(checked(data, self.config, origin=origin), synced=synced)

    def read_all(self, offset: int, isolation: Isolation = Isolation.LOG_END) -> list[Record]:
        """Records from the batch that holds offset to the end."""
        records: list[Record] = []
        while True:
            found = self.log.read(offset, 1 << 20, isolation)
            if not found.data:
                return records
            records += records_of(found.data)
            offset = found.next_offset

    def consumed(
        self, max_bytes: int = 1 << 20, start: int = 0
    ) -> tuple[dict[int, bytes | None], list[int]]:
        """Values by the offset they are served at, and the offsets refused, by a consumer that
        steps over what is refused.
        """
        served: dict[int, bytes | None] = {}
        refused: list[int] = []
        position = start
        while position < self.log.log_end_offset:
            try:
                answer = self.log.read(position, max_bytes, Isolation.LOG_END)
            except CorruptBatch as error:
                last_offset = error.details["last_offset"]
                assert isinstance(last_offset, int)
                assert last_offset >= position
                refused += range(position, last_offset + 1)
                position = last_offset + 1
                continue
            served |= {record.offset: record.value for record in records_of(answer.data)}
            assert answer.next_offset > position, f"a reader hangs at {position}"
            position = answer.next_offset
        return served, refused

    def names(self) -> list[str]:
        return self.filesystem.list_dir(DIRECTORY)
