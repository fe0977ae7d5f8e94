"""``kafkalog spark pipeline``: a generated day of telemetry through a daemon and Spark."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkalog.cli.arguments import IntRange
from kafkalog.cli.jobs.spark_workers import choose_workers
from kafkalog.cli.output import document_option, is_printed, print_table
from kafkalog.client import Client, ClientError
from kafkalog.env.clock import SystemClock
from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.jobs.pipeline import Step

_START_SECONDS = 60.0
_POLL_SECONDS = 0.05


@click.command()
@click.option("--out", required=True, metavar="DIR", help="A new directory for all files.")
@click.option(
    "--devices",
    type=IntRange(min=1, max=100_000),
    default=100,
    help="Number of devices, which report 1440 times each.",
)
@document_option
@click.pass_context
def pipeline(ctx: click.Context, out: str, devices: int, output: str) -> None:
    """Load, stream, archive, compact and audit a generated day; exit 1 unless the counts agree.

    Starts a daemon of its own and stops it. Needs kafkalog[spark] and Java 17.

    Example: kafkalog spark pipeline --out ./build/pipeline
    """
    root = Path(out).resolve()
    if root.exists():
        raise click.UsageError(f"{root} exists: give a new directory")
    try:
        steps = _run(root, devices)
    except (KafkalogError, ClientError) as error:
        raise click.ClickException(error.message) from error
    except ImportError as error:
        raise click.ClickException(f"{error}: pip install 'kafkalog[spark]'") from error
    from kafkalog.jobs.pipeline import disagreements

    wrong = disagreements(steps)
    rows = [(each.name, str(each.found), str(each.expected), each.what) for each in steps]
    fields = ("step", "found", "expected", "what")
    documents = [dict(zip(fields, row, strict=True)) for row in rows]
    if not is_printed(output, {"steps": documents, "disagreements": list(wrong)}):
        print_table([tuple(map(str.upper, fields)), *rows])
        click.echo("\n".join(wrong) if wrong else "All counts agree.")
    if wrong:
        ctx.exit(1)


def _run(root: Path, devices: int) -> list[Step]:
    """Run all steps; the compaction needs the directory of the daemon, which is stopped before."""
    from kafkalog.jobs import pipeline as parts
    from kafkalog.jobs.on_spark import SparkRunner, open_session

    log_dir, steps = str(root / "data"), list[parts.Step]()
    choose_workers()
    spark = open_session("kafkalog pipeline")
    runner = SparkRunner(spark)
    try:
        with _daemon(root, log_dir) as url, Client(url) as client:
            steps.append(parts.load(client, devices))
            steps.append(parts.stream_to_parquet(spark, url, str(root), devices))
            steps.append(parts.archive_to_iceberg(url, str(root), runner, devices))
            steps.append(parts.check_archived(client, devices))
        now_ms = SystemClock().wall_ms()
        steps.append(parts.compact(log_dir, str(root), runner, devices, now_ms))
        steps.append(parts.audit([log_dir, str(root / "compacted")], runner))
    finally:
        spark.stop()
    return steps


@contextmanager
def _daemon(root: Path, log_dir: str) -> Iterator[str]:
    """Run a daemon on a free port; it logs to ROOT/daemon.log."""
    root.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    settings = (f"log.dirs={log_dir}", f"http.port={port}", "log.cleaner.enable=false")
    words = [word for setting in settings for word in ("--override", setting)]
    with (root / "daemon.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "kafkalog", "server", *words], stdout=log, stderr=log
        )
    try:
        _wait_ready(url, process)
        yield url
    finally:
        process.terminate()
        process.wait()


def _wait_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    with Client(url) as client:
        while True:
            try:
                client.check_ready()
            except ClientError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise click.ClickException(f"The daemon did not start: {error}") from error
                time.sleep(_POLL_SECONDS)
            else:
                return
