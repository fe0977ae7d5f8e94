"""Goal: whatever under deploy/ asks the daemon may ask by the name that it uses.
Method: every URL, scrape target, Service and pod name there, against the rule of Host.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml
from aiohttp.test_utils import make_mocked_request

from kafkalog.server.security.hosts import ALLOWED, Hosts, names_beside, with_short_forms
from tests.integration.daemon import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DEPLOY = ROOT / "deploy"
_URL = re.compile(r"https?://([^/\s\"'`)}]+)")
_CLUSTER = "svc.cluster.local"


def files() -> list[Path]:
    found = [path for path in DEPLOY.rglob("*") if path.is_file()]
    assert len(found) > 20
    return found


def documents(kind: str) -> list[dict[str, Any]]:
    """Of Kubernetes, under deploy/k8s."""
    paths = sorted((DEPLOY / "k8s").rglob("*.yaml"))
    every = [each for path in paths for each in yaml.safe_load_all(path.read_text())]
    return [each for each in every if each.get("kind") == kind]


def refused_by(hosts: Hosts, names: set[str]) -> set[str]:
    requests = {name: make_mocked_request("GET", "/topics", {"Host": name}) for name in names}
    return {name for name, request in requests.items() if hosts.fault_of(request) != ALLOWED}


def test_urls_and_targets() -> None:
    """In compose, its demo, Prometheus, Grafana, systemd: as written, on whatever machine."""
    names = {name for path in files() for name in _URL.findall(path.read_text())}
    scrapes = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    for scrape in scrapes:
        for config in scrape["static_configs"]:
            names.update(config["targets"])
    names |= set(yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"])
    ours = {name for name in names if "." not in name or name[0].isdigit()}
    assert "kafkalog:8082" in ours
    assert names - ours <= {"wiki.example"}  # a page, no daemon
    assert not refused_by(Hosts((), (), is_open=False), ours)


def test_services_and_pods() -> None:
    """Within the namespace, and from others by the cluster's name, in each overlay."""
    (pods,) = (each for each in documents("StatefulSet") if "replicas" in each["spec"])
    headless = pods["spec"]["serviceName"]
    pod = f"{pods['metadata']['name']}-0"
    services = {each["metadata"]["name"] for each in documents("Service")}
    assert headless in services
    namespaces = {each["metadata"]["name"] for each in documents("Namespace")}
    assert len(namespaces) == 2
    for namespace in namespaces:
        full = f"{pod}.{headless}.{namespace}.{_CLUSTER}"
        machine = names_beside(pod, f"127.0.0.1\tlocalhost\n10.2.0.7\t{full}\t{pod}\n")
        hosts = Hosts(with_short_forms(machine), (), is_open=False)
        within = services | {pod, f"{pod}.{headless}", full}
        across = {f"{each}.{namespace}.{end}" for each in services for end in ("svc", _CLUSTER)}
        asked = within | across | {f"{name}:8082" for name in within | across}
        assert not refused_by(hosts, asked)
