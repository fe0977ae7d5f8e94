"""A generated day of telemetry through all of Spark and jobs: ``kafkalog spark pipeline``.

Each step uses the interface that a user would use, and counts its records; `disagreements` compares
the counts. In the generated day each device reports once a minute, as JSON with its name as key;
at the end of the day some devices are retired by a tombstone. The day has no randomness and no
clock: the same number of devices gives the same records.
"""

from __future__ import annotations

import json
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.client import ProducerRecord
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.jobs.archive.archive import ArchiveOptions, archive
from kafkalog.jobs.archive.iceberg_table import IcebergTable, catalog_in
from kafkalog.jobs.audit import audit_directories
from kafkalog.jobs.compact import compact_directories
from kafkalog.jobs.fleet import find_partitions
from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.logs.values import Access

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from kafkalog.client import Client
    from kafkalog.jobs.tasks import Runner

TOPIC = "telemetry"
PARTITIONS = 4
ICEBERG_TABLE = "lake.telemetry"
_CONFIGS = {"retention.ms": "-1", "segment.bytes": "4194304", "archive.hold": "true"}
_RECORDS = 20_000  # appended in one call

DAY_START_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z
MINUTES = 24 * 60
_MINUTE_MS = 60_000
_RETIRED_EACH = 10


class Step(NamedTuple):
    """One line of the summary: a count and the expected one."""

    name: str
    found: int
    expected: int
    what: str


def load(client: Client, devices: int) -> Step:
    """Create the topic and append the day."""
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
    """Stream the topic into Parquet files with Spark."""
    source = spark.readStream.format("kafkalog").options(url=url, subscribe=TOPIC)
    stream = source.option("startingOffsets", "earliest").load()
    files, checkpoint = f"{out}/parquet", f"{out}/checkpoint"
    writer = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start(files)
    query.awaitTermination()
    rows = spark.read.parquet(files).count()
    return Step("stream to Parquet", rows, reports_in_a_day(devices), files)


def archive_to_iceberg(url: str, out: str, runner: Runner, devices: int) -> Step:
    """Archive the topic into a table with an SQLite catalog; the rows in the table."""
    location = f"{out}/iceberg"
    SystemFilesystem().make_dir(location)
    table = IcebergTable("default", ICEBERG_TABLE, catalog_in(location))
    try:
        with closing(open_logs(Access(urls=(url,), read_committed=True))) as logs:
            archive(logs, table, ArchiveOptions(), runner)
        rows = table.row_count()
    finally:
        table.close()
    expected = reports_in_a_day(devices)
    return Step("archive to Iceberg", rows, expected, f"{ICEBERG_TABLE} in {location}")


def check_archived(client: Client, devices: int) -> Step:
    """The archived offsets in the daemon."""
    entries = client.archived_offsets(TOPIC)
    archived = sum(each["archived_offset"] for each in entries)
    lag = sum(each["lag"] for each in entries)
    return Step("archived offsets", archived, reports_in_a_day(devices), f"lag {lag}")


def compact(log_dir: str, out: str, runner: Runner, devices: int, now_ms: int) -> Step:
    """Compact into a new directory: the latest record of each device, with tombstones."""
    filesystem, target = SystemFilesystem(), f"{out}/compacted"
    found = find_partitions([log_dir], filesystem, topics=frozenset({TOPIC}))
    rows = compact_directories(found, target, runner, now_ms=now_ms)
    kept = reports_in_a_day(devices) - sum(each.records_removed for each in rows)
    after = sum(each.bytes_after for each in rows)
    return Step("compact", kept, devices, f"{after} bytes in {target}")


def audit(log_dirs: list[str], runner: Runner) -> Step:
    """Audit both directories."""
    found = audit_directories(find_partitions(log_dirs, SystemFilesystem()), runner)
    return Step("audit", found.totals["errors"], 0, "errors found")


def disagreements(steps: list[Step]) -> list[str]:
    """The steps with another count than expected."""
    return [
        f"{step.name}: {step.found}, not {step.expected}"
        for step in steps
        if step.found != step.expected
    ]


# ---- the generated day


class Report(NamedTuple):
    """One record; value None retires the device."""

    key: str
    value: str | None
    timestamp_ms: int


def a_day(devices: int) -> Iterator[Report]:
    """The reports of the day, by time."""
    for minute in range(MINUTES):
        for device in range(devices):
            yield _report(device, minute)
    for device in range(0, devices, _RETIRED_EACH):
        yield Report(_name(device), None, DAY_START_MS + MINUTES * _MINUTE_MS)


def reports_in_a_day(devices: int) -> int:
    """The number of reports of the day."""
    return devices * MINUTES + len(range(0, devices, _RETIRED_EACH))


def _report(device: int, minute: int) -> Report:
    noise = (device * 7_919 + minute * 104_729) % 1_000
    value = {
        "minute": minute,
        "temperature": 15 + (minute - 360) % MINUTES / 144 + noise / 500,
        "battery": 100 - (minute + device) % 100,
        "status": "ok" if noise > 7 else "alarm",
    }
    # Devices report at different seconds of a minute.
    timestamp_ms = DAY_START_MS + minute * _MINUTE_MS + device * _MINUTE_MS // 100_000
    return Report(_name(device), json.dumps(value), timestamp_ms)


def _name(device: int) -> str:
    return f"device-{device:05}"
