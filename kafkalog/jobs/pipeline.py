"""A day of telemetry through everything: the steps behind ``kafkalog spark pipeline``.

Each step is done by what a user would use, and says how many records it saw. Whether the numbers
agree is told by ``disagreements``.
"""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.client import ProducerRecord
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.jobs.archive.archive import ArchiveOptions, archive
from kafkalog.jobs.archive.iceberg_table import IcebergTable
from kafkalog.jobs.audit import audit_directories
from kafkalog.jobs.compact import compact_directories
from kafkalog.jobs.fleet import find_partitions
from kafkalog.jobs.telemetry import a_day, reports_in_a_day
from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.logs.values import Access

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalog.client import Client
    from kafkalog.jobs.tasks import Runner

TOPIC = "telemetry"
PARTITIONS = 4
ICEBERG_TABLE = "lake.telemetry"
_CONFIGS = {"retention.ms": "-1", "segment.bytes": "4194304", "archive.hold": "true"}
_RECORDS = 20_000  # appended in one call


class Step(NamedTuple):
    """One line of the summary: what was counted, and what it has to be."""

    name: str
    found: int
    expected: int
    what: str


def load(client: Client, devices: int) -> Step:
    """Make the topic and append the day."""
    client.create_topic(TOPIC, partitions=PARTITIONS, configs=_CONFIGS)
    day = a_day(devices)
    while some := list(islice(day, _RECORDS)):
        records = [ProducerRecord(each.value, each.key, (), each.timestamp_ms) for each in some]
        client.produce(TOPIC, records, codec="zstd")
    logs = [client.describe_log(TOPIC, each) for each in range(PARTITIONS)]
    ends = sum(each["log_end_offset"] for each in logs)
    size = sum(each["size_bytes"] for each in logs)
    return Step("load", ends, reports_in_a_day(devices), f"{PARTITIONS} partitions, {size} bytes")


def stream_to_parquet(spark: SparkSession, url: str, out: str, devices: int) -> Step:
    """Spark's stream of the topic into Parquet files of Spark's own, all there is."""
    source = spark.readStream.format("kafkalog").options(url=url, subscribe=TOPIC)
    stream = source.option("startingOffsets", "earliest").load()
    files, checkpoint = f"{out}/parquet", f"{out}/checkpoint"
    writer = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start(files)
    query.awaitTermination()
    rows = spark.read.parquet(files).count()
    return Step("stream to Parquet", rows, reports_in_a_day(devices), files)


def archive_to_iceberg(url: str, out: str, runner: Runner, devices: int) -> Step:
    """The archive job into a table of an SQLite catalog; rows as the table counts them."""
    location = f"{out}/iceberg"
    SystemFilesystem().make_dir(location)
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{location}/catalog.db",
        "warehouse": f"file://{location}",
    }
    table = IcebergTable("default", ICEBERG_TABLE, properties)
    try:
        with closing(open_logs(Access(urls=(url,), read_committed=True))) as logs:
            archive(logs, table, ArchiveOptions(), runner)
        rows = table.row_count()
    finally:
        table.close()
    expected = reports_in_a_day(devices)
    return Step("archive to Iceberg", rows, expected, f"{ICEBERG_TABLE} in {location}")


def check_archived(client: Client, devices: int) -> Step:
    """What the daemon was told; nothing is held for the archive any more."""
    entries = client.archived_offsets(TOPIC)
    archived = sum(each["archived_offset"] for each in entries)
    lag = sum(each["lag"] for each in entries)
    return Step("archived offsets", archived, reports_in_a_day(devices), f"lag {lag}")


def compact(log_dir: str, out: str, runner: Runner, devices: int, now_ms: int) -> Step:
    """The latest record of each device, tombstones among them, in a directory of its own."""
    filesystem, target = SystemFilesystem(), f"{out}/compacted"
    found = find_partitions([log_dir], filesystem, topics=frozenset({TOPIC}))
    rows = compact_directories(found, target, runner, now_ms=now_ms)
    kept = reports_in_a_day(devices) - sum(each.records_removed for each in rows)
    after = sum(each.bytes_after for each in rows)
    return Step("compact", kept, devices, f"{after} bytes in {target}")


def audit(log_dirs: list[str], runner: Runner) -> Step:
    """Both directories, to the last byte."""
    found = audit_directories(find_partitions(log_dirs, SystemFilesystem()), runner)
    return Step("audit", found.totals["errors"], 0, "errors found")


def disagreements(steps: list[Step]) -> list[str]:
    """Steps whose number is not the one expected."""
    return [
        f"{step.name}: {step.found}, not {step.expected}"
        for step in steps
        if step.found != step.expected
    ]
