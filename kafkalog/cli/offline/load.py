"""``kafkalog offline load SRC OUT``: what a start of the daemon does to a partition directory.

Owns the copy OUT, which the loader changes; SRC is only read. Options, defaults and the printed
JSON are those of the oracle kit's ``load``, so that the two can be compared field by field.
``.deleted`` files, which the daemon removes after a delay, stay in OUT and show what was deleted.
After an error OUT stays for inspection. One thread.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.offline.partition_copy import (
    OFFSET,
    checked_target,
    corruption_option,
    high_watermark_option,
    log_start_option,
    sets_option,
    topic_config,
)
from kafkalog.env.clock import FixedWallClock, SystemClock
from kafkalog.env.system_filesystem import copy_files
from kafkalog.errors import KafkalogError
from kafkalog.log.inspect.offline_log import (
    file_sizes,
    flush_and_close,
    log_state,
    tool_environment,
)
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.retention import execute
from kafkalog.observe.logging import configure_logging

if TYPE_CHECKING:
    from typing import Literal

    from kafkalog.log.log_config import LogConfig


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
    "--recovery-point",
    type=OFFSET,
    default=0,
    show_default=True,
    metavar="N",
    help="Offsets below it were flushed.",
)
@log_start_option
@high_watermark_option
@click.option("--now", "now_ms", type=int, metavar="MS", help="The time. Default: the clock's.")
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
    directory = checked_target(source, target)
    configure_logging(sys.stderr, log_format="console", level="warning")
    try:
        copy_files(source, directory)
        result = load_copy(directory, config, LoadOptions(**options))
    except KafkalogError as error:
        raise click.ClickException(error.message) from error
    except OSError as error:
        raise click.ClickException(str(error)) from error
    click.echo(json.dumps(result, indent=2))
