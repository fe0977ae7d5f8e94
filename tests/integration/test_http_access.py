"""Goal: credentials and rules do over HTTP what their documentation says.
Method: a daemon with both files; requests of several principals; files that change under it.
"""

from __future__ import annotations

import base64
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.access_world import (
    PASSWORD,
    RULES,
    access_settings,
    ask,
    by,
    credentials,
    token_of,
    write,
)
from tests.integration.daemon import ROOT, TEXT, Daemon
from tests.integration.http_world import refused

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS = {"records": [{"value": "x"}]}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    root = tmp_path_factory.mktemp("guarded")
    with Daemon(root, **access_settings(root), http_auth_tries_per_minute="1000") as daemon:
        answer = ask(daemon, "writer", "POST", "/topics/t-1", RECORDS, {"Content-Type": TEXT})
        assert answer.status == 200, answer.body
        ask(daemon, "admin", "POST", "/admin/topics", {"topic_name": "private"})
        yield daemon
        assert "Unhandled" not in daemon.log_path.read_text(), daemon.log_tail()


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def audit_lines(daemon: Daemon) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in daemon.log_path.read_text().splitlines()]
    return [line for line in lines if line["logger"] == "audit"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": ""},
        {"Authorization": "Digest username=alice"},
        {"Authorization": "Basic !!!"},
        {"Authorization": "Basic " + base64.b64encode(b"alice").decode()},
        {"Authorization": "Basic " + base64.b64encode(b"\xff\xfe:x").decode()},
        {"Authorization": "Bearer " + "x" * 5000},
        basic("alice", "wrong"),
        basic("nobody", PASSWORD),
        basic("", ""),
    ],
)
def test_wrong_credentials(guarded: Daemon, headers: dict[str, str]) -> None:
    """None of these comes in, and the answer says what would."""
    answer = guarded.request("GET", "/topics", None, headers)
    body = refused(answer, 401, 40101)
    assert answer.headers["WWW-Authenticate"] == (
        'Basic realm="kafkalog", charset="UTF-8", Bearer realm="kafkalog"'
    )
    assert PASSWORD not in str(body)


def test_right_credentials(guarded: Daemon) -> None:
    """Both schemes come in, whatever the case of the scheme's word."""
    headers = basic("alice", PASSWORD)
    for _ in range(2):
        assert guarded.request("GET", "/topics", None, headers).json == []
    lower = {"Authorization": f"bearer {token_of('admin')}"}
    assert guarded.request("GET", "/topics", None, lower).json == ["private", "t-1"]


def test_a_reader_reads_and_a_writer_writes(guarded: Daemon) -> None:
    """Rules per topic and action, also for acks=0, which nobody waits for."""
    fetch = "/topics/t-1/partitions/0/records?offset=0"
    assert ask(guarded, "reader", "GET", fetch, None, {"Accept": TEXT}).status == 200
    refused(ask(guarded, "writer", "GET", fetch, None, {"Accept": TEXT}), 403, 40301)
    text = {"Content-Type": TEXT}
    for query in ("", "?acks=0", "?async=true"):
        body = refused(
            ask(guarded, "reader", "POST", f"/topics/t-1{query}", RECORDS, text), 403, 40301
        )
        assert body["kafka_error"] == "TOPIC_AUTHORIZATION_FAILED"
    assert ask(guarded, "reader", "GET", "/topics").json == ["t-1"]
    assert ask(guarded, "denied", "GET", "/topics").json == []


def test_unknown_and_forbidden_look_the_same(guarded: Daemon) -> None:
    """Whether a topic exists is told to those who may describe it."""
    for path in (
        "/topics/{}",
        "/v1/topics/{}/partitions/0/batches?offset=0",
        "/topics/{}/partitions",
    ):
        bodies = []
        for name in ("private", "missing"):
            answer = ask(guarded, "reader", "GET", path.format(name))
            body = {**refused(answer, 403, 40301), "request_id": ""}
            bodies.append(json.dumps(body).replace(name, "NAME"))
        assert bodies[0] == bodies[1]
    refused(ask(guarded, "reader", "GET", "/topics/t-missing"), 404, 40401)


def test_probes_are_open_and_metrics_are_not(guarded: Daemon) -> None:
    """Probes need no credentials, metrics need the right to describe the cluster."""
    for path in ("/livez", "/readyz", "/healthz", "/startupz", "/openapi.json"):
        assert ask(guarded, None, "GET", path).status == 200
    refused(ask(guarded, None, "GET", "/metrics"), 401, 40101)
    refused(ask(guarded, "reader", "GET", "/metrics"), 403, 40301)
    assert ask(guarded, "admin", "GET", "/metrics").status == 200


def test_what_is_denied_or_done_is_on_the_record(guarded: Daemon) -> None:
    """Who was refused what, and who administered, is in the log; no credentials are."""
    named = {"X-Request-Id": "audit-1"}
    refused(ask(guarded, "reader", "POST", "/topics/t-1", RECORDS, named), 403, 40301)
    refused(guarded.request("GET", "/topics", None, {"X-Request-Id": "audit-2"}), 401, 40101)
    named = {"X-Request-Id": "audit-3"}
    refused(ask(guarded, "admin", "POST", "/v1/backups", {}, named), 422, 422)
    found = {line["request_id"]: line for line in audit_lines(guarded)}
    denied = found["audit-1"]
    assert denied["principal"] == "reader"
    assert denied["address"] == "127.0.0.1"
    assert denied["operation"] == "produce"
    assert (denied["status"], denied["event"]) == (403, "Denied")
    assert denied["reason"] == "Not authorized: write topic t-1"
    assert found["audit-2"]["principal"] == ""
    assert found["audit-3"]["event"] == "Administered"
    text = guarded.log_path.read_text()
    assert PASSWORD not in text
    assert token_of("reader") not in text


def test_a_body_is_not_read_for_one_who_may_not_send_it(guarded: Daemon) -> None:
    """403 comes before the body, and nobody is told to go on with it."""
    for expect in ("", "Expect: 100-continue\r\n"):
        with socket.create_connection(("127.0.0.1", guarded.port), 10) as client:
            head = f"POST /topics/t-1 HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n{expect}"
            client.sendall(f"{head}Authorization: {by('reader')['Authorization']}\r\n\r\n".encode())
            assert client.recv(1000).startswith(b"HTTP/1.1 403 ")


def test_too_many_wrong_credentials(tmp_path: Path) -> None:
    """Guessing ends after some tries; who is known goes on."""
    with Daemon(tmp_path, **access_settings(tmp_path)) as daemon:
        assert ask(daemon, "admin", "GET", "/topics").status == 200
        for _ in range(10):
            refused(daemon.request("GET", "/topics", None, basic("alice", "no")), 401, 40101)
        answer = daemon.request("GET", "/topics", None, basic("alice", "no"))
        refused(answer, 429, 42901)
        assert 1 <= int(answer.headers["Retry-After"]) <= 60
        refused(ask(daemon, "reader", "GET", "/topics"), 429, 42901)  # not seen before
        assert ask(daemon, "admin", "GET", "/topics").status == 200
        refused(daemon.request("GET", "/topics"), 401, 40101)  # nobody's is no try


def test_changed_files_are_taken_and_broken_ones_are_not(tmp_path: Path) -> None:
    """Goal: new rules and credentials are in force soon, or at SIGHUP; of a broken file never.
    Method: replace both files under a running daemon and ask until it is seen, with a deadline.
    """

    def until(status: int, principal: str) -> None:
        deadline = time.monotonic() + 60
        while (answer := ask(daemon, principal, "GET", "/topics/t-9")).status != status:
            assert time.monotonic() < deadline, (answer.status, daemon.log_tail())
            time.sleep(0.05)  # another process reads the file

    settings = access_settings(tmp_path)
    rules, secrets = Path(settings["http_acl_file"]), Path(settings["http_auth_file"])
    with Daemon(tmp_path, **settings, http_auth_tries_per_minute="100000") as daemon:
        assert daemon.process is not None
        until(403, "denied")
        write(rules, RULES + "allow denied describe topic t-9\n", 0o644)
        until(404, "denied")
        write(rules, "allow denied all cluster x\n", 0o644)
        daemon.process.send_signal(signal.SIGHUP)
        kept = "\n".join(line for line in credentials().splitlines() if " reader " not in line)
        write(secrets, kept)
        daemon.process.send_signal(signal.SIGHUP)
        until(401, "reader")
        until(404, "denied")
        deadline = time.monotonic() + 60
        while "line 1: 'cluster' takes no pattern" not in daemon.log_path.read_text():
            assert time.monotonic() < deadline, daemon.log_tail()
            time.sleep(0.05)  # another process reads the file
        write(rules, "", 0o644)
        until(403, "denied")
        text = daemon.log_path.read_text()
        assert text.count("line 1: 'cluster' takes no pattern") == 1
        write(rules, RULES, 0o644)
        until(404, "admin")
        page = ask(daemon, "admin", "GET", "/metrics").body.decode()
        assert 'kafkalog_file_reloads_total{outcome="refused",setting="http.acl.file"} 1.0' in page


@pytest.mark.parametrize(
    ("name", "text", "mode", "fault"),
    [
        ("credentials", "bearer a sha256:00\n", 0o600, "line 1: a bearer secret is"),
        ("credentials", "", 0o644, "open to everybody"),
        ("rules", "allow a\n", 0o644, "line 1: a rule is:"),
        ("rules", "", 0o666, "written by everybody"),
    ],
)
def test_a_wrong_file_at_the_start(
    tmp_path: Path, name: str, text: str, mode: int, fault: str
) -> None:
    """The daemon does not come up with less protection than was asked for."""
    settings = access_settings(tmp_path)
    write(tmp_path / name, text, mode)
    daemon = Daemon(tmp_path, **settings)
    daemon.start(wait=False)
    assert daemon.process is not None
    assert daemon.process.wait(60) == 1
    daemon.process = None
    assert fault in daemon.log_tail()


def test_open_metrics_and_rules_for_nobody(tmp_path: Path) -> None:
    """Metrics may be open; without authentication rules are those of 'anonymous' and '*'."""
    rules = write(tmp_path / "rules", "allow anonymous read topic t-*\n", 0o644)
    settings: dict[str, Any] = {"http_acl_file": str(rules), "http_metrics_open": "true"}
    with Daemon(tmp_path, **settings) as daemon:
        refused(daemon.request("GET", "/topics/t-1"), 404, 40401)
        refused(daemon.request("GET", "/topics/x-1"), 403, 40301)
        refused(daemon.request("GET", "/topics/t-1", None, by("reader")), 404, 40401)
        refused(daemon.request("GET", "/v1/tasks"), 403, 40301)
        assert daemon.request("GET", "/metrics").status == 200


def test_the_commands_write_lines_that_let_in(tmp_path: Path) -> None:
    """What the CLI prints is what the daemon takes."""

    def run(command: str, name: str, given: str = "") -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "kafkalog", "auth", command, name],
            input=given, capture_output=True, text=True, check=True, cwd=ROOT,
        )  # fmt: skip
        return done.stdout, done.stderr

    password_line, _ = run("hash-password", "bob", "s3cret\n")
    token_line, shown = run("new-token", "robot one")
    token = shown.strip().rsplit(" ", 1)[1]
    assert token not in token_line
    path = write(tmp_path / "credentials", password_line + token_line)
    with Daemon(tmp_path, http_auth="basic,bearer", http_auth_file=str(path)) as daemon:
        assert daemon.request("GET", "/topics", None, basic("bob", "s3cret")).status == 200
        headers = {"Authorization": f"Bearer {token}"}
        assert daemon.request("GET", "/topics", None, headers).status == 200
