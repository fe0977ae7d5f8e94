"""A job as a list of tasks: how it is told, and how it runs without Java.

A job is a list of picklable tasks, one function of an importable module that does a task, and a
merge of their results. Who runs it (``Runner``) is one of ``InProcess`` and ``ProcessPool`` here,
``SparkRunner`` in ``on_spark``; the results are the same, in the order of the tasks.

Rules of ``work``: it may run twice for one task, also at the same time and on two machines (Spark
tries again and speculates), so what it writes has a name of its own until one rename, and finding
the work done is no error. It raises KafkalogError, OSError or LogCleaningAborted for what the data
or the machine did: the job then ends with TaskFailed, and nothing is tried again.

Abort rule: when a job ends by an error, or because somebody interrupts it, no task of this machine
works any more when ``abandon`` is called, which takes back whatever the tasks wrote. A process that
is killed cannot do that: what a job makes therefore lies under a temporary name until its merge has
seen every result.

One thread; ``ProcessPool`` starts processes that live as long as one job.

How far a job is, on the last line of a terminal.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import traceback
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

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
    """A picklable piece of a job."""

    @property
    def label(self) -> str:
        """Names it in messages."""
        ...

    @property
    def size_bytes(self) -> int:
        """About what it reads: the largest begin first, and progress counts in it."""
        ...


TaskT = TypeVar("TaskT", bound=Task)
ResultT = TypeVar("ResultT")
OutcomeT = TypeVar("OutcomeT")


class TaskFailed(KafkalogError):
    """A task of a job ended by an error; the message names the task."""


class Progress(Protocol):
    """Who hears how a job goes; on the thread that runs it."""

    def begin(self, name: str, tasks: int, size_bytes: int) -> None:
        """A job of so many tasks, which read so many bytes."""
        ...

    def advance(self, size_bytes: int) -> None:
        """One more task is done."""
        ...

    def end(self) -> None:
        """The job has ended, in whatever way."""
        ...


class NoProgress:
    """Nobody hears it."""

    def begin(self, name: str, tasks: int, size_bytes: int) -> None:
        """Not told."""

    def advance(self, size_bytes: int) -> None:
        """Not told."""

    def end(self) -> None:
        """Not told."""


class Runner(Protocol):
    """Does tasks, somewhere."""

    def run(
        self,
        tasks: Sequence[TaskT],
        work: Callable[[TaskT], ResultT],
        on_done: Callable[[TaskT], None],
    ) -> list[ResultT]:
        """The results in the order of the tasks; ``on_done`` hears of each one that has ended.

        Raises TaskFailed. When it raises anything, the tasks of this machine have stopped.
        """
        ...


def _nothing() -> None:
    """A job that writes nothing has nothing to take back."""


@dataclass(frozen=True, slots=True)
class Job(Generic[TaskT, ResultT, OutcomeT]):
    """See the module.

    merge     makes the outcome of the results, in the order of the tasks; publishes what was made
    abandon   takes back what was made when the job does not end well; may raise OSError
    """

    name: str
    tasks: Sequence[TaskT]
    work: Callable[[TaskT], ResultT]
    merge: Callable[[list[ResultT]], OutcomeT]
    abandon: Callable[[], None] = _nothing


def run_job(
    job: Job[TaskT, ResultT, OutcomeT], runner: Runner, progress: Progress | None = None
) -> OutcomeT:
    """Run a job to its end. Raises TaskFailed, what ``merge`` raises, and KeyboardInterrupt.

    After any of them the job has been abandoned; an error of that is a note on the first one.
    """
    told = NoProgress() if progress is None else progress
    told.begin(job.name, len(job.tasks), sum(each.size_bytes for each in job.tasks))
    try:
        with taken_back(job.name, job.abandon):
            return job.merge(
                runner.run(job.tasks, job.work, lambda task: told.advance(task.size_bytes))
            )
    finally:
        told.end()


@contextmanager
def taken_back(name: str, abandon: Callable[[], None]) -> Iterator[None]:
    """Whatever ends the block early is raised when ``abandon`` was called; its error is a note."""
    try:
        yield
    except BaseException as error:
        try:
            abandon()
        except OSError as left:
            error.add_note(f"taking back what {name} had made failed: {left}")
        raise


class Done(NamedTuple, Generic[ResultT]):
    """How one task ended, wherever it ran: a result, or what went wrong and where."""

    result: ResultT | None
    fault: str | None = None
    trace: str | None = None  # of what should not have happened


def attempt(work: Callable[[TaskT], ResultT], task: TaskT) -> Done[ResultT]:
    """Do a task where its outcome has to travel: an error becomes text, which always pickles."""
    try:
        return Done(work(task))
    except KafkalogError as error:
        return Done(None, error.message)
    except (LogCleaningAborted, OSError) as error:
        return Done(None, str(error))
    except Exception as error:  # noqa: BLE001 - the body of a worker: it is told where the job is
        return Done(None, f"{type(error).__name__}: {error}", traceback.format_exc())


def result_of(done: Done[ResultT], task: Task) -> ResultT:
    """The result, or TaskFailed with the task's name."""
    if done.fault is None:
        return done.result  # type: ignore[return-value]  # without a fault it is there
    failed = TaskFailed(f"{task.label}: {done.fault}")
    if done.trace is not None:
        failed.add_note(done.trace)
    raise failed


class InProcess:
    """One task after the other, here."""

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
    """Tasks in so many processes, the largest first; with one process, in this one.

    The processes are new ones (spawned), each with its own memory: one that dies ends the job.
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
                self._start()
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

    def _start(self) -> None:
        here, there = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(there, self._work), daemon=True)
        process.start()
        there.close()  # so that the death of the process ends the connection
        self._processes[here] = process

    def run(self, tasks: Sequence[TaskT], on_done: Callable[[TaskT], None]) -> list[ResultT]:
        """Hand out the tasks as processes get free."""
        results: dict[int, ResultT] = {}
        largest_first = sorted(range(len(tasks)), key=lambda each: -tasks[each].size_bytes)
        waiting = deque(largest_first)
        at_work: dict[Connection, int] = {}
        for connection in self._processes:
            at_work[connection] = waiting.popleft()
            self._send(connection, tasks[at_work[connection]])
        while at_work:
            for ready in wait(list(at_work)):
                connection = next(each for each in at_work if each is ready)
                number = at_work.pop(connection)
                task = tasks[number]
                results[number] = result_of(self._receive(connection, task), task)
                on_done(task)
                if waiting:
                    at_work[connection] = waiting.popleft()
                    self._send(connection, tasks[at_work[connection]])
        return [results[number] for number in range(len(tasks))]

    def _send(self, connection: Connection, task: TaskT) -> None:
        try:
            connection.send(task)
        except OSError as error:
            raise self._died(connection, task) from error

    def _receive(self, connection: Connection, task: TaskT) -> Done[ResultT]:
        try:
            done: Done[ResultT] = connection.recv()
        except (EOFError, OSError) as error:
            raise self._died(connection, task) from error
        return done

    def _died(self, connection: Connection, task: TaskT) -> TaskFailed:
        process = self._processes[connection]
        process.join()
        return TaskFailed(
            f"{task.label}: its process ended with {process.exitcode} before the task did; "
            "when the machine ran out of memory, use fewer processes"
        )


def _serve(connection: Connection, work: Callable[[TaskT], ResultT]) -> None:
    """The body of a process: tasks until whoever sends them has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to all; the job's end is ours
    configure_logging(sys.stderr, log_format="console", level="warning")  # stdout is for the rows
    while True:
        try:
            task: TaskT = connection.recv()
        except EOFError:
            return
        try:
            connection.send(attempt(work, task))
        except OSError:
            return  # nobody is left who wants it


_MIB = 1024 * 1024


class ProgressLine:
    """``Progress`` drawn on a terminal; the line goes when the job has ended."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._line = TerminalLine(stream)
        self._clock = clock
        self._name = ""
        self._tasks = self._tasks_done = 0
        self._bytes = self._bytes_done = 0
        self._started_ns = 0

    def begin(self, name: str, tasks: int, size_bytes: int) -> None:
        """See Progress."""
        self._name, self._tasks, self._bytes = name, tasks, size_bytes
        self._tasks_done = self._bytes_done = 0
        self._started_ns = self._clock.monotonic_ns()
        self._draw()

    def advance(self, size_bytes: int) -> None:
        """See Progress."""
        self._tasks_done += 1
        self._bytes_done += size_bytes
        self._draw()

    def end(self) -> None:
        """See Progress."""
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
