"""What tests of the archive share: logs that grow, both kinds of table, stops anywhere."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import dataset

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.disk.file_names import (
    CLEAN_SHUTDOWN,
    LOG_SUFFIX,
    PARTITION_METADATA,
    segment_file_name,
)
from kafkalog.format.disk.properties import encode_partition_metadata
from kafkalog.format.records.record import Record
from kafkalog.jobs.archive.archive import ArchiveOptions, archive
from kafkalog.jobs.archive.archive_table import ArchivedFile
from kafkalog.jobs.archive.file_layout import SCHEMA
from kafkalog.jobs.archive.parquet_table import ParquetTable
from kafkalog.jobs.tasks import InProcess
from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.logs.values import Access
from tests.naive.stored_batches import NOBODY, Producer, stored_batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from kafkalog.jobs.archive.archive_table import ArchiveTable, FileStore, Position
    from kafkalog.jobs.archive.file_layout import FileLayout
    from kafkalog.jobs.archive.progress import ArchivedPartition
    from kafkalog.jobs.tasks import Runner

SMALL = ArchiveOptions(target_bytes=2000)


@dataclass
class GrowingLogs:
    """Partitions of a topic to which batches are appended; a daemon has left them cleanly.

    topic_id   of ``partition.metadata``; None: there is no such file
    """

    log_dir: Path
    topic: str = "orders"
    topic_id: UUID | None = None
    ends: dict[int, int] = field(default_factory=dict)

    def append(
        self,
        partition: int,
        records: int,
        value: bytes = b"v%d",
        *,
        attributes: int = 0,
        producer: Producer = NOBODY,
    ) -> None:
        """One segment of one batch more; values have their record's offset in them."""
        first = self.ends.get(partition, 0)
        written = [
            Record(first + each, 1_000 * (first + each), b"k%d" % each, value % (first + each))
            for each in range(records)
        ]
        batch = stored_batch(written, attributes=attributes, producer=producer)
        self.append_batch(partition, records, batch)

    def append_batch(self, partition: int, records: int, batch: bytes) -> None:
        """One segment more, of a batch that begins at the end of the log."""
        first = self.ends.get(partition, 0)
        directory = self.log_dir / f"{self.topic}-{partition}"
        directory.mkdir(parents=True, exist_ok=True)
        (self.log_dir / CLEAN_SHUTDOWN).touch()
        if self.topic_id is not None:
            metadata = encode_partition_metadata(self.topic_id)
            (directory / PARTITION_METADATA).write_bytes(metadata)
        (directory / segment_file_name(first, LOG_SUFFIX)).write_bytes(batch)
        self.ends[partition] = first + records

    def lose(self, partition: int, from_offset: int) -> None:
        """The segments from this base offset on are gone, as damage takes them."""
        for path in (self.log_dir / f"{self.topic}-{partition}").glob("*.log"):
            if int(path.stem) >= from_offset:
                path.unlink()
        self.ends[partition] = from_offset

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return [(each, at) for each, end in sorted(self.ends.items()) for at in range(end)]

    def run(
        self,
        table: ArchiveTable,
        options: ArchiveOptions = SMALL,
        runner: Runner | None = None,
        *,
        read_committed: bool = True,
    ) -> list[ArchivedPartition]:
        """One run into the table, which is closed after it."""
        try:
            access = Access(paths=(str(self.log_dir),), read_committed=read_committed)
            with closing(open_logs(access)) as logs:
                return archive(logs, table, options, runner or InProcess())
        finally:
            table.close()


def some_logs(root: Path) -> GrowingLogs:
    """Two partitions of a few batches."""
    grown = GrowingLogs(root / "logs")
    for partition, records in ((0, 30), (1, 5), (0, 200), (0, 200)):
        grown.append(partition, records)
    return grown


def rows_in(table: pa.Table) -> list[dict[str, Any]]:
    """By topic, partition and offset."""
    names = [(each, "ascending") for each in ("topic", "partition", "offset")]
    rows: list[dict[str, Any]] = table.select(SCHEMA.names).sort_by(names).to_pylist()
    return rows


def archived_files(root: str) -> list[ArchivedFile]:
    """All files of an archive that have rows, by partition and offset."""
    found = []
    for path in sorted(Path(root).glob("topic=*/partition=*/*.parquet")):
        metadata = pq.read_metadata(path)
        if not metadata.num_rows:
            continue
        groups = [metadata.row_group(each) for each in range(metadata.num_row_groups)]
        number = metadata.schema.to_arrow_schema().get_field_index("offset")
        first = groups[0].column(number).statistics.min
        last = groups[-1].column(number).statistics.max
        topic, partition = (each.partition("=")[2] for each in path.parts[-3:-1])
        size = path.stat().st_size
        rows = metadata.num_rows
        found.append(ArchivedFile(topic, int(partition), str(path), rows, size, first, last))
    return found


@dataclass(frozen=True)
class PlainPlace:
    """A directory for an archive of Parquet files."""

    root: Path

    def open(self) -> ArchiveTable:
        return ParquetTable(str(self.root / "table"), SystemFilesystem())

    def read(self) -> pa.Table:
        """All rows, as one finds them who knows Parquet and nothing of kafkalog."""
        root = self.root / "table"
        if not any(root.glob("topic=*")):
            return SCHEMA.empty_table()
        found = dataset.dataset(root, partitioning="hive")
        return found.to_table(columns=SCHEMA.names).cast(SCHEMA)


@dataclass(frozen=True)
class IcebergPlace:
    """An SQLite catalog and a warehouse beside it."""

    root: Path

    @property
    def properties(self) -> dict[str, str]:
        uri, warehouse = f"sqlite:///{self.root}/catalog.db", f"file://{self.root}/warehouse"
        return {"type": "sql", "uri": uri, "warehouse": warehouse}

    def open(self) -> ArchiveTable:
        from kafkalog.jobs.archive.iceberg_table import IcebergTable

        return IcebergTable("default", "lake.orders", self.properties)

    def read(self) -> pa.Table:
        """All rows of the current snapshot, from its files: a scan of pyiceberg 0.12 makes null
        lists empty ones.
        """
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("default", **self.properties)
        try:
            files = [each.file for each in catalog.load_table("lake.orders").scan().plan_files()]
            assert all(each.partition[0] == "orders" for each in files)
            paths = [each.file_path.removeprefix("file://") for each in files]
            return pa.concat_tables([SCHEMA.empty_table(), *map(pq.read_table, paths)])
        finally:
            catalog.close()


Place = PlainPlace | IcebergPlace


def offsets_in(place: Place) -> list[tuple[int, int]]:
    """Partition and offset of every row, sorted."""
    return [(each["partition"], each["offset"]) for each in rows_in(place.read())]


class Stopped(BaseException):
    """The process ends here: no ``except Exception`` may survive it."""


@dataclass
class StoppingTable:
    """A table that ends the process before or after a step, and leaves all as it is then."""

    table: ArchiveTable
    stop_at: str

    def step(self, name: str) -> None:
        if name == self.stop_at:
            raise Stopped(name)

    @property
    def store(self) -> FileStore:
        self.step("plan")
        return self.table.store

    @property
    def position(self) -> Position:
        return self.table.position

    @property
    def dead_store(self) -> FileStore | None:
        return self.table.dead_store

    @property
    def layout(self) -> FileLayout:
        return self.table.layout

    def commit(
        self, files: Sequence[ArchivedFile], position: Position, dead: Sequence[ArchivedFile] = ()
    ) -> None:
        self.step("before commit")
        self.table.commit(files, position, dead)
        self.step("after commit")

    def widen(self, types: Mapping[str, Any]) -> None:
        self.step("before a wider schema")
        self.table.widen(types)
        self.step("after a wider schema")

    def complete(self) -> None:
        self.step("before the end")
        self.table.complete()

    def abandon(self) -> None:
        """A dead process takes nothing back."""

    def close(self) -> None:
        """Its locks go with it."""
        self.table.close()
