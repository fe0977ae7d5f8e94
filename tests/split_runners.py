"""Runners of a split compaction that disturb it, and what they do to its tasks.

Each can be pickled with the work that a process gets.
"""

from __future__ import annotations

import os
import pickle
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import CorruptBatch
from kafkalog.spark.jobs.fleet import UnusableDirectory
from kafkalog.spark.jobs.tasks import InProcess, ProcessPool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.spark.jobs.tasks import ResultT, TaskT

PHASES = ("keys", "merge", "rewrite")


class DisturbedRunner:
    """A pool; in one phase ``deed(work, label of the first task, task)`` does the tasks."""

    def __init__(self, phase: str, deed: Callable[..., Any], processes: int = 2) -> None:
        self._left, self._deed = PHASES.index(phase), deed
        self._pool = ProcessPool(processes)

    def run(
        self,
        tasks: Sequence[TaskT],
        work: Callable[[TaskT], ResultT],
        on_done: Callable[[TaskT], None],
    ) -> list[ResultT]:
        """See Runner."""
        self._left -= 1
        if self._left != -1:
            return self._pool.run(tasks, work, on_done)
        return self._pool.run(tasks, partial(self._deed, work, tasks[0].label), on_done)


class TwiceRunner:
    """Does every task two times, the last one first, and lets everything be pickled."""

    def run(
        self,
        tasks: Sequence[TaskT],
        work: Callable[[TaskT], ResultT],
        on_done: Callable[[TaskT], None],
    ) -> list[ResultT]:
        """See Runner."""
        results: dict[int, ResultT] = {}
        for number in [*reversed(range(len(tasks))), *range(len(tasks))]:
            task = pickle.loads(pickle.dumps(tasks[number]))
            results[number] = pickle.loads(pickle.dumps(work(task)))
        return [results[number] for number in range(len(tasks))]


class LateRunner:
    """Does every task; before those of a phase, the ones that another run had in it, if any."""

    def __init__(self, former: LateRunner | None = None) -> None:
        self._former = iter(former.phases) if former is not None else iter(())
        self.phases: list[tuple[Sequence[Any], Callable[[Any], Any]]] = []

    def run(
        self,
        tasks: Sequence[TaskT],
        work: Callable[[TaskT], ResultT],
        on_done: Callable[[TaskT], None],
    ) -> list[ResultT]:
        """See Runner."""
        self.phases.append((tasks, work))
        late_tasks, late_work = next(self._former, ((), work))
        for late in late_tasks:
            with pytest.raises(UnusableDirectory, match="given up"):
                late_work(late)
        return InProcess().run(tasks, work, on_done)


def die_on(work: Callable[[TaskT], ResultT], label: str, task: TaskT) -> ResultT:
    """The process of this task is killed when the work is done, the others go on."""
    result = work(task)
    if task.label == label:
        os.kill(os.getpid(), signal.SIGKILL)
    return result


def fail_on(work: Callable[[TaskT], ResultT], label: str, task: TaskT) -> ResultT:
    """The one task meets damage."""
    if task.label == label:
        raise CorruptBatch("A batch fails its CRC", file="a.log", position=7)
    return work(task)
