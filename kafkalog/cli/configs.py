"""``kafkalog configs``: describe and alter configs of a topic or the broker. Text is Kafka's."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import config_pairs
from kafkalog.cli.completion import topic_names
from kafkalog.cli.connection import output_option, with_client
from kafkalog.cli.main import CommandGroup

if TYPE_CHECKING:
    from kafkalog.client import Client

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
