"""A job with secrets in a Spark of its own: ``python -m tests.spark.secretive_job DIRECTORY``.

DIRECTORY/token has a secret, KAFKALOG_TOKEN the same one. What the tasks found,
the plans and the event log are written into the directory.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from kafkalog.jobs.on_spark import SparkRunner
from kafkalog.jobs.tasks import run_job
from kafkalog.spark.logs.secrets import CredentialsAt
from kafkalog.spark.logs.values import Access
from tests.integration.job_work import NumberTask
from tests.spark.session import running_spark


def length_of(task: NumberTask, access: Access) -> int:
    """Of the secret, where the task runs."""
    assert isinstance(access.credentials, CredentialsAt)
    return task.number * len(access.credentials.read().authorization())


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
    (directory / "plans").write_text("\n".join(plans))
    (directory / "found").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
