"""Goal: each alert is described, tried firing and silent, and asks for series that exist.
Method: the rule file, its promtool cases and docs/metrics.md, read side by side.
"""

from __future__ import annotations

import yaml

from tests.operate.deployed import STOCK, all_series_names, documented_names
from tests.operate.documents import RUNBOOKS
from tests.operate.prometheus import DEPLOYED, rules_of

RULES = rules_of(DEPLOYED / "kafkalog.rules.yml")
SEVERITIES = {"critical", "warning", "info"}


def test_each_alert_is_described() -> None:
    """Nobody is woken by a bare name."""
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names)) == 23
    for rule in RULES:
        assert rule["labels"]["severity"] in SEVERITIES
        annotations = rule["annotations"]
        assert set(annotations) == {"summary", "description", "runbook_url"}
        assert all(annotations.values())
        assert annotations["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"
        assert (RUNBOOKS / f"{rule['alert']}.md").is_file()


def test_each_alert_has_a_firing_and_a_silent_case() -> None:
    """No alert is shipped untried."""
    document = yaml.safe_load((DEPLOYED / "kafkalog.rules.test.yml").read_text())
    cases = [case for test in document["tests"] for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in RULES}
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == names
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == names


def test_every_series_is_one_of_the_daemon() -> None:
    """No rule and no panel waits for a series that nobody makes."""
    names = {name for name in all_series_names() if not STOCK.fullmatch(name)}
    assert len(names) > 60
    assert not names - documented_names()
