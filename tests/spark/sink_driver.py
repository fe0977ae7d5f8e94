"""A Spark driver as a process of its own, to be killed: files of numbers into a daemon's topic.

    python -m tests.spark.sink_driver '{"master": ..., "directory": ..., "options": {...}, ...}'

Goes on from the checkpoint in the directory and ends with 0 when the file `stop` lies beside it
and every input is written. ``fails``: the first attempt of the first task of a batch does, when it
has handed over nine of ten of its rows (`rows` a file).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

_LINGER_SECONDS = 1.0  # until the writer of the same task has begun
_PAUSE_SECONDS = 0.05


def failing(rows: int) -> Callable[[str], str]:
    """What runs in the tasks. A closure: Spark's workers do not have this module."""
    first, linger_seconds = rows * 9 // 10, _LINGER_SECONDS

    def passed_on(value: str) -> str:
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        is_first = context.attemptNumber() == 0 and context.partitionId() == 0
        if is_first and int(value) % rows >= first:
            time.sleep(linger_seconds)
            raise RuntimeError("the first attempt fails")
        return value

    return passed_on


def run(plan: dict[str, Any]) -> None:
    """One life of the driver."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession, functions

    directory = Path(plan["directory"])
    builder = SparkSession.builder.master(plan["master"]).appName("sink")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
        "spark.driver.memory": "512m",
        **plan.get("settings", {}),
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    rows: DataFrame = (
        spark.readStream.option("maxFilesPerTrigger", 1)
        .text(str(directory / "input"))
        .repartition(2)
    )
    if plan.get("fails"):
        passed_on = functions.udf(failing(plan["rows"]), "string")
        rows = rows.select(passed_on("value").alias("value"))
    query = (
        rows.writeStream.format("kafkalog")
        .options(**plan["options"])
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start()
    )
    while True:
        is_last = (directory / "stop").exists()
        query.processAllAvailable()
        if is_last:
            break
        time.sleep(_PAUSE_SECONDS)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
