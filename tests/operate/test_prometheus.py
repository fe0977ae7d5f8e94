"""Goal: dashboards and rules show what is there: every series exists, every expression has data.
Method: Debian's Prometheus scrapes a daemon under the demonstration's load and is asked by its API.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.daemon import ROOT, Daemon
from tests.operate.deployed import DASHBOARDS, all_series_names, panel_expressions, rule_expressions
from tests.operate.prometheus import Prometheus, kit_directory
from tools.metrics_page import metrics_page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(400)]

# Series that are absent while nothing happens that they tell of. They are not missing: another
# test, or docs/reference/metrics.md alone, has them.
ONLY_WHEN_IT_HAPPENS = frozenset(
    {
        "kafka_log_logmanager_remaininglogstorecover",
        "kafka_log_logmanager_remainingsegmentstorecover",
        "kafkalog_archive_held_bytes",
        "kafkalog_cleaner_quarantined",
        "kafkalog_fetch_refusals_total",
        "kafkalog_log_lost_offsets",
        "kafkalog_partition_move_bytes_total",
        "kafkalog_unclean_starts_total",
    }
)
# Panels and annotations that may be empty in a daemon that is well and busy.
QUIET = frozenset(
    {
        "Moves between directories A",
        "Overdue, by topic A",
        "Held for archives A",
        "Changed configuration",
        "Remaining recovery A",
        "Remaining recovery B",
    }
)
SETTINGS: dict[str, Any] = {
    "log_retention_check_interval_ms": "1000",
    "log_cleaner_backoff_ms": "500",
    "log_initial_task_delay_ms": "0",
}
VARIABLES = {
    "$__rate_interval": "10s",
    "$__range": "1h",
    "$__interval": "1m",
    **dict.fromkeys(("$instance", "$log_dir", "$topic", "$partition"), ".*"),
}


@contextmanager
def demonstration(daemon: Daemon) -> Iterator[None]:
    """deploy/demo-load.sh against the daemon, with segments of a second."""
    with (daemon.root / "load.log").open("wb") as log:
        load = subprocess.Popen(
            ["sh", str(ROOT / "deploy" / "demo-load.sh")],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={
                **os.environ,
                "KAFKALOG": f"{sys.executable} -m kafkalog",
                "KAFKALOG_URL": f"http://127.0.0.1:{daemon.port}",
                "DEMO_SEGMENT_MS": "1000",
            },
        )
    try:
        yield
        assert load.poll() is None, (daemon.root / "load.log").read_text()
    finally:
        load.terminate()
        load.wait()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Prometheus]]:
    kit, root = kit_directory(), tmp_path_factory.mktemp("watched")
    with (
        Daemon(root / "daemon", log_dirs=2, **SETTINGS) as daemon,
        demonstration(daemon),
        Prometheus(kit, root / "prometheus", daemon.port) as prometheus,
    ):
        yield daemon, prometheus


def with_values(expr: str) -> str:
    for name in sorted(VARIABLES, key=len, reverse=True):
        expr = expr.replace(name, VARIABLES[name])
    return expr


def test_every_series_is_scraped(watched: tuple[Daemon, Prometheus]) -> None:
    _, prometheus = watched
    wanted = all_series_names() - ONLY_WHEN_IT_HAPPENS
    prometheus.wait_until_none(lambda: sorted(wanted - prometheus.series_names()))


@pytest.mark.parametrize("file_name", DASHBOARDS)
def test_every_panel_has_data(watched: tuple[Daemon, Prometheus], file_name: str) -> None:
    _, prometheus = watched
    expressions = {each.place: with_values(each.expr) for each in panel_expressions(file_name)}
    empty = [place for place in expressions if place not in QUIET]
    assert empty

    def still_empty() -> list[str]:
        empty[:] = [place for place in empty if not prometheus.query(expressions[place])]
        return empty

    prometheus.wait_until_none(still_empty)
    for expr in expressions.values():  # those of faults, too, are queries that it takes
        prometheus.query(expr)


def test_the_rules_are_evaluated(watched: tuple[Daemon, Prometheus]) -> None:
    """The rules work on real series, and no daemon that is well is called ill."""
    _, prometheus = watched
    prometheus.wait_for(
        "all rules", lambda: {rule["health"] for rule in prometheus.rules()} == {"ok"}
    )
    assert len(prometheus.rules()) == len(rule_expressions())
    ill = {rule["name"] for rule in prometheus.rules() if rule["labels"]["severity"] == "critical"}
    assert not (prometheus.firing() & ill) - {"KafkalogDiskCritical"}
    assert not prometheus.query("absent(up) or up == 0")


def test_the_page_is_clean(watched: tuple[Daemon, Prometheus], tmp_path: Path) -> None:
    """Or docs/metrics.md says why not: of Kafka's names alone."""
    daemon, _ = watched
    page = daemon.request("GET", "/metrics").body
    done = subprocess.run(
        [kit_directory() / "promtool", "check", "metrics"],
        input=page,
        capture_output=True,
        check=False,
        timeout=60,
    )
    complaints = (done.stdout + done.stderr).decode().splitlines()
    found = set[str]()
    for line in complaints:
        name, _, complaint = line.partition(" ")
        assert name.startswith("kafka_"), line
        found.add(complaint)
    assert [each for each in found if f"| {each} |" not in metrics_page()] == []
    assert done.returncode == 3, complaints
