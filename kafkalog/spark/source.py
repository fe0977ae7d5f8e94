"""``format("kafkalog")``: the data source that Spark sees, and its batch reader.

Owns the schema, which is that of Spark's Kafka source, and the translation between Spark's calls
and our modules: what is read from where to where is `planning`, a task is `reading`. Spark pickles
readers and partitions: they hold values only. See docs/spark.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    StructType,
)

from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.offsets import ColumnFilter, Wanted, narrowed
from kafkalog.spark.options import batch_options, wants_headers
from kafkalog.spark.planning import batch_ranges, pieces_of, warn_of
from kafkalog.spark.schema import HEADERS, SCHEMA, check_read_schema, rows_of
from kafkalog.spark.workers import settle_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        Filter,
    )

    from kafkalog.spark.options import SourceOptions


class KafkalogDataSource(DataSource):
    """Logs as a table, or as a stream of its rows."""

    @classmethod
    def name(cls) -> str:
        """What follows ``format``."""
        return "kafkalog"

    def schema(self) -> StructType:
        """The Kafka source's columns; ``headers`` with option includeHeaders."""
        return StructType([*SCHEMA.fields, HEADERS]) if wants_headers(self._given) else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of ``spark.read``. Raises InvalidOption."""
        return KafkalogReader(schema, batch_options(self._given))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Of ``spark.readStream``. Raises InvalidOption."""
        from kafkalog.spark.options import stream_options
        from kafkalog.spark.stream_reader import KafkalogStreamReader

        return KafkalogStreamReader(schema, stream_options(self._given))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Of ``df.write``. Raises InvalidOption, UnusableSchema."""
        from kafkalog.spark.sink.writers import KafkalogWriter

        return KafkalogWriter(self._given, schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Of ``df.writeStream``. Raises InvalidOption, UnusableSchema."""
        from kafkalog.spark.sink.writers import KafkalogStreamWriter

        return KafkalogStreamWriter(self._given, schema, overwrite)

    @property
    def _given(self) -> dict[str, str]:
        """The options as Spark has them, names in lower case."""
        return dict(self.options.items())


class KafkalogReader(DataSourceReader):
    """A batch query, from its filters to its rows."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        check_read_schema(schema)
        warn_of(options)
        self._schema = schema
        self._options = options
        self.wanted = Wanted()
        self.pushFilters = _PushFilters(self)

    def partitions(self) -> list[InputPartition]:
        """The tasks; offsets are looked up now and hold for the whole query."""
        logs = open_logs(self._options.access)
        try:
            ranges = batch_ranges(logs, self._options, self.wanted)
            tasks = [InputPartition(piece) for piece in pieces_of(logs, self._options, ranges)]
        finally:
            logs.close()
        settle_worker()  # the planner's, which Spark keeps as well
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task; nothing for the partition that Spark makes up when there is none."""
        return rows_of(partition, self._schema, self._options)


class _PushFilters:
    """`DataSourceReader.pushFilters` of a reader, used where Spark is asked to push filters.

    A reader that overrides the method fails every query while
    ``spark.sql.python.filterPushdown.enabled`` is false, which is its default, so that nobody
    believes in filters that are not pushed. Ours only spare reading what Spark then leaves out: a
    reader without the setting is right, too. So the class does not override the method, and the
    reader's attribute says that it is Spark's own.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: KafkalogReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """Those that Spark has to look at itself."""
        left = []
        for each in filters:
            self._reader.wanted, is_done = narrowed(self._reader.wanted, _column_filter(each))
            if not is_done:
                left.append(each)
        return left


def _column_filter(given: Filter) -> ColumnFilter:
    """Of one of Spark's classes; those without a column, as ``Not``, have the name of none."""
    value = getattr(given, "value", None)
    if isinstance(value, list):  # the values of ``In``, which Spark documents as a tuple
        value = tuple(value)
    return ColumnFilter(type(given).__name__, ".".join(getattr(given, "attribute", ())), value)
