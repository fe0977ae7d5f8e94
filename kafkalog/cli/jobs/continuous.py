"""``kafkalog archive run --continuous``: its options, and how it is stopped.

The first SIGTERM or Ctrl-C ends the loop after what is ready is committed, the second one at once.
"""

from __future__ import annotations

import functools
import signal
import sys
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING

import click

from kafkalog.cli.arguments import Size, duration
from kafkalog.cli.connection import RequestFailed, message_of
from kafkalog.client import ClientError
from kafkalog.env.clock import SystemClock
from kafkalog.jobs.tasks import ProcessPool
from kafkalog.observe.logging import configure_logging
from kafkalog.spark.logs.values import TARGET_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.jobs.archive.archive import ArchiveOptions
    from kafkalog.jobs.archive.archive_table import ArchiveTable
    from kafkalog.jobs.archive.continuous import Pace
    from kafkalog.jobs.archive.progress import ArchivedPartition
    from kafkalog.jobs.tasks import Runner
    from kafkalog.spark.logs.open import OpenedLogs

    Command = Callable[..., None]

_OPTIONS = (
    click.option(
        "--continuous", is_flag=True, help="Go on until SIGTERM or Ctrl-C: archive what comes."
    ),
    click.option(
        "--max-lag",
        type=duration,
        help="With --continuous: the time that a record waits at most. Default: 1m.",
    ),
    click.option(
        "--min-commit-bytes",
        type=Size(min=1),
        metavar="N",
        help=f"With --continuous: so many bytes of log do not wait. Default: {TARGET_BYTES}.",
    ),
)


def with_pace(command: Command) -> Command:
    """Add the options; the command gets ``pace``, None for one run."""

    @functools.wraps(command)
    def paced(
        *args: object,
        continuous: bool,
        max_lag: int | None,
        min_commit_bytes: int | None,
        min_age: int | None,
        **options: object,
    ) -> None:
        if not continuous and (max_lag is not None or min_commit_bytes is not None):
            raise click.UsageError("--max-lag and --min-commit-bytes belong to --continuous")
        if continuous and min_age is not None:
            raise click.UsageError("--min-age is for single runs; --max-lag says how long it waits")
        if max_lag is not None and max_lag < 1:
            raise click.BadParameter("it is more than 0", param_hint="--max-lag")
        pace = _pace(max_lag, min_commit_bytes) if continuous else None
        command(*args, pace=pace, min_age=min_age, **options)

    for option in reversed(_OPTIONS):
        paced = option(paced)
    return paced


def _pace(max_lag_ms: int | None, min_commit_bytes: int | None) -> Pace:
    from kafkalog.jobs.archive.continuous import MAX_LAG_SECONDS, Pace

    return Pace(
        MAX_LAG_SECONDS if max_lag_ms is None else max_lag_ms / 1000,
        TARGET_BYTES if min_commit_bytes is None else min_commit_bytes,
    )


class _Stop:
    """Whether a signal has come; the second one interrupts."""

    def __init__(self) -> None:
        self.is_requested = False

    def __call__(self, number: int, frame: object) -> None:
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True


@contextmanager
def _stopped_by_signals() -> Iterator[_Stop]:
    stop = _Stop()
    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def archive_once_or_continuously(
    logs: Callable[[], OpenedLogs],
    table: Callable[[], ArchiveTable],
    options: ArchiveOptions,
    pace: Pace | None,
    runner: Runner,
) -> list[ArchivedPartition]:
    """One run, or with a pace the loop. Raises RequestFailed for the faults of daemons."""
    from kafkalog.jobs.archive.archive import archive

    try:
        if pace is not None:
            return _archive_continuously(logs, table, options, pace, runner)
        with closing(table()) as opened, closing(logs()) as opened_logs:
            return archive(opened_logs, opened, options, runner)
    except ClientError as error:
        raise RequestFailed(message_of(error)) from error


def _archive_continuously(
    logs: Callable[[], OpenedLogs],
    table: Callable[[], ArchiveTable],
    options: ArchiveOptions,
    pace: Pace,
    runner: Runner,
) -> list[ArchivedPartition]:
    """See `Continuous`; processes live as long as the loop. Log lines of level info are shown."""
    from kafkalog.jobs.archive.continuous import Continuous

    configure_logging(sys.stderr, log_format="console", level="info")
    processes = runner if isinstance(runner, ProcessPool) else nullcontext()
    with _stopped_by_signals() as stop, processes:
        loop = Continuous(
            logs,
            table,
            options,
            pace,
            runner,
            clock=SystemClock(),
            is_stopped=lambda: stop.is_requested,
        )
        return loop.run()
