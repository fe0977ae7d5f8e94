"""``kafkalog compat kafka-configs``: the tool's options, lines, messages and exit status.

Source: `kafka.admin.ConfigCommand` 4.1; tests/oracle compares both. Topics and the one broker have
configs here. Configs that only kafkalog knows are shown where somebody set them.

Differs from Kafka: other entities (users, clients, groups, addresses, loggers) and defaults of a
cluster are refused; the reason is printed instead of a stack trace, with the name that was probably
meant.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kafkalog.cli.configs import print_configs
from kafkalog.cli.connection import message_of
from kafkalog.cli.kafka_tools.tool import (
    ToolCommand,
    ToolFailed,
    client_of_tool,
    number_fault,
    read_properties,
    typed_arguments,
)
from kafkalog.client import ClientError

if TYPE_CHECKING:
    from kafkalog.client import Client

_TOPICS, _BROKERS = "topics", "brokers"
# Kafka's, in its order.
_ENTITY_TYPES = (
    _TOPICS, "clients", "users", _BROKERS, "ips", "client-metrics", "groups", "broker-loggers"
)  # fmt: skip
_DYNAMIC = {_TOPICS: "DYNAMIC_TOPIC_CONFIG", _BROKERS: "DYNAMIC_BROKER_CONFIG"}
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
_BETWEEN_PAIRS = re.compile("," + _OUTSIDE_BRACKETS)
_BETWEEN_HALVES = re.compile(r"\s*=\s*" + _OUTSIDE_BRACKETS)
_BRACKETS = re.compile(r"\[?\]?")
_KEY = re.compile(r"[$a-zA-Z0-9._-]*")


class _Entity(NamedTuple):
    """``name`` None: all entities of the type."""

    type: str
    name: str | None

    @property
    def kind(self) -> str:
        """The type in the singular."""
        return self.type[:-1]


@click.command("kafka-configs", cls=ToolCommand)
@click.option("--describe", "is_described", is_flag=True, help="Show configs.")
@click.option("--alter", "is_altered", is_flag=True, help="Change configs.")
@click.option(
    "--all", "is_all", is_flag=True, help="Show also configs that were not set at run time."
)
@click.option("--topic", help="The topic.")
@click.option("--broker", help="The id of the broker.")
@click.option("--broker-defaults", is_flag=True, help="Refused: there is one broker.")
@click.option("--entity-type", "types", multiple=True, help="topics or brokers.")
@click.option("--entity-name", "names", multiple=True, help="The topic, or the id of the broker.")
@click.option("--entity-default", is_flag=True, help="Refused: there is one broker.")
@click.option("--add-config", "added", help="k1=v1,k2=[v1,v2],k3=v3.")
@click.option("--add-config-file", "added_file", help="A properties file in place of --add-config.")
@click.option("--delete-config", "deleted", multiple=True, help="k1,k2.")
@client_of_tool()
def configs(
    client: Client,
    is_described: bool,
    is_altered: bool,
    **options: Any,  # noqa: ANN401 - click gives them by name
) -> None:
    """As kafka-configs.sh.

    Example: kafkalog compat kafka-configs --bootstrap-server localhost:8082 --describe
    --topic orders
    """
    if is_described is is_altered:
        raise ToolFailed("Command must include exactly one action: --describe, --alter")
    given = {name: value for name, value in options.items() if value not in (None, (), False)}
    entity = _entity(given)
    _check(given, entity, is_altered=is_altered)
    try:
        if is_altered:
            _alter(client, entity, given)
        else:
            _describe(client, entity, is_all="is_all" in given)
    except ClientError as error:
        raise _failed(message_of(error)) from error


def _failed(reason: str) -> ToolFailed:
    typed = " ".join(typed_arguments())
    return ToolFailed(f"Error while executing config command with args '{typed}'\n{reason}")


def _entity(given: dict[str, Any]) -> _Entity:
    """The entity. Raises ToolFailed, in Kafka's order."""
    short = [
        (kind, given[option])
        for option, kind in (("topic", _TOPICS), ("broker", _BROKERS))
        if option in given
    ]
    types = [*given.get("types", ()), *(kind for kind, _ in short)]
    if "broker_defaults" in given:
        types.append(_BROKERS)
    names = [*given.get("names", ()), *(name for _, name in short)]
    for kind in types:
        if kind not in _ENTITY_TYPES:
            raise ToolFailed(
                f"Invalid entity type {kind}, the entity type must be one of"
                f" {', '.join(_ENTITY_TYPES)} with a --bootstrap-server or --bootstrap-controller"
                " argument"
            )
    if not types:
        raise ToolFailed("At least one entity type must be specified")
    if len(types) > 1:
        twice = [kind for kind in types if types.count(kind) > 1]
        if twice:
            raise ToolFailed(f"Duplicate entity type(s) specified: {twice[0]}")
        raise ToolFailed("Only 'users' and 'clients' entity types may be specified together")
    if short and ("types" in given or "names" in given or "entity_default" in given):
        raise ToolFailed(
            "--entity-{type,name,default} should not be used in conjunction with specific entity"
            " flags"
        )
    (kind,) = types
    if kind not in _DYNAMIC:
        raise ToolFailed(f"kafkalog has no configs of {kind}")
    return _Entity(kind, names[0] if names else None)


def _check(given: dict[str, Any], entity: _Entity, *, is_altered: bool) -> None:
    """Check the combination of options. Raises ToolFailed."""
    kind = entity.type
    if kind == _BROKERS and entity.name and not re.fullmatch(r"[+-]?[0-9]+", entity.name):
        raise ToolFailed(
            f"The entity name for {kind} must be a valid integer broker id, but it is:"
            f" {entity.name}"
        )
    if "entity_default" in given or "broker_defaults" in given or entity.name == "":
        raise ToolFailed("kafkalog has one broker: give its id instead of the default's")
    if not is_altered:
        for option in ("added", "deleted"):
            if option in given:
                shown = "add-config" if option == "added" else "delete-config"
                raise ToolFailed(f'Option "[describe]" can\'t be used with option "[{shown}]"')
        return
    if entity.name is None and kind == _BROKERS:
        raise ToolFailed(
            "An entity-name or default entity must be specified with --alter of users, clients,"
            " brokers or ips"
        )
    if entity.name is None:
        raise ToolFailed(f"An entity name must be specified with --alter of {kind}")
    if "added" in given and "added_file" in given:
        raise ToolFailed("Only one of --add-config or --add-config-file must be specified")
    if not given.keys() & {"added", "added_file", "deleted"}:
        raise ToolFailed(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified"
            " with --alter"
        )


# ---- alter


def _alter(client: Client, entity: _Entity, given: dict[str, Any]) -> None:
    added = _pairs(given.get("added"), given.get("added_file"))
    deleted = [name.strip() for text in given.get("deleted", ()) for name in text.split(",")]
    own = {entry["name"] for entry in _entries(client, entity, is_all=False)}
    unknown = [name for name in deleted if name not in own]
    if unknown:
        raise ToolFailed(f"Invalid config(s): {','.join(unknown)}")
    fault = number_fault(added)
    if fault is not None:
        raise _failed(fault)
    assert entity.name is not None
    if entity.type == _TOPICS:
        client.alter_topic_configs(entity.name, added, to_delete=deleted)
    else:
        client.alter_broker_configs(added, to_delete=deleted)
    click.echo(f"Completed updating config for {entity.kind} {entity.name}.")


def _pairs(text: str | None, file: str | None) -> dict[str, str]:
    """The configs to set. Raises ToolFailed."""
    pairs = {} if file is None else read_properties(file)
    if text is not None:
        halves = [_BETWEEN_HALVES.split(part) for part in _BETWEEN_PAIRS.split(text)]
        if not all(len(each) == 2 for each in halves):
            raise ToolFailed(
                "requirement failed: Invalid entity config: all configs to be added must be in the"
                ' format "key=val" or  "key=[val1,val2]" to group values which contain commas.'
            )
        pairs |= {key.strip(): _BRACKETS.sub("", value).strip() for key, value in halves}
    for key in pairs:
        if not _KEY.fullmatch(key):
            raise ToolFailed(f"Invalid character found for config key: {key}")
    return pairs


# ---- describe


def _describe(client: Client, entity: _Entity, *, is_all: bool) -> None:
    if entity.name is not None and not is_all and entity.name not in _names(client, entity):
        click.echo(
            f"The {entity.kind} '{entity.name}' doesn't exist and doesn't have dynamic config."
        )
        return
    for name in _names(client, entity) if entity.name is None else [entity.name]:
        one = _Entity(entity.type, name)
        entries = _entries(client, one, is_all=is_all)
        # The entries were selected above; the flag only chooses the heading.
        print_configs(f"{one.kind} {name}", entries, is_all=is_all)
    if entity.name is None and entity.type == _BROKERS:
        click.echo("Default configs for brokers in the cluster are:")


def _names(client: Client, entity: _Entity) -> list[str]:
    """All entities of the type."""
    return client.list_topics() if entity.type == _TOPICS else [str(client.broker_id())]


def _entries(client: Client, entity: _Entity, *, is_all: bool) -> list[dict[str, Any]]:
    """All configs, or those that were set at run time for this entity; by name."""
    assert entity.name is not None
    if entity.type == _TOPICS:
        entries = client.topic_configs(entity.name)
    elif entity.name == str(client.broker_id()):
        entries = client.broker_configs()
    else:
        raise ToolFailed(
            f"There is no broker {entity.name}: the one broker is {client.broker_id()}"
        )
    dynamic = _DYNAMIC[entity.type]
    shown = [one for one in entries if one["source"] == dynamic or (is_all and not _is_own(one))]
    return sorted(shown, key=lambda entry: str(entry["name"]))


def _is_own(entry: dict[str, Any]) -> bool:
    """Whether Kafka does not have the config."""
    from kafkalog.settings.tables import BROKER_LEVEL, TOPIC_LEVEL

    setting = TOPIC_LEVEL.get(entry["name"]) or BROKER_LEVEL.get(entry["name"])
    return setting is not None and setting.own
