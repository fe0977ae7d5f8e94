"""``kafkalog compat kafka-log-dirs``: the tool's options, lines, messages and exit status.

Source: `org.apache.kafka.tools.LogDirsCommand` 4.1; tests/oracle compares both.

Differs from Kafka: directories and partitions are in the daemon's order; Kafka's order is that of
hash tables.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.connection import message_of
from kafkalog.cli.kafka_tools.tool import ToolCommand, ToolFailed, client_of_tool
from kafkalog.client import ClientError

if TYPE_CHECKING:
    from kafkalog.client import Client

QUERYING = "Querying brokers for log directories information"
_VERSION = 1


@click.command("kafka-log-dirs", cls=ToolCommand)
@click.option("--describe", "is_described", is_flag=True, help="Required: the only action.")
@click.option("--topic-list", default="", help="Only these topics, as a,b. Default: all.")
@click.option("--broker-list", default="", help="Only these brokers, as 0,1: there is one.")
@client_of_tool()
def log_dirs(client: Client, is_described: bool, topic_list: str, broker_list: str) -> None:
    """As kafka-log-dirs.sh: its last line is JSON.

    Example: kafkalog compat kafka-log-dirs --bootstrap-server localhost:8082 --describe | tail -1
    """
    if not is_described:
        raise ToolFailed('Missing required argument "[describe]"')
    try:
        wanted = {int(text) for text in broker_list.split(",") if text}
    except ValueError as error:
        raise ToolFailed(f'For input string: "{broker_list}"') from error
    try:
        node = client.broker_id()
        unknown = sorted(wanted - {node})
        if unknown:
            raise ToolFailed(
                "ERROR: The given brokers do not exist from --broker-list:"
                f" {','.join(map(str, unknown))}. Current existent brokers: {node}"
            )
        answer = client.describe_log_dirs(",".join(filter(None, topic_list.split(","))))
    except ClientError as error:
        raise ToolFailed(message_of(error)) from error
    for line in tool_lines(answer):
        click.echo(line)


def tool_lines(answer: dict[str, Any]) -> list[str]:
    """The tool's three lines for the daemon's answer."""
    brokers = ",".join(str(entry["broker"]) for entry in answer["brokers"])
    document = {"brokers": [_broker(entry) for entry in answer["brokers"]], "version": _VERSION}
    return [
        QUERYING,
        f"Received log directory information from brokers {brokers}",
        json.dumps(document, separators=(",", ":"), ensure_ascii=False),
    ]


def _broker(entry: dict[str, Any]) -> dict[str, Any]:
    """Kafka's fields in Kafka's order."""
    return {"broker": entry["broker"], "logDirs": list(map(_log_dir, entry["logDirs"]))}


def _log_dir(entry: dict[str, Any]) -> dict[str, Any]:
    fields = ("partition", "size", "offsetLag", "isFuture")
    partitions = [{field: one[field] for field in fields} for one in entry["partitions"]]
    return {"partitions": partitions, "error": entry["error"], "logDir": entry["logDir"]}
