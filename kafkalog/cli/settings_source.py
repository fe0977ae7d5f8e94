"""Which configuration a command speaks of: a properties file, the environment and --override."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkalog.cli.config_pairs import config_pairs

if TYPE_CHECKING:
    from kafkalog.settings import Settings

Command = Callable[..., None]

_MAY_BE_MISSING = "-"  # in front of a path


def with_settings_source(command: Command) -> Command:
    """Add PROPERTIES and --override; the command gets ``properties`` and ``overrides``."""
    argument = click.argument(
        "properties",
        type=click.Path(dir_okay=False),
        nargs=-1,
        envvar="KAFKALOG_SERVER_PROPERTIES",
    )
    option = click.option(
        "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Repeatable."
    )
    return argument(option(command))


def settings_from(properties: tuple[str, ...], overrides: tuple[str, ...]) -> Settings:
    """The settings of a daemon that is started with the same arguments, in this environment.

    InvalidConfig; click's errors for what is no key=value and for a file that cannot be read.
    """
    from kafkalog.settings import load_settings

    pairs = dict(config_pairs(overrides, "--override"))
    files = {}
    for name in properties:
        path = name.removeprefix(_MAY_BE_MISSING)
        if path == name or os.path.lexists(path):
            files[path] = _read(path)
    return load_settings(None, os.environ, pairs, _read_text, files=files)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise click.ClickException(f"Cannot read {path}: {error.strerror}") from error


def _read_text(path: str) -> str:
    """The value in a file that a variable names: as the variable's own would be."""
    try:
        return _read(path).decode()
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{path} is no UTF-8 text: {error.reason}") from error
