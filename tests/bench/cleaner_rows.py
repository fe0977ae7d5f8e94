"""Compaction: one round over one log by one thread, beside Kafka's own cleaner.

Both sides keep one process and one cleaner for all rounds, as a broker does; the first round, which
warms the JVM's compiler and touches both maps, is not counted. The figure is what each cleaner's
statistics say of itself: both passes, the writing, the syncs and the swap.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kafkalog.env.clock import SystemClock
from kafkalog.format.disk.file_names import LOG_SUFFIX, segment_file_name
from kafkalog.format.records.record_batch import Codec
from kafkalog.log.inspect.offline_log import tool_environment
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from tests.bench import datasets
from tests.bench.machine_use import cpu_seconds, resident_mb
from tests.bench.results import ROOT, Goal, Result, Sample
from tests.log_world import flush

if TYPE_CHECKING:
    from tests.bench.bench import Bench
    from tests.bench.kafka_side import Jars

_JAVA = Path(__file__).with_name("CleanTimed.java")
_AVX2_ALONE = (
    "from kafkalog.kernels import processor;"
    "processor.LEVEL = processor.ProcessorLevel.AVX2;"
    "from tests.bench import clean_timed; clean_timed.main()"
)
# What a cleaner thread gets by default: log.cleaner.dedupe.buffer.size, io.buffer.size / 2.
_MAP_AND_BUFFER_BYTES = (str(128 << 20), str(256 << 10))


def _compaction(bench: Bench, codec: Codec, times: float, *, is_avx2_alone: bool = False) -> Result:
    """``records`` of one closed segment; an eighth of them are different keys.

    is_avx2_alone  as on a processor without AVX-512, on both sides
    """
    records = bench.size(8_000_000, 800_000)
    source = bench.directory("source-0")
    size = write_keyed_log(source, records, records // 8, codec)
    answers: list[dict[str, Any]] = []

    def sample(worker: CleanWorker) -> Sample:
        target = bench.directory("round") / "compacted-0"
        target.mkdir(parents=True)
        link_stopped_log(source, target)
        before = cpu_seconds(worker.pid)
        answer = worker.clean(target)
        cpu = cpu_seconds(worker.pid) - before
        shutil.rmtree(target)
        answers.append(answer)
        extra = {
            "pass_1_seconds": answer["map_seconds"],
            "pass_2_seconds": answer["seconds"] - answer["map_seconds"],
            "process_cpu_seconds": cpu,
            "peak_rss_mb": resident_mb(worker.pid, peak=True),
        }
        return Sample(size / answer["seconds"] / 1e6, extra=extra)

    with CleanWorker(our_command(is_avx2_alone=is_avx2_alone)) as ours:
        if bench.jars is None:
            rounds = bench.alternate(lambda: sample(ours), None)
        else:
            classes = bench.directory("classes")
            command = kafka_command(bench.jars, classes, is_avx2_alone=is_avx2_alone)
            with CleanWorker(command) as theirs:
                rounds = bench.alternate(lambda: sample(ours), lambda: sample(theirs))
    kept = {(each["cleanable_bytes"], each["messages_written"]) for each in answers}
    assert len(kept) == 1, f"the sides did not do the same work: {kept}"
    millions = f"{records / 1e6:g} M records, {records / 8e6:g} M keys"
    return Result(
        name=bench.name,
        what=f"Compaction of {size / 1e6:.0f} MB, {millions}, codec {codec.name.lower()}"
        + (", AVX-512 masked on both sides" if is_avx2_alone else ""),
        unit="MB/s",
        durability="from the page cache, results synced on both sides",
        goal=Goal.times(times),
        rounds=rounds,
        notes=(
            "both: one thread, one closed segment of 145 records a batch, a map of 128 MiB,"
            " time by the cleaner's own statistics, warm process",
            "MB of the log as it lies on disk, read by both passes",
        ),
    )


def write_keyed_log(
    directory: Path, records: int, keys: int, codec: Codec, *, segments: int = 1
) -> int:
    """A cleanly stopped log: full segments and an empty active one; bytes of the full ones."""
    directory.mkdir(parents=True)
    batches = datasets.keyed_batches(records, keys, codec)
    batch_count = -(-records // (datasets.KEYED_BATCH_RECORDS * segments))
    size = 0
    for number in range(segments):
        base_offset = number * batch_count * datasets.KEYED_BATCH_RECORDS
        path = directory / segment_file_name(base_offset, LOG_SUFFIX)
        with path.open("wb") as log_file:
            log_file.writelines(islice(batches, batch_count))
        size += path.stat().st_size
    log = load_log(str(directory), LogConfig(), tool_environment(SystemClock()), clean=False)
    assert log.log_end_offset == records, log.log_end_offset
    log.roll()
    flush(log)
    log.close()
    return size


def link_stopped_log(source: Path, target: Path) -> None:
    """A log to clean: closed .log files are linked, for a cleaner only reads and unlinks them."""
    for path in source.iterdir():
        if path.suffix == LOG_SUFFIX and path.stat().st_size:
            (target / path.name).hardlink_to(path)
        else:
            shutil.copy2(path, target / path.name)


class CleanWorker:
    """A process that cleans the directories it is told of, one at a time."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid

    def clean(self, directory: Path) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{directory}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the process ended with {self._process.wait(10)}"
        answer: dict[str, Any] = json.loads(line)
        return answer


def our_command(*, is_avx2_alone: bool = False) -> list[str]:
    program = ["-c", _AVX2_ALONE] if is_avx2_alone else ["-m", "tests.bench.clean_timed"]
    return [sys.executable, *program, *_MAP_AND_BUFFER_BYTES]


def kafka_command(jars: Jars, classes: Path, *, is_avx2_alone: bool = False) -> list[str]:
    """The worker with Kafka's cleaner, compiled into ``classes``."""
    classes.mkdir(parents=True)
    compiler = ["javac", "-nowarn", "-cp", jars.class_path, "-d", str(classes), str(_JAVA)]
    subprocess.run(compiler, check=True, capture_output=True, timeout=120)
    command = jars.command("1g", jars.tool_log_config, "CleanTimed", *_MAP_AND_BUFFER_BYTES)
    at = command.index("-cp") + 1
    command[at] = f"{classes}:{command[at]}"
    if is_avx2_alone:
        command.insert(at - 1, "-XX:UseAVX=2")
    return command


ROWS = {
    "compaction": partial(_compaction, codec=Codec.NONE, times=6),
    "compaction_avx2": partial(_compaction, codec=Codec.NONE, times=6, is_avx2_alone=True),
    "compaction_lz4": partial(_compaction, codec=Codec.LZ4, times=3),
    "compaction_zstd": partial(_compaction, codec=Codec.ZSTD, times=3),
}
