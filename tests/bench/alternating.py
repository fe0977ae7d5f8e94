"""An older tree beside this one: ``python -m tests.bench.alternating --older TREE [name ...]``.

Each round runs each benchmark (--quick, kafkalog alone) in the older tree, in this one and in this
one again, one after the other; the order turns from round to round. A row that the older tree does
not have is left out. The second run of this tree shows what the machine alone does to a ratio. A
row is slower when its median ratio is below 0.97 and below every ratio of this tree to itself. Both
trees need `make setup`. Prints a table; writes all rounds to alternating.json beside this file (in
results/ each file is a row), or where --out says.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.bench.__main__ import BENCHMARKS
from tests.bench.results import RESULTS, ROOT, commit, machine

FIGURE = re.compile(r"^\w+: ([\d.,e+]+) (\S+) ", re.MULTILINE)
TOLERANCE = 0.97
SIDES = ("older", "this", "again")
HIGHER_IS_BETTER = "/s"


def measure(tree: Path, name: str) -> tuple[float, str]:
    """Figure and unit of one quick round in ``tree``."""
    command = [".venv/bin/python", "-m", "tests.bench", "--quick", "--without-kafka"]
    run = subprocess.run(
        [*command, "--rounds", "1", name], cwd=tree, capture_output=True, text=True, check=False
    )
    found = FIGURE.search(run.stdout)
    if run.returncode != 0 or found is None:
        sys.exit(f"{tree}: the benchmark failed\n{run.stdout}{run.stderr}")
    return float(found[1].replace(",", "")), found[2]


def compared(rounds: list[dict[str, float]], unit: str) -> dict[str, Any]:
    """Ratios of the rounds, above 1 where this tree is better, and the verdict."""

    def ratio(new: float, old: float) -> float:
        return new / old if unit.endswith(HIGHER_IS_BETTER) else old / new

    ratios = [ratio(each["this"], each["older"]) for each in rounds]
    ratios += [ratio(each["again"], each["older"]) for each in rounds]
    to_itself = [ratio(each["this"], each["again"]) for each in rounds]
    lowest_to_itself = min(min(each, 1 / each) for each in to_itself)
    median = statistics.median(ratios)
    return {
        "unit": unit,
        "rounds": rounds,
        "ratio": round(median, 3),
        "lowest_ratio_to_itself": round(lowest_to_itself, 3),
        "is_slower": median < TOLERANCE and median < lowest_to_itself,
    }


def shared(names: list[str], older: Path) -> list[str]:
    """The rows that do the same work in the older tree; the others are named."""
    command = [".venv/bin/python", "-m", "tests.bench", "--help"]
    text = subprocess.run(command, cwd=older, capture_output=True, text=True, check=True).stdout
    there = set(re.findall(r"\w+", text))
    if not (older / "tests/bench/kafka_wire.py").exists():
        there.discard("produce_raw")  # eight batches a request, none in flight beside it
    for name in names:
        if name not in there:
            print(f"{name}: left out, the older tree does not have it")
    return [name for name in names if name in there]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.alternating", description=__doc__)
    parser.add_argument("--older", type=Path, required=True, help="a checkout of its commit")
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHMARKS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS.parent / "alternating.json")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    trees = {"older": options.older.resolve(), "this": ROOT, "again": ROOT}
    names = shared(options.names or list(BENCHMARKS), trees["older"])
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    units: dict[str, str] = {}
    for number in range(options.rounds):
        for name in names:
            figures[name].append({})
            for side in (*SIDES[number % 3 :], *SIDES[: number % 3]):
                figures[name][-1][side], units[name] = measure(trees[side], name)
        print(f"round {number + 1} of {options.rounds}", flush=True)
    rows = {name: compared(figures[name], units[name]) for name in names}
    for name, row in rows.items():
        verdict = "SLOWER" if row["is_slower"] else "ok"
        medians = [statistics.median(each[side] for each in row["rounds"]) for side in SIDES]
        texts = ", ".join(
            f"{side} {median:,.4g}" for side, median in zip(SIDES, medians, strict=True)
        )
        print(
            f"{name}: {row['ratio']:.3f} ({verdict}; to itself >= {row['lowest_ratio_to_itself']})"
            f" {texts} {row['unit']}"
        )
    older = commit(trees["older"])
    content = {"older": older, "this": commit(), "machine": machine(), "rows": rows}
    options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(row["is_slower"] for row in rows.values()))


if __name__ == "__main__":
    main()
