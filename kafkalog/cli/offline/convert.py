"""``kafkalog segments convert``: segments of message formats v0 and v1 become segments of v2.

Owns which directories are meant, the locks of their log directories, and the printed lines; the
work is ``log/format_conversion``'s. One thread.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import Any

import click

from kafkalog.cli.arguments import check_partition_directory, execute_option
from kafkalog.cli.connection import PARTIAL_FAILURE
from kafkalog.cli.main import sentence_of
from kafkalog.cli.output import confirm, document_option, is_printed, print_rows
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import KafkalogError
from kafkalog.format.disk.file_names import LOCK, META_PROPERTIES
from kafkalog.format.topic_names import live_partition
from kafkalog.log.format_conversion import (
    ConvertedSegment,
    OldSegment,
    convert_partition,
    needs_conversion,
)
from kafkalog.log.inspect.directory_facts import backup_fault
from kafkalog.observe.logging import configure_logging


@click.command()
@click.argument(
    "directories",
    metavar="DIRECTORY...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False),
)
@click.option(
    "--thorough",
    is_flag=True,
    help="Look at all messages and batches, also between v2 batches. Default: at the first and the"
    " last of each segment.",
)
@execute_option
@document_option
def convert(
    directories: tuple[str, ...], thorough: bool, execute: bool, is_sure: bool, output: str
) -> None:
    """Convert segments of message formats v0 and v1, of Kafka before 0.11, to record batches (v2).

    DIRECTORY is a partition directory, or a log directory for all its partitions. Nobody may serve
    it: stop the daemon or the broker. Offsets, timestamps, codecs and modification times stay as
    they are. One segment after the other is replaced, so there must be space for the largest one
    once more; a conversion that was interrupted goes on when it is run again. A damaged segment is
    named and left as it is, with those after it. What a crash left after the last message is kept
    in a .torn file, which is named. Exit 1 if nothing could be converted, 3 if something could not.

    Example: kafkalog segments convert ./data/orders-0 --execute
    """
    configure_logging(sys.stderr, log_format="console", level="warning")
    every = (path for each in directories for path in _partitions(os.path.realpath(each)))
    partitions = list(dict.fromkeys(every))  # one that is named twice, or by a link, is one
    if execute:
        shown = ", ".join(directories)
        confirm(f"Rewrite the segments of old message formats in {shown}?", is_sure=is_sure)
    segments: list[dict[str, Any]] = []
    failures: list[dict[str, str]] = []
    with ExitStack() as locks:
        if execute:
            for log_dir in sorted({os.path.dirname(path) for path in partitions}):
                _lock(log_dir, locks)
        for path in partitions:
            try:
                _convert(path, segments, thorough=thorough, execute=execute)
            except KafkalogError as error:
                failures.append({"directory": path, "error": error.message})
            except OSError as error:
                failures.append({"directory": path, "error": sentence_of(error)})
    document = {"dry_run": not execute, "segments": segments, "failures": failures}
    if not is_printed(output, document):
        print_rows(
            ["PARTITION", "SEGMENT", "BYTES", "NEW BYTES", "MESSAGES"],
            [[os.path.basename(each["directory"]), *list(each.values())[1:5]] for each in segments],
            if_empty=None if failures else "No segment is in message format v0 or v1.",
        )
    for each in segments:
        if each["note"] is not None:
            click.echo(f"{each['directory']}: {each['note']}", err=True)
    for failure in failures:
        click.echo(f"Error: {failure['directory']}: {failure['error']}", err=True)
    if segments and not execute:
        click.echo("Nothing was changed; add --execute.", err=True)
    if failures:
        raise click.exceptions.Exit(PARTIAL_FAILURE if segments else 1)


def _partitions(directory: str) -> list[str]:
    """The directory itself, or the partitions in it."""
    for place in (directory, os.path.dirname(directory)):
        fault = backup_fault(SystemFilesystem(), place)
        if fault is not None:
            raise click.ClickException(f"{place} {fault}")
    names = sorted(name for name in os.listdir(directory) if live_partition(name) is not None)
    paths = [path for name in names if os.path.isdir(path := os.path.join(directory, name))]
    if not paths:
        check_partition_directory(directory)
    return paths or [directory]


def _lock(log_dir: str, locks: ExitStack) -> None:
    """Keep daemons and brokers out of a log directory; another directory needs no lock."""
    filesystem, lock = SystemFilesystem(), os.path.join(log_dir, LOCK)
    if not any(filesystem.exists(os.path.join(log_dir, name)) for name in (LOCK, META_PROPERTIES)):
        return
    try:
        locks.callback(filesystem.lock(lock).release)
    except BlockingIOError as error:
        raise click.ClickException(
            f"{log_dir} is served: stop the daemon or the broker first ({lock} is locked)"
        ) from error
    except OSError as error:
        raise click.ClickException(sentence_of(error)) from error


def _convert(path: str, segments: list[dict[str, Any]], *, thorough: bool, execute: bool) -> None:
    """Add the segments of one partition, converted with execute; those done before an error too."""

    def note(each: OldSegment | ConvertedSegment) -> None:
        row: dict[str, Any] = {
            "directory": path,
            "file": each.file,
            "size_bytes": each.size_bytes,
            "new_size_bytes": None,
            "messages": None,
            "torn_bytes": None,
            "torn_file": None,
            "note": None,
        }
        if isinstance(each, ConvertedSegment):
            row |= {"new_size_bytes": each.new_size_bytes, "messages": each.message_count}
            row |= {"torn_bytes": each.torn_bytes, "torn_file": each.torn_file}
            row["note"] = each.tail_note
        segments.append(row)

    filesystem = SystemFilesystem()
    if execute:
        convert_partition(filesystem, path, is_thorough=thorough, on_segment=note)
        return
    for each in needs_conversion(filesystem, path, is_thorough=thorough):
        note(each)
