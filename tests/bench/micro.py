"""CPU time of the hot paths below HTTP: `python -m tests.bench.micro [name part ...]`.

Prints the median of several rounds in microseconds a call, and what that means a record or a byte.
CPU time of this process, so that a busy machine disturbs little; the writer row includes the
threads of the writer and the flusher. No assertions on speed: numbers are for people.
"""

from __future__ import annotations

import base64
import json
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.log_manager import LogManager
from kafkalog.broker.operations import Operations
from kafkalog.broker.runtime import Runtime
from kafkalog.broker.values import Acks
from kafkalog.env.clock import SystemClock
from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.env.system_scheduler import SystemScheduler
from kafkalog.env.system_threads import SystemThreads
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.wire.json_page import check_envelope, write_page, write_receipts
from kafkalog.format.wire.record_writer import PageBuffer
from kafkalog.log.environment import LogEnvironment
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.validator import validate
from kafkalog.log.values import AppendOrigin, Isolation
from kafkalog.observe.metrics import Metrics
from kafkalog.server.produce.append import PartitionTarget, prepare
from kafkalog.server.produce.json_body import Formats
from kafkalog.server.protocol.media_types import EmbeddedFormat
from tests.sim.sim_manager import SimRules, Sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.broker.directory.commands import Command
    from kafkalog.log.unified_log import UnifiedLog

ROUNDS = 5
ROUND_SECONDS = 0.1
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig()
VALUE = bytes(range(33, 33 + 90)) + b"0123456789"
JSON_VALUE = json.dumps({"number": 17, "text": "x" * 70, "list": [1, None]}).encode()
INFLATED_MAX = 1 << 26


def cpu_us(call: Callable[[], object]) -> float:
    """Median CPU microseconds of a call."""
    call()
    begun = time.process_time()
    call()
    repeat = max(1, int(ROUND_SECONDS / max(time.process_time() - begun, 1e-6)))
    rounds = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(repeat):
            call()
        rounds.append((time.process_time() - begun) / repeat)
    return statistics.median(rounds) * 1e6


def show(name: str, call: Callable[[], object], *, records: int = 0, size: int = 0) -> None:
    """One line, unless the command line asks for others."""
    if sys.argv[1:] and not any(part in name for part in sys.argv[1:]):
        return
    used = cpu_us(call)
    line = f"{name:44s} {used:10.1f} us"
    if records:
        line += f" {used / records:8.3f} us/record {records / used:8.3f} M/s"
    if size:
        line += f" {size / used:9.0f} MB/s"
    sys.stdout.write(line + "\n")


def body_of(embedded: EmbeddedFormat, count: int) -> bytes:
    """A v2 produce body of records with a value each."""
    value: object = base64.b64encode(VALUE).decode()
    if embedded is EmbeddedFormat.JSON:
        value = json.loads(JSON_VALUE)
    if embedded is EmbeddedFormat.TEXT:
        value = "t" * 100
    return json.dumps({"records": [{"value": value}] * count}, separators=(",", ":")).encode()


def prepare_produce(body: bytes, embedded: EmbeddedFormat) -> None:
    """What a produce request does between its body and the writer's queue."""
    formats = Formats(embedded, embedded)
    for batch in prepare(body, formats, NOW_MS, 1 << 20, PartitionTarget(1, None, 0))[1]:
        batch.validate(CONFIG, NOW_MS, INFLATED_MAX)


def measure_produce() -> None:
    """From a body to a validated batch."""
    for count in (1, 1000):
        for embedded in EmbeddedFormat:
            body = body_of(embedded, count)
            name = f"{embedded.value} x {count}"
            show(f"produce {name}", partial(prepare_produce, body, embedded), records=count)
            show(f"envelope {name}", partial(check_envelope, body), size=len(body))
    raw = build_batch(RecordColumns.of([None] * 1000, [VALUE * 10] * 1000, NOW_MS))
    for data in (raw, build_batch(RecordColumns.of([None], [VALUE], NOW_MS))):
        check = partial(
            validate, data, CONFIG, NOW_MS, AppendOrigin.CLIENT, max_decompressed_bytes=INFLATED_MAX
        )
        show(f"validate {len(data)} bytes", check, size=len(data))


def batches_of(value: bytes, per_batch: int, total: int) -> bytes:
    """Batches back to back, offsets counting up."""
    columns = RecordColumns.of([None] * per_batch, [value] * per_batch, NOW_MS)
    starts = range(0, total, per_batch)
    return b"".join(build_batch(columns, base_offset=start) for start in starts)


def measure_pages() -> None:
    """Pages of a MiB, in the three formats."""
    for embedded, value in (("binary", VALUE), ("json", JSON_VALUE), ("text", b"t" * 100)):
        for per_batch in (160, 16, 1):
            data, buffer = batches_of(value, per_batch, 8000), PageBuffer(4 << 20)
            page = partial(
                write_page, "topic", 0, data, 0, format=embedded, max_bytes=1 << 20, buffer=buffer
            )
            count = page().count
            show(f"page {embedded} {per_batch} a batch", page, records=count)


def open_log(directory: Path) -> UnifiedLog:
    """A real partition."""
    clock, threads = SystemClock(), SystemThreads(fail)
    scheduler = SystemScheduler(clock, threads, 1, fail)
    environment = LogEnvironment.create(
        SystemFilesystem(), clock, scheduler, SystemRandom(), threads
    )
    directory.mkdir()
    return load_log(str(directory), LogConfig(), environment, clean=False)


def fail(name: str, error: BaseException) -> None:
    """Of a thread."""
    raise AssertionError(name) from error


def measure_log(directory: Path) -> None:
    """Appends and hot reads of one partition."""
    log = open_log(directory / "orders-0")
    records = validate(
        batches_of(VALUE * 10, 1, 1),
        CONFIG,
        NOW_MS,
        AppendOrigin.CLIENT,
        max_decompressed_bytes=INFLATED_MAX,
    )
    show("append 1 KiB batch", partial(log.append, records, synced=False))
    for name, per_batch, total in (("1 KiB", 10, 10_000), ("16 KiB", 160, 40_000)):
        log = open_log(directory / f"reads{per_batch}-0")
        data = build_batch(RecordColumns.of([None] * per_batch, [VALUE] * per_batch, NOW_MS))
        origin = AppendOrigin.CLIENT
        records = validate(data, CONFIG, NOW_MS, origin, max_decompressed_bytes=INFLATED_MAX)
        for _ in range(total // per_batch):
            log.append(records, synced=False)
        for size in (1 << 10, 64 << 10, 1 << 20):
            read = partial(log.read, total // 2, size, Isolation.HIGH_WATERMARK, may_block=False)
            show(f"read {size >> 10} KiB of {name} batches", read, size=len(read().data))


def measure_writer(directory: Path) -> None:
    """Small commands through the queue of a real writer thread."""
    threads, clock = SystemThreads(fail), SystemClock()
    scheduler = SystemScheduler(clock, threads, 2, fail)
    runtime = Runtime(SystemFilesystem(), clock, scheduler, SystemRandom(), threads, Metrics())
    config = BrokerConfig(log_dirs=(str(directory / "logs"),))
    manager = LogManager(config, SimRules(), runtime, Sink(), lambda: None)
    scheduler.startup()
    manager.startup()
    operations = Operations(manager)
    operations.topics.create("commands", 1)
    log = operations.partition_log("commands", 0)
    data = build_batch(RecordColumns.of([None], [VALUE], NOW_MS))
    origin, count = AppendOrigin.CLIENT, 2000
    records = validate(data, CONFIG, NOW_MS, origin, max_decompressed_bytes=INFLATED_MAX)

    def pipeline(acks: Acks) -> None:
        done, left = threads.signal(), [count]

        def finish(command: Command) -> None:
            left[0] -= 1
            if not left[0]:
                done.set()

        for _ in range(count):
            operations.submit_produce(log, records, acks, on_done=finish)
        done.wait(60)

    for acks in (Acks.LEADER, Acks.ALL):
        show(f"writer {count} commands, acks {acks.name}", partial(pipeline, acks), records=count)
    manager.shutdown()
    scheduler.shutdown()


def main() -> None:
    """Everything, or what the command line names."""
    offsets = np.arange(1000, dtype=np.int64)
    show("receipts x 1000", partial(write_receipts, offsets * 0, offsets), records=1000)
    measure_produce()
    measure_pages()
    with tempfile.TemporaryDirectory() as directory:
        measure_log(Path(directory))
        measure_writer(Path(directory))


if __name__ == "__main__":
    main()
