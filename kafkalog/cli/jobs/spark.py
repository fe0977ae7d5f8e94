"""``kafkalog spark``: jobs over whole directories of logs, in processes or on Spark.

Owns the arguments and what is printed; the jobs are ``kafkalog.jobs``. No server takes part.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kafkalog.broker.topics.registry import registered_configs
from kafkalog.cli.arguments import IntRange, Size, config_pairs, duration
from kafkalog.cli.jobs.spark_workers import choose_workers
from kafkalog.cli.main import sentence_of
from kafkalog.cli.output import is_printed, output_of, print_table
from kafkalog.env.clock import SystemClock
from kafkalog.errors import KafkalogError
from kafkalog.jobs import audit as audit_job, compact as compact_job, whatif as whatif_job
from kafkalog.jobs.compact import CompactedPartition
from kafkalog.jobs.fleet import ArrowMissing, columns_of, find_partitions, sums, write_parquet
from kafkalog.jobs.tasks import ProcessPool
from kafkalog.log.log_config import LogConfig
from kafkalog.observe.logging import configure_logging
from kafkalog.settings.dynamic_configs import parse_topic_config
from kafkalog.spark.logs.object_store import filesystem_for, scheme_of, shown, trimmed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkalog.jobs.fleet import FleetPartition
    from kafkalog.jobs.tasks import Runner

_WITHOUT_SPARK = "; or --no-spark: the same job runs in processes of this machine"


@dataclass(frozen=True, slots=True)
class JobArguments:
    """The options of every job: its directories, where it runs, the form of its rows."""

    dirs: tuple[str, ...]
    topics: tuple[str, ...]
    is_on_spark: bool
    processes: int
    output: str
    file: str | None

    @property
    def paths(self) -> list[str]:
        """The directories, absolute or on a store. Raises StoreMissing."""
        return [
            trimmed(each) if scheme_of(each) else os.path.abspath(each.removeprefix("file://"))
            for text in self.dirs
            for each in text.split(",")
            if each
        ]

    def partitions(self, configs: Mapping[str, str]) -> list[FleetPartition]:
        """The partitions; ``configs`` override the topic configs in the registries.

        Raises KafkalogError and OSError.
        """
        dirs = self.paths
        if not dirs:
            raise click.MissingParameter(
                ctx=click.get_current_context(), param_hint="'DIR...'", param_type="argument"
            )
        filesystem = filesystem_for(dirs)
        # Each may be a log directory or a partition in one; s3://logs is in none.
        parents = [each for each in map(os.path.dirname, dirs) if not each.endswith(":")]
        overrides = {each: registered_configs(each, filesystem) for each in {*dirs, *parents}}

        def config_of(log_dir: str, topic: str) -> LogConfig:
            own = overrides.get(log_dir, {}).get(topic, {})
            return parse_topic_config({**own, **configs}, LogConfig())

        topics = frozenset(self.topics) or None
        return find_partitions(dirs, filesystem, config_of=config_of, topics=topics)

    def runner(self, job: str) -> Runner:
        """The runner: Spark, or processes of this machine. Raises SparkMissing."""
        if not self.is_on_spark:
            return ProcessPool(self.processes)
        from kafkalog.jobs.on_spark import SparkRunner, open_session

        choose_workers()
        return SparkRunner(open_session(f"kafkalog {job}", _WITHOUT_SPARK))

    def show(
        self, kind: type[tuple[Any, ...]], rows: Sequence[Any], totals: Mapping[str, Any]
    ) -> None:
        """Print or write the rows, and the totals. Raises ArrowMissing and OSError."""
        if is_printed(self.output, {"rows": [row._asdict() for row in rows], "totals": totals}):
            return
        if self.output == "parquet":
            assert self.file is not None, "checked with the arguments"
            write_parquet(self.file, kind, rows)
        elif rows:
            head = tuple(name.replace("_", " ").upper() for name in columns_of(kind))
            print_table([head, *(tuple(map(_cell, row)) for row in rows)])
        click.echo(", ".join(f"{name.replace('_', ' ')}: {_cell(totals[name])}" for name in totals))


def path_on_disk(option: str, value: str, instead: str = "") -> str:
    """An absolute path. Raises UsageError for a path on a store, where jobs do not write."""
    if scheme_of(value) is not None:
        raise click.UsageError(f"{option} is a path on a disk, not {shown(value)}{instead}")
    return os.path.abspath(value.removeprefix("file://"))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


_SOURCES = (
    # Log directories, or single partition directories.
    click.argument("directories", nargs=-1, metavar="[DIR]..."),
    click.option("--dirs", multiple=True, hidden=True, help="Former spelling of DIR..., as a,b."),
    click.option("--topic", "topics", multiple=True, help="Only this topic. Repeatable."),
)
_SHARED = (
    click.option(
        "--spark/--no-spark",
        "is_on_spark",
        default=False,
        show_default=False,
        help="Run on Spark (needs kafkalog[spark] and Java 17), or in processes here.",
    ),
    click.option(
        "--processes",
        type=IntRange(min=1),
        default=lambda: os.cpu_count() or 1,
        show_default="as many as the machine has processors",
        metavar="N",
        help="Number of processes without Spark.",
    ),
    output_of("table", "json", "yaml", "parquet"),
    click.option("--file", metavar="FILE", help="The Parquet file."),
)


def job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every job over logs; the command gets ``arguments`` instead of them.

    Errors of the job become click's; an interrupt by a signal ends the job as Ctrl-C does.
    """
    return _with_options(command, (*_SOURCES, *_SHARED))


def table_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """As `job_options`, for a job that reads no logs."""
    return _with_options(command, _SHARED)


def _with_options(
    command: Callable[..., None], options: Sequence[Callable[..., Any]]
) -> Callable[..., None]:
    def body(*places: Any, **given: Any) -> None:  # noqa: ANN401 - click's
        given["dirs"] = (*given.pop("directories", ()), *given.pop("dirs", ()))
        given.setdefault("topics", ())
        names = ("dirs", "topics", "is_on_spark", "processes", "output", "file")
        values = {name: given.pop(name) for name in names}
        if values["file"] is not None:
            values["file"] = path_on_disk("--file", values["file"])
        arguments = JobArguments(**values)
        if (arguments.output == "parquet") != (arguments.file is not None):
            raise click.UsageError("--output parquet and --file belong together")
        configure_logging(sys.stderr, log_format="console", level="warning")
        try:
            with _ended_by_signals():
                command(*places, arguments, **given)
        except KafkalogError as error:
            notes = getattr(error, "__notes__", ())
            raise click.ClickException("\n".join([error.message, *notes])) from error
        except OSError as error:
            raise click.ClickException(sentence_of(error)) from error

    body.__name__, body.__doc__ = command.__name__, command.__doc__
    body.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]  # click's
    for option in reversed(options):
        body = option(body)
    return body


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Make SIGTERM interrupt as Ctrl-C does, so that a job removes what it wrote."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


config_option = click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a topic config. Repeatable.",
)
now_option = click.option(
    "--now",
    "now_ms",
    type=IntRange(min=0),
    default=lambda: SystemClock().wall_ms(),
    show_default=False,
    metavar="MS",
    help="Use this time. Default: the clock's.",
)


@click.command()
@click.pass_context
@job_options
@config_option
def audit(ctx: click.Context, arguments: JobArguments, configs: tuple[str, ...]) -> None:
    """Check every batch, index, producer sequence and epoch. Exit 1 with errors.

    Nothing is written, and directories may be served meanwhile. --config cleanup.policy=compact
    allows missing offsets where the directory does not show that a topic is compacted.

    Example: kafkalog spark audit ./data1 ./data2 --output json
    """
    partitions = arguments.partitions(dict(config_pairs(configs)))
    found = audit_job.audit_directories(partitions, arguments.runner("audit"))
    arguments.show(audit_job.AuditRow, found.rows, found.totals)
    if found.totals["errors"]:
        ctx.exit(1)


@click.command()
@job_options
@click.option("--out", required=True, metavar="DIR", help="The new log directory.")
@click.option(
    "--map-bytes",
    type=Size(min=24, max=2**31 - 1),
    default=compact_job.MAP_BYTES,
    metavar="N",
    help="Size of the offset map of each process.",
)
@config_option
@now_option
def compact(
    arguments: JobArguments, out: str, map_bytes: int, configs: tuple[str, ...], now_ms: int
) -> None:
    """Write a new log directory with the latest record of each key; sources are only read.

    For directories that no daemon serves. Tombstones are kept until delete.retention.ms has
    passed; records without a key are dropped, as by the cleaner.

    Example: kafkalog spark compact ./archive --out ./compacted
    """
    target = path_on_disk("--out", out)
    rows = compact_job.compact_directories(
        arguments.partitions(dict(config_pairs(configs))),
        target,
        arguments.runner("compact"),
        now_ms=now_ms,
        map_bytes=map_bytes,
    )
    totals = sums(rows, "bytes_before", "bytes_after", "records_removed", "records_without_key")
    arguments.show(CompactedPartition, rows, totals)


@click.command()
@job_options
@click.option(
    "--horizon",
    type=duration,
    default="0ms",
    show_default=False,
    help="Time to look ahead: 30d, 12h, 45m.",
)
@click.option(
    "--compaction", is_flag=True, help="Also do dry runs of the cleaner, which read everything."
)
@config_option
@now_option
def whatif(
    arguments: JobArguments, horizon: int, compaction: bool, configs: tuple[str, ...], now_ms: int
) -> None:
    """Show what retention would delete and compaction would save with the configs of --config.

    Nothing is changed, and directories may be served meanwhile.

    Example: kafkalog spark whatif ./data --config retention.ms=1d --horizon 30d
    """
    rows = whatif_job.forecast(
        arguments.partitions(dict(config_pairs(configs))),
        arguments.runner("whatif"),
        now_ms=now_ms,
        horizon_ms=horizon,
        with_compaction=compaction,
    )
    arguments.show(whatif_job.WhatifRow, rows, whatif_job.totals_of(rows))


@click.command()
@job_options
@click.option(
    "--by",
    type=click.Choice(["partition", "key", "size", "time"]),
    default="partition",
    help="A row for each partition, or for each heavy key, size or span of time of a topic.",
)
@click.option(
    "--top",
    type=IntRange(min=1, max=1_000),
    default=20,
    metavar="N",
    help="Number of keys of each topic.",
)
@click.option("--width", type=duration, default="1h", help="Length of a span of time.")
def stats(arguments: JobArguments, by: str, top: int, width: int) -> None:
    """Count records and bytes, heavy keys, sizes of values, rates, null and tombstone shares.

    Reads everything. The number of keys, and what compaction would leave, are estimates where a
    partition has more than 4096 keys.

    Example: kafkalog spark stats ./data --topic orders --by key
    """
    try:
        from kafkalog.jobs import stats as stats_job
    except ImportError as error:
        raise ArrowMissing("stats needs pyarrow: pip install 'kafkalog[spark]'") from error
    if width < 1:
        raise click.UsageError("--width is at least 1ms")
    found = stats_job.count_records(
        arguments.partitions({}), arguments.runner("stats"), width_ms=width
    )
    totals = stats_job.totals_of(found)
    match by:
        case "key":
            arguments.show(stats_job.KeyRow, stats_job.key_rows(found, top), totals)
        case "size":
            arguments.show(stats_job.SizeRow, stats_job.size_rows(found), totals)
        case "time":
            arguments.show(stats_job.TimeRow, stats_job.time_rows(found), totals)
        case _:
            arguments.show(stats_job.PartitionRow, stats_job.partition_rows(found), totals)
