"""The table of results in README.md, between two marker comments, made from results/*.json.

``python -m tests.bench.report`` renews it; a test keeps both equal.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.bench.results import LOAD_CLIENT

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results"
README = ROOT / "README.md"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
_HEAD = "| Work | Client | kafkalog | Kafka | Ratio | Goal | Met |\n|---|---|---|---|---|---|---|\n"
_MET = {True: "yes", False: "no", None: "-"}


def load_results(directory: Path = RESULTS) -> list[dict[str, Any]]:
    return [json.loads(path.read_text("utf-8")) for path in sorted(directory.glob("*.json"))]


def render(results: list[dict[str, Any]]) -> str:
    """The table and a line on where the figures come from."""
    if not results:
        return "No results yet: `make bench` writes them.\n"
    rows = "".join(_row(result) for result in sorted(results, key=_place))
    return f"{_HEAD}{rows}\n{_sources(results)}\n"


def _place(result: dict[str, Any]) -> int:
    """Rows of one client on both sides come first, then those of two clients, then the others."""
    if "client" not in result or result["kafka_median"] is None:
        return 2
    return 0 if result["client"] == LOAD_CLIENT else 1


def _row(result: dict[str, Any]) -> str:
    ours = _figure(result["median"], result["min"], result["max"], result["unit"])
    theirs = ""
    if result["kafka_median"] is not None:
        theirs = _figure(
            result["kafka_median"], result["kafka_min"], result["kafka_max"], result["unit"]
        )
    ratio = "" if result["ratio_median"] is None else f"{result['ratio_median']:.3g}x"
    beside = {**result["extra_median"], **result["beside"]}
    for name, value in beside.items():
        ours += f"; {name.replace('_', ' ')} {_number(value)}"
    what = f"{result['what']} ({result['durability']})" if result["durability"] else result["what"]
    figures = f"{ours} | {theirs} | {ratio} | {result['goal']} | {_MET[result['met']]}"
    return f"| {what} | {result.get('client', '')} | {figures} |\n"


def _figure(median: float, low: float, high: float, unit: str) -> str:
    return f"{_number(median)} {unit} ({_number(low)} to {_number(high)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _sources(results: list[dict[str, Any]]) -> str:
    """Machine, versions and commits; every different one is named."""
    seen: list[str] = []
    for result in results:
        text = f"{origin_of(result)}, {len(result['rounds'])} rounds"
        if text not in seen:
            seen.append(text)
    kafka = sorted({result["kafka"] for result in results if result["kafka"]})
    beside = f" Apache Kafka {', '.join(kafka)} in the same run on the same cores." if kafka else ""
    return "Median (lowest to highest) of the rounds. " + "; ".join(seen) + "." + beside


def origin_of(result: dict[str, Any]) -> str:
    """Machine, date and commit of a run."""
    box = result["machine"]
    return (
        f"{box['cpu']}, {box['cores']} cores, {box['memory_gib']} GiB, Linux {box['kernel']}, "
        f"{box['filesystem']}, Python {result['python']}, {result['date']}, "
        f"commit {result['commit']}"
    )


def replace_block(text: str, table: str) -> str:
    """The page with a new text between the markers; ValueError when a marker is missing."""
    start = text.index(BEGIN) + len(BEGIN)
    return f"{text[:start]}\n{table}{text[text.index(END, start) :]}"


def main() -> None:
    text = README.read_text(encoding="utf-8")
    README.write_text(replace_block(text, render(load_results())), encoding="utf-8")


if __name__ == "__main__":
    main()
