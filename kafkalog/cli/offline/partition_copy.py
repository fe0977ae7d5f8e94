"""Arguments of the offline commands that work on a copy of a partition directory.

``env.system_filesystem`` makes the copy, ``log.inspect.offline_log`` opens it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from kafkalog.errors import InvalidTopicConfig
from kafkalog.format.integers import INT64_MAX, FormatError
from kafkalog.format.topic_names import DirectoryState, parse_directory_name
from kafkalog.log.log_config import LogConfig
from kafkalog.settings.topic_configs import parse_topic_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.cli.connection import Command

OFFSET = click.IntRange(min=0, max=INT64_MAX)

log_start_option = click.option(
    "--log-start",
    type=OFFSET,
    default=0,
    show_default=True,
    metavar="N",
    help="The log start offset.",
)
high_watermark_option = click.option(
    "--hw", "high_watermark", type=OFFSET, metavar="N", help="High watermark. Default: the log end."
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
        show_default=True,
        help="At a corrupt batch: truncate as Kafka does, or keep what follows as the daemon does.",
    )


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
    """OUT as an absolute path. BadParameter when no copy may be made there."""
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
        raise click.BadParameter("must not be inside SRC, which is only read", param_hint="OUT")
    return path
