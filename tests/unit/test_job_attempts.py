"""Goal: a fault that passes costs one more try, a fault that stays costs none, and a job ends with
its first fault.
Method: a store that fails as object stores do, a simulated clock; tasks that count their tries.
"""

from __future__ import annotations

import errno
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from kafkalog.client.errors import ConnectFailed, DaemonFault, Unavailable
from kafkalog.env.backoff import Backoff
from kafkalog.errors import CorruptBatch, UnknownTopic
from kafkalog.jobs.attempts import PartFailed, attempt, passes
from kafkalog.jobs.tasks import InProcess, TaskFailed, run_job
from kafkalog.spark.logs.object_store import RequestRetries
from tests.integration.job_work import NumberTask
from tests.sim.sim_clock import SimClock

BUSY = OSError(errno.EBUSY, "SlowDown: please reduce your request rate (503)")
LAST_SHARE = 0.5  # of a pause; the rest is random


@dataclass
class FlakyStore:
    """Answers each task, but first with these faults; counts the requests."""

    faults: dict[int, list[BaseException]] = field(default_factory=dict)
    requests: Counter[int] = field(default_factory=Counter)

    def read(self, task: NumberTask) -> int:
        self.requests[task.number] += 1
        faults = self.faults.get(task.number)
        if faults:
            raise faults.pop(0)
        return task.number


def test_a_busy_store_in_one_of_many_tasks_costs_one_try() -> None:
    store, clock = FlakyStore({7: [BUSY]}), SimClock()
    tasks = [NumberTask(number) for number in range(80)]
    begin = clock.monotonic_ns()
    assert run_job("read", tasks, store.read, list, InProcess(clock)) == list(range(80))
    assert store.requests == Counter(range(80)) + Counter([7])
    waited = (clock.monotonic_ns() - begin) / 1e9
    assert Backoff().first_seconds * LAST_SHARE <= waited <= Backoff().first_seconds


def test_the_pauses_grow_and_the_tries_end() -> None:
    store, clock = FlakyStore({1: [BUSY] * 99}), SimClock()
    begin = clock.monotonic_ns()
    done = attempt(store.read, NumberTask(1), clock, Backoff(5, 1.0, 4.0))
    assert (done.fault, done.passes, done.trace) == (BUSY.strerror, True, None)
    assert store.requests[1] == 5
    assert (1 + 2 + 4 + 4) / 2 <= (clock.monotonic_ns() - begin) / 1e9 <= 1 + 2 + 4 + 4


def test_what_a_store_has_tried_is_not_tried_again_in_the_task() -> None:
    """Six requests, not six times five; the fault may pass all the same."""
    clock, requests = SimClock(), list[int]()

    def request() -> int:
        requests.append(1)
        raise OSError(errno.EBUSY, "SlowDown (503)", "s3://logs/a")

    def read(task: NumberTask) -> int:
        try:
            return RequestRetries(clock=clock).run(request, "s3://logs/a")
        except OSError as error:
            raise PartFailed("a-0 cannot be read", passes=passes(error)) from error

    for work in (read, lambda _: RequestRetries(clock=clock).run(request, "s3://logs/a")):
        requests.clear()
        done = attempt(work, NumberTask(1), clock)
        assert (len(requests), done.passes) == (6, True)


@pytest.mark.parametrize(
    "fault",
    [
        CorruptBatch("A batch fails its CRC", file="a.log", position=7),
        PermissionError(errno.EACCES, "Permission denied", "/archive"),
        PermissionError("without a number"),
        FileNotFoundError(errno.ENOENT, "No such file"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError("AWS Error ACCESS_DENIED during PutObject operation"),
        UnknownTopic("There is no topic order"),
        PartFailed("t-0: damaged"),
        DaemonFault("corrupt", status=500),
        ZeroDivisionError("nobody expected it"),
    ],
    ids=repr,
)
def test_what_no_try_mends_is_not_tried_again(fault: Exception) -> None:
    """And ends the job at once: no task begins after it."""
    store, clock = FlakyStore({2: [fault]}), SimClock()
    tasks = [NumberTask(3), NumberTask(2), NumberTask(1)]
    begin = clock.monotonic_ns()
    with pytest.raises(TaskFailed, match="number 2: "):
        run_job("read", tasks, store.read, list, InProcess(clock))
    assert store.requests == Counter({3: 1, 2: 1})
    assert clock.monotonic_ns() == begin


@pytest.mark.parametrize(
    "fault",
    [
        OSError(errno.EIO, "Input/output error"),
        ConnectionResetError(errno.ECONNRESET, "reset"),
        TimeoutError("no answer"),
        OSError("When uploading part: AWS Error SLOW_DOWN, HTTP 503"),
        OSError(errno.ESTALE, "The object was replaced while it was read"),
        PartFailed("t-0: busy", passes=True),
    ],
    ids=repr,
)
def test_what_passes_is_tried_again(fault: Exception) -> None:
    assert passes(fault)
    store = FlakyStore({2: [fault, fault]})
    assert attempt(store.read, NumberTask(2), SimClock()).result == 2
    assert store.requests[2] == 3


def test_what_a_client_tried_for_its_deadline_is_left_to_others() -> None:
    """It passes, but another half a minute here would find the same."""
    for fault in (
        ConnectFailed("No answer", retriable=True),
        Unavailable("moving", status=503, retriable=True),
    ):
        store = FlakyStore({2: [fault]})
        done = attempt(store.read, NumberTask(2), SimClock())
        assert (done.fault, done.passes) == (fault.message, True)
        assert store.requests[2] == 1


def test_a_task_begins_when_the_one_before_it_is_known() -> None:
    """Whoever takes the results may leave tasks out that have not begun."""
    store, left_out = FlakyStore({1: [PartFailed("damaged")]}), set[int]()
    tasks = (NumberTask(number) for number in range(5) if number not in left_out)
    runner = InProcess(SimClock())
    with closing(runner.stream(tasks, store.read)) as all_ended:
        for ended in all_ended:
            if ended.done.is_of_part:
                left_out.update({2, 3})
    assert store.requests == Counter([0, 1, 4])
