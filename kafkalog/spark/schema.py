"""The columns of the source: those of Spark's own Kafka source, and a task's rows in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkalog.spark.option_values import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from kafkalog.spark.options import SourceOptions


HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)


SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)


_COLUMNS = {field.name: field.dataType for field in (*SCHEMA.fields, HEADERS)}


def rows_of(
    partition: InputPartition, schema: StructType, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """Of a task of ours, in Spark's schema to the letter."""
    if partition.value is None:
        return
    from pyspark.sql.pandas.types import to_arrow_schema

    from kafkalog.spark.reading import batches_of

    yield from batches_of(partition.value, options, to_arrow_schema(schema, timezone="UTC"))


def check_read_schema(schema: StructType) -> None:
    """A schema of the user's has any of our columns, in any order. Raises InvalidOption."""
    for field in schema.fields:
        if field.name not in _COLUMNS:
            names = ", ".join(_COLUMNS)
            raise InvalidOption(f"There is no column {field.name}: a schema has any of {names}")
        right = _COLUMNS[field.name]
        if field.dataType.simpleString() != right.simpleString():
            raise InvalidOption(
                f"Column {field.name} is {right.simpleString()}, not "
                f"{field.dataType.simpleString()}: cast it in the query"
            )
