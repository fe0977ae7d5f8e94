"""Jobs as lists of independent tasks, and the runners that do them on this machine.

A job is a list of picklable tasks, one function of an importable module that does a task, and a
merge of the results. A ``Runner`` does the tasks: ``InProcess`` and ``ProcessPool`` are here,
``SparkRunner`` is in ``on_spark``. The results are the same, in the order of the tasks.

Rules for the function: it may run twice for one task, also at the same time and on two machines
(Spark retries tasks and runs slow ones twice). Therefore it writes under a unique name until one
rename, and succeeds if its result is there already. It raises KafkalogError, OSError or
LogCleaningAborted if the data or the machine is at fault: the job ends with TaskFailed, and nothing
is retried.

Clean-up: when a job ends by an error or an interrupt, first all tasks of this machine are stopped,
then ``abandon`` removes what they wrote. A killed process cannot do that: everything that a job
writes has a temporary name until its merge has seen all results.

One thread. ``ProcessPool`` starts processes that live as long as one job.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import traceback
from collections import deque
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from kafkalog.env.clock import SystemClock
from kafkalog.errors import KafkalogError, LogCleaningAborted
from kafkalog.observe.logging import configure_logging
from kafkalog.observe.terminal_line import TerminalLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from typing import TextIO

    from kafkalog.env.clock import Clock


class Task(Protocol):
    """A picklable part of a job."""

    @property
    def label(self) -> str:
        """The name of the task in messages."""

    @property
    def size_bytes(self) -> int:
        """About what it reads: the largest tasks begin first, and progress is measured in it."""


TaskT = TypeVar("TaskT", bound=Task)
ResultT = TypeVar("ResultT")
OutcomeT = TypeVar("OutcomeT")


class TaskFailed(KafkalogError):
    """A task of a job failed; the message names the task."""


_MIB = 1024 * 1024


class ProgressLine:
    """The progress of a job as the last line of a terminal; erased when the job has ended."""

    def __init__(
        self, name: str, tasks: int, size_bytes: int, stream: TextIO, clock: Clock
    ) -> None:
        """``size_bytes``: what the tasks read."""
        self._line = TerminalLine(stream)
        self._clock = clock
        self._name, self._tasks, self._bytes = name, tasks, size_bytes
        self._tasks_done = self._bytes_done = 0
        self._started_ns = clock.monotonic_ns()
        self._draw()

    def advance(self, size_bytes: int) -> None:
        """One more task is done."""
        self._tasks_done += 1
        self._bytes_done += size_bytes
        self._draw()

    def end(self) -> None:
        """The job has ended, successfully or not."""
        self._line.show("")

    def _draw(self) -> None:
        text = (
            f"{self._name}: {self._tasks_done} of {self._tasks} tasks, "
            f"{self._bytes_done / _MIB:,.0f} of {self._bytes / _MIB:,.0f} MiB"
        )
        seconds = (self._clock.monotonic_ns() - self._started_ns) / 1e9
        if self._bytes_done and seconds:
            left = (self._bytes - self._bytes_done) * seconds / self._bytes_done
            text += f", {self._bytes_done / _MIB / seconds:,.0f} MiB/s, {left:,.0f} s left"
        self._line.show(text)


class Runner(Protocol):
    """Does the tasks of jobs."""

    def run(
        self,
        tasks: Sequence[TaskT],
        work: Callable[[TaskT], ResultT],
        on_done: Callable[[TaskT], None],
    ) -> list[ResultT]:
        """The results in the order of the tasks; calls ``on_done`` for each task that is done.

        Raises TaskFailed. After any error no task runs on this machine.
        """


def run_job(
    name: str,
    tasks: Sequence[TaskT],
    work: Callable[[TaskT], ResultT],
    merge: Callable[[list[ResultT]], OutcomeT],
    runner: Runner,
    *,
    abandon: Callable[[], None] = lambda: None,
) -> OutcomeT:
    """Run a job to its end, see the module. On a terminal a line shows its progress.

    merge     makes the outcome from the results, in the order of the tasks, and publishes it
    abandon   removes what the tasks wrote after an error; may raise OSError

    Raises TaskFailed, the errors of ``merge``, and KeyboardInterrupt. The job is abandoned before
    any of them is raised.
    """
    line: ProgressLine | None = None
    if sys.stderr.isatty():
        size_bytes = sum(each.size_bytes for each in tasks)
        line = ProgressLine(name, len(tasks), size_bytes, sys.stderr, SystemClock())

    def on_done(task: TaskT) -> None:
        if line is not None:
            line.advance(task.size_bytes)

    try:
        with abandoned_on_error(name, abandon):
            return merge(runner.run(tasks, work, on_done))
    finally:
        if line is not None:
            line.end()


@contextmanager
def abandoned_on_error(name: str, abandon: Callable[[], None]) -> Iterator[None]:
    """Call ``abandon`` before an error leaves the block; its own error becomes a note."""
    try:
        yield
    except BaseException as error:
        try:
            abandon()
        except OSError as failure:
            error.add_note(f"removing the files of {name} failed: {failure}")
        raise


class Done(NamedTuple, Generic[ResultT]):
    """The result of a task, or the text of its error."""

    result: ResultT | None
    fault: str | None = None
    trace: str | None = None  # of an unexpected error


def reason_of(error: OSError) -> str:
    """The file and the system's words, without a number."""
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{error.filename}: {reason}"


def attempt(work: Callable[[TaskT], ResultT], task: TaskT) -> Done[ResultT]:
    """Do a task; an error becomes text, which can always be pickled."""
    try:
        return Done(work(task))
    except KafkalogError as error:
        return Done(None, error.message)
    except LogCleaningAborted as error:
        return Done(None, str(error))
    except OSError as error:
        return Done(None, reason_of(error))
    except Exception as error:  # noqa: BLE001 - the body of a worker: the job raises it
        return Done(None, f"{type(error).__name__}: {error}", traceback.format_exc())


def result_of(done: Done[ResultT], task: Task) -> ResultT:
    """The result of a task. Raises TaskFailed with the task's name."""
    if done.fault is None:
        return done.result  # type: ignore[return-value]  # not None without a fault
    failed = TaskFailed(f"{task.label}: {done.fault}")
    if done.trace is not None:
        failed.add_note(done.trace)
    raise failed


class Pack(NamedTuple):
    """Neighbours in a list that are done together."""

    numbers: tuple[int, ...]
    size_bytes: int


def packed(sizes: Sequence[int], target_bytes: int) -> list[Pack]:
    """Pack neighbours up to ``target_bytes``; a larger one is a pack by itself."""
    packs: list[Pack] = []
    for number, size in enumerate(sizes):
        if packs and packs[-1].size_bytes + size <= target_bytes:
            last = packs.pop()
            packs.append(Pack((*last.numbers, number), last.size_bytes + size))
        else:
            packs.append(Pack((number,), size))
    return packs


class InProcess:
    """One task after the other, in this process."""

    def run(
        self,
        tasks: Sequence[TaskT],
        work: Callable[[TaskT], ResultT],
        on_done: Callable[[TaskT], None],
    ) -> list[ResultT]:
        """See Runner."""
        results = []
        for task in tasks:
            results.append(result_of(attempt(work, task), task))
            on_done(task)
        return results


class ProcessPool:
    """Tasks in several processes, the largest first; with one process, in this one.

    The processes are spawned, so that each has its own memory. One that dies ends the job.
    """

    def __init__(self, processes: int) -> None:
        assert processes > 0
        self._processes = processes

    def run(
        self,
        tasks: Sequence[TaskT],
        work: Callable[[TaskT], ResultT],
        on_done: Callable[[TaskT], None],
    ) -> list[ResultT]:
        """See Runner."""
        count = min(self._processes, len(tasks))
        if count <= 1:
            return InProcess().run(tasks, work, on_done)
        with _Workers(count, work) as workers:
            return workers.run(tasks, on_done)


class _Workers(Generic[TaskT, ResultT]):
    """The processes of one job; leaving the block ends them."""

    def __init__(self, count: int, work: Callable[[TaskT], ResultT]) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._count = count
        self._work = work
        self._processes: dict[Connection, BaseProcess] = {}

    def __enter__(self) -> _Workers[TaskT, ResultT]:
        try:
            for _ in range(self._count):
                here, there = self._context.Pipe()
                process = self._context.Process(
                    target=_serve, args=(there, self._work), daemon=True
                )
                process.start()
                there.close()  # so that the death of the process ends the connection
                self._processes[here] = process
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for connection, process in self._processes.items():
            process.terminate()
            connection.close()
        for process in self._processes.values():
            process.join()

    def run(self, tasks: Sequence[TaskT], on_done: Callable[[TaskT], None]) -> list[ResultT]:
        """Give each idle process the next task until all are done."""
        results: dict[int, ResultT] = {}
        largest_first = sorted(range(len(tasks)), key=lambda each: -tasks[each].size_bytes)
        waiting = deque(largest_first)
        at_work: dict[Connection, int] = {}

        def begin(connection: Connection) -> None:
            if waiting:
                at_work[connection] = waiting.popleft()
                task = tasks[at_work[connection]]
                with self._talking(connection, task):
                    connection.send(task)

        for connection in self._processes:
            begin(connection)
        while at_work:
            for ready in wait(list(at_work)):
                connection = next(each for each in at_work if each is ready)
                number = at_work.pop(connection)
                task = tasks[number]
                with self._talking(connection, task):
                    done: Done[ResultT] = connection.recv()
                results[number] = result_of(done, task)
                on_done(task)
                begin(connection)
        return [results[number] for number in range(len(tasks))]

    @contextmanager
    def _talking(self, connection: Connection, task: TaskT) -> Iterator[None]:
        """Raise TaskFailed when the process has ended before its task."""
        try:
            yield
        except (EOFError, OSError) as error:
            process = self._processes[connection]
            process.join()
            raise TaskFailed(
                f"{task.label}: its process ended with {process.exitcode} before the task did; "
                "if the machine ran out of memory, use fewer processes"
            ) from error


def _serve(connection: Connection, work: Callable[[TaskT], ResultT]) -> None:
    """The body of a process: tasks until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the job ends us
    configure_logging(sys.stderr, log_format="console", level="warning")  # stdout is for the rows
    while True:
        try:
            task: TaskT = connection.recv()
        except EOFError:
            return
        try:
            connection.send(attempt(work, task))
        except OSError:
            return  # the job has ended
