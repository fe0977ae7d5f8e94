"""Goal: what deploy/ gives (hosts, access rules, compose, the image's recipe) does what its page
says.
Method: the files themselves, read as their programs read them.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from aiohttp.test_utils import make_mocked_request

from kafkalog.server.security.hosts import ALLOWED, Hosts, names_beside, with_short_forms
from kafkalog.settings import load_settings
from tests.integration.daemon import ROOT
from tests.operate.deployed import STOCK, all_series_names, documented_names
from tests.operate.documents import RUNBOOKS
from tests.operate.prometheus import DEPLOYED, rules_of
from tests.operate.tools import run, tool

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


RULES = rules_of(DEPLOYED / "kafkalog.rules.yml")
SEVERITIES = {"critical", "warning", "info"}


def test_each_alert_is_described() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names)) == 30
    for rule in RULES:
        assert rule["labels"]["severity"] in SEVERITIES
        annotations = rule["annotations"]
        assert set(annotations) == {"summary", "description", "runbook_url"}
        assert all(annotations.values())
        assert annotations["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"
        assert (RUNBOOKS / f"{rule['alert']}.md").is_file()


def test_each_alert_has_a_firing_and_a_silent_case() -> None:
    document = yaml.safe_load((DEPLOYED / "kafkalog.rules.test.yml").read_text())
    cases = [case for test in document["tests"] for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in RULES}
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == names
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == names


def test_every_series_is_one_of_the_daemon() -> None:
    names = {name for name in all_series_names() if not STOCK.fullmatch(name)}
    assert len(names) > 60
    assert not names - documented_names()


COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SERVICE_KEYS = {
    "build", "depends_on", "entrypoint", "environment", "healthcheck", "image", "init", "ports",
    "profiles", "read_only", "restart", "stop_grace_period", "tmpfs", "ulimits", "volumes",
}  # fmt: skip


def test_the_form() -> None:
    assert set(COMPOSE) == {"name", "services", "volumes"}
    named = set()
    for service in SERVICES.values():
        assert set(service) <= SERVICE_KEYS
        assert set(service.get("depends_on", ())) <= set(SERVICES)
        sources = {volume.split(":")[0] for volume in service.get("volumes", ())}
        named |= {source for source in sources if not source.startswith(".")}
        for source in sources - named:
            assert (DEPLOY / source).exists(), source
    assert named == set(COMPOSE["volumes"])


def test_images_are_pinned() -> None:
    for name, service in SERVICES.items():
        if "build" in service:
            assert (DEPLOY / service["build"]["context"] / "Dockerfile").is_file()
            assert service["image"] == "kafkalog"
        elif service["image"] != "kafkalog":
            assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), name


def test_ports_are_the_machines_own() -> None:
    for service in SERVICES.values():
        for port in service.get("ports", ()):
            assert re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z]+_PORT:-(\d+)\}:\1", port)


def test_data_outlives_the_container() -> None:
    (path,) = re.findall(r"^VOLUME (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert f"data:{path}" in SERVICES["kafkalog"]["volumes"]


def test_the_demo_is_asked_for() -> None:
    assert {name for name, each in SERVICES.items() if "profiles" in each} == {"load"}
    load = SERVICES["load"]
    assert load["profiles"] == ["demo"]
    assert load["depends_on"] == {"kafkalog": {"condition": "service_healthy"}}
    script = load["volumes"][0].split(":")
    assert load["entrypoint"][1] == script[1]
    assert subprocess.run(["sh", "-n", str(DEPLOY / script[0])], check=False).returncode == 0


def test_prometheus_scrapes_it() -> None:
    (port,) = re.findall(r"^EXPOSE (\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "kafkalog"
    assert job["static_configs"] == [{"targets": [f"kafkalog:{port}"]}]
    for name in config["rule_files"]:
        assert (DEPLOY / "prometheus" / name).is_file()


DOCKERFILE = ROOT / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Name and text of each instruction, continued lines joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\s*\\\n\s*", " ", text).splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if line.strip()]


def last(name: str) -> str:
    return [text for each, text in instructions() if each == name][-1]


@pytest.mark.operate
def test_hadolint_has_nothing_to_say(tmp_path: Path) -> None:
    hadolint = tool("hadolint", "pip install --require-hashes -r requirements/operate.txt")
    done = run(hadolint, "--failure-threshold", "style", DOCKERFILE)
    assert (done.returncode, done.stdout) == (0, "")
    careless = tmp_path / "Dockerfile"
    careless.write_text(DOCKERFILE.read_text().replace("WORKDIR /opt/build", "RUN cd /opt/build"))
    assert run(hadolint, "--failure-threshold", "style", careless).returncode != 0


def test_who_runs_where() -> None:
    """Not root, the volume, the one port, a stop that is graceful, a probe by the CLI."""
    assert last("USER") == "1000:0"
    assert last("VOLUME") == "/var/lib/kafka/data"
    assert last("EXPOSE") == "8082"
    assert last("STOPSIGNAL") == "SIGTERM"
    assert json.loads(last("ENTRYPOINT")) == ["kafkalog"]
    assert json.loads(last("CMD")) == ["server"]
    probe = last("HEALTHCHECK").split(" CMD ")
    assert json.loads(probe[1]) == ["kafkalog", "health", "--ready"]
    assert probe[0].split() == ["--interval=10s", "--start-period=30s", "--timeout=3s"]


def test_nothing_of_the_build_is_left() -> None:
    last_stage = instructions()
    last_stage = last_stage[[name for name, _ in last_stage].index("FROM", 2) :]
    taken = [text for name, text in last_stage if name == "COPY"]
    assert taken == [
        "--from=build /opt/kafkalog /opt/kafkalog",
        "config/image.properties /etc/kafkalog/image.properties",
    ]
    assert "--without-pip /opt/kafkalog/.venv" in DOCKERFILE.read_text()


def test_the_images_file_serves_those_it_is_published_to() -> None:
    """A container without any configuration can be reached, and says that it asks nobody."""
    image = (ROOT / "config" / "image.properties").read_bytes()
    alone = load_settings(None, {}, {}, files={"image": image})
    assert alone.server.http_host == "0.0.0.0"
    assert alone.broker.log_dirs == ("/var/lib/kafka/data/log0",)
    assert any("without authentication" in notice.message for notice in alone.notices)
    mounted = b"http.auth=bearer\nhttp.auth.file=/run/secrets/credentials\n"
    asked = load_settings(None, {}, {}, files={"image": image, "mounted": mounted})
    assert asked.server.http_auth == ("bearer",)
    assert "KAFKALOG_HTTP" not in DOCKERFILE.read_text(), (
        "a variable would go over the mounted file"
    )
