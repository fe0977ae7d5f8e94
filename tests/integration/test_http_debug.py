"""Goal: who operates a daemon sees into it, nobody else does, and no secret is among what he sees;
a defect of ours tells nothing of the inside.
Method: a real daemon of which each route of /debug/ is asked, from this machine and as from others.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import socket
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.access_world import PASSWORD, access_settings, ask, token_of, write
from tests.integration.daemon import Answer, Daemon, GatedDaemon, ReservedPort
from tests.integration.defective_daemon import WORDS
from tests.integration.http_world import check_sealed, refused, until
from tests.integration.test_daemon_life import LoadedDaemon

if TYPE_CHECKING:
    from pathlib import Path

LOG_LEVEL = "/debug/log-level"
PATHS = (
    "/debug/stacks",
    "/debug/tasks",
    "/debug/config",
    LOG_LEVEL,
    "/debug/metrics-cardinality",
    "/debug/bundle",
)


def files_of(bundle: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
        found = {}
        for member in archive.getmembers():
            directory, _, name = member.name.partition("/")
            assert directory.startswith("kafkalog-1-")
            file = archive.extractfile(member)
            assert file is not None
            found[name] = file.read()
        return found


def test_stacks_and_tasks(daemon: Daemon) -> None:
    daemon.create_topic("awaited")
    waiting = daemon.connect(60)
    waiting.request("GET", "/topics/awaited/partitions/0/records?offset=0&timeout=30000")
    answer = daemon.request("GET", "/debug/stacks")
    check_sealed(answer)
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    text = answer.body.decode()
    assert "Thread MainThread (" in text
    assert "directory/writer.py" in text
    tasks = daemon.request("GET", "/debug/tasks").json
    assert {"MainThread"} < {thread["name"] for thread in tasks["threads"]}
    places = [place for task in tasks["loop"] for place in task["waits_at"]]
    assert any(place.startswith("daemon.py:") for place in places), places
    daemon.produce_text("awaited", "now")
    assert waiting.getresponse().status == 200
    waiting.close()


def test_log_levels_change_without_a_restart(daemon: Daemon) -> None:
    """One logger or all, back again; the audit speaks at every level."""
    assert daemon.request("GET", LOG_LEVEL).json == {"level": "info", "loggers": {}}
    body = {"level": "error"}
    assert daemon.request("PUT", LOG_LEVEL, body).json == {"level": "error", "loggers": {}}
    before = daemon.log_path.read_text()
    daemon.create_topic("silent")
    daemon.request("DELETE", "/admin/topics/silent")
    fresh = daemon.log_path.read_text().removeprefix(before)
    assert {json.loads(line)["logger"] for line in fresh.splitlines()} == {"audit"}
    one = {"level": "debug", "logger": "kafkalog.server"}
    found = daemon.request("PUT", LOG_LEVEL, one).json
    assert found == {"level": "error", "loggers": {"kafkalog.server": "debug"}}
    daemon.request("PUT", LOG_LEVEL, {"level": None, "logger": "kafkalog.server"})
    daemon.request("PUT", LOG_LEVEL, {"level": None})
    assert daemon.request("GET", LOG_LEVEL).json == {"level": "info", "loggers": {}}
    for name in ("no.such.logger", "audit"):
        answer = daemon.request("PUT", LOG_LEVEL, {"level": "error", "logger": name})
        refused(answer, 404, 404)
    refused(daemon.request("PUT", LOG_LEVEL, {"level": "loud"}), 422, 422)
    refused(daemon.request("GET", f"{LOG_LEVEL}?level=debug"), 400, 40005)


def test_cardinality_is_that_of_a_scrape(daemon: Daemon) -> None:
    daemon.create_topic("wide", 20)

    def scraped() -> int:
        page = daemon.request("GET", "/metrics").body.decode().splitlines()
        return sum(bool(line) and not line.startswith("#") for line in page)

    found: dict[str, Any] = {}

    def is_between() -> bool:
        """Whether no series was added meanwhile; the first request of a route adds some."""
        before = scraped()
        found.update(daemon.request("GET", "/debug/metrics-cardinality").json, lines=before)
        return before == scraped()

    until(is_between)
    assert found["samples"] == found["lines"]
    assert sum(family["samples"] for family in found["families"]) == found["samples"]
    partitions = [one for one in found["families"] if one["labels"].get("partition", 0) >= 20]
    assert partitions
    assert all(one["labels"]["topic"] >= 1 for one in partitions)
    counts = [family["samples"] for family in found["families"]]
    assert counts == sorted(counts, reverse=True)


def test_bundle_without_secrets(tmp_path: Path) -> None:
    """Canaries in credentials, a value by a file and a key of Kafka's are in no answer or log."""
    canary = write(tmp_path / "issuer", "canary-in-a-file\n")
    settings = access_settings(tmp_path)
    environment = {
        "KAFKALOG_HTTP_JWT_ISSUER_FILE": str(canary),
        "KAFKA_SSL_KEYSTORE_PASSWORD": "canary-of-kafka",
    }
    with Daemon(tmp_path, environment=environment, **settings) as daemon:
        ask(daemon, "admin", "POST", "/admin/topics", {"topic_name": "t-kept"})
        answer = ask(daemon, "admin", "GET", "/debug/bundle")
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "application/gzip"
        assert answer.headers["Content-Disposition"].startswith('attachment; filename="kafkalog-1-')
        files = files_of(answer.body)
        assert files.keys() == {
            "cardinality.json",
            "config.json",
            "log-levels.json",
            "metrics.txt",
            "proc-limits.txt",
            "proc-mountinfo.txt",
            "proc-status.txt",
            "readiness.json",
            "scheduler.json",
            "stacks.txt",
            "tasks.json",
            "version.txt",
        }
        issuer = {one["name"]: one for one in json.loads(files["config.json"])["configs"]}
        assert issuer["http.jwt.issuer"]["value"] == "***"
        assert b"t-kept" in files["metrics.txt"]
        seen = {path: ask(daemon, "admin", "GET", path).body for path in (*PATHS, "/v1/configs")}
        del seen["/debug/bundle"]
        secrets = [b"canary-in", b"canary-of", token_of("admin").encode(), b"scrypt:", b"sha256:"]
        for name, data in {**files, **seen, "log": daemon.log_path.read_bytes()}.items():
            assert [one for one in secrets if one in data] == [], name


@pytest.mark.parametrize(
    "headers",
    [
        {"Forwarded": "for=10.0.0.1"},
        {"X-Forwarded-For": "10.0.0.1"},
        {"Via": "1.1 proxy"},
        {"X-Forwarded-Proto": "https"},
        {"X-Real-IP": "10.0.0.1"},
        {"X-Envoy-External-Address": "10.0.0.1"},
        {"Host": "store-0.internal"},
    ],
)
def test_for_this_machine_alone(daemon: Daemon, headers: dict[str, str]) -> None:
    """A proxy beside the daemon, or a page in a browser here, opens it to nobody."""
    for path in PATHS:
        refused(daemon.request("GET", path, None, headers), 403, 40301)
    answer = daemon.request("PUT", LOG_LEVEL, {"level": "debug"}, headers)
    refused(answer, 403, 40301)


def test_a_whole_request_line_hides_no_host(daemon: Daemon) -> None:
    """The name in the request line does not stand for another one in the header."""
    headers = {"Host": "rebound.example"}
    refused(daemon.request("GET", "http://localhost/debug/config", None, headers), 403, 40301)


def test_not_behind_named_proxies(tmp_path: Path) -> None:
    """Where proxies are named, a connection from this machine may be theirs."""
    with Daemon(tmp_path, http_trusted_proxies="127.0.0.1/32") as daemon:
        refused(daemon.request("GET", "/debug/config"), 403, 40301)


def test_not_over_the_network(tmp_path: Path) -> None:
    """Without admin.port another machine is refused, whatever http.auth says."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address = probe.getsockname()[0]
    with Daemon(tmp_path, http_host="0.0.0.0", http_auth="none") as daemon:
        connection = http.client.HTTPConnection(address, daemon.port, timeout=30)
        connection.request("GET", "/debug/config")
        got = connection.getresponse()
        refused(Answer(got.status, dict(got.headers), got.read()), 403, 40301)
        connection.close()
        assert daemon.request("GET", "/debug/config").status == 200


def test_behind_the_admin_port(tmp_path: Path) -> None:
    admin = ReservedPort()
    through = {"X-Forwarded-For": "10.0.0.1"}
    with Daemon(tmp_path, admin_port=str(admin.number)) as daemon:
        refused(daemon.request("GET", "/debug/config"), 404, 404)
        daemon.port, data_port = admin.number, daemon.port
        assert daemon.request("GET", "/debug/config", None, through).status == 200
        daemon.port = data_port


@pytest.mark.timeout(120)
def test_while_a_disk_hangs(tmp_path: Path) -> None:
    settings = access_settings(tmp_path, rules=None)
    daemon = GatedDaemon(tmp_path, **settings)
    password = base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
    with daemon, ThreadPoolExecutor(8) as threads:
        ask(daemon, "admin", "POST", "/admin/topics", {"topic_name": "t"})
        line = {"Content-Type": "application/x-ndjson"}
        path = "/v1/topics/t/records?acks=1"  # so that the flush has something to sync
        assert ask(daemon, "admin", "POST", path, b'{"value": 1}\n', line).status == 200
        daemon.gate.write_text("sync /t-0/")
        path = "/v1/topics/t/partitions/0/log:flush"
        flushes = [threads.submit(ask, daemon, "admin", "POST", path, {}) for _ in range(8)]
        until(
            lambda: ask(daemon, "admin", "GET", "/debug/stacks").body.count(b"Thread control_") >= 4
        )
        for path in PATHS:
            headers = {"Authorization": f"Basic {password}"}
            assert daemon.request("GET", path, None, headers, timeout=60).status == 200, path
        daemon.gate.unlink()
        assert {each.result().status for each in flushes} == {200}


def test_one_bundle_at_a_time(daemon: Daemon) -> None:
    with ThreadPoolExecutor(8) as threads:
        deadline = time.monotonic() + 60
        found: list[Answer] = []
        while not any(each.status == 429 for each in found):
            assert time.monotonic() < deadline
            found = list(threads.map(daemon.request, ["GET"] * 8, ["/debug/bundle"] * 8))
    assert {each.status for each in found} == {200, 429}
    for each in found:
        if each.status == 429:
            refused(each, 429, 42902)
    assert daemon.request("GET", "/debug/bundle").status == 200


def test_while_it_recovers(tmp_path: Path) -> None:
    daemon = LoadedDaemon(tmp_path / "gated").prepare()
    try:
        daemon.start_and_reach_the_gate()
        assert "log-recovery" in daemon.request("GET", "/debug/stacks").body.decode()
        answer = daemon.request("GET", "/debug/bundle")
        assert answer.status == 200
        assert json.loads(files_of(answer.body)["readiness.json"])["status"] == "not ready"
    finally:
        daemon.kill()


class DefectiveDaemon(Daemon):
    def command(self) -> list[str]:
        python, _, _, *rest = super().command()
        return [python, "-m", "tests.integration.defective_daemon", *rest]


def test_an_unforeseen_error(tmp_path: Path) -> None:
    """500/50000 with the request's id, under which the log has the traceback; the rest serves."""
    with DefectiveDaemon(tmp_path) as daemon:
        for _ in range(3):
            answer = daemon.request("GET", "/v1/tasks", None, {"X-Request-Id": "defect-1"})
            body = refused(answer, 500, 50000)
            assert body["request_id"] == "defect-1"
            said = answer.body + str(answer.headers).encode()
            assert WORDS.encode() not in said
            assert b"ZeroDivision" not in said
            assert b"kafkalog/" not in said
        daemon.produce_text("t", "on")
        assert len(daemon.fetch_all("t")) == 1
        lines = [json.loads(line) for line in daemon.log_path.read_text().splitlines()]
        told = [line for line in lines if line["event"] == "Unhandled error in a request"]
        assert [line["request_id"] for line in told] == ["defect-1"] * 3
        assert WORDS in json.dumps(told[0])
