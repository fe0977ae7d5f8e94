"""The runner for Spark: each Spark task does one or several tasks of a job.

It uses DataFrame interfaces only (``range``, a function of a column, ``collect``), so that a job
runs over Spark Connect as well; ``mapInArrow`` would need pandas. An empty Python task takes Spark
up to a tenth of a second. Therefore small tasks are packed until a Spark task reads TARGET_BYTES,
but into at least TASKS_MIN packs. The workers need kafkalog, and the directories under the same
paths.

Spark runs a task again when its machine is lost. The error of a task is not retried: it is a value
(``Done``). An error or interrupt in the driver cancels the Spark tasks of the job by their tag,
which ends them soon, not at once. Progress is only reported at the end, because a DataFrame has no
call-back; Spark shows its own.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from typing import TYPE_CHECKING

from kafkalog.env.random import SystemRandom
from kafkalog.errors import KafkalogError
from kafkalog.jobs.tasks import TaskFailed, attempt, packed, result_of
from kafkalog.observe.logging import configure_logging
from kafkalog.spark.workers import settle_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from kafkalog.jobs.tasks import Done, Pack, ResultT, TaskT

TARGET_BYTES = 128 << 20
"""Bytes of log in one Spark task: below 64 MiB the time of the task itself matters."""
TASKS_MIN = 64
"""The least number of Spark tasks, so that this many slots have work with few logs as well."""


class SparkMissing(KafkalogError):
    """pyspark or Java is missing; the message says what to install."""


def open_session(name: str, instead: str = "") -> SparkSession:
    """The running session, or a new one with the configuration of spark-submit or environment.

    ``instead``: the end of the message, an alternative to Spark. Raises SparkMissing.
    """
    try:
        sql = importlib.import_module("pyspark.sql")
    except ImportError as error:
        raise SparkMissing(
            f"pyspark is not installed: pip install 'kafkalog[spark]'{instead}"
        ) from error
    try:
        session: SparkSession = sql.SparkSession.builder.appName(name).getOrCreate()
    except (RuntimeError, OSError) as error:  # pyspark raises them when the JVM does not start
        raise SparkMissing(
            f"Spark does not start ({_first_line(error)}): it needs Java 17 "
            f"(openjdk-17-jre-headless), on PATH or by JAVA_HOME{instead}"
        ) from error
    return session


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def packs_of(sizes: Sequence[int], target_bytes: int = TARGET_BYTES) -> list[Pack]:
    """Which tasks a Spark task does; packs of a small job are smaller, to be TASKS_MIN."""
    return packed(sizes, min(target_bytes, max(sum(sizes) // TASKS_MIN, 1)))


class SparkRunner:
    """``Runner`` on a session of Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(
        self,
        tasks: Sequence[TaskT],
        work: Callable[[TaskT], ResultT],
        on_done: Callable[[TaskT], None],
    ) -> list[ResultT]:
        """See Runner."""
        if not tasks:
            return []
        packs = packs_of([each.size_bytes for each in tasks])
        shipped = [[tasks[number] for number in pack.numbers] for pack in packs]

        def body(pack: int) -> bytes:  # only tasks and work are pickled with it
            return done_pack(shipped[pack], work)

        functions = importlib.import_module("pyspark.sql.functions")
        # Nondeterministic, so that the optimizer does not evaluate it twice.
        do_pack = functions.udf(body, "binary", useArrow=False).asNondeterministic()
        tag = f"kafkalog-{SystemRandom().uuid_bytes().hex()}"
        self._spark.addTag(tag)
        try:
            frame = self._spark.range(0, len(packs), 1, len(packs))
            rows = frame.select("id", do_pack("id").alias("done")).collect()
        except self._faults() as error:
            self._spark.interruptTag(tag)
            raise TaskFailed(
                f"The job failed on Spark: {_first_line(error)}. Its workers need kafkalog and "
                "its packages, the directories under the same paths, and memory for a task"
            ) from error
        except BaseException:
            self._spark.interruptTag(tag)
            raise
        finally:
            self._spark.removeTag(tag)
        done: dict[int, Done[ResultT]] = {}
        for row in rows:
            done.update(zip(packs[row["id"]].numbers, pickle.loads(row["done"]), strict=True))
        results = []
        for number, task in enumerate(tasks):
            results.append(result_of(done[number], task))
            on_done(task)
        return results

    def _faults(self) -> tuple[type[Exception], ...]:
        """The errors that Spark raises for a failed job; a client of Spark Connect has no py4j."""
        errors = importlib.import_module("pyspark.errors")
        protocol = importlib.import_module("py4j.protocol")
        return errors.PySparkException, protocol.Py4JError


def done_pack(tasks: Sequence[TaskT], work: Callable[[TaskT], ResultT]) -> bytes:
    """In a worker: do the tasks of a pack; a pickled list of ``Done``."""
    configure_logging(sys.stderr, log_format="console", level="warning")
    done = [attempt(work, task) for task in tasks]
    settle_worker()
    return pickle.dumps(done)
