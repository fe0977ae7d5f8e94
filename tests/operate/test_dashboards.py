"""Goal: the dashboards are what their source says, and of a form that Grafana takes.
Method: the JSON of deploy/grafana against the generator, and read as a document.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import yaml

from tests.integration.daemon import ROOT
from tests.operate.deployed import DASHBOARDS, GRAFANA, dashboard, panel_expressions
from tools.dashboards import FILES, text_of
from tools.grafana import limits

BUILT_IN = {"__rate_interval", "__range", "__interval"}


def test_the_files_are_current() -> None:
    assert set(FILES) == set(DASHBOARDS)
    for name, source in FILES.items():
        assert (GRAFANA / name).read_text() == text_of(source), "run 'make docs'"


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_form(name: str) -> None:
    """Grafana imports it: schema, fixed uid, one id a panel, a data source to choose."""
    document = dashboard(name)
    assert document["schemaVersion"] >= 39
    assert re.fullmatch(r"[a-z-]{1,40}", document["uid"])
    ids = [panel["id"] for panel in document["panels"]]
    assert sorted(ids) == list(range(1, len(ids) + 1))
    variables = {each["name"]: each for each in document["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    for panel in document["panels"]:
        if panel["type"] == "row":
            assert panel.get("repeat", "topic") in variables
            continue
        assert panel["title"]
        assert panel["targets"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references))
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert all(target["expr"].strip() for target in panel["targets"])
        values = [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
        assert values[0] is None
        assert values[1:] == sorted(set(values[1:]))


@pytest.mark.parametrize("name", DASHBOARDS)
def test_no_panel_lies_on_another(name: str) -> None:
    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        columns = range(place["x"], place["x"] + place["w"])
        return set(itertools.product(columns, range(place["y"], place["y"] + place["h"])))

    taken: set[tuple[int, int]] = set()
    for panel in dashboard(name)["panels"]:
        assert not taken & cells(panel), panel["title"]
        taken |= cells(panel)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_variable_is_declared(name: str) -> None:
    """No expression asks for the literal text of a variable."""
    document = dashboard(name)
    declared = {each["name"] for each in document["templating"]["list"]} | BUILT_IN
    texts = [each.expr for each in panel_expressions(name)]
    texts += [each["definition"] for each in document["templating"]["list"] if "definition" in each]
    used = set(re.findall(r"\$(\w+)", "\n".join(texts)))
    assert used <= declared
    assert {"instance", "topic"} <= used


def test_aliases_alone() -> None:
    assert "kafkalog_" not in (GRAFANA / "kafkalog-strimzi-compat.json").read_text()


def test_limits() -> None:
    def steps(found: list[dict[str, Any]]) -> list[tuple[float | None, str]]:
        return [(step["value"], step["color"]) for step in found]

    assert steps(limits(0.15, 0.05)) == [(None, "red"), (0.05, "orange"), (0.15, "green")]
    assert steps(limits(0.7, 0.9)) == [(None, "green"), (0.7, "orange"), (0.9, "red")]
    assert steps(limits(1, 1)) == [(None, "green"), (1, "red")]


def test_they_are_provisioned() -> None:
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
    mounted = compose["services"]["grafana"]["volumes"]
    provisioning = GRAFANA / "provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards/kafkalog.yml").read_text())[
        "providers"
    ]
    for name in DASHBOARDS:
        assert f"./grafana/{name}:{provider['options']['path']}/{name}:ro" in mounted
    (source,) = yaml.safe_load((provisioning / "datasources/kafkalog.yml").read_text())[
        "datasources"
    ]
    assert source["type"] == "prometheus"
    assert source["url"].split("/")[2].split(":")[0] in compose["services"]
