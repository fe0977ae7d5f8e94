"""How the jobs grow with records, segments and a store: ``python -m tests.bench.spark_growth``.

``--size 0.01`` does a hundredth of everything, and ``--quick`` that and only prints. A run without
--quick writes results/growth/jobs.json and the tables of docs/explanation/growth-of-jobs.md. Needs
Java 17. The full run needs 8 GB of disk below build/bench, which it removes at its end.

Each job has a process of its own, with the smaller sizes before the larger ones; the smallest one
is done once more before, so that the measured runs are warm. Memory is the peak of a run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kafkalog.observe.logging import configure_logging
from tests.bench import growth, report, results
from tests.bench.bench import Bench
from tests.bench.growth_logs import PARTITIONS, Written, write_records, write_segments
from tests.bench.machine_use import process_tree, resident_mb
from tests.bench.spark_side import SparkProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.bench.growth import Table
    from tests.bench.spark_side import Answer

FILE = report.RESULTS / "growth" / "jobs.json"
PAGE = report.ROOT / "docs" / "explanation" / "growth-of-jobs.md"
RECORDS, SEGMENTS, STORE_SEGMENTS = 20_000_000, 20_000, 100_000
SHARES = (1 / 16, 1 / 4, 1.0)
QUICK_SIZE = 0.01
JOBS = ("archive", "stats", "audit", "whatif", "compact")
PLANS = ("query", "archive", "stats", "audit", "whatif")
NOT_MEASURED = "Not measured yet on this version.\n"
_SCAN, _STREAM = "scan", "plan of a stream"
_LOOK_SECONDS = 0.05
_MB = 1e6

Column = dict[str, float]
"""What one run of a job found, by name."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark_growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a hundredth, print only")
    parser.add_argument("--size", type=float, help="share of the records and segments; default 1")
    parser.add_argument("--work", type=Path, default=results.ROOT / "build" / "bench")
    options = parser.parse_args()
    size = options.size or (QUICK_SIZE if options.quick else 1.0)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed
    configure_logging(sys.stderr, log_format="console", level="error")
    work = options.work.resolve()
    bench = Bench(work=work, rounds=1, quick=options.quick, jars=None, name="spark_growth")
    found: dict[str, Any] = {**results.origin(), "size": size}
    begun = time.perf_counter()
    for measure in MEASURES:
        bench.clear()
        try:
            found[measure.__name__] = measure(bench, size)
        finally:
            bench.clear()
        print(f"{measure.__name__}: {time.perf_counter() - begun:.0f} s so far", flush=True)
    print(as_page(found))
    if not options.quick:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(report.replace_block(text, as_page(found)), encoding="utf-8")


def written() -> str:
    """The tables of the last run that wrote some."""
    if not FILE.exists():
        return NOT_MEASURED
    return as_page(json.loads(FILE.read_text(encoding="utf-8")))


# ---- measures: the columns of each job, by its name


def by_records(bench: Bench, size: float) -> dict[str, list[Column]]:
    """Jobs over records of 100 bytes in 16 partitions."""
    logs = [_logs(bench, write_records, RECORDS * size * share) for share in SHARES]
    return {name: _columns(bench, name, logs) for name in (*JOBS, _SCAN, _STREAM)}


def by_segments(bench: Bench, size: float) -> dict[str, list[Column]]:
    """Jobs over segments of 8 records."""
    logs = [_logs(bench, write_segments, SEGMENTS * size * share) for share in SHARES]
    return {name: _columns(bench, name, logs) for name in (*JOBS, _SCAN, _STREAM)}


def on_a_store(bench: Bench, size: float) -> dict[str, list[Column]]:
    """Plans over segments of 100 MiB on a simulated store; a process for each plan."""
    found: dict[str, list[Column]] = {}
    for name in (*PLANS, _STREAM):
        found[name] = []
        for number, share in enumerate(SHARES):
            segments = max(int(STORE_SEGMENTS * size * share) // PARTITIONS, 5) * PARTITIONS
            place = f"store-{name.replace(' ', '-')}-{number}"
            with SparkProcess.of(bench, place, with_spark=False) as process:
                if name == _STREAM:
                    answer = process.ask("grown_trigger", segments=segments)
                else:
                    target = str(bench.directory(f"{place}-target"))
                    answer = process.ask("grown_store", name=name, segments=segments, target=target)
            found[name].append({"segments": segments, **answer})
    return found


def _logs(bench: Bench, write: Callable[[Path, int], Written], count: float) -> Written:
    return write(bench.directory(f"logs-{count:.0f}"), int(count))


def _columns(bench: Bench, name: str, logs: list[Written]) -> list[Column]:
    """One job over each of the log directories, in one process."""
    place = name.replace(" ", "-")
    target = str(bench.directory(f"{place}-target"))

    def ask(process: SparkProcess, written: Written) -> Answer:
        if name == _SCAN:
            return process.ask("grown_scan", log_dir=written.log_dir)
        if name == _STREAM:
            return process.ask("grown_stream", log_dir=written.log_dir)
        return process.ask("grown_job", name=name, log_dir=written.log_dir, target=target)

    columns = []
    with SparkProcess.of(bench, place, with_spark=name != _STREAM) as process:
        ask(process, logs[0])
        for each in logs:
            with Peaks(process.pid) as peaks:
                answer = ask(process, each)
            counts = {"records": each.records, "segments": each.segments, "bytes": each.log_bytes}
            columns.append({**counts, **answer, **peaks.found_mb})
    return columns


class Peaks:
    """The peaks of memory of a driver, its JVM and its largest worker, between begin and end."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="peaks")
        self.found_mb: dict[str, float] = {}

    def __enter__(self) -> Self:
        for pid in process_tree(self._pid):
            with suppress(OSError):  # it has just ended
                Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_over.wait(_LOOK_SECONDS)
            for pid in process_tree(self._pid):
                with suppress(OSError, AssertionError):  # it has just ended
                    name, peak = self._kind_of(pid), resident_mb(pid, peak=True)
                    self.found_mb[name] = max(self.found_mb.get(name, 0.0), peak)

    def _kind_of(self, pid: int) -> str:
        if pid == self._pid:
            return "driver_mb"
        is_jvm = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "java"
        return "jvm_mb" if is_jvm else "worker_mb"


# ---- the page

_ROWS: dict[str, Callable[[Column], float | None]] = {
    "s": lambda found: found.get("seconds"),
    "records/s": lambda found: _rate(found, "records"),
    "segments/s": lambda found: _rate(found, "segments"),
    "plan, s": lambda found: found.get("plan_seconds"),
    "requests": lambda found: found.get("requests"),
    "next plan, s": lambda found: found.get("later_seconds"),
    "its requests": lambda found: found.get("later_requests"),
    "tasks": lambda found: found.get("tasks"),
    "bytes of tasks": lambda found: found.get("task_bytes"),
    "tasks of Spark": lambda found: found.get("spark_tasks"),
    "driver, MB": lambda found: found.get("driver_mb", found.get("memory_mb")),
    "its JVM, MB": lambda found: found.get("jvm_mb"),
    "largest worker, MB": lambda found: found.get("worker_mb"),
}
_OF_STORE = {"s", "records/s", "segments/s"}


def _rate(found: Column, name: str) -> float | None:
    return found[name] / found["seconds"] if found.get("seconds") else None


def as_page(found: dict[str, Any]) -> str:
    """The tables, and where they come from."""
    parts = []
    for title, measure, unit, left_out in (
        ("Records", "by_records", "records", {"segments/s"}),
        ("Segments", "by_segments", "segments", {"records/s"}),
        ("Plans over a store", "on_a_store", "segments", _OF_STORE),
    ):
        for name, columns in found[measure].items():
            table = _table(columns, unit, left_out)
            parts.append(f"**{title}: {name}**\n\n{growth.as_markdown(table)}")
    size = "" if found["size"] == 1 else f"; {found['size']:g} of the full size"
    return "\n".join([*parts, f"{report.origin_of(found)}, one run{size}.\n"])


def _table(columns: list[Column], unit: str, left_out: Iterable[str]) -> Table:
    """A row for each figure that a job has; each column is a size."""
    heads = [unit, *(f"{each[unit]:,.0f}" for each in columns)]
    rows = []
    for title, figure in _ROWS.items():
        cells = [figure(each) for each in columns]
        if title not in left_out and any(each is not None for each in cells):
            rows.append([title, *("" if each is None else _shown(each) for each in cells)])
    return heads, rows


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


MEASURES = (by_records, by_segments, on_a_store)

if __name__ == "__main__":
    main()
