"""What lies under deploy/, read for the tests: expressions and series names."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from tests.integration.daemon import ROOT
from tests.operate.prometheus import DEPLOYED, rules_of

GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARDS = ("kafkalog.json", "kafkalog-strimzi-compat.json")

# What is in no list of ours: Prometheus' own, and the client library's.
STOCK = re.compile(r"up|process_\w+|python_gc_\w+")


class Expression(NamedTuple):
    place: str
    expr: str


def dashboard(file_name: str) -> dict[str, Any]:
    document = json.loads((GRAFANA / file_name).read_text())
    assert isinstance(document, dict)
    return document


def panel_expressions(file_name: str) -> list[Expression]:
    document = dashboard(file_name)
    found = [
        Expression(f"{panel['title']} {target['refId']}", target["expr"])
        for panel in document["panels"]
        for target in panel.get("targets", ())
    ]
    return found + [
        Expression(each["name"], each["expr"]) for each in document["annotations"]["list"]
    ]


def rule_expressions() -> list[Expression]:
    rules = rules_of(DEPLOYED / "kafkalog.rules.yml")
    return [Expression(rule["alert"], rule["expr"]) for rule in rules]


def series_names(expr: str) -> set[str]:
    """Names of series in PromQL: ours, Kafka's and stock ones."""
    without_strings = re.sub(r'"[^"]*"', '""', expr)
    return set(re.findall(r"\b(?:kafkalog_|kafka_|process_|python_)\w+|\bup\b", without_strings))


def all_series_names() -> set[str]:
    expressions = rule_expressions()
    for file_name in DASHBOARDS:
        expressions += panel_expressions(file_name)
    return set().union(*(series_names(each.expr) for each in expressions))


def documented_names() -> set[str]:
    """Of docs/reference/metrics.md, which is generated; a histogram's series among them."""
    names: set[str] = set()
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) ", (ROOT / "docs/reference/metrics.md").read_text(), re.MULTILINE
    )
    for name, kind in rows:
        names |= (
            {f"{name}_{part}" for part in ("bucket", "sum", "count")}
            if kind == "histogram"
            else {name}
        )
    return names
