"""Jobs on Spark: the same tasks, one Spark task for one or several of them.

DataFrame interfaces only (``range``, a plain function of a column, ``collect``), so that a job also
runs over Spark Connect; ``mapInArrow`` asks for pandas, which nothing else here needs. An empty
Python task costs Spark up to a tenth of a second, therefore small tasks are packed until a Spark
task reads TARGET_BYTES, but into no fewer than TASKS_MIN packs. kafkalog has to be installed on the
workers, and the directories must be there under the same paths.

Spark runs a task again when a machine is lost; what a task itself tells is never tried again: it
travels as a value (``Done``). An error or an interrupt here cancels the Spark tasks of the job by
its tag, which ends them soon, not at once. Progress is told when all is done: the DataFrame tells
nothing before (Spark's own display does).
"""

from __future__ import annotations

import importlib
import pickle
import sys
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.env.random import SystemRandom
from kafkalog.errors import KafkalogError
from kafkalog.jobs.tasks import TaskFailed, attempt, result_of
from kafkalog.observe.logging import configure_logging
from kafkalog.spark.workers import settle_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from kafkalog.jobs.tasks import Done, ResultT, TaskT

TARGET_BYTES = 128 << 20
"""Of log in one Spark task: below 64 MiB the cost of the task itself shows."""
TASKS_MIN = 64
"""Spark tasks that a job is not packed below: so many slots find work even in a small fleet."""


class SparkMissing(KafkalogError):
    """pyspark or Java is not there; the message says what to install."""


def open_session(name: str, instead: str = "") -> SparkSession:
    """The running session, or a new one as spark-submit or the environment configures it.

    ``instead``: what there is to do without Spark, the end of the message. Raises SparkMissing.
    """
    try:
        sql = importlib.import_module("pyspark.sql")
    except ImportError as error:
        raise SparkMissing(
            f"pyspark is not installed: pip install 'kafkalog[spark]'{instead}"
        ) from error
    try:
        session: SparkSession = sql.SparkSession.builder.appName(name).getOrCreate()
    except (RuntimeError, OSError) as error:  # what pyspark raises when its JVM does not answer
        raise SparkMissing(
            f"Spark does not start ({_first_line(error)}): it needs Java 17 "
            f"(openjdk-17-jre-headless), on PATH or by JAVA_HOME{instead}"
        ) from error
    return session


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


class Pack(NamedTuple):
    """The tasks of one Spark task."""

    numbers: tuple[int, ...]
    size_bytes: int


def packs_of(sizes: Sequence[int], target_bytes: int = TARGET_BYTES) -> list[Pack]:
    """Which tasks run together: neighbours, up to ``target_bytes`` a pack, a larger one alone.

    With few bytes in all the packs are smaller, so that there are TASKS_MIN of them.
    """
    target_bytes = min(target_bytes, max(sum(sizes) // TASKS_MIN, 1))
    packs: list[Pack] = []
    for number, size in enumerate(sizes):
        if packs and packs[-1].size_bytes + size <= target_bytes:
            last = packs.pop()
            packs.append(Pack((*last.numbers, number), last.size_bytes + size))
        else:
            packs.append(Pack((number,), size))
    return packs


class SparkRunner:
    """``Runner`` over a session."""

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
        body = _body([[tasks[number] for number in pack.numbers] for pack in packs], work)
        functions = importlib.import_module("pyspark.sql.functions")
        # Not deterministic: an optimizer that might evaluate it twice must not.
        do_pack = functions.udf(body, "binary", useArrow=False).asNondeterministic()
        tag = f"kafkalog-{SystemRandom().uuid_bytes().hex()}"
        self._spark.addTag(tag)
        try:
            frame = self._spark.range(0, len(packs), 1, len(packs))
            rows = frame.select("id", do_pack("id").alias("done")).collect()
        except self._faults() as error:
            self._spark.interruptTag(tag)
            raise TaskFailed(
                f"Spark gave the job up: {_first_line(error)}. Its workers need kafkalog and its "
                "packages, the directories under the same paths, and memory for a task"
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
        """What Spark raises for a job that failed there."""
        errors = importlib.import_module("pyspark.errors")
        protocol = importlib.import_module("py4j.protocol")
        return errors.PySparkException, protocol.Py4JError


def _body(packs: list[list[TaskT]], work: Callable[[TaskT], ResultT]) -> Callable[[int], bytes]:
    """What a worker does with the number of a pack; nothing but tasks is shipped with it."""

    def do_pack(number: int) -> bytes:
        return done_pack(packs[number], work)

    return do_pack


def done_pack(tasks: Sequence[TaskT], work: Callable[[TaskT], ResultT]) -> bytes:
    """On a worker: the tasks of a pack one after the other; a pickled list of ``Done``."""
    configure_logging(sys.stderr, log_format="console", level="warning")
    done = [attempt(work, task) for task in tasks]
    settle_worker()
    return pickle.dumps(done)
