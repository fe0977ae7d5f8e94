"""A job with secrets in a Spark of its own: ``python -m tests.spark.secretive_job DIRECTORY``.

DIRECTORY/token has a secret, KAFKALOG_TOKEN the same one. What the tasks found, the plans, the
event log, the pages of Spark and what queries with the secret itself were told are written into the
directory.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from kafkalog.jobs.on_spark import SparkRunner
from kafkalog.jobs.tasks import run_job
from kafkalog.spark.logs.secrets import CredentialsAt
from kafkalog.spark.logs.values import Access
from tests.integration.job_work import NumberTask
from tests.spark.session import running_spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

URL = "http://127.0.0.1:1"
PAGES = ("jobs", "stages", "SQL", "environment", "executors")
OF_API = ("environment", "sql", "jobs")


def length_of(task: NumberTask, access: Access) -> int:
    """Of the secret, where the task runs."""
    assert isinstance(access.credentials, CredentialsAt)
    return task.number * len(access.credentials.read().authorization())


def queries(spark: SparkSession, given: dict[str, str]) -> dict[str, Callable[[], Any]]:
    """Each way to give options to Spark. With a schema it asks the source when a query runs."""
    options = {"url": URL, "subscribe": "a"} | given
    texts = ", ".join(f"{name} '{value}'" for name, value in options.items())
    rows = spark.sql("SELECT binary('v') value, 'a' topic")
    to_write = {name: value for name, value in options.items() if name != "subscribe"}
    batch = spark.read.format("kafkalog").options(**options)
    stream = spark.readStream.format("kafkalog").options(**options)
    return {
        "batch": lambda: batch.load().explain(True),
        "schema": lambda: batch.schema("offset long").load().count(),
        "stream": lambda: stream.load(),
        "table": lambda: spark.sql(f"CREATE TABLE t{len(given)} USING kafkalog OPTIONS ({texts})"),
        "sink": lambda: rows.write.format("kafkalog").options(**to_write).mode("append").save(),
    }


def told(work: Callable[[], Any]) -> str:
    try:
        work()
    except PySparkException as error:
        return str(error)
    return ""


def main(directory: Path) -> None:
    from pyspark.sql.classic.dataframe import DataFrame

    plans: list[str] = []
    frames: Any = DataFrame
    collect = frames.collect

    def explained(frame: DataFrame) -> Any:
        plans.append(str(frame._jdf.queryExecution().toString()))
        return collect(frame)

    frames.collect = explained  # every plan is kept
    log = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{directory}/events",
    }
    found = {}
    (directory / "events").mkdir()
    with running_spark(directory, log) as spark:
        for name, at in {
            "file": CredentialsAt(file=str(directory / "token")),
            "variable": CredentialsAt(variable="KAFKALOG_TOKEN"),
        }.items():
            access = Access(urls=("http://127.0.0.1:1",), credentials=at)
            tasks = [NumberTask(1), NumberTask(2)]
            work = partial(length_of, access=access)
            found[name] = run_job("read", tasks, work, list, SparkRunner(spark))
        secret = (directory / "token").read_text()
        by_value = queries(spark, {"token": secret})
        refused = {name: told(work) for name, work in by_value.items()}
        by_reference = queries(spark, {"tokenFile": str(directory / "token")})
        planned = {name: told(by_reference[name]) for name in ("batch", "stream", "table")}
        at, number = spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId
        shown = [*PAGES, *(f"api/v1/applications/{number}/{each}" for each in OF_API)]
        pages = [urllib.request.urlopen(f"{at}/{each}").read().decode() for each in shown]
    (directory / "pages").write_text("\n".join(pages))
    (directory / "told").write_text(json.dumps([refused, planned]))
    (directory / "plans").write_text("\n".join(plans))
    (directory / "found").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
