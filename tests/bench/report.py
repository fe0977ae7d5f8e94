"""docs/benchmarks.md and its picture from results/*.json.

``python -m tests.bench.report`` renews the parts between two marker comments and the picture; a
test keeps them equal to the files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.bench import plot
from tests.bench.results import LOAD_CLIENT

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "images" / "benchmarks.svg"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
ONE_CLIENT, TWO_CLIENTS, NO_CLIENT = (
    "One load client for both sides",
    "Client and broker together",
    "Without a client",
)
ALONE, ON_SPARK = "kafkalog alone", "On Spark"
SECTIONS = (ONE_CLIENT, TWO_CLIENTS, NO_CLIENT, ALONE, ON_SPARK)
_HEAD = "| Work | kafkalog | Kafka | Ratio | Goal | Met |\n|---|---|---|---|---|---|\n"
_MET = {True: "yes", False: "no", None: "-"}
_PREFIX = {TWO_CLIENTS: "Client and broker together: ", ON_SPARK: "Spark: "}

Results = list[dict[str, Any]]


def load_results(directory: Path = RESULTS) -> Results:
    return [json.loads(path.read_text("utf-8")) for path in sorted(directory.glob("*.json"))]


def section_of(result: dict[str, Any]) -> str:
    """Where the row stands on the page."""
    client = result.get("client")
    if result["name"].startswith("spark_"):
        return ON_SPARK
    if result["kafka_median"] is None:
        return ALONE
    if not client:
        return NO_CLIENT
    return ONE_CLIENT if client == LOAD_CLIENT else TWO_CLIENTS


def render(results: Results) -> str:
    """A table a section, and where the figures come from."""
    if not results:
        return "No results yet: `make bench` writes them.\n"
    parts = []
    for section in SECTIONS:
        rows = "".join(_row(each, section) for each in results if section_of(each) == section)
        if rows:
            parts.append(f"## {section}\n\n{_HEAD}{rows}")
    return "\n".join((*parts, _sources(results))) + "\n"


def picture(results: Results) -> str:
    """The ratios as bars."""
    return plot.ratios(
        [
            (_work(each, "" if section == ON_SPARK else section), each["ratio_median"])
            for section in SECTIONS
            for each in results
            if section_of(each) == section and each["ratio_median"] is not None
        ]
    )


def _work(result: dict[str, Any], section: str) -> str:
    what: str = result["what"].removeprefix(_PREFIX.get(section, ""))
    return what[0].upper() + what[1:]


def _row(result: dict[str, Any], section: str) -> str:
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
    what = _work(result, section)
    notes = [each for each in (result["durability"], _other_client(result)) if each]
    if notes:
        what += f" ({'; '.join(notes)})"
    figures = f"{ours} | {theirs} | {ratio} | {result['goal']} | {_MET[result['met']]}"
    return f"| {what} | {figures} |\n"


def _other_client(result: dict[str, Any]) -> str:
    client: str = result.get("client", "")
    return "" if client == LOAD_CLIENT else client


def _figure(median: float, low: float, high: float, unit: str) -> str:
    return f"{_number(median)} {unit} ({_number(low)} to {_number(high)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _sources(results: Results) -> str:
    """Machine, versions and commits; every different one is named."""
    seen: list[str] = []
    for result in results:
        text = f"- {origin_of(result)}, {len(result['rounds'])} rounds"
        if text not in seen:
            seen.append(text)
    kafka = sorted({result["kafka"] for result in results if result["kafka"]})
    beside = f" Apache Kafka {', '.join(kafka)} in the same run on the same cores." if kafka else ""
    sources = "\n".join(sorted(seen))
    return f"Median (lowest to highest) of the rounds.{beside} Machines and commits:\n\n{sources}"


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


def pages(results: Results) -> dict[Path, str]:
    """What each file shall hold."""
    return {
        PAGE: replace_block(PAGE.read_text(encoding="utf-8"), render(results)),
        PICTURE: picture(results),
    }


def main() -> None:
    for page, text in pages(load_results()).items():
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
