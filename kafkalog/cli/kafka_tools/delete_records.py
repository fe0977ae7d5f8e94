"""``kafkalog compat kafka-delete-records``: the tool's options, lines, messages and exit status.

Owns the tool's parsing of its file, which accepts more than the daemon (unknown fields, an empty
list, text after the document) and has its own messages. Source:
`org.apache.kafka.tools.DeleteRecordsCommand` 4.1; tests/oracle compares both.

Differs from Kafka: partitions are printed in the order of the file (Kafka: of a hash table), no
stack trace follows a message, a missing option is wrong usage (exit 2, Kafka's is 1), and a
partition that does not exist fails at once (Kafka's client retries for a minute and then reports a
timeout).
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from kafkalog.cli.kafka_tools.tool import ToolCommand, ToolFailed, client_of_tool
from kafkalog.cli.records import TOOL_HEAD
from kafkalog.format.integers import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from kafkalog.client import Client

_VERSION = 1
_BOUNDS = {"Integer": (INT32_MIN, INT32_MAX), "Long": (INT64_MIN, INT64_MAX)}


@click.command("kafka-delete-records", cls=ToolCommand)
@click.option("--offset-json-file", required=True, help="The file; -1 is the high watermark.")
@client_of_tool()
def delete_records(client: Client, offset_json_file: str) -> None:
    """As kafka-delete-records.sh: exit 0 also when a partition failed.

    Example: kafkalog compat kafka-delete-records --bootstrap-server http://127.0.0.1:8082
    --offset-json-file offsets.json
    """
    try:
        data = Path(offset_json_file).read_bytes()
    except OSError as error:
        raise ToolFailed(f"Unable to read file {offset_json_file}\n{error.strerror}") from error
    entries = read_offsets(data)
    if not entries:
        click.echo(TOOL_HEAD, nl=False)  # the daemon refuses an empty list
        return
    answer = client.call(
        "POST",
        "/v1/records:delete",
        {"partitions": entries, "version": _VERSION},
        accept="text/plain",
    )
    click.echo(answer.body, nl=False)


def read_offsets(data: bytes) -> list[dict[str, str | int]]:
    """Topic, partition and offset of each entry. Raises ToolFailed in the tool's order."""
    document = _object(_parse(data))
    version = _whole(document["version"], "Integer") if "version" in document else _VERSION
    if version != _VERSION:
        raise ToolFailed(f"Not supported version field value {version}")
    if "partitions" not in document:
        raise ToolFailed("Missing partitions field")
    partitions = document["partitions"]
    if not isinstance(partitions, list):
        raise ToolFailed(f"Expected JSON array, received {_json(partitions)}")
    entries = [_entry(_object(each)) for each in partitions]
    names = Counter((entry["topic"], entry["partition"]) for entry in entries)
    twice = [f"{topic}-{number}" for (topic, number), times in names.items() if times > 1]
    if twice:
        raise ToolFailed(f"Offset json file contains duplicate topic partitions: {','.join(twice)}")
    return entries


def _parse(data: bytes) -> object:
    """The first JSON document of the file; the last one of repeated keys counts."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(constant)  # NaN and the infinities are not JSON

    try:
        text = data.decode("utf-8").lstrip(" \t\r\n")
        return json.JSONDecoder(parse_constant=refuse).raw_decode(text)[0]
    except (ValueError, RecursionError) as error:
        raise ToolFailed("The input string is not a valid JSON") from error


def _entry(entry: dict[str, object]) -> dict[str, str | int]:
    topic = _field(entry, "topic")
    if not isinstance(topic, str):
        raise ToolFailed(f"Expected `String` value, received {_json(topic)}")
    return {
        "topic": topic,
        "partition": _whole(_field(entry, "partition"), "Integer"),
        "offset": _whole(_field(entry, "offset"), "Long"),
    }


def _field(entry: dict[str, object], name: str) -> object:
    if name not in entry:
        raise ToolFailed(f"No such field exists: `{name}`")
    return entry[name]


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ToolFailed(f"Expected JSON object, received {_json(value)}")
    return value


def _whole(value: object, kind: str) -> int:
    least, most = _BOUNDS[kind]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ToolFailed(f"Expected `{kind}` value, received {_json(value)}")
    return value


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
