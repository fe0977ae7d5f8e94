"""``kafkalog configs`` and ``kafkalog config``: of a running daemon, and without one.

``configs describe`` and ``alter`` ask a daemon; their text is that of Kafka's kafka-configs.
``config list`` prints the keys there are, ``config show`` the configuration that a daemon would be
started with: a properties file, the environment and --override.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import config_pairs, topic_names
from kafkalog.cli.connection import Command, output_option, with_client
from kafkalog.cli.main import CommandGroup
from kafkalog.cli.output import print_table
from kafkalog.errors import InvalidConfig

if TYPE_CHECKING:
    from kafkalog.client import Client
    from kafkalog.settings import Settings
    from kafkalog.settings.setting import Setting
    from kafkalog.settings.settings import ResolvedValue

# At commas that are not inside brackets: cleanup.policy=[compact,delete].
_BETWEEN_PAIRS = re.compile(r",(?![^\[]*\])")
_BRACKETS = re.compile(r"^\[(.*)\]$")


def pairs_of(option: str, texts: tuple[str, ...]) -> list[tuple[str, str]]:
    """``k=v,k=[a,b]``, as kafka-configs takes them; repeatable."""
    texts = tuple(pair for text in texts for pair in _BETWEEN_PAIRS.split(text))
    pairs = config_pairs(
        texts, option, hint="; a value with commas is written in brackets: key=[a,b]"
    )
    return [(name, _BRACKETS.sub(r"\1", value)) for name, value in pairs]


def print_configs(entity: str, entries: list[dict[str, Any]], *, is_all: bool) -> None:
    """Kafka's lines; without is_all only what was set at run time."""
    click.echo(f"{'All' if is_all else 'Dynamic'} configs for {entity} are:")
    for entry in entries:
        if is_all or entry["source"].startswith("DYNAMIC_"):
            chain = ", ".join(
                f"{one['source']}:{one['name']}={_text(one['value'])}" for one in entry["synonyms"]
            )
            value = _text(entry["value"])
            click.echo(f"  {entry['name']}={value} sensitive=false synonyms={{{chain}}}")


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _entity(client: Client, topic: str | None, is_broker: bool) -> str:
    """Kafka's name of the entity; exactly one was asked for."""
    if (topic is None) is not is_broker:
        raise click.UsageError("Name one entity: --topic NAME or --broker")
    return f"topic {topic}" if topic is not None else f"broker {client.broker_id()}"


_topic_option = click.option("--topic", shell_complete=topic_names, help="Configs of this topic.")
_broker_option = click.option("--broker", "is_broker", is_flag=True, help="Configs of the broker.")


@click.group(cls=CommandGroup)
def configs() -> None:
    """Describe and alter configs of a topic or of the broker, while it runs."""


@configs.command()
@_topic_option
@_broker_option
@click.option("--all", "is_all", is_flag=True, help="Also those that nobody set at run time.")
@with_client
@output_option
def describe(topic: str | None, is_broker: bool, is_all: bool, client: Client, output: str) -> None:
    """Values, and where each comes from.

    Example: kafkalog configs describe --topic orders --all
    """
    entity = _entity(client, topic, is_broker)
    entries = client.broker_configs() if topic is None else client.topic_configs(topic)
    if output == "json":
        click.echo(json.dumps(entries))
    else:
        print_configs(entity, entries, is_all=is_all)


@configs.command()
@_topic_option
@_broker_option
@click.option("--add-config", "added", multiple=True, help="k=v,k=[a,b]; repeatable.")
@click.option("--delete-config", "deleted", multiple=True, help="k,k; repeatable.")
@with_client
def alter(
    topic: str | None,
    is_broker: bool,
    added: tuple[str, ...],
    deleted: tuple[str, ...],
    client: Client,
) -> None:
    """Set or reset configs; they count at once and survive a restart.

    Example: kafkalog configs alter --topic orders --add-config retention.ms=86400000
    """
    to_set = dict(pairs_of("--add-config", added))
    to_delete = [name.strip() for text in deleted for name in text.split(",")]
    if not all(to_delete):
        raise click.UsageError("--delete-config takes names, not ''")
    if not to_set and not to_delete:
        raise click.UsageError("Give --add-config or --delete-config")
    entity = _entity(client, topic, is_broker)
    if topic is None:
        client.alter_broker_configs(to_set, to_delete=to_delete)
    else:
        client.alter_topic_configs(topic, to_set, to_delete=to_delete)
    click.echo(f"Completed updating config for {entity}.")


# ---- without a daemon

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
        click.echo(json.dumps([_key_document(setting) for setting in settings]))
        return
    rows = [(one.key, _shown(_default(one)), one.kind.value, one.unit) for one in settings]
    print_table([("KEY", "DEFAULT", "TYPE", "UNIT"), *rows])


def _default(setting: Setting) -> str | None:
    from kafkalog.settings.setting import format_value

    return format_value(setting.default)


def _key_document(setting: Setting) -> dict[str, Any]:
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
        click.echo(json.dumps([_value_document(one) for one in values]))
    elif with_source:
        rows = [(one.setting.key, _shown(one.shown_text), _place(one)) for one in values]
        print_table([("KEY", "VALUE", "SOURCE"), *rows])
    else:
        for one in values:
            click.echo(f"{one.setting.key}={'' if one.text is None else one.shown_text}")


def _value_document(one: ResolvedValue) -> dict[str, Any]:
    """``origin``: the variable or file that gave it."""
    return {
        "name": one.setting.key,
        "value": one.shown_text,
        "source": one.source.value,
        "origin": one.origin or None,
    }


def _place(one: ResolvedValue) -> str:
    return f"{one.source.value} {one.origin}" if one.origin else one.source.value


def _shown(value: str | None) -> str:
    return "-" if value is None else value
