"""Where the CPU time of a cleaning goes: ``python -m tests.bench.cleaner_profile [--codec lz4]``.

Cleans the log of the compaction rows again and again in this process, one thread, with a clock that
counts the process's CPU time, so that a busy machine disturbs little. Every other round each call
of a kernel, a codec and the file system is measured as well; what the measuring itself costs is
taken off. CRC and MD5, parts of pass 1's kernel, run alone on as many bytes and keys. The last
lines hold the passes against what the memory gives. For people: no assertions.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from kafkalog.cleaner import cleaner as cleaner_module
from kafkalog.cleaner import record_batches, record_filter, skimpy_offset_map
from kafkalog.cleaner.cleaner import CleanedGroup, Cleaner
from kafkalog.cleaner.config import CleanerConfig
from kafkalog.cleaner.plan import LogToClean
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.env.clock import SystemClock
from kafkalog.env.system_filesystem import SystemFile, SystemFilesystem
from kafkalog.format.records.record_batch import Codec
from kafkalog.kernels.compaction.key_hash import (
    PENDING_COLUMN_COUNT,
    PENDING_MAX,
    SCRATCH_BYTES,
    hash_keys,
)
from kafkalog.kernels.crc32c import crc32c_of
from kafkalog.kernels.processor import LEVEL
from kafkalog.log.inspect.offline_log import tool_environment
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.observe.logging import configure_logging
from tests.bench.cleaner_rows import link_stopped_log, write_keyed_log

if TYPE_CHECKING:
    from collections.abc import Callable

MEASURED: list[tuple[Any, str, str]] = [
    (SystemFile, "pread_into", "read from the page cache"),
    (SystemFile, "pwrite", "write into the page cache"),
    (SystemFile, "datasync", "sync"),
    (SystemFilesystem, "sync_dir", "sync"),
    (skimpy_offset_map, "index_batches", "kernel: CRC, records, MD5, map"),
    (record_batches, "decompress_into", "inflate"),
    (record_filter, "filter_batches", "kernel: choose, rebuild, CRC"),
    (record_filter, "compress", "deflate"),
    (record_filter, "pack_batches", "kernel: put together, CRC"),
]
REST = "Python and numpy: chunks, columns, calls"
KEY_BYTES = 16


class CpuClock(SystemClock):
    """Its monotonic time is the CPU time of the process."""

    def monotonic_ns(self) -> int:
        return time.process_time_ns()


class Parts:
    """CPU seconds of what was measured, by pass and name."""

    def __init__(self) -> None:
        self.seconds: defaultdict[tuple[int, str], float] = defaultdict(float)
        self._pass = 1

    def measured(
        self, name: str, function: Callable[..., Any], overhead: float = 0.0
    ) -> Callable[..., Any]:
        """The function, with its time counted; overhead: what an empty one would count."""

        def call(*arguments: Any, **named: Any) -> Any:
            begun = time.thread_time_ns()
            try:
                return function(*arguments, **named)
            finally:
                taken = (time.thread_time_ns() - begun) / 1e9
                self.seconds[self._pass, name] += taken - overhead

        return call

    def second_pass(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which begins the second pass."""

        def call(*arguments: Any, **named: Any) -> Any:
            self._pass = 2
            return function(*arguments, **named)

        return call


def call_overhead() -> float:
    """Seconds that a measured call counts though it does nothing."""
    parts, count = Parts(), 200_000
    empty = parts.measured("", lambda: None)
    for _ in range(count):
        empty()
    return parts.seconds[1, ""] / count


def clean(cleaner: Cleaner, source: Path, target: Path) -> tuple[float, float]:
    """One round over a copy of the source: CPU seconds of both passes."""
    target.mkdir(parents=True)
    link_stopped_log(source, target)
    log = load_log(str(target), LogConfig(), tool_environment(CpuClock()), clean=True)
    log.update_high_watermark(log.log_end_offset)
    now_ms = SystemClock().wall_ms()
    to_clean = LogToClean.of(log, None, now_ms)
    stats = cleaner.clean(
        to_clean, now_ms, on_writer=lambda call: call(), check_done=lambda: None
    ).stats
    log.close()
    return stats.map_seconds, stats.seconds - stats.map_seconds


def clean_measured(cleaner: Cleaner, source: Path, target: Path) -> Parts:
    """The same, every call measured."""
    parts, overhead = Parts(), call_overhead()
    with ExitStack() as stack:
        for owner, attribute, name in MEASURED:
            wrapped = parts.measured(name, getattr(owner, attribute), overhead)
            stack.enter_context(mock.patch.object(owner, attribute, wrapped))
        begin = parts.second_pass(CleanedGroup)
        stack.enter_context(mock.patch.object(cleaner_module, "CleanedGroup", begin))
        clean(cleaner, source, target)
    return parts


def best_of(work: Callable[[], object], rounds: int = 5) -> float:
    """CPU seconds of the fastest round."""
    taken = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return min(taken)


def md5_seconds(records: int) -> float:
    """Of the hashes of so many keys."""
    pending = np.zeros((PENDING_MAX, PENDING_COLUMN_COUNT), np.int64)
    pending[:, 0], pending[:, 1] = np.arange(PENDING_MAX) * 110, KEY_BYTES
    keys, scratch = np.zeros(PENDING_MAX * 110, np.uint8), np.zeros(SCRATCH_BYTES, np.uint8)
    calls, level = 2000, int(LEVEL)

    def work() -> None:
        for _ in range(calls):
            hash_keys(keys, pending, PENDING_MAX, scratch, level)

    return best_of(work) / (calls * PENDING_MAX) * records


def crc_seconds(size: int) -> float:
    """Of the CRC of so many bytes, in pieces that the processor's cache holds."""
    chunk, calls, level = np.zeros(1 << 18, np.uint8), 500, int(LEVEL)

    def work() -> None:
        for _ in range(calls):
            crc32c_of(chunk, 0, len(chunk), level)

    return best_of(work) / (calls * len(chunk)) * size


def memory_bytes_per_second() -> tuple[float, float]:
    """Reading and copying of memory that no cache holds, one thread."""
    source = np.ones(1 << 25, np.uint64)
    target = np.empty_like(source)
    read = best_of(lambda: source.max())
    return source.nbytes / read, source.nbytes / best_of(lambda: np.copyto(target, source))


def report(title: str, totals: np.ndarray[Any, Any], parts: list[Parts], alone: list[str]) -> str:
    """The table, seconds and shares of both passes."""
    lines, whole = [title], totals.sum()
    for number in (1, 2):
        names = dict.fromkeys(name for _, _, name in MEASURED)
        seconds = {name: min(each.seconds[number, name] for each in parts) for name in names}
        seconds[REST] = totals[number - 1] - sum(seconds.values())
        lines.append(f"pass {number}: {totals[number - 1]:.3f} s")
        lines += [
            f"  {taken:6.3f} s {taken / whole:6.1%}  {name}"
            for name, taken in sorted(seconds.items(), key=lambda pair: -pair[1])
            if taken > 0.0005 * whole
        ]
    return "\n".join([*lines, *alone, ""])


def main() -> None:
    """Measure one kind of log."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--codec", default="none")
    parser.add_argument("--records", type=int, default=8_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    configure_logging(sys.stderr, log_format="json", level="error")
    records = options.records
    cleaner = Cleaner(
        SkimpyOffsetMap(128 << 20, load_factor=0.9),
        CleanerConfig(io_buffer_bytes=256 << 10),
        throttle=lambda _: None,
    )
    with tempfile.TemporaryDirectory() as root:
        source = Path(root) / "source-0"
        size = write_keyed_log(source, records, records // 8, Codec[options.codec.upper()])
        totals, parts = list[tuple[float, float]](), list[Parts]()
        for number in range(options.rounds + 1):
            plain = clean(cleaner, source, Path(root) / f"plain{number}" / "compacted-0")
            measured = clean_measured(cleaner, source, Path(root) / f"{number}" / "compacted-0")
            if number:  # the first one touches the map's memory
                totals.append(plain)
                parts.append(measured)
    best = np.array(min(totals, key=sum))
    read, copied = memory_bytes_per_second()
    rate = size / best.sum()
    alone = [
        f"alone, of the kernel of pass 1: CRC {crc_seconds(size):.3f} s, "
        f"MD5 {md5_seconds(records):.3f} s",
        f"memory, one thread: read {read / 1e9:.1f} GB/s, copied {copied / 1e9:.1f} GB/s; the log "
        f"is read twice, {2 * rate / 1e9:.2f} GB/s: copied to the buffer and read there, that is "
        f"{2 * size / copied / best.sum() + 2 * size / read / best.sum():.0%} of the time",
    ]
    title = (
        f"CPU of one cleaning of {size / 1e6:.0f} MB, {records / 1e6:g} M records, codec "
        f"{options.codec} (python -m tests.bench.cleaner_profile --codec {options.codec}): "
        f"{best.sum():.3f} s, {rate / 1e6:.0f} MB/s"
    )
    sys.stdout.write(report(title, best, parts, alone))


if __name__ == "__main__":
    main()
