"""``kafkalog config``: the keys there are, and what a daemon would be started with.

What a running one has, and what was altered at run time, is `kafkalog configs describe`.

Which configuration a command speaks of: a properties file, the environment and --override.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import config_pairs
from kafkalog.cli.connection import Command, output_option
from kafkalog.cli.main import CommandGroup
from kafkalog.cli.output import print_table
from kafkalog.errors import InvalidConfig

if TYPE_CHECKING:
    from kafkalog.settings import Settings
    from kafkalog.settings.setting import Setting
    from kafkalog.settings.settings import ResolvedValue


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


_NOT_SET = "-"


@click.group(cls=CommandGroup)
def config() -> None:
    """Look at the configuration, without a daemon."""


@config.command("list")
@click.option("--topics", "of_topics", is_flag=True, help="The keys of topics, not the daemon's.")
@output_option
def list_keys(of_topics: bool, output: str) -> None:
    """Every key with its default, in the order of the alphabet; --output json says what it means.

    Example: kafkalog config list | grep retention
    """
    from kafkalog.settings.tables import BROKER_LEVEL, TOPIC_LEVEL

    table = TOPIC_LEVEL if of_topics else BROKER_LEVEL
    settings = [table[key] for key in sorted(table) if not table[key].internal]
    if output == "json":
        click.echo(json.dumps([_document(setting) for setting in settings]))
        return
    rows = [(one.key, _text(_default(one)), one.kind.value, one.unit) for one in settings]
    print_table([("KEY", "DEFAULT", "TYPE", "UNIT"), *rows])


def _default(setting: Setting) -> str | None:
    from kafkalog.settings.setting import format_value

    return format_value(setting.default)


def _document(setting: Setting) -> dict[str, Any]:
    return {
        "name": setting.key,
        "default": _default(setting),
        "type": setting.kind.value,
        "unit": setting.unit,
        "valid": setting.valid_text,
        "documentation": setting.doc,
        "is_own": setting.own,
    }


@config.command()
@with_settings_source
@click.option("--source", "with_source", is_flag=True, help="Say where each value comes from.")
@click.option("--all", "is_all", is_flag=True, help="Also what nobody set.")
@output_option
def show(
    properties: tuple[str, ...],
    overrides: tuple[str, ...],
    with_source: bool,
    is_all: bool,
    output: str,
) -> None:
    """What a daemon would be started with: --override over environment over PROPERTIES.

    What is strange about it goes to standard error. Exit 1 when a daemon would refuse it.

    Example: kafkalog config show config/server.properties --source
    """
    from kafkalog.settings.settings import Source

    try:
        settings = settings_from(properties, overrides)
    except InvalidConfig as error:
        raise click.ClickException(error.message) from error
    for notice in settings.notices:
        click.echo(f"{notice.level}: {notice.message}", err=True)
    values = [
        settings.values[key]
        for key in sorted(settings.values)
        if is_all or settings.values[key].source is not Source.DEFAULT
    ]
    if output == "json":
        click.echo(json.dumps([_value(one) for one in values]))
    elif with_source:
        rows = [(one.setting.key, _text(one.shown_text), _place(one)) for one in values]
        print_table([("KEY", "VALUE", "SOURCE"), *rows])
    else:
        for one in values:
            click.echo(f"{one.setting.key}={'' if one.text is None else one.shown_text}")


def _value(one: ResolvedValue) -> dict[str, Any]:
    """``origin``: the variable or file that gave it."""
    return {
        "name": one.setting.key,
        "value": one.shown_text,
        "source": one.source.value,
        "origin": one.origin or None,
    }


def _place(one: ResolvedValue) -> str:
    return f"{one.source.value} {one.origin}" if one.origin else one.source.value


def _text(value: str | None) -> str:
    return _NOT_SET if value is None else value
