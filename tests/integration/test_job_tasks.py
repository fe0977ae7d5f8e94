"""Goal: jobs give the same results in a pool of processes, and leave nothing behind that works.
Method: tasks that square, fail, die and never end, in real processes.
"""

from __future__ import annotations

import multiprocessing
import os
from typing import TYPE_CHECKING

import pytest

from kafkalog.jobs.tasks import InProcess, Job, ProcessPool, TaskFailed, run_job
from tests.integration.job_work import NumberTask, squares_in_process, work

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.jobs.tasks import Runner


class Heard:
    """What a job told of its progress."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def begin(self, name: str, tasks: int, size_bytes: int) -> None:
        self.told.append((name, tasks, size_bytes))

    def advance(self, size_bytes: int) -> None:
        self.told.append(size_bytes)

    def end(self) -> None:
        self.told.append("end")


def test_a_pool_gives_what_one_process_gives_in_the_order_of_the_tasks() -> None:
    """The order of the results does not depend on who was faster."""
    tasks = [NumberTask(number) for number in (3, 1, 4, 1, 5, 9, 2, 6)]
    heard = Heard()
    job = Job("square", tasks, work, merge=list)
    results = run_job(job, ProcessPool(2), heard)
    assert [square for square, _ in results] == squares_in_process(tasks)
    assert os.getpid() not in {process for _, process in results}
    assert heard.told[0] == ("square", 8, 31)
    assert sorted(each for each in heard.told[1:-1] if isinstance(each, int)) == [
        1, 1, 2, 3, 4, 5, 6, 9,
    ]  # fmt: skip
    assert heard.told[-1] == "end"


@pytest.mark.parametrize("runner", [InProcess(), ProcessPool(1), ProcessPool(2)])
@pytest.mark.parametrize(
    ("deed", "said"),
    [
        ("corrupt", "number 2: A batch fails its CRC (a.log at 7)"),
        ("full", "number 2: [Errno 28] No space left on device"),
        ("defect", "number 2: ZeroDivisionError: nobody expected it"),
    ],
)
def test_a_failure_names_its_task_and_the_job_is_abandoned(
    runner: Runner, deed: str, said: str
) -> None:
    """Whatever a task raises ends the job with the task's name, and takes back its work."""
    abandoned: list[int] = []
    job = Job(
        "square",
        [NumberTask(1), NumberTask(2, deed), NumberTask(3)],
        work,
        merge=list,
        abandon=lambda: abandoned.append(len(multiprocessing.active_children())),
    )
    with pytest.raises(TaskFailed) as failed:
        run_job(job, runner)
    assert failed.value.message == said
    assert abandoned == [0]
    notes = "".join(getattr(failed.value, "__notes__", ()))
    assert ("job_work.py" in notes) == (deed == "defect")


def test_a_process_that_dies_ends_the_job() -> None:
    """A job whose process was killed says so instead of waiting for ever."""
    with pytest.raises(TaskFailed, match="number 2: its process ended with 9"):
        run_job(Job("square", [NumberTask(1), NumberTask(2, "die")], work, list), ProcessPool(2))


def test_no_task_works_any_more_when_a_job_is_abandoned(tmp_path: Path) -> None:
    """What an aborted job takes back is not written again behind its back."""
    file = tmp_path / "made"
    left: list[int] = []

    def abandon() -> None:
        left.append(len(multiprocessing.active_children()))
        file.unlink(missing_ok=True)

    tasks = [NumberTask(2, "write forever", str(file)), NumberTask(1, "corrupt")]
    with pytest.raises(TaskFailed, match="number 1"):
        run_job(Job("write", tasks, work, list, abandon), ProcessPool(2))
    assert left == [0]
    assert not file.exists()


def test_an_abandon_that_fails_is_a_note_on_the_reason() -> None:
    """The first error is the one that is told."""

    def abandon() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(TaskFailed) as failed:
        run_job(Job("square", [NumberTask(1, "corrupt")], work, list, abandon), InProcess())
    assert "removing the files of square failed" in failed.value.__notes__[0]
