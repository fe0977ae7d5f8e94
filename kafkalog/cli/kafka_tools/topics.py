"""``kafkalog compat kafka-topics``: the tool's options, lines, messages and exit status.

Source: `org.apache.kafka.tools.TopicCommand` 4.1; tests/oracle compares both.

Differs from Kafka: no stack trace follows a message, and some reasons are in the daemon's words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.connection import message_of
from kafkalog.cli.kafka_tools.tool import (
    ToolCommand,
    ToolFailed,
    ToolFailedOnStdout,
    client_of_tool,
    matching,
    number_fault,
)
from kafkalog.cli.topics import COLLISION_WARNING, description_lines
from kafkalog.client import ClientError, TopicExists

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.cli.connection import Command
    from kafkalog.client import Client

_ACTIONS = ("list", "describe", "create", "alter", "delete")
# option -> the actions that allow it
_ALLOWED = {
    "config": {"create", "alter"},
    "partitions": {"create", "alter"},
    "replication-factor": {"create"},
    "replica-assignment": {"create", "alter"},
    "under-replicated-partitions": {"describe"},
    "unavailable-partitions": {"describe"},
    "under-min-isr-partitions": {"describe"},
    "at-min-isr-partitions": {"describe"},
    "topics-with-overrides": {"describe"},
    "if-exists": {"alter", "delete", "describe"},
    "if-not-exists": {"create"},
    "exclude-internal": {"list", "describe"},
}
_REPORTS = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)
_REPLICATION_MAX = 32767
_DEFAULT_SOURCE = "DEFAULT_CONFIG"


Given = dict[str, Any]
"""The options that were typed, by their names."""


def _flag(name: str, text: str) -> Callable[[Command], Command]:
    return click.option(f"--{name}", is_flag=True, help=text)


def _failed(reason: str) -> ToolFailedOnStdout:
    return ToolFailedOnStdout(f"Error while executing topic command : {reason}")


@click.command("kafka-topics", cls=ToolCommand, wrong=_failed, missing="--{} must be specified")
@_flag("list", "Names of the topics.")
@_flag("describe", "Partitions and configs of the topics.")
@_flag("create", "Create a topic.")
@_flag("alter", "Add partitions.")
@_flag("delete", "Delete topics.")
@click.option("--topic", help="A name; but for --create also a regular expression or a list.")
@click.option("--topic-id", help="With --describe: the id of the topic.")
@click.option("--config", multiple=True, help="With --create: name=value; repeatable.")
@click.option("--delete-config", help="Not supported since Kafka 4; prints a warning.")
@click.option("--partitions", type=int, help="Number of partitions of the topic.")
@click.option("--replication-factor", type=int, help="Only 1: there is one broker.")
@click.option("--replica-assignment", help="The broker of each partition, as 1,1,1.")
@_flag("under-replicated-partitions", "Only partitions whose replica is out of service.")
@_flag("unavailable-partitions", "Only partitions without a leader.")
@_flag("under-min-isr-partitions", "Only partitions with too few replicas in service.")
@_flag("at-min-isr-partitions", "Only partitions with just enough replicas in service.")
@_flag("topics-with-overrides", "Only topics with their own configs; no partitions.")
@_flag("if-exists", "Ignore a topic that does not exist.")
@_flag("if-not-exists", "Ignore a topic that exists.")
@_flag("exclude-internal", "Leave out Kafka's own topics.")
@click.option("--partition-size-limit-per-response", type=int, help="No visible effect.")
@client_of_tool()
def topics(
    client: Client,
    **options: Any,  # noqa: ANN401 - click gives them by name
) -> None:
    """As kafka-topics.sh.

    Example: kafkalog compat kafka-topics --bootstrap-server localhost:8082 --list
    """
    given = {
        name.replace("_", "-"): value
        for name, value in options.items()
        if not (value is None or value is False or value == ())
    }
    actions = [name for name in _ACTIONS if name in given]
    if len(actions) != 1:
        raise ToolFailed(
            "Command must include exactly one action: --list, --describe, --create, --alter or"
            " --delete"
        )
    if "delete-config" in given:
        click.echo(
            "delete-config option is no longer supported and deprecated since version 4.0. The"
            " config will be fully removed in future releases.",
            err=True,
        )
    (action,) = actions
    _check(action, given)
    run = {"list": _list, "describe": _describe, "create": _create, "alter": _alter}
    try:
        run.get(action, _delete)(client, given)
    except ToolFailed as error:
        raise _failed(error.message) from error
    except ClientError as error:
        raise _failed(message_of(error)) from error


def _check(action: str, given: Given) -> None:
    """Check the combination of options. Raises ToolFailed."""
    is_described_if_there = action == "describe" and "if-exists" in given
    if is_described_if_there and "topic" not in given and "topic-id" not in given:
        raise ToolFailed("--topic or --topic-id is required to describe a topic")
    if action not in ("list", "describe") and "topic" not in given:
        raise ToolFailed('Missing required argument "[topic]"')
    if action == "alter" and "config" in given:
        raise ToolFailed(
            'Option combination "[bootstrap-server],[config]" can\'t be used with option "[alter]"'
            " (To alter topic configurations, the kafka-configs tool can be used.)"
        )
    if action == "alter" and "partitions" not in given:
        raise ToolFailed('Missing required argument "[partitions]"')
    for option, actions in _ALLOWED.items():
        if option in given and action not in actions:
            raise ToolFailed(f'Option "[{option}]" can\'t be used with option "[{action}]"')
    for option in ("partitions", "replication-factor"):
        if action == "create" and "replica-assignment" in given and option in given:
            raise ToolFailed(
                f'Option "[replica-assignment]" can\'t be used with option "[{option}]"'
            )
    reports = [name for name in _REPORTS if name in given]
    if reports and "topics-with-overrides" in given:
        other = "topics-with-overrides"
        raise ToolFailed(f'Option "[{reports[0]}]" can\'t be used with option "[{other}]"')


# ---- the actions


def _found(client: Client, given: Given) -> list[str]:
    """The topics that --topic matches, sorted. Raises ToolFailed for none, as the tool does."""
    topic, with_internal = given.get("topic"), "exclude-internal" not in given
    names = matching(client.list_topics(), topic, with_internal=with_internal)
    if "list" not in given and topic and not names and "if-exists" not in given:
        raise ToolFailed(f"Topic '{topic}' does not exist as expected")
    return names


def _list(client: Client, given: Given) -> None:
    click.echo("\n".join(_found(client, given)))


def _create(client: Client, given: Given) -> None:
    name = given["topic"]
    pairs = [re.split(r"\s*=\s*", text.rstrip("=")) for text in given.get("config", ())]
    if not all(len(pair) == 2 for pair in pairs):
        raise ToolFailed(
            "requirement failed: Invalid topic config: all configs to be added must be in the"
            ' format "key=val".'
        )
    configs = {key.strip(): value.strip() for key, value in pairs}
    fault = number_fault(configs)
    if fault is not None:
        raise ToolFailed(fault)
    warning = COLLISION_WARNING + "\n" if "." in name or "_" in name else ""
    try:
        partitions = _partitions_asked(client, given)
        client.create_topic(name, partitions=partitions, configs=configs)
    except (ClientError, ToolFailed) as error:
        if getattr(error, "kafka_error", None) == "INVALID_CONFIG":
            raise  # the tool checks these first, by itself
        click.echo(warning, nl=False)
        if not isinstance(error, TopicExists):
            raise
        if "if-not-exists" not in given:
            raise ToolFailed(f"Topic '{name}' already exists.") from error
    else:
        click.echo(f"{warning}Created topic {name}.")


def _partitions_asked(client: Client, given: Given) -> int | None:
    """The number; None: the daemon's default. Raises ToolFailed for what one broker cannot do."""
    factor = given.get("replication-factor")
    if factor is not None and not 1 <= factor <= _REPLICATION_MAX:
        raise ToolFailed(
            f"The replication factor must be between 1 and {_REPLICATION_MAX} inclusive"
        )
    if given.get("partitions", 1) < 1:
        raise ToolFailed("The partitions must be greater than 0")
    if factor is not None and factor > 1:
        raise ToolFailed(
            f"Unable to replicate the partition {factor} time(s): The target replication factor of"
            f" {factor} cannot be reached because only 1 broker(s) are registered."
        )
    if "replica-assignment" not in given:
        return given.get("partitions")
    return len(_assigned(client, given["replica-assignment"]))


def _assigned(client: Client, text: str) -> list[str]:
    """The broker of each partition, which must be the one broker."""
    node = str(client.broker_id())
    brokers = [part.strip() for part in text.split(",")]
    for broker in brokers:
        if broker != node:
            raise ToolFailed(
                f"The manual partition assignment includes broker {broker}, but no such broker is"
                " registered."
            )
    return brokers


def _alter(client: Client, given: Given) -> None:
    for name in _found(client, given):
        if "replica-assignment" in given:
            _assigned(client, given["replica-assignment"])
        client.grow_topic(name, given["partitions"])


def _delete(client: Client, given: Given) -> None:
    for name in _found(client, given):
        client.delete_topic(name)


# ---- describe


def _describe(client: Client, given: Given) -> None:
    if "if-exists" in given and "topic" in given and "topic-id" in given:
        click.echo(
            "Only topic id will be used when both --topic and --topic-id are specified and topicId"
            " is not Uuid.ZERO_UUID"
        )
    if "topic-id" in given:
        wanted = given["topic-id"]
        entities = [each for each in client.describe_topics() if each["topic_id"] == wanted]
        if not entities and "if-exists" not in given:
            raise ToolFailed(f"TopicId '{wanted}' does not exist as expected")
    else:
        names = set(_found(client, given))
        entities = [each for each in client.describe_topics() if each["topic_name"] in names]
    node = client.broker_id()
    for entity in entities:
        entries = client.topic_configs(entity["topic_name"])
        for line in _lines(given, entity, entries, node):
            click.echo(line)


def _lines(
    given: Given, entity: dict[str, Any], entries: list[dict[str, Any]], node: int
) -> list[str]:
    """The lines of one topic and its partitions that the options ask for."""
    by_name = {entry["name"]: entry for entry in entries}
    shown = sorted(name for name in by_name if by_name[name]["source"] != _DEFAULT_SOURCE)
    configs = ",".join(f"{name}={by_name[name]['value']}" for name in shown)
    head, *partitions = description_lines(entity, configs, node)
    if "topics-with-overrides" in given:
        return [head] if shown else []
    reports = [name for name in _REPORTS if name in given]
    if not reports:
        return [head, *partitions]
    offline = {fault["partition_id"] for fault in entity["offline_partitions"]}
    replicas_min = int(by_name["min.insync.replicas"]["value"])
    return [
        line
        for number, line in enumerate(partitions)
        if any(
            _is_reported(report, is_served=number not in offline, replicas_min=replicas_min)
            for report in reports
        )
    ]


def _is_reported(report: str, *, is_served: bool, replicas_min: int) -> bool:
    in_service = int(is_served)
    if report == "under-min-isr-partitions":
        return in_service < max(replicas_min, 1)
    if report == "at-min-isr-partitions":
        return in_service == replicas_min
    return not is_served
