"""Goal: deploy/compose.yaml names what exists, publishes nothing to the world and keeps its data.
Method: the document read by the rules of the Compose specification that need no engine.
"""

from __future__ import annotations

import re
import subprocess
from typing import Any

import yaml

from tests.integration.daemon import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SERVICE_KEYS = {
    "build", "depends_on", "entrypoint", "environment", "healthcheck", "image", "init", "ports",
    "profiles", "read_only", "restart", "stop_grace_period", "tmpfs", "ulimits", "volumes",
}  # fmt: skip


def test_the_form() -> None:
    """An engine takes it."""
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
    """The same file starts the same programs next year."""
    for name, service in SERVICES.items():
        if "build" in service:
            assert (DEPLOY / service["build"]["context"] / "Dockerfile").is_file()
            assert service["image"] == "kafkalog"
        elif service["image"] != "kafkalog":
            assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), name


def test_ports_are_the_machines_own() -> None:
    """Nobody else reaches a daemon without credentials."""
    for service in SERVICES.values():
        for port in service.get("ports", ()):
            assert re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z]+_PORT:-(\d+)\}:\1", port)


def test_data_outlives_the_container() -> None:
    """`down` and `up` lose no record."""
    (path,) = re.findall(r"^VOLUME (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert f"data:{path}" in SERVICES["kafkalog"]["volumes"]


def test_the_demo_is_asked_for() -> None:
    """Nobody gets load who did not want it."""
    assert {name for name, each in SERVICES.items() if "profiles" in each} == {"load"}
    load = SERVICES["load"]
    assert load["profiles"] == ["demo"]
    assert load["depends_on"] == {"kafkalog": {"condition": "service_healthy"}}
    script = load["volumes"][0].split(":")
    assert load["entrypoint"][1] == script[1]
    assert subprocess.run(["sh", "-n", str(DEPLOY / script[0])], check=False).returncode == 0


def test_prometheus_scrapes_it() -> None:
    """The series of the rules come from this daemon."""
    (port,) = re.findall(r"^EXPOSE (\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "kafkalog"
    assert job["static_configs"] == [{"targets": [f"kafkalog:{port}"]}]
    for name in config["rule_files"]:
        assert (DEPLOY / "prometheus" / name).is_file()
