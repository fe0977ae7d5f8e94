"""Where the CPU time of a Spark session goes, by kind of thread, from /proc.

The driver, its JVM and its Python workers are one tree of processes. Threads of the JVM are told by
their names, without numbers; Python's by what their process is. What a thread used that ended
between two looks is missed.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from tests.bench.machine_use import names_in, process_tree

_TICKS = os.sysconf("SC_CLK_TCK")
_NUMBERS = re.compile(r"[#0-9.-]+$|[0-9]+")
_SHOWN_SHARE = 0.01


class _Thread(NamedTuple):
    pid: int
    tid: int


class _Used(NamedTuple):
    kind: str
    seconds: float


class SparkProfile:
    """CPU seconds between pairs of ``begin`` and ``end``, of a process and all below it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before: dict[_Thread, _Used] = {}
        self._seconds: dict[str, float] = defaultdict(float)

    def begin(self) -> None:
        """What comes counts."""
        self._before = self._now()

    def end(self) -> None:
        """What comes does not."""
        for thread, used in self._now().items():
            before = self._before.get(thread)
            self._seconds[used.kind] += used.seconds - (before.seconds if before else 0.0)

    def text(self, wall_seconds: float) -> str:
        """Lines of seconds, share and kind, the most expensive first."""
        total = sum(self._seconds.values())
        lines = [
            f"wall {wall_seconds:.2f} s, CPU {total:.2f} s, "
            f"{total / wall_seconds:.2f} processors in use"
        ]
        for kind, seconds in sorted(self._seconds.items(), key=lambda each: -each[1]):
            if seconds >= total * _SHOWN_SHARE:
                lines.append(f"{seconds:8.2f} {seconds / total:6.1%}  {kind}")
        return "\n".join(lines) + "\n"

    def _now(self) -> dict[_Thread, _Used]:
        found = {}
        for pid in process_tree(self._pid):
            for tid in names_in(f"/proc/{pid}/task"):
                stat = _stat(f"/proc/{pid}/task/{tid}/stat")
                if stat is not None:
                    name, seconds = stat
                    found[_Thread(pid, int(tid))] = _Used(self._kind(pid, name), seconds)
        return found

    def _kind(self, pid: int, name: str) -> str:
        if pid == self._pid:
            return "Python: driver"
        stat = _stat(f"/proc/{pid}/stat")
        if stat is not None and stat[0] == "java":
            return f"JVM: {_NUMBERS.sub('', name).strip()}"
        return "Python: workers"


def _stat(path: str) -> tuple[str, float] | None:
    """Name, and user and system time so far; None when it has ended."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    return head.partition("(")[2], (int(fields[11]) + int(fields[12])) / _TICKS
