"""The runner for Spark: each Spark task does one or several tasks of a job.

It uses DataFrame interfaces only (rows, a function of a column, ``collect``), so that a job runs
over Spark Connect as well; ``mapInArrow`` would need pandas. An empty Python task takes Spark up to
a tenth of a second. Therefore small tasks are packed until a Spark task reads TARGET_BYTES, but
into at least TASKS_MIN packs. The workers need kafkalog, and the directories under the same paths.

A pack is a row: a Spark task has its own tasks and no others. A job of Spark is a wave of packs;
several waves are under way, each in a thread, because ``collect`` hands over all of its rows at its
end. So faults and results are known soon, and neither the driver nor a plan has all tasks.

Faults: `attempts` tries again in the worker. What may still pass is raised there, so that Spark
runs the task again, as for a lost machine; after Spark's last try, and for what no try mends, the
fault is a value (``Done``) as any result. Closing the stream cancels the Spark jobs by their tag,
which ends their tasks soon, not at once. Progress is reported by waves; Spark shows its own.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import re
import sys
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from kafkalog.env.clock import SystemClock
from kafkalog.env.random import SystemRandom
from kafkalog.errors import KafkalogError
from kafkalog.jobs.attempts import attempt
from kafkalog.jobs.tasks import Ended, TaskFailed, packed
from kafkalog.observe.logging import configure_logging
from kafkalog.spark.logs.secrets import without_secrets
from kafkalog.spark.workers import settle_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from pyspark.sql import SparkSession

    from kafkalog.jobs.attempts import Done
    from kafkalog.jobs.tasks import Pack, ResultT, TaskT

TARGET_BYTES = 128 << 20
"""Bytes of log in one Spark task: below 64 MiB the time of the task itself matters."""
TASKS_MIN = 64
"""The least number of Spark tasks, so that this many slots have work with few logs as well."""
_WAVES_MAX = 64
_CANCEL_SECONDS = 0.5


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

    def stream(
        self,
        tasks: Iterable[TaskT],
        work: Callable[[TaskT], ResultT],
        *,
        wave_bytes: int | None = None,
    ) -> Generator[Ended[TaskT, ResultT], None, None]:
        """See Runner. Raises SecretByValue."""
        travelling = without_secrets(work)
        body = functools.partial(done_pack, work=travelling, tries_max=_tries_of(self._spark))
        do_wave = functools.partial(
            self._do_wave, body, f"kafkalog-{SystemRandom().uuid_bytes().hex()}"
        )
        waves = waves_of(tasks, TASKS_MIN * TARGET_BYTES if wave_bytes is None else wave_bytes)
        packs_wanted = max(TASKS_MIN, 2 * _slots_of(self._spark))
        under_way: dict[Future[list[Ended[TaskT, ResultT]]], int] = {}
        with ThreadPoolExecutor(_WAVES_MAX, "kafkalog-wave") as threads:
            try:
                while True:
                    while len(under_way) < _WAVES_MAX and sum(under_way.values()) < packs_wanted:
                        wave = next(waves, None)
                        if wave is None:
                            break
                        packs = packs_of([task.size_bytes for _, task in wave])
                        under_way[threads.submit(do_wave, wave, packs)] = len(packs)
                    if not under_way:
                        return
                    for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                        del under_way[future]
                        yield from future.result()
            finally:
                self._cancel(do_wave.args[1], under_way)

    def _do_wave(
        self,
        body: Callable[[bytes], bytes],
        tag: str,
        wave: Sequence[tuple[int, TaskT]],
        packs: Sequence[Pack],
    ) -> list[Ended[TaskT, ResultT]]:
        """In a thread: one job of Spark. Raises TaskFailed."""
        functions = importlib.import_module("pyspark.sql.functions")
        # Nondeterministic, so that the optimizer does not evaluate it twice.
        do_pack = functions.udf(body, "binary", useArrow=False).asNondeterministic()
        rows = [
            (place, pickle.dumps([wave[number][1] for number in pack.numbers]))
            for place, pack in enumerate(packs)
        ]
        self._spark.addTag(tag)
        try:
            frame = self._spark.createDataFrame(rows, "pack int, tasks binary")
            each_alone = frame.repartitionById(len(packs), "pack")
            found = each_alone.select("pack", do_pack("tasks").alias("done")).collect()
        except _faults() as error:
            raise TaskFailed(
                f"The job failed on Spark: {_first_line(error)}. Its workers need kafkalog and "
                "its packages, the directories under the same paths, and memory for a task"
            ) from error
        finally:
            self._spark.removeTag(tag)
        return [
            Ended(wave[at][0], wave[at][1], done)
            for row in found
            for at, done in zip(packs[row["pack"]].numbers, pickle.loads(row["done"]), strict=True)
        ]

    def _cancel(self, tag: str, under_way: Collection[Future[Any]]) -> None:
        """Cancel the waves that have not ended, until none is left."""
        for each in under_way:
            each.cancel()  # it may not have begun
        left: Collection[Future[Any]] = under_way
        while left:
            self._spark.interruptTag(tag)  # again: a wave may have begun its job after it
            left = wait(left, timeout=_CANCEL_SECONDS).not_done


def waves_of(tasks: Iterable[TaskT], wave_bytes: int) -> Iterator[list[tuple[int, TaskT]]]:
    """The tasks with their numbers in lists of up to so many bytes, or of one larger task."""
    wave: list[tuple[int, TaskT]] = []
    size = 0
    for number, task in enumerate(tasks):
        if wave and size + task.size_bytes > wave_bytes:
            yield wave
            wave, size = [], 0
        wave.append((number, task))
        size += task.size_bytes
    if wave:
        yield wave


def _tries_of(spark: SparkSession) -> int:
    """How often Spark runs a task: with ``local[N]`` once, with ``local[N, M]`` M times."""
    local = re.fullmatch(r"local(\[[^,\]]*(?:,\s*(\d+))?\])?", spark.conf.get("spark.master", ""))
    if local is not None:
        return int(local[2] or 1)
    return int(spark.conf.get("spark.task.maxFailures", "4"))


def _slots_of(spark: SparkSession) -> int:
    """The tasks that Spark runs at once; 0 where a client of Spark Connect cannot know."""
    context = getattr(spark, "_sc", None)  # no sparkContext at a client of Spark Connect
    return 0 if context is None else int(context.defaultParallelism)


def _faults() -> tuple[type[Exception], ...]:
    """The errors that Spark raises for a failed job; a client of Spark Connect has no py4j."""
    errors = importlib.import_module("pyspark.errors")
    protocol = importlib.import_module("py4j.protocol")
    return errors.PySparkException, protocol.Py4JError


class PassingFault(KafkalogError):
    """For Spark, which runs the task again."""


def done_pack(pickled: bytes, *, work: Callable[[TaskT], ResultT], tries_max: int) -> bytes:
    """In a worker: do the tasks of a pack; a pickled list of ``Done``.

    Raises PassingFault unless this is Spark's last try.
    """
    configure_logging(sys.stderr, log_format="console", level="warning")
    context = importlib.import_module("pyspark").TaskContext.get()
    is_last = context is None or context.attemptNumber() + 1 >= tries_max
    done: list[Done[ResultT]] = []
    for task in pickle.loads(pickled):
        each = attempt(work, task, SystemClock())
        if each.passes and not is_last:
            raise PassingFault(f"{task.label}: {each.fault}")
        done.append(each)
    settle_worker()
    return pickle.dumps(done)
