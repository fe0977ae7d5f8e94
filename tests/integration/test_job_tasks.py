"""Goal: jobs give the same results in a pool of processes, leave nothing behind that works, and run
as programs of their own.
Method: tasks that square, fail, die and never end, in real processes; the commands.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.jobs.tasks import InProcess, ProcessPool, TaskFailed, _serve, result_of, run_job
from tests.fleet_world import contents, keyed_segments, plant_mixed, plant_partition
from tests.integration.http_world import until
from tests.integration.job_work import NumberTask, squares_in_process, work

if TYPE_CHECKING:
    from kafkalog.jobs.tasks import Runner


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pool_gives_what_one_process_gives_in_the_order_of_the_tasks() -> None:
    tasks = [NumberTask(number) for number in (3, 1, 4, 1, 5, 9, 2, 6)]
    results = run_job("square", tasks, work, list, ProcessPool(2))
    assert [square for square, _ in results] == squares_in_process(tasks)
    assert os.getpid() not in {process for _, process in results}
    ended = list(ProcessPool(2).stream(tasks, work))
    assert sorted(each.task.size_bytes for each in ended) == [1, 1, 2, 3, 4, 5, 6, 9]
    assert all(each.task == tasks[each.number] for each in ended)


def test_a_terminal_shows_the_progress_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line from the begin to the last task, and none afterwards."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    run_job("square", [NumberTask(1), NumberTask(2)], work, list, InProcess())
    shown = terminal.getvalue()
    for count in range(3):
        assert f"square: {count} of 2 tasks" in shown
    assert shown.endswith("\r\x1b[K")


@pytest.mark.parametrize("runner", [InProcess(), ProcessPool(1), ProcessPool(2)])
@pytest.mark.parametrize(
    ("deed", "said"),
    [
        ("corrupt", "number 2: A batch fails its CRC (a.log at 7)"),
        ("full", "number 2: No space left on device"),
        ("defect", "number 2: ZeroDivisionError: nobody expected it"),
    ],
)
def test_a_failure_names_its_task_and_the_job_is_abandoned(
    runner: Runner, deed: str, said: str
) -> None:
    abandoned: list[int] = []
    with pytest.raises(TaskFailed) as failed:
        run_job(
            "square",
            [NumberTask(1), NumberTask(2, deed), NumberTask(3)],
            work,
            list,
            runner,
            abandon=lambda: abandoned.append(len(multiprocessing.active_children())),
        )
    assert failed.value.message == said
    assert abandoned == [0]
    notes = "".join(getattr(failed.value, "__notes__", ()))
    assert ("job_work.py" in notes) == (deed == "defect")


def test_a_job_within_a_job_has_processes_of_its_own() -> None:
    """A pool that keeps its processes: a commit of the outer job does tasks while others run."""
    outer, inner = ([NumberTask(each) for each in range(begin, begin + 6)] for begin in (0, 100))
    with ProcessPool(2) as pool:
        for _ in range(2):
            found = []
            for ended in pool.stream(outer, work):
                found.append(result_of(ended)[0])
                again = run_job("square", inner, work, list, pool)
                assert [square for square, _ in again] == squares_in_process(inner)
            assert sorted(found) == squares_in_process(outer)


def test_a_process_that_dies_ends_the_job() -> None:
    with pytest.raises(TaskFailed, match="number 2: its process ended with 9"):
        run_job("square", [NumberTask(1), NumberTask(2, "die")], work, list, ProcessPool(2))


def test_a_process_whose_job_is_killed_ends_in_silence() -> None:
    """The kernel closes the job's end of the connection, on which a result is still unread."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,))
    process.start()
    there.close()
    here.send((work, NumberTask(2)))
    assert here.poll(60)
    here.close()
    process.join()
    assert process.exitcode == 0


def test_no_task_works_any_more_when_a_job_is_abandoned(tmp_path: Path) -> None:
    file = tmp_path / "made"
    left: list[int] = []

    def abandon() -> None:
        left.append(len(multiprocessing.active_children()))
        file.unlink(missing_ok=True)

    tasks = [NumberTask(2, "write forever", str(file)), NumberTask(1, "corrupt")]
    with pytest.raises(TaskFailed, match="number 1"):
        run_job("write", tasks, work, list, ProcessPool(2), abandon=abandon)
    assert left == [0]
    assert not file.exists()


def test_an_abandon_that_fails_is_a_note_on_the_reason() -> None:
    def abandon() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(TaskFailed) as failed:
        run_job("square", [NumberTask(1, "corrupt")], work, list, InProcess(), abandon=abandon)
    assert "removing the files of square failed" in failed.value.__notes__[0]


ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 90


def program(*words: str | Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def answer_of(*words: str | Path) -> Any:
    out, err = program(*words).communicate(timeout=TIMEOUT_SECONDS)
    assert err == ""
    return json.loads(out)


@pytest.mark.slow
def test_the_command_and_the_module_are_one_program(tmp_path: Path) -> None:
    """Both read the same arguments, use processes and keep standard output to the rows."""
    plant_mixed(tmp_path / "a", "orders", 2)
    words = ("--dirs", tmp_path / "a", "--output", "json", "--processes", "2")
    config = ("--config", "cleanup.policy=compact")
    command = answer_of("-m", "kafkalog", "spark", "audit", *words, *config)
    module = answer_of("-m", "kafkalog.cli.jobs.submit", "audit", "--no-spark", *words, *config)
    assert command == module
    assert command["totals"]["partitions"] == 2


def test_a_job_that_is_told_to_stop_leaves_nothing(tmp_path: Path) -> None:
    """SIGTERM ends a compaction, its processes and what it made."""
    for partition in range(40):
        plant_partition(tmp_path / "a" / f"t-{partition}", keyed_segments(2, 4))
    before = contents(tmp_path / "a")
    words = ("--dirs", tmp_path / "a", "--out", tmp_path / "out", "--processes", "2")
    job = program("-m", "kafkalog", "spark", "compact", *words, start_new_session=True)
    unfinished = tmp_path / "out.unfinished"
    until(lambda: unfinished.exists() or job.poll() is not None)
    job.send_signal(signal.SIGTERM)
    out, err = job.communicate(timeout=TIMEOUT_SECONDS)
    assert job.returncode == 130, err
    assert out == ""
    assert not unfinished.exists()
    assert not (tmp_path / "out").exists()
    assert contents(tmp_path / "a") == before
    until(lambda: not is_group_alive(job.pid))


def is_group_alive(group: int) -> bool:
    """Whether a process of the group still runs; multiprocessing's tracker ends a little later."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_without_pyspark_the_message_says_what_to_do(tmp_path: Path) -> None:
    plant_partition(tmp_path / "a" / "t-0", keyed_segments(1, 1))
    (tmp_path / "hidden" / "pyspark").mkdir(parents=True)
    (tmp_path / "hidden" / "pyspark" / "__init__.py").write_text("raise ImportError('hidden')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "hidden")}
    words = ("-m", "kafkalog.cli.jobs.submit", "audit", "--dirs", tmp_path / "a")
    job = program(*words, env=environment)
    _, err = job.communicate(timeout=TIMEOUT_SECONDS)
    assert job.returncode == 1
    assert "pip install 'kafkalog[spark]'" in err
    assert "--no-spark: the same job runs in processes" in err
