"""What runs in Spark's Python workers: processes that do one task after the other."""

from __future__ import annotations

import functools
import gc
import inspect
from typing import TYPE_CHECKING

from kafkalog.spark.user_errors import for_users

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from kafkalog.spark.options import SourceOptions


def rows_of(
    partition: InputPartition | None,
    schema: StructType,
    options: SourceOptions,
    *,
    skips_recreated: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of a task; none for the task that Spark makes up for an empty plan.

    Its partition has no value, or is None on Spark 4.1. ``skips_recreated``: see `batches_of`.
    """
    if partition is None or partition.value is None:
        return
    from kafkalog.spark.reading import batches_of

    columns = arrow_schema(schema)
    with for_users():
        yield from batches_of(partition.value, options, columns, skips_recreated=skips_recreated)
    settle_worker()


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema that Spark expects of a reader's batches, with times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    has_timezone = "timezone" in inspect.signature(to_arrow_schema).parameters
    in_utc = {"timezone": "UTC"} if has_timezone else {"timestamp_utc": True}  # Spark 4.1
    return to_arrow_schema(schema, **in_utc)


@functools.cache
def settle_worker() -> None:
    """Exclude the imported objects from garbage collection, once a process, after its first task.

    PySpark collects garbage after each task. The objects of numba and pyarrow stay for the life of
    the process; walking through them takes a third of a small task.
    """
    gc.collect()
    gc.freeze()
