"""A real Prometheus for tests: its own process, port and data; asked over its HTTP API.

Owns what a missing Prometheus means: skip, or failure with KAFKALOG_PROMETHEUS=required.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.integration.daemon import ROOT, ReservedPort

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

KIT = Path(__file__).resolve().parent / "kit" / "prometheus.sh"
DEPLOYED = ROOT / "deploy" / "prometheus"
SETUP_SECONDS = 600
WAIT_SECONDS = 90.0


def kit_directory() -> Path:
    """Where ``prometheus`` and ``promtool`` are; sets them up."""
    done = subprocess.run(
        ["bash", str(KIT)], capture_output=True, text=True, check=False, timeout=SETUP_SECONDS
    )
    if done.returncode == 0:
        return Path(done.stdout.strip())
    reason = f"Prometheus is not available: {done.stderr[-1000:]}"
    if os.environ.get("KAFKALOG_PROMETHEUS") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


def rules_of(path: Path) -> list[dict[str, Any]]:
    groups = yaml.safe_load(path.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


class Prometheus:
    """``with Prometheus(...) as prometheus``: scrapes one daemon each second inside.

    The deployed configuration and rules, but for the address, the intervals, and alerts that wait
    for nothing (``for`` is what promtool's cases are about).
    """

    def __init__(self, kit: Path, root: Path, daemon_port: int) -> None:
        self._kit = kit
        self._root = root
        self._daemon_port = daemon_port
        self._reserved = ReservedPort()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Prometheus:
        self._write_configuration()
        with (self._root / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(self._kit / "prometheus"),
                    f"--config.file={self._root / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._root / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._reserved.number}",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._root,
            )
        self.wait_for("it to be ready", lambda: self.query("vector(1)"))
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write_configuration(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        config = yaml.safe_load((DEPLOYED / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        (job,) = config["scrape_configs"]
        job["static_configs"] = [{"targets": [f"127.0.0.1:{self._daemon_port}"]}]
        rules = yaml.safe_load((DEPLOYED / "kafkalog.rules.yml").read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule["for"] = "0s"
        (self._root / "prometheus.yml").write_text(yaml.safe_dump(config))
        (self._root / "kafkalog.rules.yml").write_text(yaml.safe_dump(rules))

    def _ask(self, path: str, parameters: Mapping[str, str]) -> Any:
        url = f"http://127.0.0.1:{self._reserved.number}/api/v1/{path}"
        with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(parameters)}") as answer:
            document = json.load(answer)
        assert document["status"] == "success", document
        return document["data"]

    def query(self, expr: str) -> list[Any]:
        """Samples of an instant query now; empty: none."""
        result = self._ask("query", {"query": expr})["result"]
        assert isinstance(result, list)
        return result

    def series_names(self) -> set[str]:
        return set(self._ask("label/__name__/values", {}))

    def rules(self) -> list[dict[str, Any]]:
        groups = self._ask("rules", {})["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def firing(self) -> set[str]:
        alerts = self._ask("alerts", {})["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def wait_until_none(self, left: Callable[[], Sequence[str]]) -> None:
        """Until nothing of it is left; fails with what is, after WAIT_SECONDS."""
        found: list[Sequence[str]] = []

        def are_none() -> bool:
            found[:] = [left()]
            return not found[0]

        try:
            self.wait_for("all", are_none)
        except AssertionError as error:
            raise AssertionError(f"not there: {found}") from error

    def wait_for(self, what: str, is_there: Callable[[], object]) -> None:
        """Until it is there; fails with the end of the log after WAIT_SECONDS."""
        assert self._process is not None
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if is_there():
                    return
            except OSError:
                pass  # not listening yet
            time.sleep(0.2)
        tail = (self._root / "prometheus.log").read_text()[-2000:]
        raise AssertionError(f"waited in vain for {what}: {tail}")

    def wait_for_alert(self, name: str) -> None:
        self.wait_for(f"{name}, beside {self.firing()}", lambda: name in self.firing())
