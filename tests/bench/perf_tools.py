"""Perf tools in processes of their own: `kafkalog perf` and Kafka's, which print the same lines."""

from __future__ import annotations

import re
import resource
import subprocess
import time
from typing import TYPE_CHECKING

from tests.bench.machine_use import cpu_seconds
from tests.bench.results import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TOOL_SECONDS = 600.0
_PRODUCED = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)


def produced(command: Sequence[str], server_pid: int, records: int) -> Sample:
    """Records a second, by the tool's last line."""

    def rate(output: str) -> float:
        found = list(_PRODUCED.finditer(output))
        assert found, output[-1000:]
        assert int(found[-1][1]) == records, output[-1000:]
        return float(found[-1][2])

    return _run(command, server_pid, rate)


def consumed(command: Sequence[str], server_pid: int) -> Sample:
    """MB a second of fetching; the time before the first fetch is left out."""
    return _run(
        command,
        server_pid,
        lambda output: float(dict(_csv_columns(output))["fetch.MB.sec"]) * 2**20 / 1e6,
    )


def _run(command: Sequence[str], server_pid: int, figure: Callable[[str], float]) -> Sample:
    """The figure in what the tool prints, with the CPU shares of its process and of the server."""
    server, before = cpu_seconds(server_pid), resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False
    )
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout[-1500:]}\n{done.stderr[-1500:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    server_share = (cpu_seconds(server_pid) - server) / seconds
    return Sample(figure(done.stdout), cpu / seconds, server_share)


def _csv_columns(output: str) -> Iterator[tuple[str, str]]:
    """The tool's header line and its last line, as pairs."""
    lines = [line for line in output.splitlines() if line.count(",") >= 5]
    names, values = lines[0].split(","), lines[-1].split(",")
    for name, value in zip(names, values, strict=True):
        yield name.strip(), value.strip()
