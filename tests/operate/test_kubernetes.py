"""Goal: what deploy/k8s says is what Kubernetes understands, and what the daemon needs.
Method: kubectl or kustomize renders both overlays, kubernetes-validate judges every object by the
schemas of an old and a new version; then single facts that no schema knows.
"""

from __future__ import annotations

import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kafkalog.settings import load_settings
from tests.operate import crd_schemas
from tests.operate.tools import ROOT, run, tool

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.operate, pytest.mark.timeout(700)]  # a kustomize may be built first

KIT = ROOT / "tests" / "operate" / "kit" / "kustomize.sh"
SETUP_SECONDS = 600
K8S = ROOT / "deploy" / "k8s"
OVERLAYS = ("dev", "prod")
VERSIONS = ("1.29", "1.34")
IMAGE_PROPERTIES = ROOT / "config" / "image.properties"


@cache
def renderer() -> list[str]:
    """The command line that renders a directory; skips with why there is none."""
    done = subprocess.run(
        ["bash", str(KIT)], capture_output=True, text=True, check=False, timeout=SETUP_SECONDS
    )
    if done.returncode != 0:
        pytest.skip(f"neither kubectl nor kustomize nor a Go to build one: {done.stderr[-500:]}")
    return done.stdout.split()


def rendered(overlay: str) -> list[dict[str, Any]]:
    done = run(*renderer(), K8S / "overlays" / overlay)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "a deprecated field"
    return list(yaml.safe_load_all(done.stdout))


def one(objects: list[dict[str, Any]], kind: str, name: str = "kafkalog") -> dict[str, Any]:
    """The object of that kind and name, whose digest at the end does not count."""
    (found,) = [
        each
        for each in objects
        if each["kind"] == kind
        and (each["metadata"]["name"] == name or each["metadata"]["name"].startswith(f"{name}-"))
        and not each["metadata"]["name"].endswith("-headless")
    ]
    return found


def pod_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    pod: dict[str, Any] = one(objects, "StatefulSet")["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_keeps_its_schema(tmp_path: Path, overlay: str) -> None:
    validate = tool(
        "kubernetes-validate", "pip install --require-hashes -r requirements/operate.txt"
    )
    objects = [each for each in rendered(overlay) if each["kind"] not in crd_schemas.KINDS]
    assert len(objects) >= 7
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    for version in VERSIONS:
        done = run(validate, "--strict", "--kubernetes-version", version, file)
        assert done.returncode == 0, done.stdout + done.stderr
    pod_of(objects)["enableServiceLink"] = False
    file.write_text(yaml.safe_dump_all(objects))
    assert run(validate, "--strict", "--kubernetes-version", VERSIONS[0], file).returncode != 0


@pytest.mark.parametrize("version", crd_schemas.VERSIONS)
def test_the_monitor_keeps_the_operators_schema(version: str) -> None:
    assert crd_schemas.faults(one(rendered("prod"), "ServiceMonitor"), version) == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_pod_is_locked_up(overlay: str) -> None:
    """The restricted pod security standard, a read-only root, no token, no service links."""
    pod = pod_of(rendered(overlay))
    (container,) = pod["containers"]
    assert pod["enableServiceLinks"] is False
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "cpu" not in container["resources"]["limits"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_recovery_is_no_reason_to_kill(overlay: str) -> None:
    """Whoever may kill asks what answers before the first log is looked at."""
    (container,) = pod_of(rendered(overlay))["containers"]
    startup, live, ready = (
        container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")
    )
    assert startup["periodSeconds"] * startup["failureThreshold"] == 300
    paths = [probe["httpGet"]["path"] for probe in (startup, live, ready)]
    assert paths == ["/livez", "/livez", "/readyz"]
    assert {probe["httpGet"]["port"] for probe in (startup, live, ready)} == {"http"}
    assert {port["containerPort"] for port in container["ports"]} == {8082}


@pytest.mark.parametrize(("overlay", "dirs"), [("dev", 1), ("prod", 2)])
def test_the_configuration_starts_a_daemon(overlay: str, dirs: int) -> None:
    """The mounted file over the image's is valid, and each log directory is on a volume."""
    objects = rendered(overlay)
    mounted = one(objects, "ConfigMap", "kafkalog-config")["data"]["server.properties"]
    files = {"image": IMAGE_PROPERTIES.read_bytes(), "mounted": mounted.encode()}
    settings = load_settings(None, {}, {}, files=files)
    assert not [notice for notice in settings.notices if "unknown" in notice.message]
    claims = one(objects, "StatefulSet")["spec"]["volumeClaimTemplates"]
    (container,) = pod_of(objects)["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    volumes = [mounts[claim["metadata"]["name"]] for claim in claims]
    assert [f"{volume}/log" for volume in volumes] == list(settings.broker.log_dirs)
    assert len(volumes) == dirs
    assert mounts["config"] == "/mnt/shared/config"
    provided = {each["name"] for each in pod_of(objects)["volumes"]}
    assert mounts.keys() == provided | {claim["metadata"]["name"] for claim in claims}


def test_production_asks_who_it_is() -> None:
    """Credentials and rules are read from where the Secret is mounted."""
    objects = rendered("prod")
    mounted = one(objects, "ConfigMap", "kafkalog-config")["data"]["server.properties"]
    server = load_settings(None, {}, {}, files={"mounted": mounted.encode()}).server
    assert server.http_auth == ("basic", "bearer")
    (container,) = pod_of(objects)["containers"]
    (place,) = [m["mountPath"] for m in container["volumeMounts"] if m["name"] == "access"]
    for path in (server.http_auth_file, server.http_acl_file):
        assert path is not None
        assert path.startswith(f"{place}/")
    (volume,) = [each for each in pod_of(objects)["volumes"] if each["name"] == "access"]
    assert volume["secret"]["defaultMode"] == 0o440, "the daemon refuses what everybody can read"
    monitor = one(objects, "ServiceMonitor")["spec"]
    labels = one(objects, "Service")["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert labels[monitor["jobLabel"]] == "kafkalog", "the job that the alerts name"


def test_selectors_find_the_pod() -> None:
    objects = rendered("prod")
    labels = one(objects, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    selectors = [each["spec"]["selector"] for each in objects if each["kind"] == "Service"]
    selectors += [
        one(objects, kind)["spec"]["selector"]["matchLabels"]
        for kind in ("StatefulSet", "PodDisruptionBudget")
    ]
    selectors.append(one(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"])
    assert len(selectors) == 5
    assert all(selector and selector.items() <= labels.items() for selector in selectors)
