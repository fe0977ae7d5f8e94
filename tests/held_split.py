"""A split compaction that waits: ``python -m tests.held_split SOURCE OUT PHASE GATE``.

Two processes work. The first task of the phase prints "held PID" when its work is done, and then
waits until somebody opens GATE, a pipe, for writing: who kills the process or its driver meanwhile
knows where they are.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.log.log_config import LogConfig
from kafkalog.observe.logging import configure_logging
from kafkalog.spark.jobs.compact import compact_directories
from kafkalog.spark.jobs.compact_split import PART_BYTES
from kafkalog.spark.jobs.fleet import find_partitions
from tests.naive.cleaning_logs import TIME
from tests.split_runners import DisturbedRunner

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.spark.jobs.compacted_partition import CompactedPartition
    from kafkalog.spark.jobs.tasks import ResultT, Runner, TaskT

NOW_MS = TIME + 1_000_000
SEGMENT_BYTES = 500


def split(
    source: str,
    out: str,
    runner: Runner,
    *,
    segment_bytes: int = 2_000,
    map_bytes: int = 10_000,
    part_bytes: int = PART_BYTES,
) -> list[CompactedPartition]:
    """The job with every partition split."""
    config = LogConfig(internal_segment_bytes=segment_bytes)
    partitions = find_partitions([source], SystemFilesystem(), config_of=lambda *_: config)
    return compact_directories(
        partitions,
        out,
        runner,
        now_ms=NOW_MS,
        map_bytes=map_bytes,
        split_bytes=1,
        part_bytes=part_bytes,
    )


def split_in_processes(source: str, out: str, runner: Runner) -> None:
    """The job with more than one task in every phase, as a task alone has no process of its own."""
    split(source, out, runner, segment_bytes=SEGMENT_BYTES, part_bytes=1)


def hold(gate: str, work: Callable[[TaskT], ResultT], label: str, task: TaskT) -> ResultT:
    """The one task waits at the gate."""
    result = work(task)
    if task.label == label:
        sys.stdout.write(f"held {os.getpid()}\n")
        sys.stdout.flush()
        with open(gate, "rb") as pipe:
            pipe.read()
    return result


def main() -> None:
    """See the module."""
    source, out, phase, gate = sys.argv[1:]
    configure_logging(sys.stderr, log_format="console", level="warning")
    runner = DisturbedRunner(phase, partial(hold, gate))
    split_in_processes(source, out, runner)


if __name__ == "__main__":
    main()
