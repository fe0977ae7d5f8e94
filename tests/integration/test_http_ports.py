"""Goal: a port has the routes that belong there, and no others.
Method: every route of the tables at each of three ports of a running daemon.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from kafkalog.server.app import ROUTE_TABLES, ListenerRole, roles_of
from tests.integration.access_world import access_settings, ask
from tests.integration.daemon import Daemon, ReservedPort
from tests.integration.http_world import refused
from tests.integration.principal_commands import Commands
from tests.integration.test_http_console_compaction import FORM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROUTES = [route for table in ROUTE_TABLES for route in table if isinstance(route, web.RouteDef)]


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[ListenerRole, Daemon]]:
    """The daemon, seen at each of its ports."""
    root = tmp_path_factory.mktemp("ports")
    admin, metrics = ReservedPort(), ReservedPort()
    settings = access_settings(root)
    with Daemon(
        root, **settings, admin_port=str(admin.number), metrics_port=str(metrics.number)
    ) as daemon:
        seen = {ListenerRole.HTTP: daemon}
        for door, port in (
            (ListenerRole.ADMIN, admin.number),
            (ListenerRole.METRICS, metrics.number),
        ):
            seen[door] = Daemon(root)
            seen[door].port = port
        yield seen
        assert "Unhandled" not in daemon.log_path.read_text(), daemon.log_tail()


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_route_is_behind_its_door(ports: dict[ListenerRole, Daemon], route: web.RouteDef) -> None:
    """The data port has no administrative route, the others nothing else."""
    doors = roles_of(route)
    path = re.sub(r"\{[^}]*\}", "0", route.path)
    for door, daemon in ports.items():
        answer = ask(daemon, "denied", route.method, path)
        is_missing = answer.status in (404, 405) and answer.json["error_code"] in (404, 405)
        is_missing = is_missing and answer.json["message"].startswith(("No such path", "This path"))
        assert is_missing is (door not in doors), (door, answer.status, answer.body)


def test_the_doors_ask_for_credentials(ports: dict[ListenerRole, Daemon]) -> None:
    """Another port is no way around the gate."""
    refused(ask(ports[ListenerRole.METRICS], None, "GET", "/metrics"), 401, 40101)
    refused(ask(ports[ListenerRole.ADMIN], None, "POST", "/v1/backups", {}), 401, 40101)
    assert ask(ports[ListenerRole.METRICS], "admin", "GET", "/metrics").status == 200
    refused(ask(ports[ListenerRole.ADMIN], "admin", "POST", "/v1/backups", {}), 422, 422)
    refused(ask(ports[ListenerRole.HTTP], "admin", "POST", "/v1/backups", {}), 404, 404)
    for daemon in ports.values():
        assert ask(daemon, None, "GET", "/readyz").status == 200


def test_the_command_line_changes_topics_at_the_admin_port(
    ports: dict[ListenerRole, Daemon], tmp_path: Path
) -> None:
    """What can only be ordered there can be ordered with the client, too."""
    ordering = Commands(ports[ListenerRole.ADMIN], tmp_path, "admin")
    looking = Commands(ports[ListenerRole.HTTP], tmp_path, "admin")
    ordering.printed("topics", "create", "ordered", "--partitions", "1")
    ordering.printed("configs", "alter", "--topic", "ordered", "--add-config", "retention.ms=1001")
    assert "retention.ms=1001" in looking.printed("configs", "describe", "--topic", "ordered")
    ordering.printed("topics", "delete", "ordered")
    refused(ask(ports[ListenerRole.HTTP], "admin", "GET", "/topics/ordered"), 404, 40401)


def test_a_form_at_the_admin_port_leads_to_no_page(ports: dict[ListenerRole, Daemon]) -> None:
    """Who orders there is not sent to a page that this port does not have."""
    made = ask(
        ports[ListenerRole.ADMIN], "admin", "POST", "/admin/topics", {"topic_name": "formed"}
    )
    assert made.status == 201, made.body
    page = "/console/topics/formed/partitions/0"
    shown = ask(ports[ListenerRole.HTTP], "admin", "GET", f"{page}.json").json["topic_id"]
    form = f"topic_id={shown}".encode()
    done = ask(ports[ListenerRole.ADMIN], "admin", "POST", f"{page}/retain", form, FORM)
    assert (done.status, done.body, done.headers["Location"]) == (204, b"", page)
    refused(ask(ports[ListenerRole.ADMIN], "admin", "GET", page), 404, 404)
    assert ask(ports[ListenerRole.HTTP], "admin", "GET", page).status == 200
