"""Goal: a port has the routes that belong there, and one principal's rate is nobody else's.
Method: every route of the tables at each of three ports; small rates and several principals.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from kafkalog.server.app import ListenerRole
from tests.integration.access_world import access_settings, ask
from tests.integration.daemon import TEXT, Daemon, ReservedPort
from tests.integration.http_world import refused
from tests.integration.stream_world import NDJSON, Duplex
from tests.integration.test_http_console import BROWSER, FORM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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


def test_the_doors_ask_for_credentials(ports: dict[ListenerRole, Daemon]) -> None:
    refused(ask(ports[ListenerRole.METRICS], None, "GET", "/metrics"), 401, 40101)
    refused(ask(ports[ListenerRole.ADMIN], None, "POST", "/v1/backups", {}), 401, 40101)
    assert ask(ports[ListenerRole.METRICS], "admin", "GET", "/metrics").status == 200
    refused(ask(ports[ListenerRole.ADMIN], "admin", "POST", "/v1/backups", {}), 422, 422)
    refused(ask(ports[ListenerRole.HTTP], "admin", "POST", "/v1/backups", {}), 404, 404)
    for role, daemon in ports.items():
        assert ask(daemon, None, "GET", "/readyz").status == 200
        root = daemon.request("GET", "/", None, {"Accept": "text/html, */*;q=0.8"})
        assert root.status == (302 if role is ListenerRole.HTTP else 200)


def test_a_form_at_the_admin_port_leads_to_no_page(ports: dict[ListenerRole, Daemon]) -> None:
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


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/console/topics/read-only/produce", b"value=1"),
        ("/console/groups/g/reset", b"to=earliest"),
        ("/console/groups/g/delete", b"topic="),
        ("/console/compaction/try", b"topic=t"),
    ],
)
def test_every_form_is_at_the_admin_port(
    ports: dict[ListenerRole, Daemon], path: str, form: bytes
) -> None:
    """The other console only reads, whatever right a form needs; forms are not shown there."""
    at_http, at_admin = ports[ListenerRole.HTTP], ports[ListenerRole.ADMIN]
    answer = ask(at_http, "admin", "POST", path, form, FORM)
    assert answer.status in (404, 405), answer.body
    refused(ask(at_admin, "admin", "POST", path, form, FORM), 400, 40002)
    made = ask(at_admin, "admin", "POST", "/admin/topics", {"topic_name": "read-only"})
    assert made.status in (201, 400, 409), made.body
    page = ask(at_http, "admin", "GET", "/console/topics/read-only/produce", None, BROWSER)
    assert page.status == 200
    assert b'method="post"' not in page.body
    assert b"/console/topics/read-only/produce" not in page.body.replace(b"produce.json", b"")


def test_requests_of_a_principal(tmp_path: Path) -> None:
    """The burst is served, the rest told to wait; others and probes go on."""
    settings = access_settings(tmp_path)
    with Daemon(tmp_path, **settings, http_max_requests_per_second="2") as daemon:
        answers = [ask(daemon, "reader", "GET", "/topics") for _ in range(20)]
        late = [answer for answer in answers if answer.status == 429]
        assert late
        assert answers[0].status == answers[1].status == 200
        refused(late[0], 429, 42901)
        assert late[0].headers["Retry-After"] == "1"
        assert ask(daemon, "writer", "GET", "/topics").status == 200
        for _ in range(10):
            assert ask(daemon, None, "GET", "/readyz").status == 200


def test_bytes_of_bodies_and_answers(tmp_path: Path) -> None:
    """A large body is served, and its principal waits for it; nothing refused is appended."""
    with Daemon(tmp_path, http_max_bytes_per_second="10000") as daemon:
        large = {"records": [{"value": "x" * 80_000}]}
        assert daemon.request("POST", "/topics/t", large, {"Content-Type": TEXT}).status == 200
        answer = daemon.request("POST", "/topics/t", large, {"Content-Type": TEXT})
        refused(answer, 429, 42901)
        assert 5 <= int(answer.headers["Retry-After"]) <= 8
        page = daemon.request("GET", "/metrics").body.decode()
        assert 'kafkalog_log_end_offset{partition="0",topic="t"} 1.0' in page


def test_a_stream_is_paced(tmp_path: Path) -> None:
    """A stream has its principal's rate while it lasts, and loses nothing by it."""
    line = b'{"value":"%b"}\n' % (b"x" * 1000)
    with Daemon(tmp_path, http_max_bytes_per_second="50000") as daemon:
        daemon.create_topic("paced")
        started = time.monotonic()
        answer = daemon.request(
            "POST", "/v1/topics/paced/records", line * 250, {"Content-Type": NDJSON}
        )
        assert answer.json["count"] == 250
        assert 3.5 < time.monotonic() - started < 15
        assert daemon.request("GET", "/topics").status in (200, 429)
        time.sleep(1.1)  # until the stream's last second is paid
        told = {"Content-Type": NDJSON, "Accept": NDJSON}
        with Duplex(daemon, "/v1/topics/paced/records", told) as wire:
            wire.send(line * 600)
            started = time.monotonic()
            assert daemon.stop() == 0
            assert time.monotonic() - started < 6
            assert wire.rest()[-1]["error_code"] == 50304
