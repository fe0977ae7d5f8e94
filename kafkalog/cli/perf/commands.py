"""``kafkalog perf produce`` and ``perf consume``: how fast, in the words of Kafka's perf tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from kafkalog.cli.completion import topic_argument
from kafkalog.cli.connection import output_option, with_client
from kafkalog.cli.perf.append_load import BATCH_BYTES, AppendLoad, random_payloads
from kafkalog.cli.perf.append_stats import total_line
from kafkalog.cli.perf.java_format import DATE_PATTERN
from kafkalog.cli.perf.read_load import HEADER, ReadLoad
from kafkalog.env.clock import SystemClock

if TYPE_CHECKING:
    from typing import NoReturn

    from kafkalog.client import Client, ClientError
    from kafkalog.client.records import Acks, CodecName

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_IDLE_MS = 10_000


@click.command()
@topic_argument()
@click.option("--num-records", type=click.IntRange(min=1), required=True, help="How many.")
@click.option(
    "--record-size",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Bytes of one.",
)
@click.option("--throughput", type=click.FloatRange(min=0, min_open=True), help="Records a second.")
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=BATCH_BYTES,
    show_default=True,
    help="Bytes of a request's batch.",
)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), help="Default: the daemon's.")
@click.option(
    "--codec",
    type=click.Choice(_CODECS),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@with_client
@output_option
def produce(
    topic: str,
    num_records: int,
    record_size: int,
    throughput: float | None,
    batch_size: int,
    acks: Acks | None,
    codec: CodecName,
    client: Client,
    output: str,
) -> None:
    """Append random records, one request after the other; the first failure ends it.

    The lines are kafka-producer-perf-test's: one each five seconds (on standard error with --output
    json), then the sum. MB are 2^20 bytes.

    Example: kafkalog perf produce orders --num-records 100000 --record-size 200
    """
    clock = SystemClock()
    load = AppendLoad(
        topic, num_records, random_payloads(record_size), throughput, batch_size, acks, codec
    )
    is_text = output == "text"
    stats = load.run(client, clock, lambda line: click.echo(line, err=not is_text), _stop)
    total = stats.total(clock.monotonic_ns() // 1_000_000)
    click.echo(total_line(total) if is_text else json.dumps(total))


def _stop(error: ClientError, _: int) -> NoReturn:
    raise error


@click.command()
@topic_argument()
@click.option("--messages", type=click.IntRange(min=1), required=True, help="How many.")
@click.option("--from-latest", is_flag=True, help="Only what comes from now on.")
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(min=0),
    default=_IDLE_MS,
    show_default=True,
    help="ms without a record that end it.",
)
@click.option(
    "--fetch-size", type=click.IntRange(min=1), default=1 << 20, show_default=True, help="Bytes."
)
@with_client
@output_option
@click.pass_context
def consume(
    ctx: click.Context,
    topic: str,
    messages: int,
    from_latest: bool,
    timeout_ms: int,
    fetch_size: int,
    client: Client,
    output: str,
) -> None:
    """Read records of all partitions; exit 1 when fewer came than were asked for.

    The lines are kafka-consumer-perf-test's. MB are 2^20 bytes.

    Example: kafkalog perf consume orders --messages 100000
    """
    load = ReadLoad(topic, messages, timeout_ms, from_latest, fetch_size)
    result = load.run(client, SystemClock(), lambda _: None)
    if output == "json":
        click.echo(json.dumps(result.document()))
    else:
        click.echo(HEADER)
        click.echo(result.line(DATE_PATTERN))
    if not result.is_complete:
        click.echo(f"Error: only {result.record_count} of {messages} records came.", err=True)
        ctx.exit(1)
