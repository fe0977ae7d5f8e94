"""A process of a Spark benchmark: ``python -m tests.bench.spark_work SETTINGS``.

SETTINGS is a JSON object of Spark's settings, or null: then there is no session, and jobs run in
this thread. Each line of standard input is a JSON object; ``work`` names one of WORKS, the rest are
its arguments. The answer is a line of JSON with the seconds it took and what was done. What goes
wrong ends the process with its traceback in the log.

Directories that a work writes into are removed before, outside of the seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

from kafkalog.env.clock import SystemClock
from kafkalog.env.process_facts import keep_freed_memory
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.jobs.audit import audit_directories
from kafkalog.jobs.compact import compact_directories
from kafkalog.jobs.fleet import find_partitions
from kafkalog.jobs.on_spark import SparkRunner
from kafkalog.jobs.tasks import InProcess
from kafkalog.observe.logging import configure_logging
from tests.bench import growth_work

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from kafkalog.jobs.archive.archive_table import ArchiveTable
    from kafkalog.jobs.tasks import Runner
    from tests.bench.spark_side import Answer


def main() -> None:
    # The JVM writes to standard output, too: the answers get it for themselves.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        configure_logging(sys.stderr, log_format="console", level="error")
        settings = json.loads(sys.argv[1])
        spark = None if settings is None else open_session(settings)
        for line in sys.stdin:
            arguments = json.loads(line)
            answer = WORKS[arguments.pop("work")](spark, **arguments)
            print(json.dumps(answer), file=answers, flush=True)
        if spark is not None:
            spark.stop()


def open_session(settings: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in settings.items():
        if value:
            builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    return session


def scan(spark: SparkSession, *, source: str, options: dict[str, str]) -> Answer:
    """Read every column of every record, and add up the lengths of the values."""
    from pyspark.sql import functions

    started = time.perf_counter()
    total = functions.sum(functions.length("value"))
    row = load(spark, source, options).agg(functions.count("offset"), total).collect()[0]
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "rows": row[0], "value_bytes": row[1]}


def parquet(spark: SparkSession, *, source: str, options: dict[str, str], target: str) -> Answer:
    """The topic into Parquet files, by Spark's own writer."""
    remove(target)
    started = time.perf_counter()
    load(spark, source, options).write.parquet(target)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "rows": spark.read.parquet(target).count()}


def micro_batches(
    spark: SparkSession, *, source: str, options: dict[str, str], trigger_rows: int, target: str
) -> Answer:
    """A stream of all there is in micro-batches of so many rows, into nothing.

    ``target`` is of its checkpoint. ``trigger_seconds``: the median micro-batch; ``start_seconds``:
    what all took beyond so many of them, most of it to begin.
    """
    remove(target)
    started = time.perf_counter()
    reader = spark.readStream.format(source).options(**options)
    reader = reader.option("startingOffsets", "earliest")
    frame = reader.option("maxOffsetsPerTrigger", trigger_rows).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", target)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = time.perf_counter() - started
    told = [json.loads(each.json) for each in query.recentProgress]
    rows = [each["numInputRows"] for each in told if each["numInputRows"]]
    trigger_ms = [each["durationMs"]["triggerExecution"] for each in told]
    trigger_seconds = statistics.median(trigger_ms) / 1000
    return {
        "seconds": seconds,
        "rows": sum(rows),
        "trigger_seconds": trigger_seconds,
        "start_seconds": seconds - len(rows) * trigger_seconds,
    }


def write(spark: SparkSession, *, sink: str, options: dict[str, str], rows: int) -> Answer:
    """So many rows with a key of 11 and a value of 205 letters, made in the JVM in four tasks."""
    from pyspark.sql import functions

    started = time.perf_counter()
    number = functions.col("id").cast("string")
    frame = spark.range(0, rows, 1, 4).select(
        functions.lpad(number, 11, "0").alias("key"),
        functions.rpad(number, 205, "x").alias("value"),
    )
    frame.write.format(sink).options(**options).mode("append").save()
    return {"seconds": time.perf_counter() - started, "rows": rows}


def archive(spark: SparkSession | None, *, log_dir: str, target: str, is_iceberg: bool) -> Answer:
    from kafkalog.jobs.archive.archive import ArchiveOptions, archive as run_archive
    from kafkalog.spark.logs.open import open_logs
    from kafkalog.spark.logs.values import Access

    remove(target)
    started = time.perf_counter()
    table: ArchiveTable
    if is_iceberg:  # in a catalog of its own
        from kafkalog.jobs.archive.iceberg_table import IcebergTable, catalog_in

        os.makedirs(target)
        table = IcebergTable("default", "lake.scanned", catalog_in(target))
    else:
        from kafkalog.jobs.archive.parquet_table import ParquetTable

        table = ParquetTable(target, SystemFilesystem())
    try:
        with closing(open_logs(Access(paths=(log_dir,), read_committed=True))) as logs:
            rows = run_archive(logs, table, ArchiveOptions(), runner_of(spark))
    finally:
        table.close()
    return {"seconds": time.perf_counter() - started, "rows": sum(each.rows for each in rows)}


def compact(spark: SparkSession | None, *, log_dir: str, target: str) -> Answer:
    remove(target)
    started = time.perf_counter()
    partitions = find_partitions([log_dir], SystemFilesystem())
    rows = compact_directories(partitions, target, runner_of(spark), now_ms=SystemClock().wall_ms())
    return {
        "seconds": time.perf_counter() - started,
        "bytes": sum(each.bytes_before for each in rows),
        "bytes_after": sum(each.bytes_after for each in rows),
        "records_removed": sum(each.records_removed for each in rows),
    }


def audit(spark: SparkSession | None, *, log_dir: str) -> Answer:
    started = time.perf_counter()
    partitions = find_partitions([log_dir], SystemFilesystem())
    totals = audit_directories(partitions, runner_of(spark)).totals
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "bytes": totals["bytes"], "errors": totals["errors"]}


def decode(_: None, *, log_dir: str, topic: str, ends: list[int]) -> Answer:
    """What a task does, without Spark: segments to Arrow batches of the seven columns.

    ends  of the partitions, which begin at 0
    """
    from kafkalog.spark.logs.open import open_logs, read_piece
    from kafkalog.spark.logs.values import TARGET_BYTES, Access, OffsetRange
    from kafkalog.spark.reading import record_batches
    from tests.bench.spark_topics import COLUMNS

    keep_freed_memory()
    columns = COLUMNS.remove(COLUMNS.get_field_index("headers"))
    access, rows = Access(paths=(log_dir,)), 0
    started = time.perf_counter()
    logs = open_logs(access)
    for partition, end in enumerate(ends):
        for piece in logs.pieces(OffsetRange(topic, partition, 0, end), TARGET_BYTES):
            chunks = read_piece(piece, access, check_crcs=True)
            rows += sum(each.num_rows for each in record_batches(chunks, piece.range, columns))
    return {"seconds": time.perf_counter() - started, "rows": rows}


def load(spark: SparkSession, source: str, options: dict[str, str]) -> DataFrame:
    return spark.read.format(source).options(**options).load()


def runner_of(spark: SparkSession | None) -> Runner:
    return InProcess() if spark is None else SparkRunner(spark)


def remove(target: str) -> None:
    shutil.rmtree(target, ignore_errors=True)


WORKS: dict[str, Callable[..., Answer]] = {
    work.__name__: work
    for work in (scan, parquet, micro_batches, write, archive, compact, audit, decode)
}
WORKS |= growth_work.WORKS

if __name__ == "__main__":
    main()
