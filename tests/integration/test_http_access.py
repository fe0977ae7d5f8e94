"""Goal: credentials and rules do over HTTP what their documentation says, an audit line says what
its request was about and how it ended, and a page of another site changes nothing.
Method: daemons with files that change under them; requests of several principals and origins.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from tests.integration.access_world import (
    PASSWORD,
    RULES,
    access_settings,
    ask,
    by,
    commands_of,
    credentials,
    token_of,
    write,
)
from tests.integration.daemon import TEXT, Daemon
from tests.integration.http_world import (
    BATCHES,
    batch_of,
    check_sealed,
    delete_records,
    refused,
    until,
)
from tests.integration.test_cli_over_http import done, run_plain
from tests.integration.test_http_console import FORM, posted
from tests.integration.test_http_offsets import filled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.daemon import Answer

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


def append_as(daemon: Daemon, principal: str | None, topic: str, query: str = "") -> Answer:
    """A raw batch; from the second time on its head is a known one."""
    path = f"/v1/topics/{topic}/partitions/0/batches{query}"
    headers = by(principal) | {"Content-Type": BATCHES}
    return daemon.request("POST", path, batch_of(b"v" * 5000), headers)


def fetch_as(daemon: Daemon, principal: str | None, topic: str) -> Answer:
    path = f"/v1/topics/{topic}/partitions/0/batches?offset=0"
    return daemon.request("GET", path, None, by(principal))


@pytest.mark.gate
def test_known_heads_give_no_rights(guarded: Daemon) -> None:
    """Raw appends and fetches of each principal, again and again, in any order."""
    refused(append_as(guarded, "reader", "t-fast"), 403, 40301)
    assert append_as(guarded, "writer", "t-fast").status == 200, "the topic is created"
    answer = ask(guarded, "writer", "POST", "/topics/t-fast", RECORDS, {"Content-Type": TEXT})
    assert answer.status == 200
    for _ in range(4):
        assert append_as(guarded, "writer", "t-fast").status == 200
        assert fetch_as(guarded, "reader", "t-fast").status == 200
        refused(append_as(guarded, "reader", "t-fast"), 403, 40301)
        refused(fetch_as(guarded, "writer", "t-fast"), 403, 40301)
        for principal, status, code in ((None, 401, 40101), ("denied", 403, 40301)):
            refused(append_as(guarded, principal, "t-fast"), status, code)
            refused(fetch_as(guarded, principal, "t-fast"), status, code)
    refused(append_as(guarded, "writer", "private"), 403, 40301)
    cluster = ask(guarded, "admin", "GET", "/v3/clusters").json["data"][0]["cluster_id"]
    path = f"/v3/clusters/{cluster}/topics/t-fast"
    assert ask(guarded, "admin", "DELETE", path).status == 204
    refused(append_as(guarded, "reader", "t-fast"), 403, 40301)
    assert append_as(guarded, "writer", "t-fast").status == 200, "it is created again"
    assert ask(guarded, "admin", "DELETE", path).status == 204


def test_a_known_head_ends_with_its_rights(tmp_path: Path) -> None:
    """Rules and credentials that change are in force for it as for any other."""

    def until_told(status: int) -> None:
        until(lambda: append_as(daemon, "writer", "t-1").status == status)

    settings = access_settings(tmp_path)
    rules, secrets = Path(settings["http_acl_file"]), Path(settings["http_auth_file"])
    with Daemon(tmp_path, **settings, http_auth_tries_per_minute="100000") as daemon:
        ask(daemon, "writer", "POST", "/topics/t-1", RECORDS, {"Content-Type": TEXT})
        for _ in range(3):
            assert append_as(daemon, "writer", "t-1").status == 200
        write(rules, "allow admin all cluster\n", 0o644)
        os.kill(daemon.pid, signal.SIGHUP)
        until_told(403)
        write(rules, RULES, 0o644)
        os.kill(daemon.pid, signal.SIGHUP)
        until_told(200)
        kept = "\n".join(line for line in credentials().splitlines() if " writer " not in line)
        write(secrets, kept)
        os.kill(daemon.pid, signal.SIGHUP)
        until_told(401)


@pytest.mark.gate
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


@pytest.mark.gate
def test_unknown_and_forbidden_look_the_same(guarded: Daemon) -> None:
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


@pytest.mark.gate
def test_a_slash_at_the_end_gives_no_rights(guarded: Daemon) -> None:
    """The rule of the route, an audit line with the same subject, and no more names in a list."""
    headers = {"Content-Type": TEXT}
    for slash in ("", "/"):
        path = f"/topics/private{slash}"
        refused(ask(guarded, None, "GET", path), 401, 40101)
        refused(ask(guarded, "reader", "GET", path), 403, 40301)
        refused(ask(guarded, "writer", "POST", path, RECORDS, headers), 403, 40301)
        line = audit_lines(guarded)[-1]
        assert (line["operation"], line["subjects"]) == ("produce", [{"topic": "private"}])
        assert "private" not in ask(guarded, "reader", "GET", f"/topics{slash}").json
        assert ask(guarded, "admin", "GET", path).status == 200
        refused(ask(guarded, "reader", "POST", f"/consumers/private{slash}", {}), 403, 40301)


def test_probes_are_open_and_metrics_are_not(guarded: Daemon) -> None:
    """Probes need no credentials, metrics need the right to describe the cluster."""
    for path in ("/livez", "/readyz", "/healthz", "/startupz", "/openapi.json"):
        assert ask(guarded, None, "GET", path).status == 200
    refused(ask(guarded, None, "GET", "/metrics"), 401, 40101)
    refused(ask(guarded, "reader", "GET", "/metrics"), 403, 40301)
    assert ask(guarded, "admin", "GET", "/metrics").status == 200


@pytest.mark.gate
def test_an_unknown_path_tells_nothing_to_strangers(guarded: Daemon) -> None:
    refused(ask(guarded, None, "GET", "/v1/nothing"), 401, 40101)
    refused(ask(guarded, "denied", "GET", "/v1/nothing"), 404, 404)
    refused(ask(guarded, None, "PATCH", "/topics"), 401, 40101)


def test_what_is_denied_or_done_is_on_the_record(guarded: Daemon) -> None:
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
    """New rules and credentials are in force soon, or at SIGHUP; of a broken file never."""

    def until_told(status: int, principal: str) -> None:
        until(lambda: ask(daemon, principal, "GET", "/topics/t-9").status == status)

    settings = access_settings(tmp_path)
    rules, secrets = Path(settings["http_acl_file"]), Path(settings["http_auth_file"])
    with Daemon(tmp_path, **settings, http_auth_tries_per_minute="100000") as daemon:
        until_told(403, "denied")
        write(rules, RULES + "allow denied describe topic t-9\n", 0o644)
        until_told(404, "denied")
        write(rules, "allow denied all cluster x\n", 0o644)
        os.kill(daemon.pid, signal.SIGHUP)
        kept = "\n".join(line for line in credentials().splitlines() if " reader " not in line)
        write(secrets, kept)
        os.kill(daemon.pid, signal.SIGHUP)
        until_told(401, "reader")
        until_told(404, "denied")
        fault = "line 1: 'cluster' takes no pattern"
        until(lambda: fault in daemon.log_path.read_text())
        write(rules, "", 0o644)
        until_told(403, "denied")
        assert daemon.log_path.read_text().count(fault) == 1
        write(rules, RULES, 0o644)
        until_told(404, "admin")
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
    assert fault in Daemon(tmp_path, **settings).refused_start()


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


def lines_of(daemon: Daemon, operation: str) -> list[dict[str, Any]]:
    """The audit lines of an operation, oldest first."""
    lines = [
        json.loads(line) for line in daemon.log_path.read_text()[daemon.log_start :].splitlines()
    ]
    return [line for line in lines if line["logger"] == "audit" and line["operation"] == operation]


def test_deleted_records(daemon: Daemon) -> None:
    filled(daemon, "gone")
    delete_records(daemon, ("gone", 0, 3), ("gone", 7, 1))
    (line,) = lines_of(daemon, "deleteRecords")
    failed, done = line["subjects"]
    assert done == {"topic": "gone", "partition": 0, "offset": 3, "low_watermark": 3}
    assert (failed["topic"], failed["partition"], failed["offset"]) == ("gone", 7, 1)
    assert failed["error_code"] == 40402
    assert failed["error"]
    assert (line["status"], line["reason"]) == (200, "1 of 2 failed")
    assert line["subject_count"] == 2

    path = f"{daemon.cluster()}/topics/gone/partitions/0/records:delete"
    assert daemon.request("POST", path, {"offset": 5}).status == 200
    (line,) = lines_of(daemon, "deletePartitionRecords")
    assert line["subjects"] == [{"topic": "gone", "partition": 0, "offset": 5, "low_watermark": 5}]
    assert line["reason"] == ""

    page = "/console/topics/gone/partitions/0/delete-records"
    topic_id = daemon.request("GET", f"{page}.json").json["topic_id"]
    form = {"topic_id": topic_id, "offset": "99", "confirmation": "gone-0"}
    told = refused(posted(daemon, page, form), 416, 41602)
    assert posted(daemon, page, form | {"offset": "7"}).status == 303
    failed_line, line = lines_of(daemon, "consoleDeleteRecordsNow")
    (subject,) = failed_line["subjects"]
    assert (subject["offset"], subject["error_code"]) == (99, 41602)
    assert failed_line["reason"] == told["message"]
    assert line["subjects"] == [{"topic": "gone", "partition": 0, "offset": 7, "low_watermark": 7}]


def test_a_line_is_bounded_and_one(daemon: Daemon) -> None:
    """Twenty subjects, what failed first, then a count; nobody's name forges a line."""
    filled(daemon, "bounded")
    delete_records(daemon, ("bounded", 0, 1), *(("bounded\n{}", n, 1) for n in range(30)))
    line = lines_of(daemon, "deleteRecords")[-1]
    assert line["subject_count"] == 31
    assert len(line["subjects"]) == 20
    assert all(each["topic"] == "bounded\n{}" for each in line["subjects"])
    assert line["reason"] == "30 of 31 failed"
    answer = daemon.request("POST", "/admin/topics", {"topic_name": "n" * 1_000_000})
    assert answer.status == 400
    line = lines_of(daemon, "createTopicAsBridge")[-1]
    assert line["subjects"] == [{"topic": "n" * 300}]
    assert len(json.dumps(line)) < 2_000


def test_topics_and_their_configs(daemon: Daemon) -> None:
    """The name of what was made, grown, altered and deleted; values of configs never."""
    bridge = {"topic_name": "made", "partitions_count": 2, "configs": {"retention.ms": "77777777"}}
    assert daemon.request("POST", "/admin/topics", bridge).status == 201
    topics = f"{daemon.cluster()}/topics"
    wanted = {"topic_name": "made-3", "partitions_count": 1}
    answer = daemon.request("POST", topics, {**wanted, "validate_only": True})
    assert answer.status == 200
    (line,) = lines_of(daemon, "createTopic")
    assert line["subjects"] == [{"topic": "made-3", "partition_count": 1, "validate_only": True}]
    answer = daemon.request("POST", topics, wanted)
    assert answer.status == 201
    assert daemon.request("PATCH", f"{topics}/made-3", {"partitions_count": 2}).status == 200
    changes = {"data": [{"name": "retention.ms", "value": "88888888"}]}
    assert daemon.request("POST", f"{topics}/made/configs:alter", changes).status == 204
    value = {"value": "99999999"}
    assert daemon.request("PUT", f"{topics}/made/configs/retention.ms", value).status == 204
    hidden = {"data": [{"name": "ssl.keystore.password", "value": "hunter2"}]}
    for path in (f"{topics}/made/configs:alter", f"{daemon.cluster()}/broker-configs:alter"):
        assert daemon.request("POST", path, hidden).status == 400
    assert "ssl.keystore.password" in str(lines_of(daemon, "alterTopicConfigs")[-1]["subjects"])
    assert "hunter2" not in daemon.log_path.read_text()
    assert daemon.request("DELETE", f"{topics}/made").status == 204
    expected = {
        "createTopicAsBridge": {"topic": "made", "partition_count": 2},
        "createTopic": {"topic": "made-3", "partition_count": 1},
        "growTopic": {"topic": "made-3", "partition_count": 2},
        "alterTopicConfigs": {"topic": "made", "config": "retention.ms"},
        "setTopicConfig": {"topic": "made", "config": "retention.ms"},
        "deleteTopic": {"topic": "made"},
    }
    for operation, subject in expected.items():
        line = [each for each in lines_of(daemon, operation) if each["status"] < 400][-1]
        assert line["subjects"] == [subject], operation
        for secret in ("77777777", "88888888", "99999999"):
            assert secret not in json.dumps(line)


def test_groups(daemon: Daemon) -> None:
    filled(daemon, "read")
    wanted = {"to": "latest", "topics": ["read"], "dry_run": True}
    path = "/v1/groups/readers/offsets:reset"
    offset = {"topic": "read", "partition": 0, "offset": 4}
    put = daemon.request("PUT", "/v1/groups/readers/offsets", {"offsets": [offset]})
    assert put.status == 204
    assert daemon.request("POST", path, wanted).status == 200
    assert lines_of(daemon, "resetGroupOffsets") == []
    assert daemon.request("POST", path, wanted | {"dry_run": False}).status == 200
    (line,) = lines_of(daemon, "resetGroupOffsets")
    assert line["subjects"] == [
        {"group": "readers", "topic": "read", "partition": 0, "old_offset": 4, "new_offset": 10}
    ]
    assert daemon.request("DELETE", "/v1/groups/readers/offsets?topics=none").status == 200
    assert daemon.request("DELETE", "/v1/groups/readers").status == 204
    assert lines_of(daemon, "deleteGroupOffsets")[-1]["subjects"] == [{"group": "readers"}]
    assert lines_of(daemon, "deleteGroup")[-1]["subjects"] == [{"group": "readers"}]


def test_orders_about_several_partitions(daemon: Daemon) -> None:
    filled(daemon, "kept")
    names = [{"topic": "kept", "partition": number} for number in (0, 9)]
    orders = (
        ("/v1/retention:run", "runRetention", {"partitions": names, "dry_run": True}),
        ("/v1/cleaner:run", "runCleaner", {"partitions": names, "dry_run": True}),
        (
            "/v1/partition-moves",
            "beginPartitionMoves",
            {"moves": [{**name, "log_dir": str(daemon.log_dirs[0])} for name in names]},
        ),
    )
    for path, operation, body in orders:
        answer = daemon.request("POST", path, body)
        assert answer.status == 200, answer.body
        line = lines_of(daemon, operation)[-1]
        named = {each["partition"]: each for each in line["subjects"]}
        assert set(named) == {0, 9}
        assert named[9]["error_code"] == 40402, operation
        assert named[9]["error"]
        assert named[0].get("dry_run", False) is ("dry_run" in body)
        assert line["reason"].endswith("of 2 failed")
    assert daemon.request("POST", "/v1/cleaner:pause", names[1]).status == 404
    assert lines_of(daemon, "pauseCleaning")[-1]["subjects"] == [names[1]]


ORIGIN = {"Origin": "https://page.example"}
ALLOW = "Access-Control-Allow-Origin"
PREFLIGHT = {**ORIGIN, "Access-Control-Request-Method": "POST"}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    root = tmp_path_factory.mktemp("opened")
    with Daemon(
        root,
        **access_settings(root, RULES),
        access_control_allow_origin="https://page.example, https://other.example",
        http_allowed_hosts="127.0.0.1,kafkalog.test",
    ) as daemon:
        yield daemon
        assert "Unhandled" not in daemon.log_path.read_text(), daemon.log_tail()


def test_nothing_without_configuration(daemon: Daemon) -> None:
    answer = daemon.request("GET", "/topics", None, ORIGIN)
    assert ALLOW not in answer.headers
    refused(daemon.request("OPTIONS", "/topics", None, PREFLIGHT), 405, 405)


def test_a_rebound_name_opens_nothing(daemon: Daemon) -> None:
    """A page whose own name was made to point here (DNS rebinding) reads and changes nothing."""
    daemon.create_topic("rebound")
    rebound = {"Host": "evil.example:8082"}
    own = {**rebound, "Origin": "http://evil.example:8082", "Sec-Fetch-Site": "same-origin"}
    for method, path in (
        ("GET", "/topics"),
        ("GET", "/v1/topics/rebound/partitions/0/records"),
        ("GET", "/v3/clusters"),
        ("GET", "/console/"),
        ("GET", "/openapi.json"),
        ("GET", "/nope"),
        ("GET", "/debug/config"),
        ("GET", "http://evil.example/topics"),
        ("POST", "/v1/topics/rebound/partitions/0/log:roll"),
        ("DELETE", "/v1/groups/rebound"),
        ("OPTIONS", "/topics"),
    ):
        headers = {} if path.startswith("http:") else own
        answer = daemon.request(method, path, None, headers)
        assert "http.allowed.hosts" in str(refused(answer, 421, 421)["message"]), path
    stream = {**own, "Accept": "text/event-stream"}
    path = "/v1/topics/rebound/partitions/0/records"
    assert daemon.request("GET", path, None, stream).status == 421
    for path in ("/livez", "/readyz", "/metrics"):
        assert daemon.request("GET", path, None, rebound).status == 200
    for host in ("localhost", "127.0.0.1:8082", "[::1]:8082", "kafkalog", "store.svc"):
        assert daemon.request("GET", "/topics", None, {"Host": host}).status == 200


def test_a_preflight_needs_no_credentials(opened: Daemon) -> None:
    """What a browser asks first is answered, to allowed origins alone."""
    answer = opened.request("OPTIONS", "/topics/t-1", None, PREFLIGHT)
    assert answer.status == 204
    assert answer.headers[ALLOW] == "https://page.example"
    assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]
    assert "DELETE" in answer.headers["Access-Control-Allow-Methods"]
    check_sealed(answer)
    stranger = opened.request("OPTIONS", "/topics", None, {**PREFLIGHT, "Origin": "https://evil"})
    refused(stranger, 401, 40101)
    assert ALLOW not in stranger.headers
    refused(opened.request("OPTIONS", "/topics", None, ORIGIN), 401, 40101)


def test_answers_and_errors_say_who_may_read_them(opened: Daemon) -> None:
    for headers, status in (({}, 401), (by("denied"), 403), (by("reader"), 404)):
        answer = opened.request("GET", "/topics/t-none", None, {**ORIGIN, **headers})
        assert answer.status == status
        assert answer.headers[ALLOW] == "https://page.example"
        assert answer.headers["Vary"] == "Origin"
        assert "Kafka-Next-Offset" in answer.headers["Access-Control-Expose-Headers"]
    other = opened.request("GET", "/livez", None, {"Origin": "https://page.example.evil"})
    assert ALLOW not in other.headers
    assert other.headers["Vary"] == "Origin"


@pytest.mark.parametrize(
    "headers",
    [
        ORIGIN,
        {"Sec-Fetch-Site": "cross-site", **ORIGIN},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
    ],
)
def test_a_page_of_another_origin_changes_nothing(daemon: Daemon, headers: dict[str, str]) -> None:
    """What a page may send without a preflight, with the user's credentials, does nothing."""
    plain = {"Content-Type": "text/plain"}
    topic = "crossed" + "".join(filter(str.isalpha, "".join(headers.values())))
    daemon.create_topic(topic)
    asked = [
        ("POST", "/v1/records:delete", {"partitions": [{"topic": topic, "partition": 0}]}),
        ("POST", "/admin/topics", {"topic_name": f"{topic}-new", "partitions_count": 1}),
        ("POST", f"/v1/topics/{topic}/partitions/0/log:roll", {}),
        ("DELETE", f"{daemon.cluster()}/topics/{topic}", None),
    ]
    for method, path, body in asked:
        refused(daemon.request(method, path, body, {**plain, **headers}), 403, 40301)
    assert daemon.request("GET", f"/topics/{topic}", None, headers).status == 200
    assert daemon.request("GET", f"/topics/{topic}-new").status == 404
    own = {"Origin": f"http://127.0.0.1:{daemon.port}"}
    for whose in ({}, own, {"Sec-Fetch-Site": "same-origin", **own}, {"Sec-Fetch-Site": "none"}):
        answer = daemon.request("POST", f"/v1/topics/{topic}/partitions/0/log:roll", {}, whose)
        assert answer.status == 200, answer.body


def test_a_page_that_is_named_may_ask(opened: Daemon) -> None:
    site = {"Sec-Fetch-Site": "cross-site"}
    for origin, status in (("https://other.example", 200), ("https://evil.example", 403)):
        headers = {**by("writer"), **site, "Origin": origin}
        answer = opened.request("POST", "/topics/t-none", {"records": [{"value": 1}]}, headers)
        assert answer.status == status, answer.body


OWN_RULES = "allow alice all topic mine-*\nallow admin all topic *\nallow admin all cluster\n"


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    root = tmp_path_factory.mktemp("own")
    with Daemon(root, **access_settings(root, OWN_RULES)) as daemon:
        yield daemon
        assert "Unhandled" not in daemon.log_path.read_text(), daemon.log_tail()


def test_my_topic_from_its_creation_to_its_deletion(owned: Daemon, tmp_path: Path) -> None:
    """No right on the cluster is asked for where Kafka asks for none."""
    environment = commands_of(owned, tmp_path, "alice")

    def printed(*arguments: str) -> str:
        return done(run_plain(*arguments, environment=environment)).decode()

    assert printed("topics", "create", "mine-1") == "Created topic mine-1.\n"
    assert "mine-1" in printed("topics", "describe", "mine-1", "--output", "json")
    printed("configs", "alter", "--topic", "mine-1", "--add-config", "retention.ms=1000")
    assert "retention.ms=1000" in printed("configs", "describe", "--topic", "mine-1")
    assert printed("offsets", "get", "mine-1") == "mine-1:0:0\n"
    where = ("--bootstrap-server", f"http://127.0.0.1:{owned.port}")
    for tool in (
        ("kafka-topics", "--describe", "--topic", "mine-1"),
        ("kafka-configs", "--describe", "--topic", "mine-1"),
        ("kafka-get-offsets", "--topic", "mine-1"),
    ):
        assert "mine-1" in printed("compat", *tool, *where)
    printed("topics", "delete", "mine-1")
    assert "mine-1" not in printed("topics", "list")
    denied = run_plain("topics", "create", "theirs", environment=environment)
    assert (denied.returncode, b"Not authorized" in denied.stderr) == (1, True)


def test_topics_of_others(owned: Daemon) -> None:
    """What opens is the cluster's id, and nothing behind it."""
    cluster_id = ask(owned, "alice", "GET", "/v3/clusters").json["data"][0]["cluster_id"]
    for path in ("brokers", "brokers/0/configs", "broker-configs", "topics/theirs"):
        refused(ask(owned, "alice", "GET", f"/v3/clusters/{cluster_id}/{path}"), 403, 40301)
    refused(ask(owned, None, "GET", "/v3/clusters"), 401, 40101)


def test_who_may_do_what_on_the_console(opened: Daemon) -> None:
    """A page and a form need the right of the API's route that does the same."""
    made = ask(opened, "admin", "POST", "/admin/topics", {"topic_name": "t-shown"})
    assert made.status == 201, made.body
    records = "/console/topics/t-shown/records.json"
    value = "/console/topics/t-shown/partitions/0/records/0/value"
    produce = "/console/topics/t-shown/produce"
    typed = {"key_format": "text", "key": "", "value_format": "text", "value": "v"}
    body = urlencode(typed | {"headers": "", "partition": ""}).encode()
    for principal in ("reader", "denied"):
        refused(ask(opened, principal, "GET", f"{produce}.json"), 403, 40301)
        refused(ask(opened, principal, "POST", produce, body, FORM), 403, 40301)
    assert ask(opened, "writer", "GET", f"{produce}.json").status == 200
    assert ask(opened, "writer", "POST", produce, body, FORM).status == 303
    refused(ask(opened, None, "POST", produce, body, FORM), 401, 40101)
    for principal in ("writer", "denied"):
        refused(ask(opened, principal, "GET", records), 403, 40301)
        refused(ask(opened, principal, "GET", value), 403, 40301)
    assert len(ask(opened, "reader", "GET", records).json["records"]) == 1
    assert ask(opened, "reader", "GET", value).body == b"v"
    assert ask(opened, "denied", "GET", "/console/records.json").json["topics"] == []

    offsets = {"offsets": [{"topic": "t-shown", "partition": 0, "offset": 1}]}
    for group in ("g-shown", "h-hidden"):
        put = ask(opened, "admin", "PUT", f"/v1/groups/{group}/offsets", offsets)
        assert put.status == 204, put.body
    listed = ask(opened, "reader", "GET", "/console/groups.json").json["groups"]
    assert [each["group"] for each in listed] == ["g-shown"]
    assert ask(opened, "denied", "GET", "/console/groups.json").json["groups"] == []
    reset = urlencode({"to": "earliest", "value": "", "topic": ""}).encode()
    for group, principal in (("h-hidden", "reader"), ("g-shown", "writer"), ("g-shown", "denied")):
        page = f"/console/groups/{group}"
        refused(ask(opened, principal, "GET", f"{page}/offsets.json"), 403, 40301)
        refused(ask(opened, principal, "GET", f"{page}/reset.json"), 403, 40301)
        refused(ask(opened, principal, "POST", f"{page}/reset", reset, FORM), 403, 40301)
    gone = urlencode({"topic": "", "confirmation": "g-shown"}).encode()
    refused(ask(opened, "reader", "POST", "/console/groups/g-shown/delete", gone, FORM), 403, 40301)
    assert ask(opened, "reader", "POST", "/console/groups/g-shown/reset", reset, FORM).status == 303
    assert ask(opened, "admin", "POST", "/console/groups/g-shown/delete", gone, FORM).status == 303
