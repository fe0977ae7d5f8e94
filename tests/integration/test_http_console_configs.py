"""Goal: the pages of configs and about tell what the API tells.
Method: a real daemon; each twin beside its route.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.http_world import refused

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

SETTINGS = {"log_initial_task_delay_ms": "86400000", "log_cleaner_enable": "false"}


def test_configs(daemon: Daemon) -> None:
    """Value, source and default are those of ``GET /v1/configs`` and of the topic."""
    daemon.create_topic("set", 1, retention_ms="600000")
    twin = daemon.request("GET", "/console/configs.json?all=true").json
    api = daemon.request("GET", "/v1/configs").json["configs"]
    same = ("name", "value", "source", "is_default")
    assert [[each[key] for key in same] for each in twin["configs"]] == [
        [each[key] for key in same] for each in api
    ]
    set_names = {
        each["name"] for each in daemon.request("GET", "/console/configs.json").json["configs"]
    }
    assert "log.initial.task.delay.ms" in set_names
    (row,) = daemon.request("GET", "/console/topics/set/configs.json").json["configs"]
    assert (row["name"], row["value"], row["default"]) == ("retention.ms", "600000", "604800000")
    refused(daemon.request("GET", "/console/topics/none/configs.json"), 404, 40401)


def test_about(daemon: Daemon) -> None:
    """Who runs here, as ``GET /v1/info`` says; licences can be read."""
    twin = daemon.request("GET", "/console/about.json").json
    info = daemon.request("GET", "/v1/info").json
    assert {key: twin[key] for key in ("version", "cluster_id", "node_id")} == {
        key: info[key] for key in ("version", "cluster_id", "node_id")
    }
    for package in twin["vendored"]:
        answer = daemon.request("GET", package["licence_address"])
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain")
