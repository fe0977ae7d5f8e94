"""``kafkalog consume``: prints records of a topic, and follows its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kafkalog.cli.arguments import isolation_option, topic_argument
from kafkalog.cli.connection import (
    PARTIAL_FAILURE,
    RequestFailed,
    is_failed,
    message_of,
    report_failures,
    with_client,
)
from kafkalog.client import DaemonFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.client import Client, ConsumerRecord
    from kafkalog.client.records import Isolation

_WAIT_MS = 1000


def _start(client: Client, topic: str, partition: int, wanted: str) -> int:
    """The offset to start at; -n is n before the end."""
    if wanted.isascii() and wanted.isdigit():
        return int(wanted)
    first, end = client.offset_range(topic, partition)
    if wanted == "earliest":
        return first
    if wanted == "latest":
        return end
    if wanted.isascii() and wanted.startswith("-") and wanted[1:].isdigit():
        return max(first, end - int(wanted[1:]))
    raise click.UsageError("--offset takes earliest, latest, a number, or -n")


class Printer:
    """Prints records in the form that the options ask for; bytes are not changed."""

    def __init__(self, *, as_json: bool, print_key: bool, key_separator: str) -> None:
        self._json_line: Callable[..., str] | None = None
        if as_json:
            from kafkalog.format.wire.readable import record_line  # late: not for plain values

            self._json_line = record_line
        self._print_key = print_key
        self._separator = key_separator.encode()
        self.count = 0

    def write(self, record: ConsumerRecord) -> None:
        """One record per line."""
        self.count += 1  # first, so that an interrupt while writing counts the record
        out = sys.stdout.buffer
        if self._json_line is not None:
            out.write(self._json_line(*record).encode() + b"\n")
        else:
            if self._print_key:
                out.write((b"null" if record.key is None else record.key) + self._separator)
            out.write((b"null" if record.value is None else record.value) + b"\n")

    def close(self) -> None:
        """Print on standard error how many records were printed, once they are."""
        sys.stdout.buffer.flush()
        click.echo(f"Processed a total of {self.count} messages", err=True)


@click.command()
@topic_argument()
@click.option("--partition", type=int, help="Default: all partitions.")
@click.option("--offset", help="earliest, latest, a number, or -n.  [default: latest]")
@click.option("--from-beginning", is_flag=True, help="Same as --offset earliest.")
@click.option("--max-messages", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option(
    "--exit-at-end", "-e", is_flag=True, help="Stop at the end of the log instead of waiting."
)
@click.option("--print-key", is_flag=True, help="Print the key before the value.")
@click.option(
    "--key-separator",
    default="\t",
    show_default=False,
    help="Text between key and value; default TAB.",
)
@isolation_option
@click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Values, or a JSON object a record, which produce --format jsonl takes.",
)
@with_client
def consume(
    topic: str,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
    max_messages: int | None,
    exit_at_end: bool,
    print_key: bool,
    key_separator: str,
    isolation: Isolation | None,
    output: str,
    client: Client,
) -> None:
    """Print records of a topic, by default those appended from now on.

    Without --partition, reads all partitions that are served; exit 3 when one is not.

    With --output json, keys, values and headers that are JSON are shown as they are, text as
    strings, and other bytes in base64 with "key_format" or "value_format" beside it. A JSON string
    is marked too, because its quotes are stored.

    Example: kafkalog consume orders --from-beginning -e
    """
    if from_beginning and offset is not None:
        raise click.UsageError("Give either --from-beginning or --offset")
    is_partial = False
    if partition is not None:
        partitions = [partition]
    else:
        entries = [{"topic": topic, **entry} for entry in client.partitions(topic)]
        is_partial = report_failures(entries)
        partitions = [int(entry["partition"]) for entry in entries if not is_failed(entry)]
    if not partitions:
        raise RequestFailed(f"No partition of topic {topic} is served.")
    wanted = "earliest" if from_beginning else offset or "latest"
    positions = {p: _start(client, topic, p, wanted) for p in partitions}
    printer = Printer(as_json=output == "json", print_key=print_key, key_separator=key_separator)
    try:
        _follow(client, topic, positions, printer, max_messages, exit_at_end, isolation)
    except OSError:  # of the output: how many records of it were written is not known
        raise
    except BaseException:
        printer.close()
        raise
    printer.close()
    if is_partial:
        raise click.exceptions.Exit(PARTIAL_FAILURE)


def _follow(
    client: Client,
    topic: str,
    positions: dict[int, int],
    printer: Printer,
    max_messages: int | None,
    exit_at_end: bool,
    isolation: Isolation | None,
) -> None:
    """Read the partitions in turn; wait only after a round without records."""
    waiting = False
    while True:
        found = False
        for partition in positions:
            wait = _WAIT_MS // len(positions) if waiting and not exit_at_end else 0
            try:
                page = client.fetch_page(
                    topic, partition, positions[partition], max_wait_ms=wait, isolation=isolation
                )
            except DaemonFault as error:
                message = f"Partition {topic}-{partition}: {message_of(error)}"
                last = error.details.get("last_offset")
                if last is not None:  # behind the damage
                    message += f" To read on after it: --partition {partition} --offset {last + 1}"
                raise RequestFailed(message) from error
            for record in page.records:
                printer.write(record)
                if max_messages is not None and printer.count >= max_messages:
                    return
            next_offset = page.position.next_offset
            found = found or next_offset > positions[partition]
            positions[partition] = next_offset
        sys.stdout.buffer.flush()
        if not found and exit_at_end:
            return
        waiting = not found
