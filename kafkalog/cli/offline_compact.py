"""``kafkalog offline compact SRC OUT``: one round of the cleaner on a copy of a partition.

Owns the copy OUT, which is cleaned; SRC is never written to. Options, defaults and the JSON that is
printed are those of the oracle kit's ``compact``, so that the two can be compared field by field;
``--now`` is the clock and the time that delete horizons are made from, which makes a round
repeatable. The removal of ``.deleted`` files never runs here: OUT shows what went. After an error
OUT stays as it is. One thread.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cleaner.cleaner import Cleaner
from kafkalog.cleaner.cleaner_config import CleanerConfig, TombstoneHorizon
from kafkalog.cleaner.log_to_clean import LogToClean
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.cli.partition_copy import (
    OFFSET,
    FixedWallClock,
    checked_target,
    copy_partition,
    file_sizes,
    log_state,
    tool_environment,
    topic_config,
)
from kafkalog.env.clock import SystemClock
from kafkalog.errors import KafkalogError, LogCleaningAborted
from kafkalog.log.log_loader import load_log
from kafkalog.observe.logging import configure_logging

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal, TypeVar

    from kafkalog.cleaner.cleaner import CleaningResult
    from kafkalog.log.log_config import LogConfig

    T = TypeVar("T")

_SIZE = click.IntRange(min=1, max=2**31 - 1)


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """What to clean and with what; defaults are those of the oracle kit."""

    now_ms: int | None = None  # None: the machine's clock
    first_dirty: int | None = None  # what cleaner-offset-checkpoint would hold
    log_start: int = 0
    high_watermark: int | None = None  # None: the log end
    roll: bool = False
    unclean: bool = False
    map_bytes: int = 4 << 20
    io_buffer_bytes: int = 262_144
    load_factor: float = 0.9
    tombstone_horizon: TombstoneHorizon = TombstoneHorizon.BATCH


def compact_copy(directory: str, config: LogConfig, options: CompactOptions) -> dict[str, Any]:
    """Load, clean, close; the result as JSON values.

    Writes to directory. Raises KafkalogError, LogCleaningAborted and OSError.
    """
    clock = SystemClock() if options.now_ms is None else FixedWallClock(options.now_ms)
    now_ms = clock.wall_ms()
    offset_map = SkimpyOffsetMap(options.map_bytes, options.load_factor)
    log = load_log(
        directory,
        config,
        tool_environment(clock),
        clean=not options.unclean,
        recovery_point=0,
        log_start_offset=options.log_start,
        corruption="kafka",
        may_have_gaps=True,
    )
    high_watermark = options.high_watermark
    log.update_high_watermark(log.log_end_offset if high_watermark is None else high_watermark)
    if options.roll:
        log.roll()
    result: dict[str, Any] = {"now": now_ms, "before": log_state(log)}
    to_clean = LogToClean.of(log, options.first_dirty, now_ms)
    result |= _plan(to_clean)
    result["mapSlots"] = offset_map.slots
    if to_clean.cleanable_bytes:
        cleaner = Cleaner(
            offset_map,
            CleanerConfig(
                io_buffer_bytes=options.io_buffer_bytes,
                tombstone_horizon=options.tombstone_horizon,
            ),
            throttle=_nothing,
        )
        done = cleaner.clean(to_clean, now_ms, on_writer=_at_once, check_done=_never)
        result |= _outcome(done)
    else:
        result |= {"endOffset": to_clean.first_dirty_offset, "nothingToClean": True}
    result["after"] = log_state(log)
    plan = log.plan_flush()
    if plan is not None:
        plan.run()
        log.mark_flushed(plan)
    log.close()
    result["files"] = file_sizes(directory)
    return result


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


def _at_once(call: Callable[[], T], /) -> T:
    """Nobody else works on a copy."""
    return call()


def _nothing(_: int) -> None:
    """As fast as it goes."""


def _never() -> None:
    """Nobody asks a copy to stop."""


@click.command()
@click.argument("source", metavar="SRC", type=click.Path(exists=True, file_okay=False))
@click.argument("target", metavar="OUT", type=click.Path())
@click.option("--now", type=int, metavar="MS", help="The time. Default: the clock's.")
@click.option("--first-dirty", type=OFFSET, metavar="N", help="As in cleaner-offset-checkpoint.")
@click.option("--log-start", type=OFFSET, default=0, show_default=True, metavar="N")
@click.option("--hw", type=OFFSET, metavar="N", help="High watermark. Default: the log end.")
@click.option("--unclean", is_flag=True, help="Load as after a crash; else as after a clean stop.")
@click.option("--roll", is_flag=True, help="Close the active segment first.")
@click.option(
    "--map-bytes", type=_SIZE, default=4 << 20, show_default=True, metavar="N", help="Offset map."
)
@click.option(
    "--io-buffer",
    type=_SIZE,
    default=262_144,
    show_default=True,
    metavar="N",
    help="Bytes read at a time.",
)
@click.option(
    "--load-factor",
    type=click.FloatRange(min=0, min_open=True, max=1),
    default=0.9,
    show_default=True,
    metavar="F",
    help="How full the map may get.",
)
@click.option(
    "--tombstone-horizon",
    type=click.Choice([each.value for each in TombstoneHorizon]),
    default=TombstoneHorizon.BATCH.value,
    show_default=True,
    help="As log.cleaner.tombstone.horizon.",
)
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Topic config. Repeatable.")
def compact(
    source: str,
    target: str,
    now: int | None,
    first_dirty: int | None,
    log_start: int,
    hw: int | None,
    unclean: bool,
    roll: bool,
    map_bytes: int,
    io_buffer: int,
    load_factor: float,
    tombstone_horizon: Literal["batch", "segment"],
    sets: tuple[str, ...],
) -> None:
    """Copy a partition directory, compact the copy once, close it; print the outcome as JSON.

    OUT must not exist and must be named TOPIC-PARTITION; it keeps the result. SRC is only read.
    The active segment is never compacted: --roll closes it first.

    Example: kafkalog offline compact ./data/orders-0 /tmp/check/orders-0 --roll
    """
    config = topic_config(sets, cleanup_policy="compact")
    directory = checked_target(source, target)
    options = CompactOptions(
        now_ms=now,
        first_dirty=first_dirty,
        log_start=log_start,
        high_watermark=hw,
        roll=roll,
        unclean=unclean,
        map_bytes=map_bytes,
        io_buffer_bytes=io_buffer,
        load_factor=load_factor,
        tombstone_horizon=TombstoneHorizon(tombstone_horizon),
    )
    configure_logging(sys.stderr, log_format="console", level="warning")
    try:
        copy_partition(source, directory)
        result = compact_copy(directory, config, options)
    except KafkalogError as error:
        raise click.ClickException(error.message) from error
    except (LogCleaningAborted, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(json.dumps(result, indent=2))
