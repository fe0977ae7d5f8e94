"""``kafkalog compat kafka-consumer-perf-test``: the tool's options, lines and exit status.

Source: `org.apache.kafka.tools.ConsumerPerformance` 4.1; tests/oracle compares the lines' form.

Differs from Kafka: every run reads anew, from the begin or the end, and no group remembers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.connection import message_of
from kafkalog.cli.kafka_tools.access import client_of_tool
from kafkalog.cli.kafka_tools.tool import ToolFailed, without_effect
from kafkalog.cli.perf.java_format import DATE_PATTERN, date_text
from kafkalog.cli.perf.read_load import DETAILED_HEADER, HEADER, ReadLoad
from kafkalog.client import ClientError
from kafkalog.env.clock import SystemClock

if TYPE_CHECKING:
    from kafkalog.cli.perf.read_load import Progress
    from kafkalog.client import Client


@click.command("kafka-consumer-perf-test")
@click.option("--topic", required=True, help="The topic.")
@click.option("--messages", type=int, required=True, help="How many.")
@click.option("--fetch-size", type=click.IntRange(min=1), default=1 << 20, help="Bytes of a fetch.")
@click.option("--from-latest", is_flag=True, help="Only what comes from now on.")
@click.option("--timeout", "timeout_ms", type=int, default=10_000, help="ms between records.")
@click.option("--reporting-interval", type=int, default=5000, help="ms of a line.")
@click.option("--show-detailed-stats", is_flag=True, help="A line for each interval, no sum.")
@click.option("--date-format", default=DATE_PATTERN, help="Of letters y M d H m s S.")
@click.option("--hide-header", is_flag=True, help="No line of names.")
@click.option("--print-metrics", is_flag=True, help="No effect: the client keeps none.")
@without_effect("--group", reason="every run reads anew")
@without_effect("--socket-buffer-size", reason="the machine's is taken")
@client_of_tool("--consumer.config")
def consumer_perf_test(
    client: Client,
    **options: Any,  # noqa: ANN401 - click gives them by name
) -> None:
    """As kafka-consumer-perf-test.sh.

    Example: kafkalog compat kafka-consumer-perf-test --bootstrap-server localhost:8082
    --topic orders --messages 1000
    """
    pattern, is_detailed = options["date_format"], options["show_detailed_stats"]
    if options["reporting_interval"] <= 0:
        raise ToolFailed("Reporting interval must be greater than 0.")
    try:
        date_text(pattern, 0)
    except ValueError as error:
        raise ToolFailed(f"--date-format: {error}") from error
    if options["print_metrics"]:
        click.echo("--print-metrics has no effect: the client keeps none", err=True)
    if not options["hide_header"]:
        click.echo(DETAILED_HEADER if is_detailed else HEADER)

    def tell(progress: Progress) -> None:
        if is_detailed:
            click.echo(progress.line(pattern))

    load = ReadLoad(
        options["topic"],
        options["messages"],
        options["timeout_ms"],
        options["from_latest"],
        options["fetch_size"],
        options["reporting_interval"],
    )
    try:
        result = load.run(client, SystemClock(), tell)
    except ClientError as error:
        raise ToolFailed(message_of(error)) from error
    if not result.is_complete:
        click.echo(
            "WARNING: Exiting before consuming the expected number of messages: timeout"
            f" ({options['timeout_ms']} ms) exceeded. You can use the --timeout option to increase"
            " the timeout."
        )
    if not is_detailed:
        click.echo(result.line(pattern))
