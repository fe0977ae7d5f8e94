"""Goal: the machine's threads and scheduler and the simulated ones keep the same contract.
Method: one suite over both; what only the simulated ones promise (seeds, due times) after it.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from kafkalog.env.clock import SystemClock
from kafkalog.env.scheduler import TaskState
from kafkalog.env.system_scheduler import SystemScheduler
from kafkalog.env.system_threads import SystemThreads
from tests.sim.sim_clock import SimClock
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.sim_scheduler import SimScheduler
from tests.sim.sim_threads import SimDeadlockError, SimThreads

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.clock import Clock
    from kafkalog.env.scheduler import Scheduler, TaskStatus
    from kafkalog.env.threads import Signal, Threads

PATIENCE_SECONDS = 20.0


@dataclass
class World:
    """The seams of one kind, with what they reported."""

    clock: Clock
    threads: Threads
    scheduler: Scheduler
    reports: list[tuple[str, str]] = field(default_factory=list)


@pytest.fixture(params=["system", "simulated"])
def world(request: pytest.FixtureRequest) -> World:
    """Scheduler not yet started."""
    reports: list[tuple[str, str]] = []

    def report(name: str, error: BaseException) -> None:
        reports.append((name, str(error)))

    if request.param == "system":
        clock = SystemClock()
        threads = SystemThreads(report)
        return World(clock, threads, SystemScheduler(clock, threads, 2, report), reports)
    sim_clock = SimClock()
    sim_threads = SimThreads(sim_clock, 1, report)
    return World(sim_clock, sim_threads, SimScheduler(sim_clock, report), reports)


def test_a_thread_runs_its_body_and_ends(world: World) -> None:
    seen: list[int] = []
    thread = world.threads.start("worker", lambda: seen.append(1), background=True)
    assert thread.join(PATIENCE_SECONDS)
    assert seen == [1]
    assert thread.name == "worker"
    assert not thread.is_alive()


def test_a_signal_is_a_level(world: World) -> None:
    signal = world.threads.signal()
    assert not signal.wait(0.001)
    signal.set()
    signal.set()
    assert signal.wait(PATIENCE_SECONDS)
    assert not signal.wait(0.0)


def test_threads_meet_at_signals(world: World) -> None:
    ping, pong = world.threads.signal(), world.threads.signal()
    rounds: list[str] = []

    def play(mine: Signal, other: Signal, name: str) -> None:
        for _ in range(5):
            mine.wait(PATIENCE_SECONDS)
            rounds.append(name)
            other.set()

    threads = [
        world.threads.start("a", lambda: play(ping, pong, "a")),
        world.threads.start("b", lambda: play(pong, ping, "b")),
    ]
    ping.set()
    assert all(thread.join(PATIENCE_SECONDS) for thread in threads)
    assert rounds == ["a", "b"] * 5


def test_a_mutex_excludes(world: World) -> None:
    mutex = world.threads.mutex()
    inside: list[int] = []
    worst: list[int] = []

    def work() -> None:
        for _ in range(20):
            with mutex:
                inside.append(1)
                world.clock.sleep(0)
                worst.append(len(inside))
                inside.pop()

    threads = [world.threads.start(f"t{number}", work) for number in range(3)]
    assert all(thread.join(PATIENCE_SECONDS) for thread in threads)
    assert max(worst) == 1
    assert len(worst) == 60


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_a_thread_raises_is_reported(world: World) -> None:
    def fail() -> None:
        raise ValueError("broken")

    assert world.threads.start("worker", fail).join(PATIENCE_SECONDS)
    assert world.reports == [("worker", "broken")]


def test_the_scheduler_runs_due_tasks_and_survives_errors(world: World) -> None:
    """M13: periods, delays, cancelling, and a task that raises keeps its schedule."""
    done = world.threads.signal()
    runs: list[str] = []

    def tick() -> None:
        runs.append("tick")
        if len(runs) == 2:
            raise ValueError("second")
        if len(runs) >= 4:
            done.set()

    cancelled = world.scheduler.schedule_once("never", lambda: runs.append("never"), 1)
    cancelled.cancel()
    world.scheduler.schedule_periodic("tick", tick, 1, 2)
    world.scheduler.schedule_periodic("far", tick, 2**62, 2**62)
    assert runs == []
    world.scheduler.startup()
    assert done.wait(PATIENCE_SECONDS)
    assert set(runs) == {"tick"}
    assert world.reports == [("tick", "second")]
    status = {task.name: task for task in world.scheduler.tasks()}
    assert set(status) == {"tick", "far"}
    assert status["tick"].failures == 1
    assert status["tick"].last_error == "ValueError: second"
    assert status["tick"].period_ms == 2
    assert status["far"].runs == 0
    assert status["far"].last_run_ms == -1
    assert status["far"].next_run_ms > 2**62
    world.scheduler.shutdown()
    world.scheduler.schedule_once("late", lambda: runs.append("late"))
    assert "late" not in {task.name for task in world.scheduler.tasks()}


def test_one_shots_are_told_by_name(world: World) -> None:
    """M13: how many wait, when the next is due, how many ran and failed; sorted by name."""
    done = world.threads.signal()
    before_ms = world.clock.wall_ms()

    def fail() -> None:
        raise ValueError("no such file")

    world.scheduler.schedule_once("delete-file", fail, 3)
    for _ in range(4):
        world.scheduler.schedule_once("delete-file", lambda: None, 1)
    world.scheduler.schedule_once("delete-file", lambda: None, 3_600_000)
    world.scheduler.schedule_once("a", done.set, 5)
    first, files = world.scheduler.tasks()
    assert (first.name, files.name) == ("a", "delete-file")
    assert (files.state, files.waiting, files.runs) == (TaskState.WAITING, 6, 0)
    assert (files.period_ms, files.initial_delay_ms) == (-1, 3)
    assert before_ms <= files.next_run_ms <= world.clock.wall_ms() + 1
    assert (files.last_run_ms, files.last_duration_ms, files.last_success_ms) == (-1, -1, -1)
    world.scheduler.startup()
    assert done.wait(PATIENCE_SECONDS)
    first, files = statuses_when(world, lambda all_: [one.runs for one in all_] == [1, 5])
    assert (first.state, first.waiting, first.next_run_ms) == (TaskState.IDLE, 0, -1)
    assert (files.state, files.waiting, files.running) == (TaskState.WAITING, 1, 0)
    assert (files.failures, files.last_error) == (1, "ValueError: no such file")
    assert before_ms <= files.last_success_ms <= world.clock.wall_ms()
    assert before_ms <= files.last_failure_ms <= world.clock.wall_ms()
    assert files.next_run_ms >= before_ms + 3_600_000 - 1  # two clocks, cut to milliseconds
    assert world.reports == [("delete-file", "no such file")]
    world.scheduler.shutdown()
    assert [one.waiting for one in world.scheduler.tasks()] == [0, 0]


def test_a_run_under_way_is_told(world: World) -> None:
    """M13: since when, and what the run before it took."""
    seen: list[list[TaskStatus]] = []
    done = world.threads.signal()

    def look() -> None:
        seen.append(world.scheduler.tasks())
        world.clock.sleep(0.02)
        if len(seen) == 2:
            done.set()

    world.scheduler.schedule_periodic("look", look, 1, 1)
    world.scheduler.startup()
    assert done.wait(PATIENCE_SECONDS)
    (first,), (second,) = seen[:2]
    assert (first.state, first.running, first.runs) == (TaskState.RUNNING, 1, 0)
    assert (first.next_run_ms, first.last_duration_ms) == (-1, -1)
    assert first.last_run_ms > 0
    assert (second.state, second.runs) == (TaskState.RUNNING, 1)
    assert second.last_duration_ms >= 20
    assert second.last_run_ms >= first.last_run_ms + 20
    world.scheduler.shutdown()


def test_a_busy_worker_does_not_hold_up_the_others() -> None:
    """M13: a task that falls due while another one runs is taken by an idle worker."""
    clock = SystemClock()
    scheduler = SystemScheduler(clock, SystemThreads(_raise), 2, _raise)
    scheduler.startup()
    release, ran = threading.Event(), threading.Event()
    scheduler.schedule_once("long", lambda: _expect(release.wait(PATIENCE_SECONDS)))
    scheduler.schedule_once("short", ran.set, 1)
    assert ran.wait(PATIENCE_SECONDS)
    release.set()
    scheduler.shutdown()


def test_background_threads_are_nice() -> None:
    seen: list[int] = []
    threads = SystemThreads(_raise)

    def look() -> None:
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert threads.start("t", look, background=True).join(PATIENCE_SECONDS)
    assert seen == [max(15, before)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


_NICE_PROCESS = """
import os, threading
from kafkalog.env.system_threads import SystemThreads
def look():
    print(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
def fail(_, error):
    raise error
assert SystemThreads(fail).start("t", look, background=True).join(20)
"""


def test_a_process_that_is_nicer_stays_so() -> None:
    """A thread of a process at nice 19 would need a privilege for 15, and died without it."""
    command = ["nice", "-n", "19", sys.executable, "-c", _NICE_PROCESS]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said == "19\n"


def test_simulated_tasks_see_the_time_they_were_promised() -> None:
    clock = SimClock()
    scheduler = SimScheduler(clock)
    scheduler.startup()
    start = clock.wall_ms()
    seen: list[tuple[str, int]] = []

    def note(name: str) -> Callable[[], None]:
        return lambda: seen.append((name, clock.wall_ms() - start))

    scheduler.schedule_periodic("p", note("p"), 10, 20)
    scheduler.schedule_once("o", note("o"), 30)
    clock.advance_ms(55)
    assert seen == [("p", 10), ("o", 30), ("p", 30), ("p", 50)]
    clock.step_wall_ms(-1_000_000)
    clock.advance_ms(20)
    assert seen[-1] == ("p", 70 - 1_000_000)


def test_a_simulated_task_that_raises_reaches_the_test() -> None:
    clock = SimClock()
    scheduler = SimScheduler(clock)
    scheduler.startup()
    scheduler.schedule_once("t", lambda: _raise("t", ValueError("seen")), 5)
    with pytest.raises(ValueError, match="seen"):
        clock.advance_ms(10)


def test_the_seed_decides_the_order() -> None:
    def order(seed: int) -> str:
        threads = SimThreads(SimClock(), seed)
        disk = SimFilesystem(on_call=threads.switch_point)
        seen: list[str] = []

        def work(name: str) -> None:
            for _ in range(3):
                disk.exists("/x")
                seen.append(name)

        for name in "abc":
            threads.start(name, functools.partial(work, name))
        threads.run_until_idle()
        return "".join(seen)

    orders = {order(seed) for seed in range(30)}
    assert len(orders) > 10
    assert order(7) == order(7)
    assert all(sorted(found) == list("aaabbbccc") for found in orders)


def test_simulated_sleep_and_timeouts_move_the_clock() -> None:
    clock = SimClock()
    threads = SimThreads(clock, 3)
    start = clock.wall_ms()
    seen: list[int] = []

    def nap() -> None:
        clock.sleep(60)
        seen.append(clock.wall_ms() - start)

    threads.start("t", nap)
    clock.advance_ms(59_999)
    assert seen == []
    clock.advance_ms(1)
    assert seen == [60_000]
    assert not threads.signal().wait(5)
    assert clock.wall_ms() - start == 65_000


def test_a_deadlock_is_found() -> None:
    threads = SimThreads(SimClock())
    signal = threads.signal()
    thread = threads.start("stuck", lambda: _expect(signal.wait()))
    with pytest.raises(SimDeadlockError, match="stuck"):
        thread.join()
    threads.kill_all()
    assert not thread.is_alive()


def statuses_when(world: World, is_so: Callable[[list[TaskStatus]], bool]) -> list[TaskStatus]:
    """The tasks once they are as wanted; the last look when patience ends."""
    deadline_ns = world.clock.monotonic_ns() + int(PATIENCE_SECONDS * 1e9)
    while not is_so(found := world.scheduler.tasks()) and world.clock.monotonic_ns() < deadline_ns:
        world.clock.sleep(0.001)
    return found


def _raise(name: str, error: BaseException) -> None:
    raise error


def _expect(truth: bool) -> None:
    assert truth
