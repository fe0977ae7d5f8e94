"""``kafkalog adopt`` and ``kafkalog hand-back``: log directories that change hands with Kafka.

The work is in `hand_over`, imported late: it needs the broker, and `--help` does not.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import execute_option
from kafkalog.cli.connection import PARTIAL_FAILURE
from kafkalog.cli.output import confirm, document_option, is_printed

if TYPE_CHECKING:
    from kafkalog.broker.startup.hand_over import HandOverPlan

_directories = click.argument(
    "directories", metavar="DIR...", nargs=-1, required=True, type=click.Path()
)


@click.command()
@_directories
@execute_option
@document_option
def adopt(directories: tuple[str, ...], execute: bool, is_sure: bool, output: str) -> None:
    """Make log directories of a Kafka broker kafkalog's own, in place.

    Name all log.dirs of one broker (or copies of them), with any node.id or broker.id, of a Kafka
    with KRaft or ZooKeeper. The broker must have been stopped. Without --execute nothing is
    written: the findings are printed, what will be written, and what the daemon's first start will
    do. With it segments of message formats v0 and v1 become v2, meta.properties gets an id of the
    directory if it has none, and each directory the topic registry, with Kafka's topic ids. Other
    records are not touched. An interrupted run is finished by another one. Exit 1 with an error,
    after which nothing was written; 3 if a damaged segment could not be converted.

    Example: kafkalog adopt /var/lib/kafka/data

    Example: kafkalog adopt --execute /disk1/kafka /disk2/kafka
    """
    from kafkalog.cli.offline.hand_over import adopted

    if execute:
        confirm(f"Make {', '.join(directories)} kafkalog's own?", is_sure=is_sure)
    plan = adopted(directories, is_executed=execute)
    paths = dict.fromkeys(os.path.abspath(each) for each in directories)
    pair = shlex.quote("log.dirs=" + ",".join(paths))
    _report(plan, output, execute, f"Start the daemon: kafkalog server --override {pair}")


@click.command("hand-back")
@_directories
@execute_option
@document_option
def hand_back(directories: tuple[str, ...], execute: bool, is_sure: bool, output: str) -> None:
    """Make adopted log directories ready for the Kafka broker that they came from, in place.

    Name all log directories; the daemon must have been stopped. Without --execute nothing is
    written: the findings are printed, what will be written, and what Kafka will do at its start,
    for example with topics that were made here. With it, the ids that Kafka did not have are
    removed: of directories (before 3.7) and of topics (ZooKeeper). An interrupted run is finished
    by another one. Exit 1 with an error, after which nothing was written.

    Example: kafkalog hand-back /var/lib/kafka/data
    """
    from kafkalog.cli.offline.hand_over import handed_back

    if execute:
        confirm(f"Give {', '.join(directories)} back to Kafka?", is_sure=is_sure)
    plan = handed_back(directories, is_executed=execute)
    _report(plan, output, execute, "Start the Kafka broker on them.")


def _report(plan: HandOverPlan, output: str, is_executed: bool, next_step: str) -> None:
    is_done = is_executed and not plan.is_refused
    document: dict[str, Any] = {
        "findings": [
            {"level": note.level, "subject": note.subject, "message": note.message}
            for note in plan.notes
        ],
        "changes": [{"file": each.path, "message": each.message} for each in plan.changes],
        "is_executed": is_done,
    }
    if not is_printed(output, document):
        for note in plan.notes:
            click.echo(f"{note.level}: {note.subject}: {note.message}")
        for each in plan.changes:
            click.echo(f"{'written' if is_done else 'to write'}: {each.path}: {each.message}")
        click.echo(_summary(plan, is_done, next_step))
    if plan.is_refused:
        raise click.exceptions.Exit(1)
    if plan.is_partial:
        raise click.exceptions.Exit(PARTIAL_FAILURE)


def _summary(plan: HandOverPlan, is_done: bool, next_step: str) -> str:
    if plan.is_refused:
        return "Refused: nothing was written."
    if not plan.changes:
        return f"There is nothing to write. {next_step}"
    if is_done:
        return f"Done. {next_step}"
    return "Nothing was written. To do it, add --execute."
