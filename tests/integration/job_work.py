"""Work for the runners of jobs, where a process that is started anew can import it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kafkalog.errors import CorruptBatch
from kafkalog.jobs.tasks import InProcess, run_job


@dataclass(frozen=True, slots=True)
class NumberTask:
    """A number to square, or something else to do."""

    number: int
    deed: str = "square"
    file: str = ""

    @property
    def label(self) -> str:
        return f"number {self.number}"

    @property
    def size_bytes(self) -> int:
        return self.number


def work(task: NumberTask) -> tuple[int, int]:
    """The square, and the process that made it."""
    match task.deed:
        case "corrupt":
            raise CorruptBatch("A batch fails its CRC", file="a.log", position=7)
        case "full":
            raise OSError(28, "No space left on device")
        case "defect":
            raise ZeroDivisionError("nobody expected it")
        case "die":
            os._exit(9)
        case "note":
            Path(task.file).write_text("begun")
        case "write forever":
            Path(task.file).write_text("begun")
            while True:
                Path(task.file).write_text("more")
    return task.number**2, os.getpid()


def squares_in_process(tasks: list[NumberTask]) -> list[int]:
    return [square for square, _ in run_job("square", tasks, work, list, InProcess())]
