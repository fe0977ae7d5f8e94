"""``kafkalog consume``: records of a topic to standard output, following its end."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import click

from kafkalog.cli.connection import Connection, RequestFailed, segment, url_option
from kafkalog.cli.partial_failure import PARTIAL_FAILURE, is_failed, tell_failures

_BINARY = "application/vnd.kafka.binary.v2+json"
_WAIT_MS = 1000


def _start(connection: Connection, path: str, wanted: str) -> int:
    """earliest, latest, a number, or -n: n before the end."""
    if wanted.isascii() and wanted.isdigit():
        return int(wanted)
    offsets = connection.json("GET", f"{path}/offsets")
    first, end = int(offsets["beginning_offset"]), int(offsets["end_offset"])
    if wanted == "earliest":
        return first
    if wanted == "latest":
        return end
    if wanted.isascii() and wanted.startswith("-") and wanted[1:].isdigit():
        return max(first, end - int(wanted[1:]))
    raise click.UsageError("--offset takes earliest, latest, a number, or -n")


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


class Printer:
    """Writes records as the options ask, bytes untouched."""

    def __init__(self, *, as_json: bool, print_key: bool, key_separator: str) -> None:
        self._as_json = as_json
        self._print_key = print_key
        self._separator = key_separator.encode()
        self.count = 0

    def write(self, record: dict[str, Any]) -> None:
        """One record, one line."""
        self.count += 1  # first: what a reader has seen is counted when an interrupt comes
        out = sys.stdout.buffer
        if self._as_json:
            out.write(json.dumps(record).encode() + b"\n")
        else:
            if self._print_key:
                key = _decoded(record["key"])
                out.write((b"null" if key is None else key) + self._separator)
            value = _decoded(record["value"])
            out.write((b"null" if value is None else value) + b"\n")


@click.command()
@click.argument("topic")
@click.option("--partition", type=int, help="Default: all partitions.")
@click.option("--offset", help="earliest, latest, a number, or -n.  [default: latest]")
@click.option("--from-beginning", is_flag=True, help="The same as --offset earliest.")
@click.option("--max-messages", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option("--exit-at-end", "-e", is_flag=True, help="Stop at the end instead of waiting.")
@click.option("--print-key", is_flag=True, help="Print the key before the value.")
@click.option("--key-separator", default="\t", help="Between key and value; default TAB.")
@click.option("--isolation", type=click.Choice(["read_uncommitted", "read_committed"]))
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@url_option
@click.pass_context
def consume(
    ctx: click.Context,
    topic: str,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
    max_messages: int | None,
    exit_at_end: bool,
    print_key: bool,
    key_separator: str,
    isolation: str | None,
    output: str,
    url: str,
) -> None:
    """Print records, by default those that arrive from now on.

    Without --partition those of the partitions that are served; exit 3 when one is not.

    Example: kafkalog consume orders --from-beginning -e
    """
    if from_beginning and offset is not None:
        raise click.UsageError("--from-beginning is an --offset: give one of them")
    connection = Connection(url)
    base = f"/topics/{segment(topic)}/partitions"
    is_partial = False
    if partition is not None:
        partitions = [partition]
    else:
        entries = [{"topic": topic, **entry} for entry in connection.json("GET", base)]
        is_partial = tell_failures(entries)
        partitions = [int(entry["partition"]) for entry in entries if not is_failed(entry)]
    if not partitions:
        raise RequestFailed(f"No partition of topic {topic} is served.")
    wanted = "earliest" if from_beginning else offset or "latest"
    positions = {p: _start(connection, f"{base}/{p}", wanted) for p in partitions}
    printer = Printer(as_json=output == "json", print_key=print_key, key_separator=key_separator)
    try:
        _follow(connection, base, positions, printer, max_messages, exit_at_end, isolation)
    finally:
        sys.stdout.buffer.flush()
        click.echo(f"Processed a total of {printer.count} messages", err=True)
    if is_partial:
        ctx.exit(PARTIAL_FAILURE)


def _follow(
    connection: Connection,
    base: str,
    positions: dict[int, int],
    printer: Printer,
    max_messages: int | None,
    exit_at_end: bool,
    isolation: str | None,
) -> None:
    """Round after round over the partitions; only a round that found nothing waits."""
    suffix = "" if isolation is None else f"&isolation={isolation}"
    waiting = False
    while True:
        found = False
        for partition in positions:
            wait = _WAIT_MS // len(positions) if waiting and not exit_at_end else 0
            path = f"{base}/{partition}/records?offset={positions[partition]}&timeout={wait}"
            body, headers = connection.request("GET", path + suffix, accept=_BINARY)
            for record in json.loads(body):
                printer.write(record)
                if max_messages is not None and printer.count >= max_messages:
                    return
            next_offset = int(headers["Kafka-Next-Offset"])
            found = found or next_offset > positions[partition]
            positions[partition] = next_offset
        sys.stdout.buffer.flush()
        if not found and exit_at_end:
            return
        waiting = not found
