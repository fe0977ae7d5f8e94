"""``kafkalog offline compact SRC OUT``: one clean of a copy of a partition directory.

Owns the copy OUT, which ``cleaner.offline`` cleans; SRC is only read. After an error OUT stays for
inspection. One thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kafkalog.cleaner.config import TombstoneHorizon
from kafkalog.cleaner.offline import CompactOptions, clean_directory
from kafkalog.cli.offline.load import (
    OFFSET,
    high_watermark_option,
    log_start_option,
    sets_option,
    topic_config,
    work_on_copy,
)

if TYPE_CHECKING:
    from typing import Any, Literal

_SIZE = click.IntRange(min=1, max=2**31 - 1)


@click.command()
@click.argument("source", metavar="SRC", type=click.Path(exists=True, file_okay=False))
@click.argument("target", metavar="OUT", type=click.Path())
@click.option("--now", "now_ms", type=int, metavar="MS", help="The time. Default: the clock's.")
@click.option("--first-dirty", type=OFFSET, metavar="N", help="As in cleaner-offset-checkpoint.")
@log_start_option
@high_watermark_option
@click.option(
    "--unclean", is_flag=True, help="Load as after a crash. Default: as after a clean shutdown."
)
@click.option("--roll", is_flag=True, help="Roll the active segment first.")
@click.option(
    "--map-bytes",
    type=_SIZE,
    default=4 << 20,
    show_default=True,
    metavar="N",
    help="Bytes of the offset map.",
)
@click.option(
    "--io-buffer",
    "io_buffer_bytes",
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
    help="Fraction of the map that may be filled.",
)
@click.option(
    "--tombstone-horizon",
    type=click.Choice([each.value for each in TombstoneHorizon]),
    default=TombstoneHorizon.BATCH.value,
    show_default=True,
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
