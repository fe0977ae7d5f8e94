"""Which configuration a command speaks of: a properties file, the environment and --override."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kafkalog.settings import Settings

Command = Callable[..., None]


def with_settings_source(command: Command) -> Command:
    """Add PROPERTIES and --override; the command gets ``properties`` and ``overrides``."""
    argument = click.argument("properties", type=click.Path(dir_okay=False), required=False)
    option = click.option(
        "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Repeatable."
    )
    return argument(option(command))


def settings_from(properties: str | None, overrides: tuple[str, ...]) -> Settings:
    """The settings of a daemon that is started with the same arguments, in this environment.

    InvalidConfig; click's errors for what is no key=value and for a file that cannot be read.
    """
    from kafkalog.settings import load_settings

    pairs: dict[str, str] = {}
    for pair in overrides:
        key, separator, value = pair.partition("=")
        if not separator:
            raise click.UsageError(f"--override takes key=value, not '{pair}'")
        pairs[key.strip()] = value.strip()
    data = None
    if properties is not None:
        try:
            data = Path(properties).read_bytes()
        except OSError as error:
            raise click.ClickException(f"Cannot read {properties}: {error.strerror}") from error
    return load_settings(data, os.environ, pairs)
