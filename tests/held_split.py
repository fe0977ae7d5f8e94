"""A split compaction that waits: ``python -m tests.held_split SOURCE OUT PHASE GATE``.

Two processes work. The first task of the phase prints "held PID" when its work is done, and then
waits until somebody opens GATE, a pipe, for writing: who kills the process or its driver meanwhile
knows where they are.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from kafkalog.observe.logging import configure_logging
from tests.split_runners import DisturbedRunner
from tests.split_world import split_in_processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.spark.jobs.tasks import ResultT, TaskT


def hold(gate: str, work: Callable[[TaskT], ResultT], label: str, task: TaskT) -> ResultT:
    """The one task waits at the gate."""
    result = work(task)
    if task.label == label:
        sys.stdout.write(f"held {os.getpid()}\n")
        sys.stdout.flush()
        with open(gate, "rb") as pipe:
            pipe.read()
    return result


def main() -> None:
    """See the module."""
    source, out, phase, gate = sys.argv[1:]
    configure_logging(sys.stderr, log_format="console", level="warning")
    runner = DisturbedRunner(phase, partial(hold, gate))
    split_in_processes(source, out, runner)


if __name__ == "__main__":
    main()
