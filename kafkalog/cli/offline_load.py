"""``kafkalog offline load SRC OUT``: what a start of the daemon makes of a partition directory.

Owns the copy OUT, which the loader works on; SRC is never written to. Options, defaults and the
JSON that is printed are those of the oracle kit's ``load``, so that the two can be compared field
by field. The removal of ``.deleted`` files, which the daemon does after a delay, never runs here:
OUT shows what went. After an error OUT stays as it is, for a look at it. One thread.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kafkalog.env.clock import SystemClock
from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.env.system_scheduler import SystemScheduler
from kafkalog.env.system_threads import SystemThreads
from kafkalog.errors import InvalidTopicConfig, KafkalogError
from kafkalog.format.format_error import FormatError
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.topic_partition import DirectoryState, parse_directory_name
from kafkalog.log import retention_pass
from kafkalog.log.environment import LogEnvironment
from kafkalog.log.log_config import LogConfig
from kafkalog.log.log_loader import load_log
from kafkalog.observe.logging import configure_logging
from kafkalog.settings.topic_configs import parse_topic_config

if TYPE_CHECKING:
    from typing import Literal

    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog

_OFFSET = click.IntRange(min=0, max=INT64_MAX)


class FixedWallClock(SystemClock):
    """Always the same wall time: expiry of producers then gives the same result every time."""

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        """As given."""
        return self._wall_ms


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How to load; defaults are a start after a crash without any checkpoint."""

    clean: bool = False
    recovery_point: int = 0
    log_start: int = 0
    high_watermark: int | None = None  # None: the log end
    now_ms: int | None = None  # None: the machine's clock
    delete_records: int | None = None
    roll: bool = False
    retention: bool = False
    corruption: Literal["kafka", "keep"] = "kafka"


def copy_partition(source: str, target: str) -> None:
    """Copy the regular files of source into the new directory target, with their mtimes."""
    os.makedirs(target)
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.is_file():
                shutil.copy2(entry.path, f"{target}/{entry.name}")


def load_copy(directory: str, config: LogConfig, options: LoadOptions) -> dict[str, Any]:
    """Load, do what was asked for, close cleanly; the result as JSON values.

    Writes to directory. Raises KafkalogError and OSError.
    """
    clock = SystemClock() if options.now_ms is None else FixedWallClock(options.now_ms)
    log = load_log(
        directory,
        config,
        _environment(clock),
        clean=options.clean,
        recovery_point=options.recovery_point,
        log_start_offset=options.log_start,
        corruption=options.corruption,
        may_have_gaps=options.corruption == "kafka",
    )
    high_watermark = options.high_watermark
    log.update_high_watermark(log.log_end_offset if high_watermark is None else high_watermark)
    result: dict[str, Any] = {"loaded": log_state(log)}
    if options.delete_records is not None:
        result["deleteRecords"] = log.increment_log_start_offset(
            options.delete_records, "client delete records"
        )
    if options.roll:
        log.roll()
    if options.retention:
        # A copy: the steps need no disk between them, and Kafka's recovery point stays comparable.
        base = retention_pass.begin(log, retention_pass.plan_of(log, clock.wall_ms()))
        retention_pass.raise_start(log, clock.wall_ms(), base)
        result["deletedSegments"] = len(retention_pass.finish(log))
    if options.delete_records is not None or options.roll or options.retention:
        result["after"] = log_state(log)
    plan = log.plan_flush()
    if plan is not None:
        plan.run()
        log.mark_flushed(plan)
    log.close()
    result["files"] = file_sizes(directory)
    return result


def log_state(log: UnifiedLog) -> dict[str, Any]:
    """Offsets, size and segments of a log."""
    return {
        "logStartOffset": log.log_start_offset,
        "logEndOffset": log.log_end_offset,
        "lastStableOffset": log.last_stable_offset,
        "recoveryPoint": log.recovery_point,
        "size": log.size_bytes,
        "segments": [_segment_state(segment) for segment in log.segments],
    }


def file_sizes(directory: str) -> dict[str, int]:
    """Bytes of every file by name, sorted."""
    return {stat.name: stat.size for stat in SystemFilesystem().list_dir_stats(directory)}


def _segment_state(segment: LogSegment) -> dict[str, int]:
    # These two look-ups first: entries of a damaged index are found again from the .log.
    segment.floor_position(segment.base_offset)
    segment.floor_timestamp(INT64_MAX)
    return {
        "base": segment.base_offset,
        "bytes": segment.size_bytes,
        "largestTimestamp": segment.largest_timestamp_ms(),
        "indexEntries": segment.offset_index.entry_count(),
        "timeIndexEntries": segment.time_index.entry_count(),
    }


def _environment(clock: SystemClock) -> LogEnvironment:
    """The machine, with a scheduler that is never started: what is scheduled does not happen."""
    threads = SystemThreads(_never)
    scheduler = SystemScheduler(clock, threads, 1, _never)
    return LogEnvironment.create(SystemFilesystem(), clock, scheduler, SystemRandom(), threads)


def _never(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} ran although nothing was started") from error


def _topic_config(pairs: tuple[str, ...]) -> LogConfig:
    """Topic configs over Kafka's defaults."""
    overrides: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise click.BadParameter(f"takes key=value, not '{pair}'", param_hint="--set")
        overrides[key.strip()] = value.strip()
    try:
        return parse_topic_config(overrides, LogConfig())
    except InvalidTopicConfig as error:
        raise click.BadParameter(error.message, param_hint="--set") from error


def _checked_target(source: str, target: str) -> str:
    """OUT as an absolute path, if a copy may be made there."""
    path = os.path.abspath(target)
    if os.path.lexists(path):
        raise click.BadParameter(f"{target} exists", param_hint="OUT")
    try:
        state = parse_directory_name(os.path.basename(path)).state
    except FormatError as error:
        raise click.BadParameter("must be named TOPIC-PARTITION", param_hint="OUT") from error
    if state is not DirectoryState.LIVE:
        raise click.BadParameter("must be named TOPIC-PARTITION, no more", param_hint="OUT")
    real_source = os.path.realpath(source)
    if os.path.commonpath((real_source, os.path.realpath(path))) == real_source:
        raise click.BadParameter("must not lie inside SRC, which stays as it is", param_hint="OUT")
    return path


@click.command()
@click.argument("source", metavar="SRC", type=click.Path(exists=True, file_okay=False))
@click.argument("target", metavar="OUT", type=click.Path())
@click.option("--clean", is_flag=True, help="As after a clean shutdown; else as after a crash.")
@click.option("--recovery-point", type=_OFFSET, default=0, show_default=True, metavar="N")
@click.option("--log-start", type=_OFFSET, default=0, show_default=True, metavar="N")
@click.option("--hw", type=_OFFSET, metavar="N", help="High watermark. Default: the log end.")
@click.option("--now", type=int, metavar="MS", help="The time. Default: the clock's.")
@click.option("--delete-records", type=_OFFSET, metavar="N", help="Then move the log start up.")
@click.option("--roll", is_flag=True, help="Then start a new segment.")
@click.option("--retention", is_flag=True, help="Then delete what retention lets go at that time.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Topic config. Repeatable.")
@click.option(
    "--corruption",
    type=click.Choice(["kafka", "keep"]),
    default="kafka",
    show_default=True,
    help="At a bad batch: cut there as Kafka does, or keep what follows as the server does.",
)
def load(
    source: str,
    target: str,
    clean: bool,
    recovery_point: int,
    log_start: int,
    hw: int | None,
    now: int | None,
    delete_records: int | None,
    roll: bool,
    retention: bool,
    sets: tuple[str, ...],
    corruption: Literal["kafka", "keep"],
) -> None:
    """Copy a partition directory, load the copy, close it; print the outcome as JSON.

    OUT must not exist and must be named TOPIC-PARTITION; it keeps the result. SRC is only read.
    What the loader finds goes to standard error.

    Example: kafkalog offline load ./data/orders-0 /tmp/check/orders-0
    """
    config = _topic_config(sets)
    directory = _checked_target(source, target)
    options = LoadOptions(
        clean=clean,
        recovery_point=recovery_point,
        log_start=log_start,
        high_watermark=hw,
        now_ms=now,
        delete_records=delete_records,
        roll=roll,
        retention=retention,
        corruption=corruption,
    )
    configure_logging(sys.stderr, log_format="console", level="warning")
    try:
        copy_partition(source, directory)
        result = load_copy(directory, config, options)
    except KafkalogError as error:
        raise click.ClickException(error.message) from error
    except OSError as error:
        raise click.ClickException(str(error)) from error
    click.echo(json.dumps(result, indent=2))
