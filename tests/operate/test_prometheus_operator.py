"""Goal: who has the Prometheus operator gets our scrape and our alerts; no cluster drops a field.
Method: the objects against the operator's own definitions, of an old and a new version; the rules
of ``deploy/k8s/prometheus-rule`` beside the file of deploy/prometheus.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.operate.crd_schemas import VERSIONS, faults
from tests.operate.prometheus import DEPLOYED, rules_of
from tests.operate.tools import ROOT, run

if TYPE_CHECKING:
    from pathlib import Path

K8S = ROOT / "deploy" / "k8s"
GENERATOR = K8S / "prometheus-rule"
RULES = DEPLOYED / "kafkalog.rules.yml"
MONITOR = K8S / "components" / "monitoring" / "service-monitor.yaml"
every_version = pytest.mark.parametrize("version", VERSIONS)


def prometheus_rule(*labels: str) -> str:
    done = run("sh", GENERATOR, *labels)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@every_version
def test_the_rule_keeps_its_schema(version: str) -> None:
    rule: dict[str, Any] = yaml.safe_load(prometheus_rule())
    assert faults(rule, version) == []
    alert = rule["spec"]["groups"][0]["rules"][0]
    alert["fro"] = alert.pop("for")
    assert faults(rule, version)
    del alert["fro"]
    alert["for"] = 120
    assert faults(rule, version)


@every_version
def test_the_monitor_keeps_its_schema(version: str) -> None:
    monitor: dict[str, Any] = yaml.safe_load(MONITOR.read_text(encoding="utf-8"))
    assert faults(monitor, version) == []
    (endpoint,) = monitor["spec"]["endpoints"]
    endpoint["scrapeTimout"] = endpoint.pop("scrapeTimeout")
    (fault,) = faults(monitor, version)
    assert "scrapeTimout" in fault


def test_the_rule_is_the_file_of_alerts() -> None:
    """The operator evaluates what Prometheus' own file has, to the byte."""
    made = prometheus_rule()
    _, _, spec = made.partition("\nspec:\n")
    lines = [line.removeprefix("  ") for line in spec.splitlines(keepends=True)]
    assert "".join(lines) == RULES.read_text(encoding="utf-8")
    groups = yaml.safe_load(made)["spec"]["groups"]
    names = [rule["alert"] for group in groups for rule in group["rules"]]
    assert names == [rule["alert"] for rule in rules_of(RULES)]
    assert len(names) > 20


def test_there_is_one_copy_of_the_alerts() -> None:
    found = [
        path.name
        for path in (ROOT / "deploy").rglob("*")
        if path.is_file() and "alert: KafkalogDown" in path.read_text(encoding="utf-8")
    ]
    assert found == [RULES.name]


def test_any_yaml_and_any_label(tmp_path: Path) -> None:
    """What is in the file does not matter, nor where it is called; a wrong call is told."""
    (tmp_path / "k8s").mkdir()
    (tmp_path / "prometheus").mkdir()
    generator = tmp_path / "k8s" / "prometheus-rule"
    generator.write_bytes(GENERATOR.read_bytes())
    rules = tmp_path / "prometheus" / RULES.name
    missing = run("sh", generator)
    assert (missing.returncode, missing.stdout) == (1, "")
    rules.write_text(
        "# A comment.\ngroups:\n  - name: g\n    rules:\n      - alert: A\n        expr: |\n"
        "          up == 0\n\n            or vector(1)\n"
        "        annotations: {summary: \"a: 'b'\"}\n"
    )
    done = run("sh", generator, "release=monitoring")
    assert done.returncode == 0, done.stderr
    made = yaml.safe_load(done.stdout)
    assert made["spec"] == yaml.safe_load(rules.read_text())
    assert (made["kind"], made["apiVersion"]) == ("PrometheusRule", "monitoring.coreos.com/v1")
    assert made["metadata"]["labels"] == {
        "app.kubernetes.io/name": "kafkalog",
        "release": "monitoring",
    }
    assert run("sh", generator, "monitoring").returncode == 2
