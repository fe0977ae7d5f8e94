"""``kafkalog produce``: lines of standard input (or JSONL) become records of a topic."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from kafkalog.cli.arguments import acks_option, topic_argument
from kafkalog.cli.connection import PARTIAL_FAILURE, message_of, with_client
from kafkalog.cli.output import base64_text, progress
from kafkalog.client import ClientError, path_of
from kafkalog.client.messages import BINARY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.client import Client

_BATCH_RECORDS = 1000
_BATCH_BYTES = 512 << 10


class _BadLine(Exception):
    """A line of the input that is not a record; the message names its number."""


def _from_line(line: bytes, number: int, key_separator: bytes | None) -> dict[str, Any]:
    if key_separator is None:
        return {"value": base64_text(line)}
    key, found, value = line.partition(key_separator)
    if not found:
        start = line[:80].decode("latin-1")
        raise _BadLine(f"Line {number} has no key separator '{key_separator.decode()}': {start}")
    return {"key": base64_text(key), "value": base64_text(value)}


def _from_json(line: bytes, number: int) -> dict[str, Any]:
    """A record of the HTTP API: key and value in base64."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error if isinstance(error, ValueError) else "it is nested too deeply"
        raise _BadLine(f"Line {number} is not JSON: {reason}") from error
    if not isinstance(record, dict):
        raise _BadLine(f"Line {number} is not a JSON object")
    return record


def _batches(
    stream: BinaryIO, key_separator: bytes | None, is_jsonl: bool
) -> Iterator[list[dict[str, Any]]]:
    """Records in groups of at most _BATCH_RECORDS, or about _BATCH_BYTES.

    Raises _BadLine at the first line that is not a record, after all records before it.
    """
    batch: list[dict[str, Any]] = []
    size = 0
    for number, raw in enumerate(stream, 1):
        line = raw.rstrip(b"\n")
        try:
            record = (
                _from_json(line, number) if is_jsonl else _from_line(line, number, key_separator)
            )
        except _BadLine:
            if batch:
                yield batch  # otherwise the end of a group would decide how much is appended
            raise
        batch.append(record)
        size += len(line)
        if len(batch) >= _BATCH_RECORDS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@click.command()
@topic_argument()
@click.option(
    "--partition",
    type=int,
    help="Default: by key; records without a key go together to one partition.",
)
@click.option("--key-separator", "-K", help="Split each line into key and value at this text.")
@click.option(
    "--format",
    "input_format",
    type=click.Choice(["lines", "jsonl"]),
    default="lines",
    help="jsonl: base64 records {key, value, headers, timestamp} as in the HTTP API.",
)
@acks_option
@click.option("--verbose", "-v", is_flag=True, help="Print partition and offset of each record.")
@with_client
def produce(
    topic: str,
    partition: int | None,
    key_separator: str | None,
    input_format: str,
    acks: str | None,
    verbose: bool,
    client: Client,
) -> None:
    """Append lines of standard input to a topic as records. Exit 3 when some were not appended.

    Stops at a request that fails as a whole; "N of M" counts the records sent until then. Stops
    also at a line that is not a record; the records before it are appended and counted.

    Example: echo 'k1:hello' | kafkalog produce orders -K :
    """
    if key_separator == "":
        raise click.UsageError("--key-separator is empty")
    names = ("topics", topic) if partition is None else ("topics", topic, "partitions", partition)
    path, query = path_of(*names), {} if acks is None else {"acks": acks}
    separator = key_separator.encode() if key_separator is not None else None
    sent, is_answered = 0, True
    reasons: Counter[str] = Counter()
    bad_line: _BadLine | None = None
    try:
        with progress() as shown:
            for batch in _batches(sys.stdin.buffer, separator, input_format == "jsonl"):
                try:
                    answer = client.call(
                        "POST", path, {"records": batch}, query=query, content_type=BINARY
                    ).json
                except ClientError as error:
                    if sent == reasons.total():
                        raise  # nothing was appended
                    sent += len(batch)
                    reasons[message_of(error)] += len(batch)
                    break  # the next request would fail for the same reason
                sent += len(batch)
                is_answered = answer is not None
                reasons += _report(topic, answer, verbose)
                if not verbose:
                    shown.show(f"{sent} records sent")
    except _BadLine as error:
        bad_line = error
    finally:
        for reason, count in reasons.items():
            click.echo(f"{topic}: {reason} ({count} records)", err=True)
    failed = reasons.total()
    if failed:
        click.echo(f"Error: {failed} of {sent} records were not appended.", err=True)
    if bad_line is not None:
        click.echo(f"Error: {bad_line}", err=True)
        click.echo(f"{'Appended' if is_answered else 'Sent'} before it: {sent - failed}", err=True)
    if failed or bad_line is not None:
        raise click.exceptions.Exit(PARTIAL_FAILURE if failed < sent else 1)


def _report(topic: str, answer: dict[str, Any] | None, verbose: bool) -> Counter[str]:
    """Print offsets if verbose; the number of failed records by reason. None: acks=0."""
    reasons: Counter[str] = Counter()
    for receipt in (answer or {}).get("offsets", ()):
        if receipt["error_code"] is not None:
            reasons[receipt["error"]] += 1
        elif verbose:
            click.echo(f"{topic} [{receipt['partition']}] at offset {receipt['offset']}")
    return reasons
