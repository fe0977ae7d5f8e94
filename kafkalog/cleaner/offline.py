"""One round of the cleaner on a partition directory without a daemon: a copy, or an overlay of one.

Options, defaults and the values that come back are those of the oracle kit's ``compact``, so that
the two can be compared field by field; ``now_ms`` is the clock and the time that delete horizons
are made from, which makes a round repeatable. The removal of ``.deleted`` files never runs here:
the directory shows what went. One thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalog.cleaner.cleaner import Cleaner
from kafkalog.cleaner.config import CleanerConfig, TombstoneHorizon
from kafkalog.cleaner.plan import LogToClean
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.cleaner.stats import CleanerStats
from kafkalog.env.clock import FixedWallClock, SystemClock
from kafkalog.env.overlay_filesystem import overlay
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import LostOffsets
from kafkalog.format.disk.file_names import LOG_SUFFIX
from kafkalog.log.inspect.offline_log import (
    file_sizes,
    flush_and_close,
    log_state,
    naming_source,
    tool_environment,
)
from kafkalog.log.recovery.log_loader import NO_HOOKS, LoadHooks, load_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from kafkalog.cleaner.cleaner import CleaningResult
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.unified_log import UnifiedLog

    T = TypeVar("T")


LOAD_FACTOR = 0.9
"""As log.cleaner.io.buffer.load.factor."""


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """What to clean and with what; defaults are those of the oracle kit."""

    now_ms: int | None = None  # None: the machine's clock
    first_dirty: int | None = None  # what cleaner-offset-checkpoint would hold
    log_start: int = 0
    high_watermark: int | None = None  # None: the log end
    known_end: int | None = None  # how far the log has to reach; None: it may lack offsets
    roll: bool = False
    unclean: bool = False
    map_bytes: int = 4 << 20
    io_buffer_bytes: int = 262_144
    load_factor: float = LOAD_FACTOR
    tombstone_horizon: TombstoneHorizon = TombstoneHorizon.BATCH


def clean_directory(
    directory: str,
    config: LogConfig,
    options: CompactOptions,
    filesystem: SystemFilesystem | None = None,
) -> dict[str, Any]:
    """Load, clean, close; the result as JSON values.

    Writes to directory, on ``filesystem`` if that is not the machine's. Raises KafkalogError (of
    what is lost when ``known_end`` is given: LostOffsets), LogCleaningAborted and OSError.
    """
    clock = SystemClock() if options.now_ms is None else FixedWallClock(options.now_ms)
    now_ms = clock.wall_ms()
    offset_map = SkimpyOffsetMap(options.map_bytes, options.load_factor)
    filesystem = filesystem or SystemFilesystem()
    log = load_to_clean(directory, config, options, clock, filesystem)
    result: dict[str, Any] = {"now": now_ms, "before": log_state(log)}
    to_clean = LogToClean.of(log, options.first_dirty, now_ms)
    result |= _plan(to_clean)
    result["mapSlots"] = offset_map.slots
    if to_clean.cleanable_bytes:
        cleaner = Cleaner(
            offset_map,
            CleanerConfig(
                io_buffer_bytes=options.io_buffer_bytes, tombstone_horizon=options.tombstone_horizon
            ),
            throttle=unthrottled,
        )
        done = cleaner.clean(to_clean, now_ms, on_writer=at_once, check_done=_never)
        result |= _outcome(done)
    else:
        result |= {"endOffset": to_clean.first_dirty_offset, "nothingToClean": True}
    result["after"] = log_state(log)
    flush_and_close(log)
    result["files"] = file_sizes(directory, filesystem)
    return result


def load_to_clean(
    directory: str,
    config: LogConfig,
    options: CompactOptions,
    clock: SystemClock,
    filesystem: SystemFilesystem,
) -> UnifiedLog:
    """The log as a round takes it: with its watermark, rolled if that is asked for.

    Raises KafkalogError and OSError.
    """
    log = load_log(
        directory,
        config,
        tool_environment(clock, filesystem),
        clean=not options.unclean,
        recovery_point=options.known_end or 0,
        log_start_offset=options.log_start,
        corruption="kafka",
        may_have_gaps=True,
        hooks=NO_HOOKS if options.known_end is None else LoadHooks(note_lost=_refuse_lost),
    )
    high_watermark = options.high_watermark
    log.update_high_watermark(log.log_end_offset if high_watermark is None else high_watermark)
    if options.roll:
        log.roll()
    return log


def _refuse_lost(path: str, first_offset: int, last_offset: int | None) -> None:
    """A round would make it look as if compaction had taken them."""
    end = "the log's end" if last_offset is None else last_offset
    what = f"Offsets from {first_offset} to {end} are missing"
    raise LostOffsets(what, file=path, position=0)


def preview_clean(
    directory: str, config: LogConfig, *, now_ms: int, log_start: int, map_bytes: int
) -> CleanerStats:
    """What one round would read and write of a directory that stays as it is; it is rolled first.

    It is taken for one that was closed well; nothing in it is changed. Raises KafkalogError
    (LostOffsets as a round does) and OSError.
    """
    clock = FixedWallClock(now_ms)
    with (
        overlay(directory, LOG_SUFFIX) as (filesystem, shown),
        naming_source(shown, directory, filesystem),
    ):
        options = CompactOptions(log_start=log_start, known_end=0)
        log = load_to_clean(shown, config, options, clock, filesystem)
        try:
            if log.segments.values[-1].size_bytes:
                log.roll()
            to_clean = LogToClean.of(log, None, now_ms)
            if not to_clean.cleanable_bytes:
                return CleanerStats()
            cleaner = Cleaner(
                SkimpyOffsetMap(map_bytes, LOAD_FACTOR), CleanerConfig(), throttle=unthrottled
            )
            done = cleaner.clean(
                to_clean, now_ms, on_writer=at_once, check_done=_never, dry_run=True
            )
            return done.stats
        finally:
            log.close_handles()


def _plan(to_clean: LogToClean) -> dict[str, Any]:
    """Where the round begins and ends. The ratio of nothing is no number, as Java prints it."""
    is_empty = not to_clean.clean_bytes + to_clean.cleanable_bytes
    return {
        "firstDirtyOffset": to_clean.first_dirty_offset,
        "firstUncleanableOffset": to_clean.first_uncleanable_offset,
        "cleanBytes": to_clean.clean_bytes,
        "cleanableBytes": to_clean.cleanable_bytes,
        "cleanableRatio": "NaN" if is_empty else to_clean.cleanable_ratio,
    }


def _outcome(done: CleaningResult) -> dict[str, Any]:
    """Where the round ended and its figures."""
    stats = done.stats
    return {
        "endOffset": done.end_offset,
        "mapMessagesRead": stats.map_messages_read,
        "messagesRead": stats.messages_read,
        "messagesWritten": stats.messages_written,
        "invalidMessagesRead": stats.invalid_messages_read,
        "bytesRead": stats.bytes_read,
        "bytesWritten": stats.bytes_written,
        "mapSize": stats.map_size,
    }


def at_once(call: Callable[[], T], /) -> T:
    """No other thread works on the directory."""
    return call()


def unthrottled(_: int) -> None:
    """As fast as it goes."""


def _never() -> None:
    """It is never asked to stop."""
