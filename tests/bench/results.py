"""What a benchmark found: samples, rounds, the result file, the machine it ran on."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results"
LOAD_CLIENT = "load client"  # tests/bench/load_client.py, on both sides


@dataclass(frozen=True, slots=True)
class Sample:
    """One side's figure in one round. CPU shares: 1.0 is one core for the whole time."""

    value: float
    client_cpu_share: float | None = None
    server_cpu_share: float | None = None
    extra: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Round:
    """Both sides of one round, run one after the other."""

    kafkalog: Sample
    kafka: Sample | None = None

    def ratio(self, *, lower_is_better: bool) -> float | None:
        """How many times better kafkalog is; above 1 is better, whatever the unit."""
        if self.kafka is None or not self.kafka.value or not self.kafkalog.value:
            return None
        quotient = self.kafkalog.value / self.kafka.value
        return 1 / quotient if lower_is_better else quotient


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be reached: a bound on the figure, on the ratio to Kafka, on an extra figure.

    Without a bound the figure only says what it is.
    """

    text: str
    at_least: float | None = None
    at_most: float | None = None
    ratio: float | None = None
    extra_at_least: dict[str, float] = field(default_factory=dict)
    extra_at_most: dict[str, float] = field(default_factory=dict)

    @classmethod
    def times(cls, ratio: float) -> Goal:
        """So many times as good as Kafka."""
        return cls(f">= {ratio:g}x", ratio=ratio)


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    what: str
    unit: str
    durability: str
    goal: Goal
    rounds: list[Round]
    client: str = ""  # who drives the sides; each its own is a text for both
    lower_is_better: bool = False
    notes: tuple[str, ...] = ()
    beside: dict[str, float] = field(default_factory=dict)

    def median(self) -> float:
        return statistics.median(item.kafkalog.value for item in self.rounds)

    def ratio_median(self) -> float | None:
        """Median of the rounds' ratios; None without Kafka."""
        ratios = [item.ratio(lower_is_better=self.lower_is_better) for item in self.rounds]
        known = [ratio for ratio in ratios if ratio is not None]
        return statistics.median(known) if known else None

    def extra_median(self, name: str) -> float:
        return statistics.median(item.kafkalog.extra[name] for item in self.rounds)

    def met(self) -> bool | None:
        """Whether every part of the goal holds; None without one or when it was not measured."""
        goal, ratio = self.goal, self.ratio_median()
        if goal == Goal(goal.text) or (goal.ratio is not None and ratio is None):
            return None
        parts = [
            goal.at_least is None or self.median() >= goal.at_least,
            goal.at_most is None or self.median() <= goal.at_most,
            goal.ratio is None or ratio is None or ratio >= goal.ratio,
            *(self.extra_median(name) >= least for name, least in goal.extra_at_least.items()),
            *(self.extra_median(name) <= most for name, most in goal.extra_at_most.items()),
        ]
        return all(parts)


def to_json(result: Result, kafka_version: str | None) -> dict[str, Any]:
    ours = [item.kafkalog.value for item in result.rounds]
    theirs = [item.kafka.value for item in result.rounds if item.kafka is not None]
    shares = [
        item.kafkalog.client_cpu_share
        for item in result.rounds
        if item.kafkalog.client_cpu_share is not None
    ]
    extras = {name: result.extra_median(name) for name in result.rounds[0].kafkalog.extra}
    ratio = result.ratio_median()
    return {
        "name": result.name,
        "what": result.what,
        **({"client": result.client} if result.client else {}),
        "unit": result.unit,
        "durability": result.durability,
        **origin(),
        "kafka": kafka_version if theirs else None,
        "rounds": [
            asdict(item) | {"ratio": _short(item.ratio(lower_is_better=result.lower_is_better))}
            for item in result.rounds
        ],
        "median": _short(statistics.median(ours)),
        "min": _short(min(ours)),
        "max": _short(max(ours)),
        "extra_median": {name: _short(value) for name, value in extras.items()},
        "kafka_median": _short(statistics.median(theirs)) if theirs else None,
        "kafka_min": _short(min(theirs)) if theirs else None,
        "kafka_max": _short(max(theirs)) if theirs else None,
        "ratio_median": _short(ratio),
        "client_cpu_share": _short(statistics.median(shares)) if shares else None,
        "beside": {name: _short(value) for name, value in result.beside.items()},
        "goal": result.goal.text,
        "met": result.met(),
        "notes": list(result.notes),
    }


def origin() -> dict[str, Any]:
    """What was measured where."""
    return {
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "machine": machine(),
        "python": platform.python_version(),
    }


def write(result: Result, kafka_version: str | None, directory: Path = RESULTS) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / f"{result.name}.json"
    path.write_text(json.dumps(to_json(result, kafka_version), indent=1) + "\n", encoding="utf-8")
    return path


def machine() -> dict[str, Any]:
    """What decides the figures: processor, cores, memory, kernel, file system of the data."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release().split("-")[0],
        "filesystem": _output("findmnt", "-no", "FSTYPE", "--target", str(ROOT)),
    }


def commit(tree: Path = ROOT) -> str:
    """Short name of the checkout's commit, with + when tracked files differ from it."""
    git = ("git", "-C", str(tree))
    name = _output(*git, "rev-parse", "--short", "HEAD")
    dirty = _output(*git, "status", "--porcelain", "--untracked-files=no", "--", "kafkalog")
    return name + ("+" if dirty else "")


def answer_of(program: str, directory: Path) -> Any:
    """The JSON that a program of this folder prints last, run in a process of its own."""
    command = [sys.executable, "-m", f"tests.bench.{program}", str(directory)]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    return json.loads(output.splitlines()[-1])


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _short(value: float | None) -> float | None:
    """Four significant digits: more would claim what no round shows."""
    return None if value is None else float(f"{value:.4g}")
