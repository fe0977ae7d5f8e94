"""Copies of partition directories for the offline commands: made, opened, described.

Owns what ``offline load`` and ``offline compact`` share: the copy that is worked on, a machine on
which nothing is scheduled, topic configs from ``--set``, and the state of a log as the oracle kit
prints it. One thread.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import click

from kafkalog.env.clock import SystemClock
from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.env.system_scheduler import SystemScheduler
from kafkalog.env.system_threads import SystemThreads
from kafkalog.errors import InvalidTopicConfig
from kafkalog.format.format_error import FormatError
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.topic_partition import DirectoryState, parse_directory_name
from kafkalog.log.environment import LogEnvironment
from kafkalog.log.log_config import LogConfig
from kafkalog.settings.topic_configs import parse_topic_config

if TYPE_CHECKING:
    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog

OFFSET = click.IntRange(min=0, max=INT64_MAX)


class FixedWallClock(SystemClock):
    """Always the same wall time: expiry of producers then gives the same result every time."""

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        """As given."""
        return self._wall_ms


def copy_partition(source: str, target: str) -> None:
    """Copy the regular files of source into the new directory target, with their mtimes."""
    os.makedirs(target)
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.is_file():
                shutil.copy2(entry.path, f"{target}/{entry.name}")


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


def tool_environment(clock: SystemClock) -> LogEnvironment:
    """The machine, with a scheduler that is never started: what is scheduled does not happen."""
    threads = SystemThreads(_never)
    scheduler = SystemScheduler(clock, threads, 1, _never)
    return LogEnvironment.create(SystemFilesystem(), clock, scheduler, SystemRandom(), threads)


def _never(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} ran although nothing was started") from error


def topic_config(pairs: tuple[str, ...], **defaults: str) -> LogConfig:
    """Topic configs over ``defaults`` (underscores for dots) over Kafka's defaults."""
    overrides = {key.replace("_", "."): value for key, value in defaults.items()}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise click.BadParameter(f"takes key=value, not '{pair}'", param_hint="--set")
        overrides[key.strip()] = value.strip()
    try:
        return parse_topic_config(overrides, LogConfig())
    except InvalidTopicConfig as error:
        raise click.BadParameter(error.message, param_hint="--set") from error


def checked_target(source: str, target: str) -> str:
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
