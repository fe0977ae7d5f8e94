"""Jobs as lists of independent tasks, and the runners that do them on this machine.

A job is a list of picklable tasks, one function of an importable module that does a task, and a
merge of the results. A ``Runner`` does the tasks: ``InProcess`` and ``ProcessPool`` are here,
``SparkRunner`` is in ``on_spark``. It hands over each result, or fault, as soon as it is known
(`Ended`): a job that can use a part of the results uses it at once, and any other one ends with
its first fault.

Rules for the function: it may run twice for one task, also at the same time and on two machines
(Spark retries tasks and runs slow ones twice). Therefore it writes under a unique name until one
rename, and succeeds if its result is there already. It raises KafkalogError, OSError, ClientError
or LogCleaningAborted if the data or the machine is at fault; `attempts` says what is tried again.

Clean-up: when a job ends by an error or an interrupt, first all tasks of this machine are stopped,
then ``abandon`` removes what they wrote. A killed process cannot do that: everything that a job
writes has a temporary name until its merge has seen all results.

One thread. The processes of ``ProcessPool`` live as long as one job, or as its block.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from contextlib import closing, contextmanager
from itertools import chain, islice
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from kafkalog.env.clock import SystemClock
from kafkalog.errors import KafkalogError
from kafkalog.jobs.attempts import attempt
from kafkalog.observe.logging import configure_logging
from kafkalog.observe.terminal_line import TerminalLine

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from typing import TextIO

    from kafkalog.env.clock import Clock
    from kafkalog.jobs.attempts import Done


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
    """A task of a job failed; the message names the task.

    passes  whether the cause may pass
    """

    def __init__(self, message: str, *, passes: bool = False) -> None:
        super().__init__(message)
        self.retriable = passes


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


class Ended(NamedTuple, Generic[TaskT, ResultT]):
    """A task that has ended; ``number``: its place among the tasks."""

    number: int
    task: TaskT
    done: Done[ResultT]


class Runner(Protocol):
    """Does the tasks of jobs."""

    def stream(
        self,
        tasks: Iterable[TaskT],
        work: Callable[[TaskT], ResultT],
        *,
        wave_bytes: int | None = None,
    ) -> Generator[Ended[TaskT, ResultT], None, None]:
        """Each task with its result or fault, as soon as it is known; the first ones begin first.

        tasks       taken one by one, when they begin: a later one may depend on what has ended
        wave_bytes  results that come together are at most of so many bytes of tasks; None: the
                    runner decides

        Close it: after that no task runs on this machine. Raises TaskFailed if the machinery fails.
        """


@contextmanager
def progress(name: str, tasks: Sequence[Task]) -> Iterator[Callable[[Task], None]]:
    """On a terminal a line with the progress; to be called with each task that has ended."""
    line: ProgressLine | None = None
    if sys.stderr.isatty():
        size_bytes = sum(each.size_bytes for each in tasks)
        line = ProgressLine(name, len(tasks), size_bytes, sys.stderr, SystemClock())

    def on_done(task: Task) -> None:
        if line is not None:
            line.advance(task.size_bytes)

    try:
        yield on_done
    finally:
        if line is not None:
            line.end()


def run_job(
    name: str,
    tasks: Sequence[TaskT],
    work: Callable[[TaskT], ResultT],
    merge: Callable[[list[ResultT]], OutcomeT],
    runner: Runner,
    *,
    abandon: Callable[[], None] = lambda: None,
) -> OutcomeT:
    """Run a job to its end, see the module. The largest tasks begin first.

    merge     makes the outcome from the results, in the order of the tasks, and publishes it
    abandon   removes what the tasks wrote after an error; may raise OSError

    Raises TaskFailed at the first fault, the errors of ``merge``, and KeyboardInterrupt. The job is
    abandoned before any of them is raised.
    """
    order = sorted(range(len(tasks)), key=lambda each: -tasks[each].size_bytes)
    results: dict[int, ResultT] = {}
    with progress(name, tasks) as on_done, abandoned_on_error(name, abandon):
        with closing(runner.stream([tasks[each] for each in order], work)) as all_ended:
            for ended in all_ended:
                results[order[ended.number]] = result_of(ended)
                on_done(ended.task)
        return merge([results[each] for each in range(len(tasks))])


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


def result_of(ended: Ended[TaskT, ResultT]) -> ResultT:
    """The result of a task. Raises TaskFailed with the task's name."""
    done = ended.done
    if done.fault is None:
        return done.result  # type: ignore[return-value]  # not None without a fault
    failed = TaskFailed(f"{ended.task.label}: {done.fault}", passes=done.passes)
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

    def __init__(self, clock: Clock | None = None) -> None:
        """``clock``: for the pauses between two tries; None: the machine's."""
        self._clock = clock or SystemClock()

    def stream(
        self,
        tasks: Iterable[TaskT],
        work: Callable[[TaskT], ResultT],
        *,
        wave_bytes: int | None = None,
    ) -> Generator[Ended[TaskT, ResultT], None, None]:
        """See Runner."""
        del wave_bytes  # each result comes alone
        for number, task in enumerate(tasks):
            yield Ended(number, task, attempt(work, task, self._clock))


class ProcessPool:
    """Tasks in several processes; with one process, in this one.

    The processes are spawned, so that each has its own memory. One that dies ends the job. They end
    with the job, or with the block of ``with pool``: then the next job finds them started.
    """

    def __init__(self, processes: int) -> None:
        assert processes > 0
        self._processes = processes
        self._kept: _Workers | None = None

    def __enter__(self) -> ProcessPool:
        self._kept = _Workers()
        return self

    def __exit__(self, *_: object) -> None:
        if self._kept is not None:
            self._kept.end()
            self._kept = None

    def stream(
        self,
        tasks: Iterable[TaskT],
        work: Callable[[TaskT], ResultT],
        *,
        wave_bytes: int | None = None,
    ) -> Generator[Ended[TaskT, ResultT], None, None]:
        """See Runner."""
        coming = iter(tasks)
        first = list(islice(coming, self._processes))
        waiting = chain(first, coming)
        if len(first) <= 1:
            yield from InProcess().stream(waiting, work, wave_bytes=wave_bytes)
            return
        workers = self._kept or _Workers()
        try:
            yield from workers.stream(len(first), enumerate(waiting), work)
        finally:
            if workers is not self._kept:
                workers.end()


class _Workers:
    """The processes of a pool, by the connection to each; a job has those that it uses alone."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[Connection, BaseProcess] = {}
        self._used: set[Connection] = set()

    def _unused(self, count: int) -> list[Connection]:
        """So many living processes that no job uses; started if there are fewer."""
        unused = self._processes.keys() - self._used
        self._end([each for each in unused if not self._processes[each].is_alive()])
        while len(self._processes) - len(self._used) < count:
            here, there = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(there,), daemon=True)
            process.start()
            there.close()  # so that the death of the process ends the connection
            self._processes[here] = process
        return [each for each in self._processes if each not in self._used][:count]

    def end(self) -> None:
        """End all, whatever they do."""
        self._end(list(self._processes))

    def _end(self, connections: Iterable[Connection]) -> None:
        ended = []
        for each in connections:
            process = self._processes.pop(each)
            process.terminate()
            each.close()
            ended.append(process)
        for process in ended:
            process.join()

    def stream(
        self, count: int, waiting: Iterator[tuple[int, TaskT]], work: Callable[[TaskT], ResultT]
    ) -> Generator[Ended[TaskT, ResultT], None, None]:
        """Give each idle process the next task until all are done; those at work are ended."""
        at_work: dict[Connection, tuple[int, TaskT]] = {}
        connections = self._unused(count)
        self._used.update(connections)
        try:
            yield from self._done_by(connections, at_work, waiting, work)
        finally:
            self._used.difference_update(connections)
            self._end(at_work)

    def _done_by(
        self,
        connections: Sequence[Connection],
        at_work: dict[Connection, tuple[int, TaskT]],
        waiting: Iterator[tuple[int, TaskT]],
        work: Callable[[TaskT], ResultT],
    ) -> Generator[Ended[TaskT, ResultT], None, None]:
        def begin(connection: Connection) -> None:
            following = next(waiting, None)
            if following is not None:
                at_work[connection] = following
                with self._talking(connection, following[1]):
                    connection.send((work, following[1]))

        for connection in connections:
            begin(connection)
        while at_work:
            for ready in wait(list(at_work)):
                connection = next(each for each in at_work if each is ready)
                number, task = at_work[connection]
                with self._talking(connection, task):
                    done: Done[ResultT] = connection.recv()
                del at_work[connection]
                if done.fault is None:
                    begin(connection)  # who takes the result may take long
                yield Ended(number, task, done)
                if done.fault is not None:
                    begin(connection)  # with what is still to be done after the fault

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
                "if the machine ran out of memory, use fewer processes",
                passes=True,
            ) from error


def _serve(connection: Connection) -> None:
    """The body of a process: tasks until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the job ends us
    configure_logging(sys.stderr, log_format="console", level="warning")  # stdout is for the rows
    clock = SystemClock()
    while True:
        try:
            work, task = connection.recv()
        except (EOFError, OSError):  # OSError: results of ours are unread
            return
        try:
            connection.send(attempt(work, task, clock))
        except OSError:
            return  # the job has ended
