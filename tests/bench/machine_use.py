"""CPU time and memory of a process from /proc, and what a sync costs on this disk."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mb(pid: int, *, peak: bool = False) -> float:
    """Resident memory in MB (10^6), now or at its peak."""
    name = "VmHWM:" if peak else "VmRSS:"
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024 / 1e6
    raise AssertionError(f"process {pid} has no {name}")


def memory_mb(pid: int) -> dict[str, float]:
    """Resident memory in MB (10^6): the process's own, and pages mapped from files.

    The kernel takes the latter back when it needs them.
    """
    kinds = {"RssAnon:": "rss_anon_mb", "RssFile:": "rss_file_mb"}
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    fields = [line.split() for line in lines if line.startswith(tuple(kinds))]
    return {kinds[name]: int(kib) * 1024 / 1e6 for name, kib, _ in fields}


def forget_cached(paths: Iterable[Path]) -> None:
    """Have the page cache let go of files; pages that a process has mapped stay."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def open_files(pid: int) -> int:
    """Descriptors that a process holds, sockets and pipes included."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def process_tree(pid: int) -> Iterator[int]:
    """A process and every one below it."""
    yield pid
    for tid in names_in(f"/proc/{pid}/task"):
        with suppress(OSError):  # it has just ended
            for child in Path(f"/proc/{pid}/task/{tid}/children").read_text().split():
                yield from process_tree(int(child))


def names_in(directory: str) -> list[str]:
    """Of /proc; none when what it is about has just ended."""
    with suppress(OSError):
        return os.listdir(directory)
    return []


def own_cpu_seconds() -> float:
    """User and system time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def fdatasync_p50_ms(directory: Path, count: int = 400) -> float:
    """Median time of an fdatasync after a small append: the floor under every synced figure."""
    path = directory / "fdatasync.probe"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    times = []
    try:
        for _ in range(count):
            os.write(descriptor, b"x" * 200)
            started = time.perf_counter()
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - started)
    finally:
        os.close(descriptor)
        path.unlink()
    return sorted(times)[count // 2] * 1000
