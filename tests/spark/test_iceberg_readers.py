"""Goal: an Iceberg table of the archive has, for every reader, the rows that were produced.
Method: runs of the command over logs of every shape, appends between them; the examples of
read-archived-tables.md, word for word but for directories, in the environment of
requirements/iceberg-readers.txt: Iceberg has a runtime for its Spark, and DuckDB its extensions.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from kafkalog.format.disk.file_names import CLEAN_SHUTDOWN
from kafkalog.format.records.record import Record
from tests.fleet_world import kept_logging
from tests.integration.daemon import ROOT
from tests.operate.documents import blocks
from tests.oracle.kafka import Kafka
from tests.spark.log_directory import TIME_MS, LogDirectory, every_shape, in_order, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from tests.spark.log_directory import Row

pytestmark = [pytest.mark.iceberg_readers, pytest.mark.timeout(900)]
PAGE = ROOT / "docs/how-to/read-archived-tables.md"
COORDINATES = re.compile(r'"(org\.[\w.:,-]+:[\w.:,-]+)"')
SPARK_DEFAULTS = """
spark.master local[2]
spark.ui.enabled false
spark.driver.memory 1g
spark.log.level ERROR
spark.sql.session.timeZone UTC
spark.sql.shuffle.partitions 2
"""


@dataclass
class Lake:
    """A table in which topics were archived by several runs.

    rows   what was produced into them and is committed, in order
    """

    root: Path
    logs: LogDirectory
    rows: list[Row]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Topics orders and payments, two partitions each."""
    root = tmp_path_factory.mktemp("lake")
    (root / "archive").mkdir()
    logs = LogDirectory(root / "logs")
    for topic in ("orders", "payments"):
        every_shape(logs, topic)
    (logs.path / CLEAN_SHUTDOWN).touch()
    archive(root, "--target-bytes", "200", "--max-commit-bytes", "400")
    logs.fill("orders", 1, 9, 3)
    logs.write("orders", 1, [Record(12, TIME_MS, None, None)])
    archive(root)
    aborted = [(topic, 1, 5) for topic in ("orders", "payments")]
    rows = [
        row for row in logs.rows if (row["topic"], row["partition"], row["offset"]) not in aborted
    ]
    return Lake(root, logs, in_order(rows))


def archive(root: Path, *words: str) -> None:
    command = ["archive", "run", str(root / "logs"), "--iceberg", "lake.orders"]
    command += ["--warehouse", str(root / "archive" / "lake")]
    with kept_logging():
        done = CliRunner().invoke(make_cli(), [*command, "--processes", "1", *words])
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def examples(lake: Lake) -> Iterator[dict[str, Any]]:
    """The names that the page's examples have defined."""
    with pytest.MonkeyPatch.context() as patch:
        conf = lake.root / "conf"
        conf.mkdir()
        settings = f"spark.jars {Kafka().iceberg()}\nspark.sql.warehouse.dir {lake.root}/spark\n"
        (conf / "spark-defaults.conf").write_text(SPARK_DEFAULTS + settings)
        patch.setenv("SPARK_CONF_DIR", str(conf))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        names: dict[str, Any] = {}
        for each in blocks(PAGE):
            text = COORDINATES.sub('""', each.text)  # Maven has brought them
            exec(text.replace("/archive", f"{lake.root}/archive"), names)
        yield names
        names["duck"].close()
        names["catalog"].close()
        names["spark"].stop()


def arrow_rows(table: pa.Table) -> list[Row]:
    return in_order(table.to_pylist())


def test_the_page_names_the_jars_that_are_tested() -> None:
    (named,) = COORDINATES.findall(PAGE.read_text())
    pom = ET.parse(ROOT / "tests/oracle/kit/iceberg.pom.xml").getroot()
    there = [
        ":".join(each.findtext(name, "") for name in ("groupId", "artifactId", "version"))
        for each in pom.iter("dependency")
    ]
    assert named.split(",") == there


def test_spark(lake: Lake, examples: dict[str, Any]) -> None:
    assert rows_of(examples["in_spark"]) == lake.rows
    snapshots = examples["spark"].sql("SELECT operation FROM default.lake.orders.snapshots")
    assert [row[0] for row in snapshots.collect()] == ["append"] * snapshots.count()
    assert snapshots.count() > 4
    filtered = examples["in_spark"].where("topic = 'orders' and headers is null and offset < 50")
    wanted = [
        row
        for row in lake.rows
        if row["topic"] == "orders" and row["headers"] is None and row["offset"] < 50
    ]
    assert rows_of(filtered) == wanted


def test_pyiceberg(lake: Lake, examples: dict[str, Any]) -> None:
    """Version 0.12 makes null lists empty ones. A record without headers is stored with null."""
    rows = arrow_rows(examples["in_pyiceberg"])
    for row in rows:
        row["headers"] = row["headers"] or None
    assert rows == lake.rows


def test_duckdb(lake: Lake, examples: dict[str, Any]) -> None:
    assert arrow_rows(examples["in_duckdb"]) == lake.rows
    duck, metadata = examples["duck"], examples["table"].metadata_location
    question = (
        'SELECT count(*) FROM iceberg_scan(?) WHERE topic = ? AND "offset" >= 9 AND key IS NULL'
    )
    wanted = [row for row in lake.rows if row["topic"] == "orders" and row["key"] is None]
    assert duck.execute(question, [metadata, "orders"]).fetchone() == (len(wanted),)


def test_the_source_beside_the_table(lake: Lake, examples: dict[str, Any]) -> None:
    """One session reads the topics by format kafkalog and what is archived of them."""
    reader = examples["spark"].read.format("kafkalog").option("subscribe", "orders,payments")
    reader = reader.option("includeHeaders", "true").option(
        "kafka.isolation.level", "read_committed"
    )
    topics = reader.load(str(lake.logs.path))
    assert rows_of(topics) == lake.rows
    both = topics.join(examples["in_spark"], ["topic", "partition", "offset"])
    assert both.count() == len(lake.rows)
