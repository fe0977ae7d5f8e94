"""Compactions with every partition split, and offline compact, which they are held against."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.log.log_config import LogConfig
from kafkalog.spark.jobs.compact import compact_directories
from kafkalog.spark.jobs.compact_split import PART_BYTES
from kafkalog.spark.jobs.fleet import find_partitions
from tests.fleet_world import contents
from tests.naive.cleaning_logs import TIME

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.spark.jobs.compacted_partition import CompactedPartition
    from kafkalog.spark.jobs.tasks import Runner

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


def run(*words: str | Path) -> Any:
    """What a command that succeeds prints, as JSON."""
    result = CliRunner().invoke(make_cli(), [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def offline(source: Path, target: Path, *words: str) -> dict[str, bytes]:
    """What offline compact leaves with a map for all keys."""
    run("offline", "compact", source, target, "--roll", "--now", str(NOW_MS), *words)
    return {name: data for name, data in contents(target).items() if not name.endswith(".deleted")}


def small_groups(source: Path, check: Path) -> dict[str, bytes]:
    """What offline compact leaves of t-0 with segments of SEGMENT_BYTES."""
    words = ("--map-bytes", "1000000", "--set", f"internal.segment.bytes={SEGMENT_BYTES}")
    return offline(source / "t-0", check / "t-0", *words)
