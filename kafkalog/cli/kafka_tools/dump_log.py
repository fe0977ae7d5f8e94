"""``kafkalog compat kafka-dump-log``: the tool's grammar; ``kafkalog/cli/offline/dump.py`` prints.

Source: `kafka.tools.DumpLogSegments` of Kafka 4.1.

Differs from Kafka: of the decoders there is that of committed offsets.
"""

from __future__ import annotations

import click

from kafkalog.cli.kafka_tools.tool import ToolCommand, missing_here, uncaught
from kafkalog.cli.offline.dump import dump_options, dump_or_fail


@click.command("kafka-dump-log", cls=ToolCommand, unknown=uncaught, wrong=uncaught)
@click.option("--files", required=True, help="Comma-separated list of files to dump.")
@missing_here(
    "--cluster-metadata-decoder",
    "--remote-log-metadata-decoder",
    "--share-group-state-decoder",
    "--transaction-log-decoder",
    is_flag=True,
)
@missing_here("--key-decoder-class", "--value-decoder-class", is_flag=False)
@dump_options
def dump_log(files: str, **flags: bool | int) -> None:
    """As kafka-dump-log.sh.

    Example: kafkalog compat kafka-dump-log --files data/orders-0/00000000000000000000.log
    """
    dump_or_fail(files.split(","), flags)
