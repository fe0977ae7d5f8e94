"""``kafkalog offline load SRC OUT`` and ``offline compact``: work on a copy of a partition.

``load`` does what a start of the daemon does, ``compact`` one clean (``cleaner.offline``). Both own
the copy OUT; SRC is only read. Options, defaults and the printed JSON of ``load`` are those of the
oracle kit's, so that the two can be compared field by field. ``.deleted`` files, which the daemon
removes after a delay, stay in OUT and show what was deleted. After an error OUT stays for
inspection. One thread.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cleaner.config import TombstoneHorizon
from kafkalog.cleaner.offline import CompactOptions, clean_directory
from kafkalog.cli.arguments import IntRange, Size, config_pairs
from kafkalog.cli.main import sentence_of
from kafkalog.env.clock import FixedWallClock, SystemClock
from kafkalog.env.system_filesystem import SystemFilesystem, copy_files
from kafkalog.errors import InvalidTopicConfig, KafkalogError, LogCleaningAborted
from kafkalog.format.disk.file_names import LOCK
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.topic_names import live_partition
from kafkalog.log.inspect.directory_facts import enclosing_log_dir
from kafkalog.log.inspect.offline_log import (
    file_sizes,
    flush_and_close,
    log_state,
    tool_environment,
)
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.retention import execute
from kafkalog.observe.logging import configure_logging
from kafkalog.settings.dynamic_configs import parse_topic_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from kafkalog.cli.connection import Command


# ---- arguments


OFFSET = IntRange(min=0, max=INT64_MAX)

log_start_option = click.option(
    "--log-start", type=OFFSET, default=0, metavar="N", help="The log start offset."
)
high_watermark_option = click.option(
    "--hw", "high_watermark", type=OFFSET, metavar="N", help="High watermark. Default: the log end."
)

now_option = click.option(
    "--now", "now_ms", type=int, metavar="MS", help="The time. Default: the clock's."
)
sets_option = click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Topic config. Repeatable."
)


def corruption_option(default: str) -> Callable[[Command], Command]:
    """``--corruption``: what a load does at a corrupt batch; ``default`` is kafka or keep."""
    return click.option(
        "--corruption",
        type=click.Choice(["kafka", "keep"]),
        default=default,
        help="At a corrupt batch: truncate as Kafka does, or keep what follows as the daemon does.",
    )


def topic_config(pairs: tuple[str, ...], **defaults: str) -> LogConfig:
    """Topic configs over ``defaults`` (underscores for dots) over Kafka's defaults."""
    overrides = {key.replace("_", "."): value for key, value in defaults.items()}
    overrides |= dict(config_pairs(pairs, "--set"))
    try:
        return parse_topic_config(overrides, LogConfig())
    except InvalidTopicConfig as error:
        raise click.BadParameter(error.message, param_hint="--set") from error


def checked_target(source: str, target: str) -> str:
    """OUT as an absolute path. BadParameter when no copy may be made there."""
    path = os.path.abspath(target)
    if os.path.lexists(path):
        raise click.BadParameter(f"{target} exists", param_hint="OUT")
    if live_partition(os.path.basename(path)) is None:
        raise click.BadParameter("must be named TOPIC-PARTITION, no more", param_hint="OUT")
    real_source = os.path.realpath(source)
    if os.path.commonpath((real_source, os.path.realpath(path))) == real_source:
        raise click.BadParameter("must not be inside SRC, which is only read", param_hint="OUT")
    real = os.path.realpath(path)
    log_dir = enclosing_log_dir(SystemFilesystem(), real)
    if log_dir is None and os.path.exists(os.path.join(os.path.dirname(real), LOCK)):
        log_dir = os.path.dirname(real)
    if log_dir is not None:
        message = f"{target} would be in the log directory {log_dir}: give another path"
        raise click.BadParameter(message, param_hint="OUT")
    return path


def work_on_copy(source: str, target: str, work: Callable[[str], dict[str, Any]]) -> None:
    """Copy SRC to OUT, work there, and print the result as JSON; errors leave as click's."""
    directory = checked_target(source, target)
    configure_logging(sys.stderr, log_format="console", level="warning")
    try:
        copy_files(source, directory)
        result = work(directory)
    except KafkalogError as error:
        raise click.ClickException(error.message) from error
    except LogCleaningAborted as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(sentence_of(error)) from error
    click.echo(json.dumps(result, indent=2))


# ---- load


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


def load_copy(directory: str, config: LogConfig, options: LoadOptions) -> dict[str, Any]:
    """Load the directory, apply the options, close it cleanly; the result as JSON values.

    Writes to directory. Raises KafkalogError and OSError.
    """
    clock = SystemClock() if options.now_ms is None else FixedWallClock(options.now_ms)
    log = load_log(
        directory,
        config,
        tool_environment(clock),
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
        # No flush between the steps: this is a copy, and the recovery point stays comparable.
        base = execute.begin(log, execute.plan_of(log, clock.wall_ms()))
        execute.raise_start(log, clock.wall_ms(), base)
        result["deletedSegments"] = len(execute.finish(log))
    if options.delete_records is not None or options.roll or options.retention:
        result["after"] = log_state(log)
    flush_and_close(log)
    result["files"] = file_sizes(directory)
    return result


@click.command()
@click.argument("source", metavar="SRC", type=click.Path(exists=True, file_okay=False))
@click.argument("target", metavar="OUT", type=click.Path())
@click.option(
    "--clean", is_flag=True, help="Load as after a clean shutdown. Default: as after a crash."
)
@click.option(
    "--recovery-point", type=OFFSET, default=0, metavar="N", help="Offsets below it were flushed."
)
@log_start_option
@high_watermark_option
@now_option
@click.option(
    "--delete-records", type=OFFSET, metavar="N", help="Then raise the log start to this offset."
)
@click.option("--roll", is_flag=True, help="Then roll a new segment.")
@click.option("--retention", is_flag=True, help="Then run a retention pass at that time.")
@sets_option
@corruption_option("kafka")
def load(
    source: str,
    target: str,
    sets: tuple[str, ...],
    **options: Any,  # noqa: ANN401 - click gives the fields of LoadOptions by name
) -> None:
    """Copy a partition directory, load the copy and close it; print the result as JSON.

    OUT must not exist and must be named TOPIC-PARTITION; it keeps the result. SRC is only read. The
    loader's messages go to standard error.

    Example: kafkalog offline load ./data/orders-0 /tmp/check/orders-0
    """
    config = topic_config(sets)
    work_on_copy(source, target, lambda out: load_copy(out, config, LoadOptions(**options)))


# ---- compact


_SIZE = Size(min=1, max=2**31 - 1)


@click.command()
@click.argument("source", metavar="SRC", type=click.Path(exists=True, file_okay=False))
@click.argument("target", metavar="OUT", type=click.Path())
@now_option
@click.option("--first-dirty", type=OFFSET, metavar="N", help="As in cleaner-offset-checkpoint.")
@log_start_option
@high_watermark_option
@click.option(
    "--unclean", is_flag=True, help="Load as after a crash. Default: as after a clean shutdown."
)
@click.option("--roll", is_flag=True, help="Roll the active segment first.")
@click.option(
    "--map-bytes", type=_SIZE, default=4 << 20, metavar="N", help="Bytes of the offset map."
)
@click.option(
    "--io-buffer",
    "io_buffer_bytes",
    type=_SIZE,
    default=262_144,
    metavar="N",
    help="Bytes read at a time.",
)
@click.option(
    "--load-factor",
    type=click.FloatRange(min=0, min_open=True, max=1),
    default=0.9,
    metavar="F",
    help="Fraction of the map that may be filled.",
)
@click.option(
    "--tombstone-horizon",
    type=click.Choice([each.value for each in TombstoneHorizon]),
    default=TombstoneHorizon.BATCH.value,
    help="As log.cleaner.tombstone.horizon.",
)
@sets_option
def compact(
    source: str,
    target: str,
    tombstone_horizon: Literal["batch", "segment"],
    sets: tuple[str, ...],
    **options: Any,  # noqa: ANN401 - click gives the fields of CompactOptions by name
) -> None:
    """Copy a partition directory, clean the copy once and close it; print the result as JSON.

    OUT must not exist and must be named TOPIC-PARTITION; it keeps the result. SRC is only read. The
    active segment is never cleaned; --roll closes it first.

    Example: kafkalog offline compact ./data/orders-0 /tmp/check/orders-0 --roll
    """
    config = topic_config(sets, cleanup_policy="compact")
    horizon = TombstoneHorizon(tombstone_horizon)
    given = CompactOptions(tombstone_horizon=horizon, **options)
    work_on_copy(source, target, lambda out: clean_directory(out, config, given))
