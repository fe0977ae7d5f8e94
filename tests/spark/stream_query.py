"""A stream whose checkpoint and rows a test looks at."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.spark.log_directory import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class Query:
    """One streaming query into a table of Parquet, run as often as one likes."""

    def __init__(self, spark: SparkSession, where: dict[str, str], directory: Path) -> None:
        """``where``: option path or url."""
        self._spark = spark
        self._where = where
        self.checkpoint = directory / "checkpoint"
        self.table = directory / "table"

    def run(self, **options: Any) -> list[dict[str, Any]]:
        """Until all that was there is through; its progress reports. Raises what ends it."""
        wanted = {"subscribe": "a", "startingOffsets": "earliest"} | self._where | options
        given = {name: value for name, value in wanted.items() if value is not None}
        frame = self._spark.readStream.format("kafkalog").options(**given)
        query = (
            frame.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start(str(self.table))
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return [json.loads(each.json) for each in query.recentProgress]

    def rows(self) -> list[dict[str, Any]]:
        return rows_of(self._spark.read.parquet(str(self.table)))

    def offset_lines(self) -> list[str]:
        """The source's line in the offset log of each batch."""
        files = sorted(
            (self.checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name)
        )
        return [file.read_text().splitlines()[2] for file in files]
