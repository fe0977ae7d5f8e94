"""A Spark driver as a process of its own, to be killed: files of numbers into a daemon's topic.

    python -m tests.spark.sink_driver '{"master": ..., "directory": ..., "options": {...}, ...}'

Goes on from the checkpoint in the directory and ends with 0 when the file `stop` lies beside it
and every input is written. ``first_attempt``: what the first one of the first task of a batch does
when it has handed over nine of ten of its rows (`rows` a file): it "fails" or "stalls". Each
attempt of that task leaves a file ``attempt-N`` in the directory.
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
_STALL_SECONDS = 600.0  # longer than anybody waits
_PAUSE_SECONDS = 0.05


def hindered(first_attempt: str, rows: int, directory: str) -> Callable[[str], str]:
    """What runs in the tasks. A closure: Spark's workers do not have this module."""
    late = rows * 9 // 10
    seconds = _STALL_SECONDS if first_attempt == "stalls" else _LINGER_SECONDS

    def passed_on(value: str) -> str:
        import time
        from pathlib import Path

        from pyspark import TaskContext

        context = TaskContext.get()
        if context.partitionId() == 0 and int(value) % rows >= late:
            attempt = context.attemptNumber()
            (Path(directory) / f"attempt-{attempt}").touch()
            if attempt == 0:
                time.sleep(seconds)
                raise RuntimeError("the first attempt fails")
        return value

    return passed_on


def run(plan: dict[str, Any]) -> None:
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
    if "first_attempt" in plan:
        passed_on = functions.udf(
            hindered(plan["first_attempt"], plan["rows"], str(directory)), "string"
        )
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
