"""``kafkalog compat kafka-producer-perf-test``: the tool's options, lines and exit status.

Source: `org.apache.kafka.tools.ProducerPerformance` 4.1; tests/oracle compares the lines' form.

Differs from Kafka: one request is in flight at a time; there are no transactions; a delimiter of
payloads is a text, not an expression.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kafkalog.cli.connection import message_of, open_client, with_credentials
from kafkalog.cli.kafka_tools.access import access_of, read_properties
from kafkalog.cli.kafka_tools.pairs import key_values
from kafkalog.cli.kafka_tools.tool import ToolFailed
from kafkalog.cli.perf.append_load import (
    BATCH_BYTES,
    AppendLoad,
    chosen_payloads,
    counting_payloads,
    random_payloads,
)
from kafkalog.cli.perf.append_stats import total_line
from kafkalog.env.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalog.client import Basic, Bearer, ClientError, Tls
    from kafkalog.client.records import Acks, CodecName

T = TypeVar("T")

_SERVERS = "bootstrap.servers"
_ACKS: dict[str, Acks] = {"-1": "all", "all": "all", "1": "1", "0": "0"}
_CODECS: dict[str, CodecName] = {
    "none": "none", "gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"
}  # fmt: skip
_APPLIED = frozenset({_SERVERS, "acks", "compression.type", "batch.size"})


class _SeveralWords(click.Command):
    """``--producer-props a=1 b=2``: words behind the option belong to it until the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each of its words."""
        name, spread, is_inside = "--producer-props", [], False
        for word in args:
            if word.startswith("--"):
                is_inside = word == name
                spread += [] if is_inside else [word]
            else:
                spread += [name, word] if is_inside else [word]
        return super().parse_args(ctx, spread)


@click.command("kafka-producer-perf-test", cls=_SeveralWords)
@click.option("--topic", required=True, help="Where the records go.")
@click.option("--num-records", type=int, required=True, help="How many.")
@click.option("--throughput", type=float, required=True, help="Records a second; -1: no bound.")
@click.option("--record-size", type=int, help="Bytes of random letters in each record.")
@click.option("--payload-file", help="Take the records from a file, by chance.")
@click.option("--payload-delimiter", default="\\n", help="Between records of the file.")
@click.option("--payload-monotonic", is_flag=True, help="Each record is its number.")
@click.option(
    "--producer-props", "pairs", multiple=True, metavar="KEY=VALUE...", help="bootstrap.servers=..."
)
@click.option("--producer.config", "file", help="A file of such properties.")
@click.option("--print-metrics", is_flag=True, help="No effect: the client keeps none.")
@with_credentials
def producer_perf_test(
    credentials: Basic | Bearer | None,
    tls: Tls | None,
    **options: Any,  # noqa: ANN401 - click gives them by name
) -> None:
    """As kafka-producer-perf-test.sh.

    Example: kafkalog compat kafka-producer-perf-test --topic orders --num-records 1000
    --record-size 100 --throughput -1 --producer-props bootstrap.servers=localhost:8082
    """
    properties = _properties(options)
    access = access_of(properties, applied=_APPLIED)
    if _SERVERS not in properties:
        raise ToolFailed(f"No resolvable bootstrap urls given in {_SERVERS}")
    if options["print_metrics"]:
        click.echo("--print-metrics has no effect: the client keeps none", err=True)
    rate = options["throughput"]
    load = AppendLoad(
        options["topic"],
        options["num_records"],
        _payload(options),
        rate if rate > 0 else None,
        _batch_bytes(properties),
        _word(_ACKS, properties, "acks", "all"),
        _word(_CODECS, properties, "compression.type", "none"),
    )
    clock = SystemClock()
    found = access.credentials or credentials
    with open_client(access.url(properties[_SERVERS]), found, access.tls or tls) as client:
        stats = load.run(client, clock, click.echo, _tell)
        click.echo(total_line(stats.total(clock.monotonic_ns() // 1_000_000)))


def _tell(error: ClientError, count: int) -> None:
    """As Kafka's callback: said, and not counted."""
    click.echo(f"{count} records were not appended: {message_of(error)}", err=True)


def _properties(options: dict[str, Any]) -> dict[str, str]:
    """ToolFailed in the tool's words."""
    if options["num_records"] <= 0:
        raise ToolFailed("--num-records should be greater than zero")
    if options["record_size"] is not None and options["record_size"] <= 0:
        raise ToolFailed("--record-size should be greater than zero")
    if not options["pairs"] and options["file"] is None:
        raise ToolFailed("Either --producer-props or --producer.config must be specified.")
    for pair in options["pairs"]:
        if pair.count("=") != 1 or pair.endswith("="):
            raise ToolFailed(f"Invalid property: {pair}")
    properties = {} if options["file"] is None else read_properties(options["file"])
    return {**properties, **key_values(options["pairs"])}


def _payload(options: dict[str, Any]) -> Callable[[int], bytes]:
    """ToolFailed."""
    size, file = options["record_size"], options["payload_file"]
    if (size is not None) + (file is not None) + options["payload_monotonic"] != 1:
        raise ToolFailed("Give exactly one of --record-size, --payload-file, --payload-monotonic")
    if size is not None:
        return random_payloads(size)
    if file is None:
        return counting_payloads()
    click.echo(f"Reading payloads from: {os.path.abspath(file)}")
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise ToolFailed("File does not exist or empty file provided.") from error
    delimiter = options["payload_delimiter"]
    parts = data.split(b"\n" if delimiter == "\\n" else delimiter.encode())
    payloads = parts if parts[-1] else parts[:-1]
    if not payloads:
        raise ToolFailed("File does not exist or empty file provided.")
    click.echo(f"Number of messages read: {len(payloads)}")
    return chosen_payloads(payloads)


def _batch_bytes(properties: Mapping[str, str]) -> int:
    text = properties.get("batch.size", str(BATCH_BYTES))
    if not (text.isascii() and text.isdigit()):
        raise ToolFailed(f"Invalid value {text} for configuration batch.size: Not a number")
    return int(text)


def _word(known: Mapping[str, T], properties: Mapping[str, str], name: str, default: str) -> T:
    text = properties.get(name, default)
    if text not in known:
        raise ToolFailed(f"Invalid value {text} for configuration {name}: {', '.join(known)}")
    return known[text]
