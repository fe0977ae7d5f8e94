"""``kafkalog records delete``: kafka-delete-records' file and printed lines, honest exit status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.connection import output_option, with_client
from kafkalog.cli.partial_failure import PARTIAL_FAILURE, is_failed

if TYPE_CHECKING:
    from kafkalog.client import Client

TOOL_HEAD = "Executing records delete operation\nRecords delete operation completed:\n"


@click.command()
@click.option(
    "--offset-json-file",
    type=click.File("rb"),
    help='{"partitions":[{"topic":"t","partition":0,"offset":40000}],"version":1}; -1: all.',
)
@click.option("--topic", help="Instead of a file, with --partition and --before-offset.")
@click.option("--partition", type=click.IntRange(min=0), help="Default: 0.")
@click.option(
    "--before-offset",
    type=click.IntRange(min=-1),
    help="Records below it go; -1 is the high watermark.",
)
@with_client
@output_option
@click.pass_context
def delete(
    ctx: click.Context,
    offset_json_file: Any,  # noqa: ANN401 - click's open file
    topic: str | None,
    partition: int | None,
    before_offset: int | None,
    client: Client,
    output: str,
) -> None:
    """Delete records below an offset. Exit 3 when a partition failed.

    Example: kafkalog records delete --topic orders --before-offset 40000
    """
    one = (topic, partition, before_offset)
    if offset_json_file is not None and one == (None, None, None):
        body: bytes = offset_json_file.read()
    elif offset_json_file is None and topic is not None and before_offset is not None:
        entry = {"topic": topic, "partition": partition or 0, "offset": before_offset}
        body = json.dumps({"partitions": [entry], "version": 1}).encode()
    else:
        raise click.UsageError("Give either --offset-json-file, or --topic and --before-offset.")
    # The file goes as it is: what is wrong in it is the daemon's to say.
    answer = client.call("POST", "/v1/records:delete", body).json
    entries = answer["partitions"]
    if output == "json":
        click.echo(json.dumps(answer))
    else:
        _print_tool_lines(entries)
    if any(map(is_failed, entries)):
        ctx.exit(PARTIAL_FAILURE)


def _print_tool_lines(entries: list[dict[str, Any]]) -> None:
    """In the form of kafka-delete-records.sh, with our own reasons, which name the offsets."""
    click.echo(TOOL_HEAD, nl=False)
    for entry in entries:
        name = f"{entry['topic']}-{entry['partition']}"
        if is_failed(entry):
            click.echo(f"partition: {name}\terror: {entry['error']}")
        else:
            click.echo(f"partition: {name}\tlow_watermark: {entry['low_watermark']}")
