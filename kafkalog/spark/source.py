"""``format("kafkalog")``: the data source that Spark calls, and its batch reader.

Owns the columns, which are those of Spark's Kafka source, and translates Spark's calls: `planning`
decides which offsets a query reads, `reading` does a task. Spark pickles readers and partitions:
they hold values only. See docs/reference/spark.md.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.offsets import ColumnFilter, Wanted, narrowed
from kafkalog.spark.option_values import InvalidOption
from kafkalog.spark.options import batch_options, column_names, refuse_secrets
from kafkalog.spark.planning import batch_pieces, log_warnings
from kafkalog.spark.tables import for_reading, for_writing, metadata_of, table_options, with_table
from kafkalog.spark.user_errors import for_users
from kafkalog.spark.workers import rows_of, settle_worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

    import pyarrow as pa
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        Filter,
    )

    from kafkalog.spark.options import SourceOptions

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Names and types in Spark's words; ``headers`` only if it is asked for."""

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}


class KafkalogDataSource(DataSource):
    """Logs as a table, or as a stream of its rows."""

    session_options: ClassVar[Mapping[str, str]] = {}
    """See `kafkalog.spark.register`."""

    @for_users()
    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Raises InvalidOption for a secret: with the first call, before there is a plan."""
        super().__init__(options)
        refuse_secrets(options.get)

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "kafkalog"

    @for_users()
    def schema(self) -> StructType:
        """The columns of Spark's Kafka source; those of a new table carry its options."""
        given = table_options(dict(self.options.items()))
        metadata = None if given is None else metadata_of(given)
        if given is None:
            options = self._to_read(StructType())
        else:
            options = for_reading(self._with_session(given))
            batch_options(options)  # what is wrong shows before there is a table
        names = column_names(options)
        return StructType([StructField(name, _TYPES[name], metadata=metadata) for name in names])

    @for_users()
    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader for ``spark.read``. Raises InvalidOption."""
        given = self._to_read(schema)
        check_read_schema(schema, given)
        return KafkalogReader(schema, batch_options(given))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """The reader for ``spark.readStream``; what is wrong with its options is raised by it."""
        from kafkalog.spark.options import stream_options
        from kafkalog.spark.stream_reader import RefusedStream, stream_reader

        try:
            given = self._to_read(schema)
            check_read_schema(schema, given)
            return stream_reader(schema, stream_options(given))
        except InvalidOption as error:
            return RefusedStream(error)

    @for_users()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer for ``df.write``. Raises InvalidOption, UnusableSchema."""
        from kafkalog.spark.sink.writers import KafkalogWriter

        return KafkalogWriter(self._to_write(schema), schema, overwrite)

    @for_users()
    def streamWriter(  # noqa: N802 - Spark's
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """The writer for ``df.writeStream``. Raises InvalidOption, UnusableSchema."""
        from kafkalog.spark.sink.writers import KafkalogStreamWriter

        return KafkalogStreamWriter(self._to_write(schema), schema, overwrite)

    def _to_read(self, schema: StructType) -> dict[str, str]:
        """The options of the query and of the table that it reads, names in lower case."""
        of_table = self._of_table(schema)
        return dict(self.options.items()) if of_table is None else for_reading(of_table)

    def _to_write(self, schema: StructType) -> dict[str, str]:
        of_table = self._of_table(schema)
        return dict(self.options.items()) if of_table is None else for_writing(of_table)

    def _of_table(self, schema: StructType) -> dict[str, str] | None:
        """The options with those of table and session; None: the query gives its own place."""
        given = dict(self.options.items())
        if "url" in given or "path" in given:
            return None
        of_table = with_table(given, [field.metadata for field in schema.fields])
        if of_table is None and not self.session_options:
            return None
        return self._with_session(of_table or given)

    def _with_session(self, given: dict[str, str]) -> dict[str, str]:
        has_place = "url" in given or "path" in given
        return given if has_place else {**self.session_options, **given}


def check_read_schema(schema: StructType, given: Mapping[str, str]) -> None:
    """A user's schema may have any of our columns, in any order. Raises InvalidOption.

    ``given``: the options of the query, whose columns have to be the same ones.
    """
    for field in schema.fields:
        if field.name not in COLUMNS:
            names = ", ".join(COLUMNS)
            raise InvalidOption(f"There is no column {field.name}: a schema has any of {names}")
        kind = field.dataType.simpleString()
        if kind != COLUMNS[field.name]:
            raise InvalidOption(
                f"Column {field.name} is {COLUMNS[field.name]}, not {kind}: cast it in the query"
            )
    if "columns" in given and set(schema.names) != set(column_names(given)):
        raise InvalidOption(
            f"Option columns is '{given['columns']}', but the query has the columns "
            f"{', '.join(schema.names)}: give one of option and schema"
        )


class KafkalogReader(DataSourceReader):
    """A batch query, from its filters to its rows."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        log_warnings(options)
        self._schema = schema
        self._options = options
        self.wanted = Wanted()
        self.pushFilters = _PushFilters(self)

    @for_users()
    def partitions(self) -> list[InputPartition]:
        """The tasks; their offsets are looked up now and are fixed for the whole query."""
        with closing(open_logs(self._options.access)) as logs:
            pieces = batch_pieces(logs, self._options, self.wanted)
            tasks = [InputPartition(piece) for piece in pieces]
        settle_worker()  # Spark reuses the planner's process as well
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return rows_of(partition, self._schema, self._options)


class _PushFilters:
    """`DataSourceReader.pushFilters` as an attribute of a reader, not as a method of its class.

    With ``spark.sql.python.filterPushdown.enabled`` at its default, false, Spark fails each query
    whose reader class overrides the method, so that no user relies on filters that are not pushed.
    Our filters only skip records that Spark would drop: results are right without them, too.
    Therefore the class does not override the method, and ``__func__`` makes Spark's check see its
    own one.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: KafkalogReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """The filters that Spark has to apply itself."""
        left = []
        for each in filters:
            self._reader.wanted, is_done = narrowed(self._reader.wanted, _column_filter(each))
            if not is_done:
                left.append(each)
        return left


def _column_filter(given: Filter) -> ColumnFilter:
    """One of Spark's filters as a value; a filter without a column, as ``Not``, has column ""."""
    value = getattr(given, "value", None)
    if isinstance(value, list):  # the values of ``In``, which Spark documents as a tuple
        value = tuple(value)
    return ColumnFilter(type(given).__name__, ".".join(getattr(given, "attribute", ())), value)
