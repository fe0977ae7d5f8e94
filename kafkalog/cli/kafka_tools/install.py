"""``kafkalog compat install``: writes scripts with the names of Kafka's tools."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

_MARK = "# Written by kafkalog compat install."
_MODE = 0o755
# The classes that Kafka's scripts run, without their packages, which differ between versions.
_CLASSES = {
    "ConfigCommand": "kafka-configs",
    "ConsoleConsumer": "kafka-console-consumer",
    "ConsoleProducer": "kafka-console-producer",
    "ConsumerGroupCommand": "kafka-consumer-groups",
    "DeleteRecordsCommand": "kafka-delete-records",
    "DumpLogSegments": "kafka-dump-log",
    "GetOffsetShell": "kafka-get-offsets",
    "LogDirsCommand": "kafka-log-dirs",
    "TopicCommand": "kafka-topics",
}
_RUN_CLASS = """\
case "${{1##*.}}" in
{cases}
  *)
    echo "USAGE: $0 classname [opts]" >&2
    echo "kafkalog has these classes: {classes}" >&2
    exit 1 ;;
esac
shift
{python} "$tool" "$@"
"""


@click.command()
@click.argument("directory", type=click.Path(file_okay=False))
@click.option("--force", is_flag=True, help="Also replace files that this command did not write.")
@click.pass_context
def install(ctx: click.Context, directory: str, force: bool) -> None:
    """Write kafka-topics.sh and the other tools into DIRECTORY as scripts; print their paths.

    kafka-run-class.sh is among them, for the classes of these tools (kafka.tools.DumpLogSegments).
    Fails before it writes any file if one exists that this command did not write. Each script runs
    the Python that runs this command.

    Example: kafkalog compat install ~/bin
    """
    assert ctx.parent is not None
    group = ctx.parent.command
    assert isinstance(group, click.Group)
    tools = [name for name in group.list_commands(ctx.parent) if name.startswith("kafka-")]
    python = f"exec {shlex.quote(sys.executable)} -m kafkalog compat"
    scripts = {
        Path(directory) / f"{name}.sh": f'#!/bin/sh\n{_MARK}\n{python} {name} "$@"\n'
        for name in tools
    }
    run_class = _RUN_CLASS.format(
        cases="\n".join(f"  {name}) tool={tool} ;;" for name, tool in _CLASSES.items()),
        classes=" ".join(_CLASSES),
        python=python,
    )
    scripts[Path(directory) / "kafka-run-class.sh"] = f"#!/bin/sh\n{_MARK}\n{run_class}"
    try:
        there = [path for path in scripts if path.exists()]
        foreign = [path for path in there if _MARK.encode() not in path.read_bytes()[:1000]]
        if foreign and not force:
            raise click.ClickException(
                f"{foreign[0]} was not written by this command; --force replaces it"
            )
        Path(directory).mkdir(parents=True, exist_ok=True)
        for path, text in scripts.items():
            beside = path.with_name(path.name + ".tmp")
            beside.write_text(text, encoding="utf-8")
            beside.chmod(_MODE)
            os.replace(beside, path)  # at once, because another process may be starting it
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    for path in scripts:
        click.echo(path)
