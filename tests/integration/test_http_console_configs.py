"""Goal: the pages of configs and about tell what the API tells.
Method: a real daemon; each twin beside its route.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.http_world import refused

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

SETTINGS = {"log_initial_task_delay_ms": "86400000"}


def test_configs(daemon: Daemon) -> None:
    """Goal: value, source and default are those of ``GET /v1/configs`` and of the topic.
    Method: both twins with everything, and with what is set alone.
    """
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
