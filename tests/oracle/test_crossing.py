"""Goal: Kafka takes a directory that kafkalog's log wrote for one of its own.

Method: a log on the real disk with every kind of batch; Kafka's loader, records and dump tool.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from kafkalog.cli.offline.load import LoadOptions
from kafkalog.cli.offline.scan import scan_lines
from kafkalog.env.clock import SystemClock
from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.env.system_scheduler import SystemScheduler
from kafkalog.env.system_threads import SystemThreads
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.records.record_batch import Codec
from kafkalog.log.environment import LogEnvironment
from kafkalog.log.inspect.directory_check import verify_directory
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.validator import validate
from kafkalog.log.values import AppendOrigin
from tests.oracle.loads import LoadCase, comparable, differing_files

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.log.unified_log import UnifiedLog
    from tests.oracle.kafka import Kafka

pytestmark = pytest.mark.oracle

TIME = 1_700_000_000_000
CONFIG = LogConfig(
    internal_segment_bytes=6000, index_interval_bytes=300, segment_index_bytes=100_000
)
SETS = ("--set", "internal.segment.bytes=6000", "--set", "index.interval.bytes=300")


def open_log(directory: Path, *, clean: bool) -> UnifiedLog:
    """A log on the machine's disk."""

    def fail(name: str, error: BaseException) -> None:
        raise AssertionError(name) from error

    clock, threads = SystemClock(), SystemThreads(fail)
    scheduler = SystemScheduler(clock, threads, 1, fail)
    environment = LogEnvironment.create(
        SystemFilesystem(), clock, scheduler, SystemRandom(), threads
    )
    log = load_log(str(directory), CONFIG, environment, clean=clean)
    log.update_high_watermark(log.log_end_offset)
    return log


def append(log: UnifiedLog, data: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    records = validate(data, CONFIG, TIME, origin, max_decompressed_bytes=1 << 24)
    log.append(records, synced=False)


def some_batch(
    chance: random.Random, codec: Codec, producer: tuple[int, int, int], txn: bool
) -> bytes:
    """Random keys, values with nulls, timestamps that jump to and fro."""
    count = chance.randrange(1, 12)
    keys = [None if chance.random() < 0.2 else chance.randbytes(8) for _ in range(count)]
    values = [None if chance.random() < 0.2 else chance.randbytes(60) for _ in range(count)]
    times = [TIME + chance.randrange(10**6) for _ in range(count)]
    return build_batch(
        RecordColumns.of(keys, values, times),
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=txn,
    )


def write_everything(log: UnifiedLog) -> None:
    """All codecs; producers; transactions that were committed, aborted and left open."""
    chance = random.Random(4)
    for number in range(60):
        append(log, some_batch(chance, Codec(number % 5), (-1, -1, -1), txn=False))
        append(log, some_batch(chance, Codec.NONE, (1000 + number, 0, 0), txn=False))
        append(log, some_batch(chance, Codec.LZ4, (2000 + number, 0, 0), txn=True))
        if number % 3 < 2:
            end = (ControlRecordType.ABORT, ControlRecordType.COMMIT)[number % 2]
            marker = build_end_transaction_marker(2000 + number, 0, 0, end, timestamp_ms=TIME)
            append(log, marker, AppendOrigin.COORDINATOR)


def close(log: UnifiedLog) -> None:
    """Flush and close cleanly."""
    plan = log.plan_flush()
    assert plan is not None
    plan.run()
    log.mark_flushed(plan)
    log.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition written in two lives."""
    directory = tmp_path_factory.mktemp("crossing") / "orders-0"
    directory.mkdir()
    log = open_log(directory, clean=False)
    write_everything(log)
    close(log)
    log = open_log(directory, clean=True)
    append(log, some_batch(random.Random(1), Codec.ZSTD, (9, 0, 0), txn=False))
    close(log)
    return directory


@pytest.mark.parametrize("clean", [True, False])
def test_kafka_loads_what_we_wrote(
    kafka: Kafka, written: Path, tmp_path: Path, clean: bool
) -> None:
    """M02 M04 M05 M14 M25: the same state as we find, and after a clean load the same files."""
    options = LoadOptions(clean=clean, now_ms=TIME)
    sets = {"internal.segment.bytes": "6000", "index.interval.bytes": "300"}
    case = LoadCase(written, tmp_path, options, sets)
    flags = [*SETS, "--now", str(TIME), *(["--clean"] if clean else [])]
    theirs = kafka.load(written, case.kafkas, *flags)
    assert comparable(case.load()) == comparable(theirs)
    assert differing_files(case.kafkas, case.ours) == []
    assert len(theirs["loaded"]["segments"]) > 5
    if clean:
        # The snapshot of the first life's end belongs to no segment: a later load removes it.
        changed = differing_files(written, case.kafkas)
        assert [name for name in changed if (case.kafkas / name).exists()] == []


def test_kafka_reads_what_we_wrote(kafka: Kafka, written: Path) -> None:
    """M02: every record, also from an offset inside."""
    for start in (0, 333):
        ours = scan_lines(SystemFilesystem(), str(written), start, committed=False)
        assert kafka.scan(written, start) == [line.removesuffix("\n") for line in ours]


def test_kafkas_dump_has_no_findings(kafka: Kafka, written: Path) -> None:
    """M07: logs record by record, all indexes, snapshots."""
    assert verify_directory(str(written), SystemFilesystem()) == []
    files = ",".join(sorted(str(path) for path in written.iterdir() if path.name[0].isdigit()))
    for flag in ("--deep-iteration", "--index-sanity-check"):
        dumped = kafka.dump("--files", files, flag)
        assert (dumped.status, dumped.stderr) == (0, "")
